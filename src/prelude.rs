//! What a `tests/gate.rs` needs: `use kernelgate::prelude::*;`.

pub use crate::core::candidate::{Cpu, Cuda, CudaHost, Declare, Enqueue, TritonError, TritonMetadata};
pub use crate::core::cost::Cost;
pub use crate::core::distribution::{Distribution, UnknownDistribution};
pub use crate::core::dtype::DType::{self, BF16, Bool, E4M3, E5M2, F16, F32, I8, I32, I64, U8};
pub use crate::core::dtype::{Element, UnknownDType};
pub use crate::core::gpu::Gpu;
pub use crate::core::launch::{Launch, Plan, Scalar};
pub use crate::core::narrow::{b8, e4m3, e5m2};
pub use crate::core::operator::{Op, Operator};
pub use crate::core::shape::{Shape, describe};
pub use crate::core::suite::Suite;
pub use crate::core::tensor::{Inputs, Outputs};
pub use crate::core::tensor_map::{Fill, Im2col, Swizzle, TensorMap};
pub use crate::core::tolerance::Tolerance;
pub use crate::{gate, shape};
pub use half::{bf16, f16};
pub use std::process::ExitCode;
