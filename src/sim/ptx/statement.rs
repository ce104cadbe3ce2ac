//! The inside of a function: scopes, registers, labels, instructions and their operands.

use crate::sim::error::{Error, Result};
use crate::sim::ptx::ast::{Base, Body, Callees, Instruction, Operand, Register, SourceLine, Symbol, Variable};
use crate::sim::ptx::cursor::Cursor;
use crate::sim::ptx::lexer::Kind;
use crate::sim::ptx::parser::{MAX_INSTRUCTIONS, MAX_NESTING, MAX_REGISTERS, ModuleNames};
use crate::sim::ptx::special::Special;
use crate::sim::ptx::types::{Space, Type};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Copy)]
enum Name {
    Register(u32),
    /// Of 128 bits: two of 64, the lower one first.
    Double(u32),
    Variable(usize),
    Label(u32),
    Targets(u32),
    Callees(u32),
}

struct Scope<'a> {
    parent: Option<usize>,
    names: HashMap<String, Name>,
    families: Vec<Family<'a>>,
}

/// `.reg .b32 %r<5>`, kept as it stands, so that large counts cost nothing.
struct Family<'a> {
    prefix: &'a str,
    count: u64,
    first: u32,
    /// Registers that one name stands for.
    width: u64,
}

/// A name that was not known where it stood: a label further down.
struct Forward<'a> {
    instruction: usize,
    operand: usize,
    scope: usize,
    name: &'a str,
    line: u32,
}

pub(super) struct BodyParser<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    module_names: &'c ModuleNames<'a>,
    functions: &'c HashSet<&'a str>,
    /// Parameters and results of the function.
    params: Vec<&'c Variable>,
    body: Body,
    scopes: Vec<Scope<'a>>,
    current: usize,
    source: Option<SourceLine>,
    forwards: Vec<Forward<'a>>,
    target_forwards: Vec<(u32, usize, Vec<&'a str>, u32)>,
}

impl<'c, 'a> BodyParser<'c, 'a> {
    pub fn new(
        cursor: &'c mut Cursor<'a>,
        module_names: &'c ModuleNames<'a>,
        functions: &'c HashSet<&'a str>,
        params: Vec<&'c Variable>,
    ) -> Self {
        let root = Scope { parent: None, names: HashMap::new(), families: Vec::new() };
        BodyParser {
            cursor,
            module_names,
            functions,
            params,
            body: Body::default(),
            scopes: vec![root],
            current: 0,
            source: None,
            forwards: Vec::new(),
            target_forwards: Vec::new(),
        }
    }

    /// Reads up to the closing brace of the function.
    pub fn body(mut self) -> Result<Body> {
        let mut depth = 1usize;
        while depth > 0 {
            if self.cursor.take_mark('{') {
                depth += 1;
                if depth > MAX_NESTING {
                    return Err(Error::parse(self.cursor.line(), format!("scopes nested deeper than {MAX_NESTING}")));
                }
                self.scopes.push(Scope { parent: Some(self.current), names: HashMap::new(), families: Vec::new() });
                self.current = self.scopes.len() - 1;
            } else if self.cursor.take_mark('}') {
                depth -= 1;
                self.current = self.scopes[self.current].parent.unwrap_or(0);
            } else if !self.cursor.take_mark(';') {
                self.statement()?;
            }
        }
        self.resolve_forwards()?;
        Ok(self.body)
    }

    fn statement(&mut self) -> Result<()> {
        let line = self.cursor.line();
        if self.cursor.take_mark('@') {
            let negated = self.cursor.take_mark('!');
            let name = self.cursor.word()?;
            let register = self.register(name).ok_or_else(|| unknown(line, name))?;
            return self.instruction(Some((register, negated)));
        }
        let Some(Kind::Word(word)) = self.cursor.peek() else { return Err(self.cursor.unexpected("a statement")) };
        if self.cursor.peek_after(1) == Some(Kind::Mark(':')) {
            self.cursor.advance();
            self.cursor.advance();
            return self.label(word, line);
        }
        match word {
            ".reg" => {
                self.cursor.advance();
                self.registers()
            }
            ".local" | ".shared" | ".param" | ".global" | ".const" => {
                self.cursor.advance();
                for variable in self.cursor.variables(Space::from_name(&word[1..]).unwrap_or(Space::Local))? {
                    self.declare(variable.name.clone(), Name::Variable(self.body.variables.len()), line)?;
                    self.body.variables.push(variable);
                }
                self.cursor.expect(';')
            }
            ".loc" => {
                self.cursor.advance();
                let file = self.cursor.integer()? as u32;
                self.source = Some(SourceLine { file, line: self.cursor.integer()? as u32 });
                self.cursor.skip_line(line);
                Ok(())
            }
            ".pragma" => {
                while !self.cursor.take_mark(';') {
                    self.cursor.next()?;
                }
                Ok(())
            }
            _ if word.starts_with('.') => Err(Error::unsupported(line, word)),
            _ => self.instruction(None),
        }
    }

