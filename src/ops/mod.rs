//! The catalogue: the operators that ship with the crate, each in a file of its own with its reference, its cases and
//! its candidates.
//!
//! To add one, write `ops/<op>.rs` with a `pub fn suite() -> Suite`, write `kernels/<op>.cu`, and add the word to
//! the list below.
//!
//! ```
//! let names: Vec<_> = kernelgate::ops::catalogue().iter().map(|suite| suite.operator.name().to_owned()).collect();
//! assert!(names.contains(&"softmax".to_owned()));
//! ```

use crate::core::suite::Suite;

/// One function, generic over the float, as a candidate for all three dtypes.
macro_rules! every_float {
    ($function:ident) => {
        $crate::core::candidate::Cpu::new::<f32>($function::<f32>)
            .and::<half::f16>($function::<half::f16>)
            .and::<half::bf16>($function::<half::bf16>)
    };
}

macro_rules! catalogue {
    ($($op:ident),+ $(,)?) => {
        $(pub mod $op;)+

        /// Every operator of the catalogue with its candidates, in the order of the list.
        pub fn catalogue() -> Vec<Suite> {
            vec![$($op::suite()),+]
        }
    };
}

catalogue![gelu, gelu_tanh, silu, layernorm, layernorm_gelu, rmsnorm, softmax, gemm, embedding];

mod family;
mod float;
pub mod simd;

#[cfg(test)]
mod agreement;
