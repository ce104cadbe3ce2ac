//! The module level of PTX: directives, variables, function headers; bodies go to [`super::statement`].

use crate::sim::error::{Error, Result};
use crate::sim::ptx::ast::{Body, Function, Module, Variable};
use crate::sim::ptx::cursor::Cursor;
use crate::sim::ptx::lexer::{Kind, tokens};
use crate::sim::ptx::statement::BodyParser;
use crate::sim::ptx::types::Space;
use std::collections::{HashMap, HashSet};

/// Caps against hostile input; real kernels stay far below.
pub(super) const MAX_REGISTERS: usize = 1 << 17;
pub(crate) const MAX_INSTRUCTIONS: usize = 1 << 20;
pub(super) const MAX_NESTING: usize = 64;
const MAX_TEXT_BYTES: usize = 1 << 28;

/// Reads a whole module.
pub(crate) fn parse(text: &str) -> Result<Module> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Error::parse(1, format!("text of {} bytes; the limit is {MAX_TEXT_BYTES}", text.len())));
    }
    if let Some(line) = text.lines().position(|line| !line.is_ascii() && !line.contains(['"', '/'])) {
        return Err(Error::parse(line as u32 + 1, "a character outside ASCII, in no string and no comment"));
    }
    let mut parser = Parser {
        cursor: Cursor::new(tokens(text)?),
        module: Module::default(),
        names: HashMap::new(),
        functions: HashSet::new(),
    };
    parser.module()?;
    Ok(parser.module)
}

/// Index in [`Module::variables`], or what is wrong with the declaration: it costs those that use the variable.
pub(super) type ModuleNames<'a> = HashMap<&'a str, Result<usize>>;

struct Parser<'a> {
    cursor: Cursor<'a>,
    module: Module,
    /// Module-scope variables by name, and why one cannot be read.
    names: ModuleNames<'a>,
    /// Device functions declared so far.
    functions: HashSet<&'a str>,
}

impl<'a> Parser<'a> {
    fn module(&mut self) -> Result<()> {
        while self.cursor.peek().is_some() {
            let line = self.cursor.line();
            if self.cursor.take_mark(';') {
                continue;
            }
            let word = self.cursor.word()?;
            match word {
                ".version" | ".target" => {
                    self.module.has_version |= word == ".version";
                    self.module.has_target |= word == ".target";
                    self.cursor.skip_line(line);
                }
                ".address_size" => {
                    if self.cursor.integer()? != 64 {
                        return Err(Error::unsupported(line, ".address_size other than 64"));
                    }
                }
                ".pragma" => {
                    while !self.cursor.take_mark(';') {
                        self.cursor.next()?;
                    }
                }
                ".file" => self.file(line)?,
                ".section" => {
                    self.cursor.word()?;
                    self.cursor.skip_braces()?;
                }
                ".visible" | ".extern" | ".weak" | ".common" => {}
                ".entry" | ".func" => self.function(word == ".entry")?,
                ".global" | ".const" | ".shared" => self.declare(word)?,
                _ => return Err(Error::unsupported(line, word)),
            }
        }
        Ok(())
    }

    fn file(&mut self, line: u32) -> Result<()> {
        let number = self.cursor.integer()? as u32;
        if let Kind::Text(path) = self.cursor.next()? {
            self.module.files.insert(number, path.to_owned());
        }
        self.cursor.skip_line(line);
        Ok(())
    }

    fn declare(&mut self, directive: &str) -> Result<()> {
        let space = Space::from_name(&directive[1..]).unwrap_or(Space::Global);
        let start = self.cursor.at;
        let declared = match self.cursor.variables(space) {
            Ok(declared) => declared,
            Err(error @ Error::Unsupported { .. }) => return self.broken_declaration(start, error),
            Err(error) => return Err(error),
        };
        for variable in declared {
            // The name as it stands in the text lives as long as the text does.
            let text = self.cursor.tokens[start..self.cursor.at].iter().find_map(|token| match token.kind {
                Kind::Word(word) if word == variable.name => Some(word),
                _ => None,
            });
            if let Some(name) = text {
                self.names.insert(name, Ok(self.module.variables.len()));
            }
            self.module.variables.push(variable);
        }
        self.cursor.expect(';')
    }

    /// Skips a declaration of what is not modelled: a sampler, say.
    fn broken_declaration(&mut self, start: usize, error: Error) -> Result<()> {
        self.cursor.at = start;
        loop {
            match self.cursor.next()? {
                Kind::Mark(';') => return Ok(()),
                Kind::Word(word) if !word.starts_with('.') => {
                    self.names.insert(word, Err(error.clone()));
                }
                _ => {}
            }
        }
    }

