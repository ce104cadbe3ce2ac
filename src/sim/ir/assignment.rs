//! Which slot each register of a body has.

use crate::sim::machine::registers::{Class, Slot};
use crate::sim::ptx::types::Type;

/// The result of the assignment.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// By PTX register; `None` where no instruction names it.
    pub slots: Vec<Option<Slot>>,
    /// Rows used.
    pub words: u32,
    pub wides: u32,
    pub preds: u32,
    /// Registers that a thread may read before it writes them.
    pub zeroed: Vec<Slot>,
}

pub(crate) fn class_of(ty: Type) -> Class {
    match ty {
        Type::Pred => Class::Pred,
        _ if ty.bytes() == 8 => Class::Wide,
        _ => Class::Word,
    }
}
