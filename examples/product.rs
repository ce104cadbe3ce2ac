//! A product of matrices, C = A · Bᵀ, with tiles in shared memory. `weight` draws B so that sums do not grow with their length,
//! `element` lets large products be verified without computing them whole, `tiles` makes boundary shapes.

use kernelgate::prelude::*;

shape! { struct Product { m: 1..=512, n: 1..=512, k: 1..=512 } }

const TILE: usize = 16;

const KERNEL: &str = r#"
#include "kernelgate.cuh"

constexpr int TILE = 16;

extern "C" __global__ void product(const scalar_t* a, const scalar_t* b, scalar_t* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE + 1], b_tile[TILE][TILE + 1];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int first = 0; first < k; first += TILE) {
        const int p = first + threadIdx.x, of_b = blockIdx.x * TILE + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && p < k ? to_float(a[row * k + p]) : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = of_b < n && p < k ? to_float(b[of_b * k + p]) : 0.0f;
        __syncthreads();
        for (int q = 0; q < TILE; q++) sum += a_tile[threadIdx.y][q] * b_tile[threadIdx.x][q];
        // The tiles are overwritten in the next turn.
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = from_float<scalar_t>(sum);
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Product>::new("example_product")
        .input("a", |s| [s.m, s.k])
        .weight("b", |s| s.k, |s| [s.n, s.k])
        .output("c", |s| [s.m, s.n])
        .separable("m")
        .reference(|s, x, c| {
            for (row, c) in x[0].chunks(s.k).zip(c[0].chunks_mut(s.n)) {
                for (column, c) in x[1].chunks(s.k).zip(c) {
                    *c = row.iter().zip(column).map(|(a, b)| a * b).sum();
                }
            }
        })
        .depth(|s| s.k)
        .magnitude(|s, x, size| {
            for (row, size) in x[0].chunks(s.k).zip(size[0].chunks_mut(s.n)) {
                for (column, size) in x[1].chunks(s.k).zip(size) {
                    *size = row.iter().zip(column).map(|(a, b)| (a * b).abs()).sum();
                }
            }
        })
        .element(|s, x, at| {
            let (row, column) = (at / s.n, at % s.n);
            let terms = (0..s.k).map(|p| x[0].get(row * s.k + p) * x[1].get(column * s.k + p));
            terms.fold([0.0, 0.0], |[value, size], term| [value + term, size + term.abs()])
        })
        .range(1e16)
        // Products of such values are below what f32 tells apart.
        .exclude_distributions([Distribution::Tiny])
        .cost(|s, t| Cost { bytes: (s.m * s.k + s.n * s.k + s.m * s.n) * t.size(), flops: 2 * s.m * s.n * s.k });
    let cuda = Cuda::source(KERNEL, "product", |s: &Product| {
        Launch::grid([s.n.div_ceil(TILE), s.m.div_ceil(TILE), 1], [TILE, TILE, 1])
            .scalar(s.m as i32)
            .scalar(s.n as i32)
            .scalar(s.k as i32)
    })
    .tiles([("m", TILE), ("n", TILE), ("k", TILE)]);
    Suite::of(op).dtypes([F32, BF16]).candidate("cuda", cuda).into()
}
