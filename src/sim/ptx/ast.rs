//! The syntax tree of a PTX module: names resolved to indices, opcodes still text.

use crate::sim::error::Error;
use crate::sim::ptx::special::Special;
use crate::sim::ptx::types::{Space, Type};
use std::collections::BTreeMap;

/// A parsed `.ptx` file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Module {
    /// Whether the text names its version and its target, as it has to.
    pub has_version: bool,
    pub has_target: bool,
    /// `.file` numbers and their paths, for `.loc`.
    pub files: BTreeMap<u32, String>,
    /// Module-scope variables.
    pub variables: Vec<Variable>,
    pub functions: Vec<Function>,
}

/// A variable in memory: module scope, `.shared`, `.local`, or a parameter.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub name: String,
    pub space: Space,
    pub align_bytes: u32,
    /// 0 for the unsized array `extern .shared .b8 name[]`.
    pub bytes: u64,
    /// Initial bytes; shorter than `bytes` means zero fill.
    pub init: Vec<u8>,
    /// Addresses to put into the initial bytes: (offset, variable, addend).
    pub relocations: Vec<(u64, String, i64)>,
}

/// `.entry` or `.func`.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub name: String,
    pub is_entry: bool,
    pub params: Vec<Variable>,
    /// What a device function gives back.
    pub results: Vec<Variable>,
    /// `None` for a declaration.
    pub body: Option<Body>,
    /// Why the body could not be read; it is empty then.
    pub broken: Option<Error>,
    /// `.reqntid`, if given.
    pub required_threads: Option<[u32; 3]>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub registers: Vec<Register>,
    pub variables: Vec<Variable>,
    pub instructions: Vec<Instruction>,
    /// Label number to index in `instructions`.
    pub labels: Vec<usize>,
    /// `.branchtargets` lists: label numbers.
    pub target_lists: Vec<Vec<u32>>,
    /// `.calltargets` and `.callprototype`.
    pub callees: Vec<Callees>,
}

/// What a call through a pointer says of the functions behind it.
#[derive(Debug, Clone)]
pub(crate) enum Callees {
    /// Their names.
    Targets(Vec<String>),
    /// What they take and give.
    Prototype { params: Vec<Variable>, results: Vec<Variable> },
}

#[derive(Debug, Clone)]
pub(crate) struct Register {
    pub name: String,
    pub ty: Type,
}

/// A position in the source that the PTX was compiled from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SourceLine {
    pub file: u32,
    pub line: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Instruction {
    /// Line in the PTX text.
    pub line: u32,
    pub source: Option<SourceLine>,
    /// Register of the guard and whether it is negated.
    pub guard: Option<(u32, bool)>,
    pub opcode: String,
    pub operands: Vec<Operand>,
}

impl Instruction {
    /// The opcode without its modifiers.
    pub fn name(&self) -> &str {
        self.opcode.split('.').next().unwrap_or("")
    }
}

/// What a name in memory refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symbol {
    /// Index in [`Module::variables`].
    Module(usize),
    /// Index in [`Body::variables`].
    Body(usize),
    /// Index in [`Function::params`], and behind their end in [`Function::results`].
    Param(usize),
}

/// What stands between the brackets of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Register(u32),
    Symbol(Symbol),
    Absolute,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Register(u32),
    /// `!p`
    Not(u32),
    /// `p|q`
    Pair(u32, Option<u32>),
    Special(Special),
    Integer(u64),
    /// `0f…`: the bits.
    Float32(u32),
    /// `0d…` or a decimal: the bits.
    Float64(u64),
    /// The address of a variable, plus an offset.
    Symbol(Symbol, i64),
    Address(Base, i64),
    /// `[ptr, {coordinates}]` of the tensor copies, with optional trailing operands.
    Tensor(Base, i64, Vec<Operand>),
    Vector(Vec<Operand>),
    /// `(a, b)` of a call.
    Tuple(Vec<Operand>),
    Label(u32),
    TargetList(u32),
    /// A function: in a call, or its address.
    Function(String),
    /// Index in [`Body::callees`].
    Callees(u32),
    /// `_`
    Sink,
}
