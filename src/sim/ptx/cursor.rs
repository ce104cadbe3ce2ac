//! A walk over the tokens of a text: single tokens, and what stands at the module level as well as in functions, the
//! declarations of variables and parameters.

use crate::sim::error::{Error, Result};
use crate::sim::ptx::ast::Variable;
use crate::sim::ptx::lexer::{Kind, Token};
use crate::sim::ptx::types::{Space, Type};

/// Of all variables in global and constant memory together. What lies in shared and local memory is held to the limits
/// of the architecture when an entry is laid out.
const MAX_DECLARED_BYTES: u64 = 32 << 20;

/// A position in the token list.
pub(super) struct Cursor<'a> {
    pub tokens: Vec<Token<'a>>,
    pub at: usize,
    /// Bytes of global and constant memory that the text has declared so far.
    declared_bytes: u64,
}

impl<'a> Cursor<'a> {
    pub fn new(tokens: Vec<Token<'a>>) -> Self {
        Cursor { tokens, at: 0, declared_bytes: 0 }
    }

    pub fn peek(&self) -> Option<Kind<'a>> {
        self.peek_after(0)
    }

    pub fn peek_after(&self, ahead: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    /// Line of the next token, or of the last one at the end.
    pub fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub fn advance(&mut self) {
        self.at += 1;
    }

    pub fn next(&mut self) -> Result<Kind<'a>> {
        let kind =
            self.peek().ok_or_else(|| Error::parse(self.line(), "the text ends in the middle of a statement"))?;
        self.at += 1;
        Ok(kind)
    }

    pub fn at_mark(&self, mark: char) -> bool {
        self.peek() == Some(Kind::Mark(mark))
    }

    pub fn take_mark(&mut self, mark: char) -> bool {
        let found = self.at_mark(mark);
        self.at += usize::from(found);
        found
    }

    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Kind::Word(word));
        self.at += usize::from(found);
        found
    }

    pub fn expect(&mut self, mark: char) -> Result<()> {
        if self.take_mark(mark) { Ok(()) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    pub fn word(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    pub fn integer(&mut self) -> Result<u64> {
        match self.peek() {
            Some(Kind::Integer(value)) => {
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    pub fn signed(&mut self) -> Result<i64> {
        let negative = self.take_mark('-');
        let value = self.integer()? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    pub fn unexpected(&self, wanted: &str) -> Error {
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some(Kind::Word(word)) => format!("`{word}`"),
            Some(Kind::Mark(mark)) => format!("`{mark}`"),
            Some(Kind::Integer(value)) => format!("the number {value}"),
            Some(Kind::Float32(_) | Kind::Float64(_)) => "a floating-point number".to_owned(),
            Some(Kind::Text(text)) => format!("the string {text:?}"),
        };
        Error::parse(self.line(), format!("expected {wanted}, found {found}"))
    }

    /// `.loc` and `.file` end with their line, not with a semicolon.
    pub fn skip_line(&mut self, line: u32) {
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    /// Skips `{ … }` with everything inside.
    pub fn skip_braces(&mut self) -> Result<()> {
        self.expect('{')?;
        let mut depth = 1usize;
        while depth > 0 {
            match self.next()? {
                Kind::Mark('{') => depth += 1,
                Kind::Mark('}') => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// `(.param .b32 a, …)`: what a function takes or gives.
    pub fn parameters(&mut self) -> Result<Vec<Variable>> {
        self.expect('(')?;
        let mut out = Vec::new();
        while !self.take_mark(')') {
            if self.peek() == Some(Kind::Word(".reg")) {
                return Err(Error::unsupported(self.line(), ".reg parameter"));
            }
            if !self.take_word(".param") {
                return Err(self.unexpected("`.param` or `)`"));
            }
            out.extend(self.variables(Space::Param)?);
            if !self.take_mark(',') && !self.at_mark(')') {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        Ok(out)
    }

    /// The rest of a variable declaration, after its space: `.align 4 .b8 name[16] = {…}`, and more after commas.
    pub fn variables(&mut self, space: Space) -> Result<Vec<Variable>> {
        let mut align = None;
        let mut ty = None;
        let mut lanes = 1;
        let mut is_pointer = false;
        while let Some(Kind::Word(word)) = self.peek() {
            let Some(modifier) = word.strip_prefix('.') else { break };
            let line = self.line();
            self.advance();
            match modifier {
                // Behind `.ptr` it is that of what the pointer points to.
                "align" if is_pointer => {
                    self.integer()?;
                }
                "align" => align = Some(self.integer()?),
                "v2" => lanes = 2,
                "v4" => lanes = 4,
                // Attributes of kernel parameters: `.ptr .global .align 16`.
                "ptr" => is_pointer = true,
                "global" | "const" | "shared" | "local" => {}
                // A handle, which a launch binds.
                "texref" | "surfref" => ty = Some(Type::U64),
                _ => ty = Some(Type::from_name(modifier).ok_or_else(|| Error::unsupported(line, word))?),
            }
        }
        let ty = ty.ok_or_else(|| self.unexpected("the type of a variable"))?;
        let mut out = Vec::new();
        loop {
            out.push(self.variable(space, ty, lanes, align)?);
            if space == Space::Param || !self.take_mark(',') {
                return Ok(out);
            }
        }
    }

    fn variable(&mut self, space: Space, ty: Type, lanes: u64, align: Option<u64>) -> Result<Variable> {
        let element = u64::from(ty.bytes()) * lanes;
        let line = self.line();
        let align_bytes = align.unwrap_or(element);
        if !align_bytes.is_power_of_two() || align_bytes > 1 << 20 {
            return Err(Error::parse(line, format!("alignment {align_bytes} is no power of two up to 1048576")));
        }
        let mut variable = Variable {
            name: self.word()?.to_owned(),
            space,
            align_bytes: align_bytes as u32,
            bytes: element,
            init: Vec::new(),
            relocations: Vec::new(),
        };
        while self.take_mark('[') {
            let count = if self.at_mark(']') { 0 } else { self.integer()? };
            self.expect(']')?;
            variable.bytes = variable.bytes.saturating_mul(count);
        }
        if self.take_mark('=') {
            self.initialiser(&mut variable, ty)?;
            variable.bytes = variable.bytes.max(variable.init.len() as u64);
        }
        if matches!(space, Space::Global | Space::Const) {
            self.declared_bytes = self.declared_bytes.saturating_add(variable.bytes);
            if self.declared_bytes > MAX_DECLARED_BYTES {
                return Err(Error::parse(
                    line,
                    format!(
                        "with the {} bytes of `{}` the variables of this text take {} bytes; the simulator holds {MAX_DECLARED_BYTES}: pass larger arrays as buffers",
                        variable.bytes, variable.name, self.declared_bytes
                    ),
                ));
            }
        }
        Ok(variable)
    }

    /// One value, or nested lists of them, flattened as memory is.
    fn initialiser(&mut self, variable: &mut Variable, ty: Type) -> Result<()> {
        let mut depth = 0usize;
        loop {
            if self.take_mark('{') {
                depth += 1;
            } else if self.take_mark('}') {
                depth = depth.checked_sub(1).ok_or_else(|| self.unexpected("a value"))?;
            } else if !self.take_mark(',') {
                self.initial_value(variable, ty)?;
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn initial_value(&mut self, variable: &mut Variable, ty: Type) -> Result<()> {
        let bytes = ty.bytes() as usize;
        let value = match self.peek() {
            Some(Kind::Float32(bits)) => {
                self.advance();
                u64::from(bits)
            }
            Some(Kind::Float64(bits)) => {
                self.advance();
                if ty == Type::F32 { u64::from((f64::from_bits(bits) as f32).to_bits()) } else { bits }
            }
            Some(Kind::Word(word)) => {
                self.advance();
                let name = if word == "generic" && self.take_mark('(') {
                    let name = self.word()?;
                    self.expect(')')?;
                    name
                } else {
                    word
                };
                let addend = if self.take_mark('+') || self.at_mark('-') { self.signed()? } else { 0 };
                variable.relocations.push((variable.init.len() as u64, name.to_owned(), addend));
                0
            }
            _ => self.signed()? as u64,
        };
        variable.init.extend_from_slice(&value.to_le_bytes()[..bytes.min(8)]);
        Ok(())
    }
}
