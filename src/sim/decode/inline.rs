//! Device functions: the body of each takes the place of its calls, with registers, labels and variables of its own.

use crate::sim::error::{Error, Result};
use crate::sim::ptx::MAX_INSTRUCTIONS;
use crate::sim::ptx::ast::{Base, Body, Function, Instruction, Module, Operand, Symbol};
use crate::sim::ptx::types::Space;
use std::borrow::Cow;
use std::collections::HashMap;

/// Calls that are replaced, however deep: functions that call each other twice must not double for ever.
const MAX_CALLS: usize = 10_000;
/// Calls inside calls.
const MAX_DEPTH: usize = 64;

/// The body of an entry with the bodies of what it calls. Functions without a body stay calls.
pub(super) fn inlined<'a>(module: &'a Module, function: &'a Function, body: &'a Body) -> Result<Cow<'a, Body>> {
    let functions: HashMap<&str, &Function> =
        module.functions.iter().filter(|f| f.body.is_some()).map(|f| (f.name.as_str(), f)).collect();
    if !body.instructions.iter().any(|instruction| callee(instruction, &functions).is_some()) {
        return Ok(Cow::Borrowed(body));
    }
    let mut inliner =
        Inliner { functions, out: Body::default(), statics: HashMap::new(), open: vec![&function.name], calls: 0 };
    inliner.append(&function.name, body, None)?;
    Ok(Cow::Owned(inliner.out))
}

fn callee<'a>(instruction: &Instruction, functions: &HashMap<&str, &'a Function>) -> Option<&'a Function> {
    if instruction.name() != "call" {
        return None;
    }
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::Function(name) => functions.get(name.as_str()).copied(),
        _ => None,
    })
}

struct Inliner<'a> {
    functions: HashMap<&'a str, &'a Function>,
    out: Body,
    /// Variables that a function has once, however often it is called.
    statics: HashMap<(&'a str, usize), usize>,
    /// The functions whose bodies are being copied.
    open: Vec<&'a str>,
    calls: usize,
}

/// What the names of one copy of a body mean in the whole.
struct Names {
    first_register: u32,
    first_label: u32,
    first_list: u32,
    variables: Vec<usize>,
    /// What each parameter stands for; `None` in the entry itself.
    arguments: Option<Vec<(Symbol, i64)>>,
    /// Where a return leads.
    end: Option<u32>,
}

impl<'a> Inliner<'a> {
    /// Copies a body; `called` has the arguments and the label behind the call.
    fn append(&mut self, name: &'a str, body: &'a Body, called: Option<(Vec<(Symbol, i64)>, u32)>) -> Result<()> {
        let (arguments, end) = called.unzip();
        let names = Names {
            first_register: self.out.registers.len() as u32,
            first_label: self.out.labels.len() as u32,
            first_list: self.out.target_lists.len() as u32,
            variables: self.variables(name, body),
            arguments,
            end,
        };
        self.out.registers.extend(body.registers.iter().cloned());
        self.out.labels.extend(body.labels.iter().map(|_| 0));
        let lists = body.target_lists.iter();
        self.out.target_lists.extend(lists.map(|list| list.iter().map(|label| names.label(*label)).collect()));
        let mut starts = Vec::with_capacity(body.instructions.len() + 1);
        for instruction in &body.instructions {
            starts.push(self.out.instructions.len());
            match callee(instruction, &self.functions) {
                Some(function) => self.call(instruction, function, &names)?,
                None => self.out.instructions.push(names.instruction(instruction)),
            }
            if self.out.instructions.len() > MAX_INSTRUCTIONS {
                return Err(Error::parse(
                    instruction.line,
                    format!("more than {MAX_INSTRUCTIONS} instructions with those of the functions called"),
                ));
            }
        }
        starts.push(self.out.instructions.len());
        for (label, at) in body.labels.iter().enumerate() {
            self.out.labels[names.first_label as usize + label] = starts[*at];
        }
        Ok(())
    }

    /// Where the variables of a body lie in the whole.
    fn variables(&mut self, name: &'a str, body: &Body) -> Vec<usize> {
        let place = |(at, variable): (usize, &crate::sim::ptx::ast::Variable)| {
            let fresh = self.out.variables.len();
            let is_static = !matches!(variable.space, Space::Local | Space::Param);
            let known = if is_static { *self.statics.entry((name, at)).or_insert(fresh) } else { fresh };
            if known == fresh {
                self.out.variables.push(variable.clone());
            }
            known
        };
        body.variables.iter().enumerate().map(place).collect()
    }

