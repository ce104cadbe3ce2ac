//! PTX text to syntax tree: lexer, types, tree, parser. Knows no semantics beyond names and scopes.

pub(crate) mod ast;
mod cursor;
mod lexer;
pub(crate) mod opcode;
mod parser;
pub(crate) mod special;
mod statement;
pub(crate) mod types;

pub(crate) use parser::{MAX_INSTRUCTIONS, parse};
