//! Device functions: the body of each takes the place of its calls, with registers, labels and variables of its own.

use crate::sim::error::{Error, Result};
use crate::sim::ir::functions::{Functions, Signature, THROUGH_A_POINTER, signature};
use crate::sim::ptx::MAX_INSTRUCTIONS;
use crate::sim::ptx::ast::{Base, Body, Callees, Function, Instruction, Operand, Symbol};
use crate::sim::ptx::types::Space;
use std::borrow::Cow;
use std::collections::HashMap;

/// Calls that are replaced, however deep: functions that call each other twice must not double for ever.
const MAX_CALLS: usize = 10_000;
/// Calls inside calls.
const MAX_DEPTH: usize = 64;

/// The body of an entry with the bodies of what it calls. Functions without a body stay calls.
pub(super) fn inlined<'a>(functions: &Functions<'a>, function: &'a Function, body: &'a Body) -> Result<Cow<'a, Body>> {
    if !body.instructions.iter().any(|instruction| callee(instruction, body, functions).is_some()) {
        return Ok(Cow::Borrowed(body));
    }
    let mut inliner = Inliner {
        functions,
        by_signature: None,
        out: Body::default(),
        statics: HashMap::new(),
        open: vec![&function.name],
        calls: 0,
    };
    inliner.append(&function.name, body, None)?;
    Ok(Cow::Owned(inliner.out))
}