    fn call(&mut self, call: &Instruction, function: &'a Function, names: &Names) -> Result<()> {
        let unsupported = |why: &str| Error::unsupported(call.line, format!("call {} ({why})", function.name));
        self.calls += 1;
        if self.open.len() > MAX_DEPTH || self.calls > MAX_CALLS {
            return Err(unsupported("too many calls"));
        }
        if self.open.contains(&function.name.as_str()) {
            return Err(unsupported("recursive"));
        }
        let arguments = arguments(call, function, names)?;
        let end = self.out.labels.len() as u32;
        self.out.labels.push(0);
        if let Some((guard, negated)) = call.guard {
            let skip = Instruction {
                guard: Some((guard + names.first_register, !negated)),
                opcode: "bra".to_owned(),
                operands: vec![Operand::Label(end)],
                ..*call
            };
            self.out.instructions.push(skip);
        }
        if let Some(body) = &function.body {
            self.open.push(&function.name);
            self.append(&function.name, body, Some((arguments, end)))?;
            self.open.pop();
        }
        self.out.labels[end as usize] = self.out.instructions.len();
        Ok(())
    }
}

/// What the parameters of a function stand for in a call: inputs first, then results, as symbols number them.
fn arguments(call: &Instruction, function: &Function, names: &Names) -> Result<Vec<(Symbol, i64)>> {
    let at = call.operands.iter().position(|operand| matches!(operand, Operand::Function(_))).unwrap_or(0);
    let list = |operand: Option<&Operand>| match operand {
        Some(Operand::Tuple(items)) => items.clone(),
        _ => Vec::new(),
    };
    let results = if at > 0 { list(call.operands.first()) } else { Vec::new() };
    let inputs = list(call.operands.get(at + 1));
    let wanted = (function.params.len(), function.results.len());
    if (inputs.len(), results.len()) != wanted {
        return Err(Error::parse(
            call.line,
            format!(
                "`{}` takes {} arguments and gives {} results, the call has {} and {}",
                function.name,
                wanted.0,
                wanted.1,
                inputs.len(),
                results.len()
            ),
        ));
    }
    let bound = inputs.iter().chain(&results).map(|operand| match names.operand(operand) {
        Operand::Symbol(symbol, offset) => Ok((symbol, offset)),
        _ => Err(Error::unsupported(call.line, format!("call {} (arguments in registers)", function.name))),
    });
    bound.collect()
}

impl Names {
    fn label(&self, label: u32) -> u32 {
        label.saturating_add(self.first_label)
    }

    fn instruction(&self, instruction: &Instruction) -> Instruction {
        let guard = instruction.guard.map(|(register, negated)| (register + self.first_register, negated));
        if let ("ret", Some(end)) = (instruction.name(), self.end) {
            return Instruction {
                guard,
                opcode: "bra".to_owned(),
                operands: vec![Operand::Label(end)],
                ..*instruction
            };
        }
        let operands = instruction.operands.iter().map(|operand| self.operand(operand)).collect();
        Instruction { guard, opcode: instruction.opcode.clone(), operands, ..*instruction }
    }

    fn symbol(&self, symbol: Symbol) -> (Symbol, i64) {
        match (symbol, &self.arguments) {
            (Symbol::Body(at), _) => (Symbol::Body(self.variables[at]), 0),
            (Symbol::Param(at), Some(arguments)) => arguments[at],
            _ => (symbol, 0),
        }
    }

    fn base(&self, base: Base, offset: i64) -> (Base, i64) {
        match base {
            Base::Register(register) => (Base::Register(register + self.first_register), offset),
            Base::Symbol(symbol) => {
                let (symbol, start) = self.symbol(symbol);
                (Base::Symbol(symbol), offset.wrapping_add(start))
            }
            Base::Absolute => (base, offset),
        }
    }

    fn operand(&self, operand: &Operand) -> Operand {
        let all = |items: &[Operand]| items.iter().map(|item| self.operand(item)).collect();
        match operand {
            Operand::Register(register) => Operand::Register(register + self.first_register),
            Operand::Not(register) => Operand::Not(register + self.first_register),
            Operand::Pair(first, second) => {
                Operand::Pair(first + self.first_register, second.map(|second| second + self.first_register))
            }
            Operand::Symbol(symbol, offset) => {
                let (symbol, start) = self.symbol(*symbol);
                Operand::Symbol(symbol, offset.wrapping_add(start))
            }
            Operand::Address(base, offset) => {
                let (base, offset) = self.base(*base, *offset);
                Operand::Address(base, offset)
            }
            Operand::Tensor(base, offset, items) => {
                let (base, offset) = self.base(*base, *offset);
                Operand::Tensor(base, offset, all(items))
            }
            Operand::Vector(items) => Operand::Vector(all(items)),
            Operand::Tuple(items) => Operand::Tuple(all(items)),
            Operand::Label(label) => Operand::Label(self.label(*label)),
            Operand::TargetList(list) => Operand::TargetList(list + self.first_list),
            Operand::Special(_)
            | Operand::Integer(_)
            | Operand::Float32(_)
            | Operand::Float64(_)
            | Operand::Function(_)
            | Operand::Sink => operand.clone(),
        }
    }
}
