//! A Triton program, compiled ahead of time by
//! `python kernels/triton/ahead_of_time.py add.py:add_kernel --signature "x=*f32:16, y=*f32:16, out=*f32:16, n=i32, BLOCK=1024" --arch 80`.

use kernelgate::prelude::*;

shape! { struct Vector { n: 0..=1 << 20 } }

/// Elements of a program: `BLOCK` of the signature.
const BLOCK: usize = 1024;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Vector>::new("example_add")
        .input("x", |s| [s.n])
        .input("y", |s| [s.n])
        .output("out", |s| [s.n])
        .reference(|_, x, out| out[0].iter_mut().zip(x[0].iter().zip(x[1])).for_each(|(out, (x, y))| *out = x + y))
        .magnitude(|_, x, size| {
            size[0].iter_mut().zip(x[0].iter().zip(x[1])).for_each(|(size, (x, y))| *size = x.abs() + y.abs());
        })
        .cost(|s, t| Cost { bytes: 3 * s.n * t.size(), flops: s.n });
    let metadata = TritonMetadata::parse(include_str!("triton_add/add_kernel.json")).expect("what Triton wrote");
    let triton = Cuda::triton(include_str!("triton_add/add_kernel.ptx"), metadata, |s: &Vector| {
        Launch::programs([s.n.div_ceil(BLOCK), 1, 1]).scalar(s.n as i32)
    });
    Suite::of(op).dtypes([F32]).candidate("triton", triton.dtypes([F32]).tile("n", BLOCK)).into()
}