/// What a call leads to.
enum Callee<'a> {
    Function(&'a Function),
    /// Through the pointer in a register.
    Pointer(u32, &'a Callees),
}

fn callee<'a>(instruction: &Instruction, body: &'a Body, functions: &Functions<'a>) -> Option<Callee<'a>> {
    if instruction.name() != "call" {
        return None;
    }
    let operands = &instruction.operands;
    let pointer = operands.iter().find_map(|operand| match operand {
        Operand::Register(register) => Some(*register),
        _ => None,
    });
    if let (Some(pointer), Some(Operand::Callees(callees))) = (pointer, operands.last()) {
        return body.callees.get(*callees as usize).map(|callees| Callee::Pointer(pointer, callees));
    }
    operands.iter().find_map(|operand| match operand {
        Operand::Function(name) => functions.get(name).map(Callee::Function),
        _ => None,
    })
}

struct Inliner<'f, 'a> {
    functions: &'f Functions<'a>,
    /// What pointers may lead to, once a call through one was met.
    by_signature: Option<HashMap<Signature, Vec<&'a Function>>>,
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

impl<'a> Inliner<'_, 'a> {
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
            match callee(instruction, body, self.functions) {
                Some(Callee::Function(function)) => self.call(instruction, function, &names)?,
                Some(Callee::Pointer(pointer, callees)) => {
                    let functions = self.behind(instruction, callees)?;
                    self.call_through(instruction, pointer, &functions, &names)?;
                }
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
        let end = self.begin(call, names);
        self.enter(call, function, names, end)?;
        self.out.labels[end as usize] = self.out.instructions.len();
        Ok(())
    }

    /// The functions that a call through a pointer may lead to, in the order of the text.
    fn behind(&mut self, call: &Instruction, callees: &Callees) -> Result<Vec<&'a Function>> {
        match callees {
            Callees::Targets(names) => {
                let found = names.iter().map(|name| {
                    let why = || format!("call through a pointer to {name}, which is no device function with a body");
                    let function = self.functions.get(name).filter(|function| !function.is_entry);
                    function.ok_or_else(|| Error::unsupported(call.line, why()))
                });
                found.collect()
            }
            Callees::Prototype { params, results } => {
                let (inputs, outputs) = passed(call);
                expect_passed("the prototype", call, (params.len(), results.len()), (inputs.len(), outputs.len()))?;
                let known = self.by_signature.get_or_insert_with(|| self.functions.by_signature());
                Ok(known.get(&signature(params, results)).cloned().unwrap_or_default())
            }
        }
    }

    /// The bodies of all functions one behind the other, and before them a branch to the one that a pointer names.
    fn call_through(
        &mut self,
        call: &Instruction,
        pointer: u32,
        functions: &[&'a Function],
        names: &Names,
    ) -> Result<()> {
        let end = self.begin(call, names);
        let labels: Vec<u32> = (0..functions.len() as u32).map(|at| end + 1 + at).collect();
        self.out.labels.extend(labels.iter().map(|_| 0));
        self.out.target_lists.push(labels.clone());
        let address = |function: &&Function| self.functions.address(&function.name).map(Operand::Integer);
        let operands = vec![
            Operand::Register(pointer + names.first_register),
            Operand::TargetList(self.out.target_lists.len() as u32 - 1),
            Operand::Vector(functions.iter().filter_map(address).collect()),
        ];
        let opcode = format!("brx.{THROUGH_A_POINTER}");
        self.out.instructions.push(Instruction { guard: None, opcode, operands, ..*call });
        for (function, label) in functions.iter().zip(labels) {
            self.out.labels[label as usize] = self.out.instructions.len();
            self.enter(call, function, names, end)?;
            // A body may end without a return.
            self.out.instructions.push(branch(call, None, end));
        }
        self.out.labels[end as usize] = self.out.instructions.len();
        Ok(())
    }

    /// The label behind a call, to which lanes that do not take part in it go at once.
    fn begin(&mut self, call: &Instruction, names: &Names) -> u32 {
        let end = self.out.labels.len() as u32;
        self.out.labels.push(0);
        if let Some((guard, negated)) = call.guard {
            self.out.instructions.push(branch(call, Some((guard + names.first_register, !negated)), end));
        }
        end
    }

    /// The body of a function, from which a return leads to `end`.
    fn enter(&mut self, call: &Instruction, function: &'a Function, names: &Names, end: u32) -> Result<()> {
        let unsupported = |why: &str| Error::unsupported(call.line, format!("call {} ({why})", function.name));
        self.calls += 1;
        if self.open.len() > MAX_DEPTH || self.calls > MAX_CALLS {
            return Err(unsupported("too many calls"));
        }
        if self.open.contains(&function.name.as_str()) {
            return Err(unsupported("recursive"));
        }
        if let Some(error) = &function.broken {
            return Err(error.clone());
        }
        let arguments = arguments(call, function, names)?;
        if let Some(body) = &function.body {
            self.open.push(&function.name);
            self.append(&function.name, body, Some((arguments, end)))?;
            self.open.pop();
        }
        Ok(())
    }
}

/// A branch that stands for a part of another instruction.
fn branch(of: &Instruction, guard: Option<(u32, bool)>, label: u32) -> Instruction {
    Instruction { guard, opcode: "bra".to_owned(), operands: vec![Operand::Label(label)], ..*of }
}

/// What a call passes: inputs, and where results go.
fn passed(call: &Instruction) -> (&[Operand], &[Operand]) {
    let names_callee = |operand: &Operand| matches!(operand, Operand::Function(_) | Operand::Register(_));
    let at = call.operands.iter().position(names_callee).unwrap_or(0);
    let list = |at: usize| match call.operands.get(at) {
        Some(Operand::Tuple(items)) => items.as_slice(),
        _ => &[],
    };
    (list(at + 1), if at > 0 { list(0) } else { &[] })
}

fn expect_passed(what: &str, call: &Instruction, wanted: (usize, usize), found: (usize, usize)) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::parse(
        call.line,
        format!(
            "{what} takes {} arguments and gives {} results, the call has {} and {}",
            wanted.0, wanted.1, found.0, found.1
        ),
    ))
}

/// What the parameters of a function stand for in a call: inputs first, then results, as symbols number them.
fn arguments(call: &Instruction, function: &Function, names: &Names) -> Result<Vec<(Symbol, i64)>> {
    let (inputs, results) = passed(call);
    let wanted = (function.params.len(), function.results.len());
    expect_passed(&format!("`{}`", function.name), call, wanted, (inputs.len(), results.len()))?;
    let bound = inputs.iter().chain(results).map(|operand| match names.operand(operand) {
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
            return branch(instruction, guard, end);
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
            | Operand::Callees(_)
            | Operand::Sink => operand.clone(),
        }
    }
}