    /// What a function has that cannot be read costs that function.
    fn function(&mut self, is_entry: bool) -> Result<()> {
        let start = self.cursor.at;
        let function = self.whole_function(is_entry).or_else(|error| {
            self.cursor.at = start;
            self.broken_function(is_entry, error)
        })?;
        self.module.functions.push(function);
        Ok(())
    }

    /// Skips a function that cannot be read; without its name or its end, the text cannot be read either.
    fn broken_function(&mut self, is_entry: bool, error: Error) -> Result<Function> {
        let skip = |cursor: &mut Cursor<'a>| -> Result<(&'a str, Option<Body>)> {
            let mut name = None;
            let mut depth = 0usize;
            loop {
                match cursor.peek() {
                    Some(Kind::Mark('{')) => {
                        cursor.skip_braces()?;
                        return Ok((name.ok_or_else(|| cursor.unexpected("a name"))?, Some(Body::default())));
                    }
                    Some(Kind::Mark(';')) => {
                        cursor.advance();
                        return Ok((name.ok_or_else(|| cursor.unexpected("a name"))?, None));
                    }
                    Some(Kind::Mark('(')) => depth += 1,
                    Some(Kind::Mark(')')) => depth = depth.saturating_sub(1),
                    Some(Kind::Word(word)) if depth == 0 && name.is_none() && !word.starts_with('.') => {
                        name = Some(word);
                    }
                    _ => {}
                }
                cursor.next()?;
            }
        };
        let (name, body) = skip(&mut self.cursor).map_err(|_| error.clone())?;
        if !is_entry {
            self.functions.insert(name);
        }
        let (name, params, results) = (name.to_owned(), Vec::new(), Vec::new());
        Ok(Function { name, is_entry, params, results, body, broken: Some(error), required_threads: None })
    }

    fn whole_function(&mut self, is_entry: bool) -> Result<Function> {
        let line = self.cursor.line();
        let results = if self.cursor.at_mark('(') { self.cursor.parameters()? } else { Vec::new() };
        if is_entry && !results.is_empty() {
            return Err(Error::parse(line, "an entry gives nothing back"));
        }
        let name = self.cursor.word()?;
        if !is_entry {
            self.functions.insert(name);
        }
        let name = name.to_owned();
        let params = if self.cursor.at_mark('(') { self.cursor.parameters()? } else { Vec::new() };
        let mut required_threads = None;
        while let Some(Kind::Word(word)) = self.cursor.peek() {
            let line = self.cursor.line();
            self.cursor.advance();
            match word {
                ".reqntid" => {
                    let mut threads = [1; 3];
                    for axis in &mut threads {
                        *axis = self.cursor.integer()? as u32;
                        if !self.cursor.take_mark(',') {
                            break;
                        }
                    }
                    required_threads = Some(threads);
                }
                ".maxntid" | ".minnctapersm" | ".maxnreg" | ".maxnctapersm" | ".reqnctapercluster"
                | ".maxclusterrank" => {
                    self.cursor.integer()?;
                    while self.cursor.take_mark(',') {
                        self.cursor.integer()?;
                    }
                }
                ".explicitcluster" | ".noreturn" => {}
                ".pragma" => {
                    while !self.cursor.take_mark(';') {
                        self.cursor.next()?;
                    }
                }
                _ => return Err(Error::unsupported(line, word)),
            }
        }
        let body = if self.cursor.take_mark('{') {
            let formal: Vec<&Variable> = params.iter().chain(&results).collect();
            Some(BodyParser::new(&mut self.cursor, &self.names, &self.functions, formal).body()?)
        } else {
            self.cursor.expect(';')?;
            None
        };
        Ok(Function { name, is_entry, params, results, body, broken: None, required_threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::ptx::ast::{Base, Operand, SourceLine, Symbol};
    use rstest::rstest;

    const HEAD: &str = ".version 9.0\n.target sm_80\n.address_size 64\n";

    fn body(text: &str) -> Result<crate::sim::ptx::ast::Body> {
        let module =
            parse(&format!("{HEAD}.visible .entry k(.param .u64 p0, .param .align 8 .b8 p1[24]) {{\n{text}\n}}"))?;
        let function = module.functions.into_iter().next().ok_or_else(|| Error::parse(0, "no function"))?;
        match (function.broken, function.body) {
            (Some(error), _) => Err(error),
            (None, body) => body.ok_or_else(|| Error::parse(0, "no body")),
        }
    }

    #[test]
    fn globals_have_their_bytes_and_relocations() {
        let module = parse(&format!("{HEAD}.global .align 1 .b8 s[4] = {{104, 105}};\n.const .u64 t[2] = {{s, generic(s)+1}};\n.extern .shared .align 16 .b8 dyn[];")).unwrap();
        assert_eq!(module.variables[0].init, [104, 105]);
        assert_eq!(module.variables[0].bytes, 4);
        assert_eq!(module.variables[1].relocations, [(0, "s".to_owned(), 0), (8, "s".to_owned(), 1)]);
        assert_eq!(module.variables[2].bytes, 0);
    }

    #[test]
    fn loc_lines_and_local_variables_are_told_apart() {
        let body = body(".reg .b64 %rd<3>;\n.local .align 4 .b8 depot[8];\n.loc 1 7 3, function_name $x, inlined_at 1 2 3\nmov.u64 %rd1, depot;\nret;").unwrap();
        assert_eq!(body.instructions[0].source, Some(SourceLine { file: 1, line: 7 }));
        assert_eq!(body.instructions[0].operands[1], Operand::Symbol(Symbol::Body(0), 0));
    }

    #[test]
    fn inner_scopes_have_their_own_labels_and_registers() {
        let body = body("{ .reg .pred P; W: @P bra W; }\n{ .reg .pred P; W: @!P bra W; }\nret;").unwrap();
        assert_eq!(body.registers.len(), 2);
        assert_eq!(body.labels, [0, 1]);
        assert_eq!(body.instructions[1].guard, Some((1, true)));
        assert_eq!(body.instructions[1].operands, [Operand::Label(1)]);
    }

    #[test]
    fn vectors_pairs_and_spaced_addresses() {
        let body = body(".reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<3>;\n@%p1 ld.global.v2.b32 { %r1, _ }, [ %rd1 + 0 ];\nshfl.sync.bfly.b32 %r1|%p2, %r2, 16, 31, -1;\nld.param.u64 %rd1, [p1+8];").unwrap();
        assert_eq!(
            body.instructions[0].operands,
            [Operand::Vector(vec![Operand::Register(1), Operand::Sink]), Operand::Address(Base::Register(6), 0)]
        );
        assert_eq!(body.instructions[1].operands[0], Operand::Pair(1, Some(9)));
        assert_eq!(body.instructions[1].operands[4], Operand::Integer(u64::MAX));
        assert_eq!(body.instructions[2].operands[1], Operand::Address(Base::Symbol(Symbol::Param(1)), 8));
    }

    #[rstest]
    #[case(".global .b8 a[33554433];")]
    #[case(".const .b64 a[1152921504606846976];")]
    #[case(".global .b8 a[30000000];\n.global .f32 b[1000000];")]
    fn variables_past_what_the_simulator_holds_are_refused(#[case] text: &str) {
        let error = parse(&format!("{HEAD}{text}")).unwrap_err().to_string();
        assert!(error.contains("the simulator holds 33554432"), "{error}");
    }

    #[test]
    fn the_alignment_behind_ptr_is_not_that_of_the_parameter() {
        let text = ".visible .entry k(.param .u64 .ptr .global .align 1 a, .param .align 16 .b8 b[32]) { ret; }";
        let module = parse(&format!("{HEAD}{text}")).unwrap();
        let aligned: Vec<u32> = module.functions[0].params.iter().map(|param| param.align_bytes).collect();
        assert_eq!(aligned, [8, 16]);
    }

    #[test]
    fn an_entry_that_cannot_be_read_costs_that_entry() {
        let module = parse(&format!(
            "{HEAD}.entry bad() {{ {{ .reg .b32 %a; mov.u32 %a, %nothing; }} ret; }}\n.func (.reg .b32 %r) taken(.reg .b32 %a) {{ ret; }}\n.entry strange(.param .u64 a) .surprise 3 {{ ret; }}\n.entry good() {{ ret; }}"
        ))
        .unwrap();
        let broken = module.functions.iter().map(|function| (function.name.as_str(), function.broken.is_some()));
        assert!(broken.eq([("bad", true), ("taken", true), ("strange", true), ("good", false)]));
    }

    #[test]
    fn a_sampler_costs_those_who_read_by_it() {
        let read = ".entry reads() { .reg .b64 %rd; mov.u64 %rd, by; ret; }";
        let text = format!("{HEAD}.global .samplerref by;\n{read}\n.entry good() {{ ret; }}");
        let module = parse(&text).unwrap();
        let broken: Vec<Option<String>> =
            module.functions.iter().map(|function| function.broken.as_ref().map(ToString::to_string)).collect();
        assert!(broken[0].as_ref().is_some_and(|why| why.contains("`.samplerref` is not modelled")), "{broken:?}");
        assert_eq!(broken[1], None);
    }

    #[rstest]
    #[case("mov.u32 %r1, 0;", "`%r1`")]
    #[case(".reg .b32 %r<999999999>;", "registers")]
    #[case("bra NOWHERE;", "NOWHERE")]
    #[case("add.s32 1 2;", "expected")]
    #[case("{ { ret;", "end of the text")]
    #[case(".reg .b32 %a; .reg .b32 %a;", "twice")]
    fn errors_name_what_is_wrong(#[case] text: &str, #[case] part: &str) {
        let error = body(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
