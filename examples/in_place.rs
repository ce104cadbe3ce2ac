//! A kernel that works in place: x += scale · residual. The buffer is restored before every run, and outside the clock before
//! every timed batch.

use kernelgate::prelude::*;

shape! { struct Vector { n: 0..=1 << 20, scale: f32 = [1.0, 0.5] } }

const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void accumulate(scalar_t* x, const scalar_t* residual, int n, float scale) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = from_float<scalar_t>(to_float(x[i]) + scale * to_float(residual[i]));
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Vector>::new("example_accumulate")
        // Among the arguments of the kernel it stands where it is declared, once.
        .in_place("x", |s| [s.n])
        .input("residual", |s| [s.n])
        .reference(|s, x, y| {
            let terms = x[0].iter().zip(x[1]);
            y[0].iter_mut().zip(terms).for_each(|(y, (x, r))| *y = x + f64::from(s.scale) * r);
        })
        .magnitude(|_, x, size| {
            let terms = x[0].iter().zip(x[1]);
            size[0].iter_mut().zip(terms).for_each(|(size, (x, r))| *size = x.abs() + r.abs());
        })
        .cost(|s, t| Cost { bytes: 3 * s.n * t.size(), flops: 2 * s.n });
    let cuda = Cuda::source(KERNEL, "accumulate", |s: &Vector| {
        Launch::blocks(s.n.div_ceil(128), 128).scalar(s.n as i32).scalar(s.scale)
    })
    .tile("n", 128);
    // A candidate on the host finds it among its outputs, filled.
    let cpu = Cpu::new::<f32>(|s: &Vector, x, y| {
        y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(1)).for_each(|(y, &r)| *y += s.scale * r);
    });
    Suite::of(op).dtypes([F32, F16]).candidate("cuda", cuda).candidate("cpu", cpu).into()
}
