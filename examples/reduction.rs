//! A reduction: the sum of each row. `depth` and `magnitude` say what a sum may be off by, `separable` that rows do not
//! know of each other.

use kernelgate::prelude::*;

shape! { struct Rows { rows: 0..=1 << 12, cols: 1..=1 << 12 } }

/// A warp a row.
const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void row_sum(const scalar_t* x, scalar_t* y, int cols) {
    const int lane = threadIdx.x;
    const scalar_t* row = x + static_cast<size_t>(blockIdx.x) * cols;
    float sum = 0.0f;
    for (int col = lane; col < cols; col += 32) sum += to_float(row[col]);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) y[blockIdx.x] = from_float<scalar_t>(sum);
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Rows>::new("example_row_sum")
        .input("x", |s| [s.rows, s.cols])
        .output("y", |s| [s.rows])
        .separable("rows")
        .reference(|s, x, y| y[0].iter_mut().zip(x[0].chunks(s.cols)).for_each(|(y, row)| *y = row.iter().sum()))
        // Each of the additions may be off by a rounding of what has been added up: of the sizes of all terms at the most.
        .depth(|s| s.cols)
        .magnitude(|s, x, size| {
            size[0].iter_mut().zip(x[0].chunks(s.cols)).for_each(|(m, row)| *m = row.iter().map(|x| x.abs()).sum());
        })
        // 4096 terms of this size still fit an f32.
        .range(1e34)
        .cost(|s, t| Cost { bytes: (s.rows * s.cols + s.rows) * t.size(), flops: s.rows * s.cols })
        .exact_relation(
            "the sum of 2x is twice the sum of x",
            |_, x, _| x[0].iter_mut().for_each(|x| *x *= 2.0),
            |_, _, y, _| y[0].iter_mut().for_each(|y| *y *= 2.0),
        );
    let cuda =
        Cuda::source(KERNEL, "row_sum", |s: &Rows| Launch::blocks(s.rows, 32).scalar(s.cols as i32)).tile("cols", 32);
    Suite::of(op).dtypes([F32, F16]).candidate("cuda", cuda).into()
}
