//! Outputs that are indices: the largest value of each row and where it stands, the first one of equals. Integers are exact: a
//! kernel that takes another one of equals is wrong.

use kernelgate::prelude::*;

shape! { struct Rows { rows: 0..=1 << 11, cols: 1..=1 << 11 } }

const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void argmax(const scalar_t* x, scalar_t* largest, int* at, int cols) {
    const scalar_t* row = x + static_cast<size_t>(blockIdx.x) * cols;
    float best = -INFINITY;
    int where = INT_MAX;
    for (int col = threadIdx.x; col < cols; col += 32) {
        const float v = to_float(row[col]);
        if (v > best || where == INT_MAX) {
            best = v;
            where = col;
        }
    }
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, best, step);
        const int there = __shfl_xor_sync(0xffffffffu, where, step);
        if (there != INT_MAX && (where == INT_MAX || other > best || (other == best && there < where))) {
            best = other;
            where = there;
        }
    }
    if (threadIdx.x == 0) {
        largest[blockIdx.x] = from_float<scalar_t>(best);
        at[blockIdx.x] = where;
    }
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Rows>::new("example_argmax")
        .input("x", |s| [s.rows, s.cols])
        .output("largest", |s| [s.rows])
        .output("at", |s| [s.rows])
        .in_dtype(I32)
        .separable("rows")
        .reference(|s, x, y| {
            for (i, row) in x[0].chunks(s.cols).enumerate() {
                // `max_by` takes the last one of equals: turned around it is the first.
                let (at, largest) = row.iter().enumerate().rev().max_by(|a, b| order(*a.1, *b.1)).unwrap_or((0, &0.0));
                (y[0][i], y[1][i]) = (*largest, at as f64);
            }
        })
        // Infinities have an order, NaN has none.
        .without_nan()
        .cost(|s, t| Cost { bytes: (s.rows * s.cols + s.rows) * t.size() + 4 * s.rows, flops: s.rows * s.cols });
    let cuda =
        Cuda::source(KERNEL, "argmax", |s: &Rows| Launch::blocks(s.rows, 32).scalar(s.cols as i32)).tile("cols", 32);
    Suite::of(op).dtypes([F32, BF16]).candidate("cuda", cuda).into()
}

/// Zeros of both signs are equal.
fn order(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal)
}
