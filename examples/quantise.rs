//! A quantisation to 8 bits, to integers and to 8-bit floats: the dtype of the case is that of the output, and what is defined
//! depends on it.

use kernelgate::prelude::*;

shape! { struct Vector { n: 0..=1 << 20, scale: f32 = [16.0, 100.0] } }

const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void quantise(const float* x, scalar_t* q, int n, float scale) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    // Rounds to nearest even; what is too large becomes the largest value.
    if (i < n) q[i] = from_float<scalar_t>(x[i] * scale);
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Vector>::new("example_quantise")
        .input("x", |s| [s.n])
        .in_dtype(F32)
        .output("q", |s| [s.n])
        .reference_in(|s, dtype, x, q| {
            for (q, &x) in q[0].iter_mut().zip(x[0]) {
                // The product is an f32 by definition: a value between two levels then goes one way only.
                let scaled = f64::from(x as f32 * s.scale);
                let level = scaled.clamp(dtype.min_finite(), dtype.max_finite());
                *q = if dtype.is_integer() { level.round_ties_even() } else { level };
            }
        })
        .range(1e6)
        // What NaN and infinities become is not defined.
        .exclude_distributions([Distribution::NonFinite])
        .cost(|s, t| Cost { bytes: s.n * (4 + t.size()), flops: 2 * s.n });
    let cuda = Cuda::source(KERNEL, "quantise", |s: &Vector| {
        Launch::blocks(s.n.div_ceil(128), 128).scalar(s.n as i32).scalar(s.scale)
    })
    .dtypes([I8, U8, E4M3, E5M2]);
    Suite::of(op).dtypes([I8, U8, E4M3, E5M2]).candidate("cuda", cuda).into()
}
