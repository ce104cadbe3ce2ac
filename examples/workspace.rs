//! Several launches over a workspace: the sum and the sum of squares of a long vector, first a pair a block, then one of all.
//! The workspace holds garbage before a run: whoever reads what was not written is found.

use kernelgate::prelude::*;

shape! { struct Vector { n: 1..=1 << 20 } }

const BLOCK: usize = 256;
const MOST_BLOCKS: usize = 64;

const KERNEL: &str = r#"
#include "kernelgate.cuh"

__device__ float sum_of_block(float value) {
    __shared__ float parts[8];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < blockDim.x / 32; warp++) sum += parts[warp];
    __syncthreads();
    return sum;
}

extern "C" __global__ void partial(const scalar_t* x, float* sums, float* squares, int n) {
    float sum = 0.0f, square = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float v = to_float(x[i]);
        sum += v;
        square += v * v;
    }
    sum = sum_of_block(sum);
    square = sum_of_block(square);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        squares[blockIdx.x] = square;
    }
}

extern "C" __global__ void total(const float* sums, const float* squares, float* y, int parts) {
    const float* from = threadIdx.x == 0 ? sums : squares;
    float sum = 0.0f;
    for (int i = 0; i < parts; i++) sum += from[i];
    y[threadIdx.x] = sum;
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

fn blocks(s: &Vector) -> usize {
    s.n.div_ceil(BLOCK).min(MOST_BLOCKS)
}

pub fn suite() -> Suite {
    let op = Op::<Vector>::new("example_moments")
        .input("x", |s| [s.n])
        .output("moments", |_| [2])
        .in_dtype(F32)
        .reference(|_, x, y| y[0] = vec![x[0].iter().sum(), x[0].iter().map(|x| x * x).sum()])
        .depth(|s| s.n)
        .magnitude(|_, x, size| size[0] = vec![x[0].iter().map(|x| x.abs()).sum(), x[0].iter().map(|x| x * x).sum()])
        // Squares of what is larger do not fit an f32.
        .range(1e15)
        .cost(|s, t| Cost { bytes: s.n * t.size() + 8, flops: 3 * s.n });
    let cuda = Cuda::source(KERNEL, "partial", |s: &Vector| {
        // Each launch takes some of the buffers: it says which.
        let squares = 4 * MOST_BLOCKS;
        let partial = Launch::blocks(blocks(s), BLOCK)
            .without_pointers()
            .pointer("x")
            .pointer("workspace")
            .pointer_at("workspace", squares)
            .scalar(s.n as i32);
        let total = Launch::blocks(1, 2)
            .entry("total")
            .without_pointers()
            .pointer("workspace")
            .pointer_at("workspace", squares)
            .pointer("moments")
            .scalar(blocks(s) as i32);
        [partial, total]
    })
    .workspace(|_| 2 * 4 * MOST_BLOCKS)
    .tile("n", BLOCK);
    Suite::of(op).dtypes([F32, BF16]).candidate("cuda", cuda).into()
}
