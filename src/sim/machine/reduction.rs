//! What a reduction makes of an element.

/// New value from the old one and the operands.
pub(crate) type Change = fn(u64, u64, u64) -> u64;

/// An operation on elements whose type is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduction {
    pub change: Change,
    pub element_bytes: u32,
}
