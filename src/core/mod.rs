//! The words of the gate: dtypes, shapes, tensors, operators, candidates. No device, no I/O.

pub mod candidate;
pub mod columns;
pub mod constraint;
pub mod cost;
pub mod distribution;
pub mod dtype;
pub mod environment;
pub mod gpu;
pub mod launch;
pub mod narrow;
pub mod operator;
pub mod packed;
pub mod pages;
pub mod place;
pub mod port;
pub mod relation;
pub mod seed;
pub mod shape;
pub mod stats;
pub mod suite;
pub mod tensor;
pub mod tensor_map;
pub mod tolerance;
pub mod work;
