//! Atomics: values are added up by their class. The order of f32 additions is open, so two runs may differ in the last bits and
//! are both judged. One launch clears the sums, another adds.

use kernelgate::prelude::*;

shape! { struct Scatter { n: 1..=1 << 14, classes: 1..=1 << 10 } }

const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void clear(const scalar_t*, const int*, float* sums, int classes) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < classes) sums[i] = 0.0f;
}

extern "C" __global__ void scatter_add(const scalar_t* x, const int* class_of, float* sums, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sums[class_of[i]], to_float(x[i]));
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Scatter>::new("example_scatter_add")
        .input("x", |s| [s.n])
        .index("class_of", |s| [s.n], |s| s.classes)
        .output("sums", |s| [s.classes])
        .in_dtype(F32)
        .reference(|_, x, y| x[0].iter().zip(x[1]).for_each(|(x, &class)| y[0][class as usize] += x))
        // All values may be of one class.
        .depth(|s| s.n)
        .magnitude(|_, x, size| {
            size[0].fill(0.0);
            x[0].iter().zip(x[1]).for_each(|(x, &class)| size[0][class as usize] += x.abs());
        })
        .range(1e30)
        .cost(|s, t| Cost { bytes: s.n * (t.size() + 4) + 4 * s.classes, flops: s.n });
    let cuda = Cuda::source(KERNEL, "scatter_add", |s: &Scatter| {
        let clear = Launch::blocks(s.classes.div_ceil(128), 128).entry("clear").scalar(s.classes as i32);
        [clear, Launch::blocks(s.n.div_ceil(128), 128).scalar(s.n as i32)]
    })
    .nondeterministic()
    .exclude_distributions(Distribution::Tiny, "atomicAdd on f32 in global memory flushes subnormal values");
    Suite::of(op).dtypes([F32, F16]).candidate("cuda", cuda).into()
}
