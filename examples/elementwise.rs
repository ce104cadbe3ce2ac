//! An elementwise operator: SiLU, x · σ(x), as a CUDA kernel and as a loop on the host.

use kernelgate::prelude::*;

shape! { struct Vector { n: 0..=1 << 20 } }

const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void silu(const scalar_t* x, scalar_t* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float v = to_float(x[i]);
    y[i] = from_float<scalar_t>(v / (1.0f + expf(-v)));
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Vector>::new("example_silu")
        .input("x", |s| [s.n])
        .output("y", |s| [s.n])
        .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, &x)| *y = x / (1.0 + (-x).exp())))
        // An error e of x moves the result by at most 1.1 e: what is rounded is of the size of x.
        .magnitude(|_, x, size| size[0].copy_from_slice(x[0]))
        .cost(|s, t| Cost { bytes: 2 * s.n * t.size(), flops: 6 * s.n });
    let cuda = Cuda::source(KERNEL, "silu", |s: &Vector| Launch::blocks(s.n.div_ceil(128), 128).scalar(s.n as i32))
        .tile("n", 128);
    let cpu = Cpu::new::<f32>(|_, x, y| {
        y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, &x)| *y = x / (1.0 + (-x).exp()));
    });
    Suite::of(op).dtypes([F32, BF16]).candidate("cuda", cuda).candidate("cpu", cpu).into()
}