    fn label(&mut self, name: &'a str, line: u32) -> Result<()> {
        if let Some(callees) = self.callees()? {
            self.declare(name.to_owned(), Name::Callees(self.body.callees.len() as u32), line)?;
            self.body.callees.push(callees);
            return self.cursor.expect(';');
        }
        if self.cursor.take_word(".branchtargets") {
            let targets = self.words()?;
            let list = self.body.target_lists.len() as u32;
            self.body.target_lists.push(Vec::new());
            self.target_forwards.push((list, self.current, targets, line));
            self.declare(name.to_owned(), Name::Targets(list), line)?;
            return self.cursor.expect(';');
        }
        let label = self.body.labels.len() as u32;
        self.body.labels.push(self.body.instructions.len());
        self.declare(name.to_owned(), Name::Label(label), line)
    }

    /// Names with commas between them.
    fn words(&mut self) -> Result<Vec<&'a str>> {
        let mut words = vec![self.cursor.word()?];
        while self.cursor.take_mark(',') {
            words.push(self.cursor.word()?);
        }
        Ok(words)
    }

    /// `.calltargets f, g` or `.callprototype (.param .b32 _) _ (.param .b64 _)`, if one of them stands there.
    fn callees(&mut self) -> Result<Option<Callees>> {
        if self.cursor.take_word(".calltargets") {
            return Ok(Some(Callees::Targets(self.words()?.into_iter().map(str::to_owned).collect())));
        }
        if !self.cursor.take_word(".callprototype") {
            return Ok(None);
        }
        let results = if self.cursor.at_mark('(') { self.cursor.parameters()? } else { Vec::new() };
        if !self.cursor.take_word("_") {
            return Err(self.cursor.unexpected("`_` in the place of a name"));
        }
        let params = if self.cursor.at_mark('(') { self.cursor.parameters()? } else { Vec::new() };
        self.cursor.take_word(".noreturn");
        Ok(Some(Callees::Prototype { params, results }))
    }

    fn registers(&mut self) -> Result<()> {
        let line = self.cursor.line();
        let mut word = self.cursor.word()?;
        if matches!(word, ".v2" | ".v4") {
            return Err(Error::unsupported(line, format!(".reg {word}")));
        }
        word = word.strip_prefix('.').unwrap_or(word);
        let ty = Type::from_name(word).ok_or_else(|| Error::parse(line, format!("`{word}` is no register type")))?;
        let (ty, width) = if ty == Type::B128 { (Type::B64, 2) } else { (ty, 1) };
        loop {
            let name = self.cursor.word()?;
            let first = self.body.registers.len() as u32;
            let count = if self.cursor.take_mark('<') {
                let count = self.cursor.integer()?;
                self.cursor.expect('>')?;
                if self.scopes[self.current].families.iter().any(|family| family.prefix == name) {
                    return Err(Error::parse(line, format!("`{name}<…>` is declared twice in one scope")));
                }
                self.scopes[self.current].families.push(Family { prefix: name, count, first, width });
                count
            } else {
                let what = if width == 2 { Name::Double(first) } else { Name::Register(first) };
                self.declare(name.to_owned(), what, line)?;
                1
            };
            if count > MAX_REGISTERS as u64 || self.body.registers.len() as u64 + count * width > MAX_REGISTERS as u64 {
                return Err(Error::parse(line, format!("more than {MAX_REGISTERS} registers")));
            }
            for index in 0..count * width {
                self.body
                    .registers
                    .push(Register { name: if count == 1 { name.to_owned() } else { format!("{name}{index}") }, ty });
            }
            if !self.cursor.take_mark(',') {
                return self.cursor.expect(';');
            }
        }
    }

    fn declare(&mut self, name: String, what: Name, line: u32) -> Result<()> {
        let names = &mut self.scopes[self.current].names;
        if names.contains_key(&name) {
            return Err(Error::parse(line, format!("`{name}` is declared twice in one scope")));
        }
        names.insert(name, what);
        Ok(())
    }

    fn find(&self, name: &str, scope: usize) -> Option<Name> {
        let mut at = Some(scope);
        while let Some(scope) = at.map(|index| &self.scopes[index]) {
            if let Some(found) = scope.names.get(name) {
                return Some(*found);
            }
            for family in &scope.families {
                if let Some(digits) = name.strip_prefix(family.prefix)
                    && (digits == "0" || !digits.starts_with('0'))
                    && let Ok(index) = digits.parse::<u64>()
                    && index < family.count
                {
                    let register = family.first + (index * family.width) as u32;
                    return Some(if family.width == 2 { Name::Double(register) } else { Name::Register(register) });
                }
            }
            at = scope.parent;
        }
        None
    }

    fn register(&self, name: &str) -> Option<u32> {
        match self.find(name, self.current) {
            Some(Name::Register(register)) => Some(register),
            _ => None,
        }
    }

    fn instruction(&mut self, guard: Option<(u32, bool)>) -> Result<()> {
        let line = self.cursor.line();
        if self.body.instructions.len() >= MAX_INSTRUCTIONS {
            return Err(Error::parse(line, format!("more than {MAX_INSTRUCTIONS} instructions")));
        }
        let opcode = self.cursor.word()?.to_owned();
        let mut operands = Vec::new();
        if !self.cursor.take_mark(';') {
            loop {
                let operand = self.operand(&opcode, operands.len(), 0)?;
                operands.push(operand);
                if !self.cursor.take_mark(',') {
                    self.cursor.expect(';')?;
                    break;
                }
            }
        }
        self.body.instructions.push(Instruction { line, source: self.source, guard, opcode, operands });
        Ok(())
    }

    fn operand(&mut self, opcode: &str, index: usize, depth: usize) -> Result<Operand> {
        let line = self.cursor.line();
        match self.cursor.next()? {
            Kind::Integer(value) => Ok(Operand::Integer(value)),
            Kind::Float32(bits) => Ok(Operand::Float32(bits)),
            Kind::Float64(bits) => Ok(Operand::Float64(bits)),
            Kind::Mark('-') => match self.cursor.next()? {
                Kind::Integer(value) => Ok(Operand::Integer(value.wrapping_neg())),
                Kind::Float64(bits) => Ok(Operand::Float64(bits ^ (1 << 63))),
                _ => Err(Error::parse(line, "expected a number after `-`")),
            },
            Kind::Mark('!') => {
                let name = self.cursor.word()?;
                self.register(name).map(Operand::Not).ok_or_else(|| unknown(line, name))
            }
            Kind::Mark('[') => self.address(depth),
            Kind::Mark('{') if depth == 0 => Ok(Operand::Vector(self.list(opcode, '}')?)),
            Kind::Mark('(') if depth == 0 => Ok(Operand::Tuple(self.list(opcode, ')')?)),
            Kind::Word(word) => self.named(word, opcode, index, depth, line),
            _ => Err(Error::parse(line, format!("operand {} of `{opcode}` was expected", index + 1))),
        }
    }

    fn list(&mut self, opcode: &str, close: char) -> Result<Vec<Operand>> {
        let mut out = Vec::new();
        while !self.cursor.take_mark(close) {
            let item = self.operand(opcode, out.len(), 1)?;
            out.push(item);
            if !self.cursor.take_mark(',') && !self.cursor.at_mark(close) {
                return Err(self.cursor.unexpected(&format!("`,` or `{close}`")));
            }
        }
        Ok(out)
    }

    fn named(&mut self, word: &'a str, opcode: &str, index: usize, depth: usize, line: u32) -> Result<Operand> {
        if word == "_" {
            return self.sink(opcode);
        }
        match self.find(word, self.current) {
            Some(Name::Double(low)) => {
                return Ok(Operand::Vector(vec![Operand::Register(low), Operand::Register(low + 1)]));
            }
            Some(Name::Register(first)) => {
                if !self.cursor.take_mark('|') {
                    return Ok(Operand::Register(first));
                }
                let second = self.cursor.word()?;
                if second == "_" {
                    return Ok(Operand::Pair(first, None));
                }
                let second = self.register(second).ok_or_else(|| unknown(line, second))?;
                return Ok(Operand::Pair(first, Some(second)));
            }
            Some(Name::Label(label)) => return Ok(Operand::Label(label)),
            Some(Name::Targets(list)) => return Ok(Operand::TargetList(list)),
            Some(Name::Callees(list)) => return Ok(Operand::Callees(list)),
            Some(Name::Variable(_)) | None => {}
        }
        if let Some(symbol) = self.symbol(word) {
            let offset =
                if self.cursor.take_mark('+') || self.cursor.at_mark('-') { self.cursor.signed()? } else { 0 };
            return Ok(Operand::Symbol(symbol, offset));
        }
        match word {
            "WARP_SZ" => Ok(Operand::Integer(32)),
            _ if opcode.starts_with("call") => Ok(Operand::Function(word.to_owned())),
            _ if opcode.starts_with("bra") || opcode.starts_with("brx") => {
                if depth > 0 {
                    return Err(unknown(line, word));
                }
                self.forwards.push(Forward {
                    instruction: self.body.instructions.len(),
                    operand: index,
                    scope: self.current,
                    name: word,
                    line,
                });
                Ok(Operand::Label(u32::MAX))
            }
            _ if self.functions.contains(word) => Ok(Operand::Function(word.to_owned())),
            _ => Special::from_name(word).map(Operand::Special).ok_or_else(|| self.no_such(line, word)),
        }
    }

    /// `_`, or `_|p`: then a register that nobody reads takes the first result.
    fn sink(&mut self, opcode: &str) -> Result<Operand> {
        if !self.cursor.take_mark('|') {
            return Ok(Operand::Sink);
        }
        let line = self.cursor.line();
        let word = self.cursor.word()?;
        let second = self.register(word).ok_or_else(|| unknown(line, word))?;
        let ty = if opcode.starts_with("setp") { Type::Pred } else { Type::B32 };
        self.body.registers.push(Register { name: "_".to_owned(), ty });
        Ok(Operand::Pair(self.body.registers.len() as u32 - 1, Some(second)))
    }

    fn symbol(&self, word: &str) -> Option<Symbol> {
        if let Some(Name::Variable(variable)) = self.find(word, self.current) {
            return Some(Symbol::Body(variable));
        }
        if let Some(param) = self.params.iter().position(|param| param.name == word) {
            return Some(Symbol::Param(param));
        }
        let known = self.module_names.get(word)?.as_ref().ok()?;
        Some(Symbol::Module(*known))
    }

    /// Why a name stands for nothing here.
    fn no_such(&self, line: u32, word: &str) -> Error {
        match self.module_names.get(word) {
            Some(Err(why)) => why.clone(),
            _ => unknown(line, word),
        }
    }

    fn address(&mut self, depth: usize) -> Result<Operand> {
        let line = self.cursor.line();
        let mut offset = 0i64;
        let base = match self.cursor.peek() {
            Some(Kind::Word(word)) => {
                self.cursor.advance();
                match self.register(word) {
                    Some(register) => Base::Register(register),
                    None => Base::Symbol(self.symbol(word).ok_or_else(|| self.no_such(line, word))?),
                }
            }
            _ => {
                offset = self.cursor.signed()?;
                Base::Absolute
            }
        };
        while self.cursor.take_mark('+') || self.cursor.at_mark('-') {
            offset = offset.wrapping_add(self.cursor.signed()?);
        }
        if base != Base::Absolute && i32::try_from(offset).is_err() {
            return Err(Error::parse(line, format!("the offset {offset} does not fit into 32 bits")));
        }
        if self.cursor.take_mark(',') {
            if depth > 0 {
                return Err(Error::parse(line, "an address with coordinates cannot stand here"));
            }
            self.cursor.expect('{')?;
            let coordinates = self.list("", '}')?;
            self.cursor.expect(']')?;
            return Ok(Operand::Tensor(base, offset, coordinates));
        }
        self.cursor.expect(']')?;
        Ok(Operand::Address(base, offset))
    }

    fn resolve_forwards(&mut self) -> Result<()> {
        for forward in std::mem::take(&mut self.forwards) {
            let operand = match self.find(forward.name, forward.scope) {
                Some(Name::Label(label)) => Operand::Label(label),
                Some(Name::Targets(list)) => Operand::TargetList(list),
                _ => return Err(unknown(forward.line, forward.name)),
            };
            self.body.instructions[forward.instruction].operands[forward.operand] = operand;
        }
        for (list, scope, names, line) in std::mem::take(&mut self.target_forwards) {
            let labels = names.into_iter().map(|name| match self.find(name, scope) {
                Some(Name::Label(label)) => Ok(label),
                _ => Err(unknown(line, name)),
            });
            self.body.target_lists[list as usize] = labels.collect::<Result<_>>()?;
        }
        Ok(())
    }
}

fn unknown(line: u32, name: &str) -> Error {
    Error::parse(line, format!("`{name}` is not declared here"))
}
