//! Loads of shared memory that go together.

/// Words of the widest load.
pub(crate) const MAX_WORDS: usize = 8;

/// Loads of shared memory in one straight stretch of code, of as many bytes each, from one register that does not change
/// between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// Of one lane of one load.
    pub bytes: u32,
    /// Offset of the first load.
    pub first_offset: i64,
    /// Lowest and highest offset, from that of the first load.
    pub low: i32,
    pub high: i32,
    pub members: Vec<Member>,
    /// So many of the first follow each other at once.
    pub together: u32,
}

/// A load of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub pc: u32,
    /// Bytes from the first load.
    pub ahead: i32,
}
