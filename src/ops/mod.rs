//! The catalogue: one operator a file, with its reference, cost, cases and candidates.

pub mod simd;
