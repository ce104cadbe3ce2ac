//! What comes out of the compiler.

/// What comes out of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// A cubin, or PTX text.
    pub code: Vec<u8>,
    /// The compiler's version, `13.0`.
    pub compiler: String,
    /// What it printed; empty when it came from the cache.
    pub log: String,
}
