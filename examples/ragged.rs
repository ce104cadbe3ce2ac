//! A lookup with padding, over rows of different lengths: an index of -1 stands for no row, what is behind the length of a
//! sequence may hold anything, and the heads share fewer tables than there are heads.

use kernelgate::prelude::*;

shape! { struct Lookup { heads: 1..=16, tables: 1..=8, length: 1..=200, rows: 1..=100 } }

const KERNEL: &str = r#"
#include "kernelgate.cuh"

extern "C" __global__ void lookup(
    const scalar_t* tables, const int* ids, const int* lengths, scalar_t* y, int heads, int of_table, int length, int rows) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y;
    if (at >= lengths[head]) return;
    const int id = ids[head * length + at];
    const scalar_t* table = tables + static_cast<size_t>(head / of_table) * rows;
    y[head * length + at] = id < 0 ? from_float<scalar_t>(0.0f) : table[id];
}
"#;

fn main() -> ExitCode {
    gate!().suites([suite()]).run()
}

pub fn suite() -> Suite {
    let op = Op::<Lookup>::new("example_ragged_lookup")
        .input("tables", |s| [s.tables, s.rows])
        .index("ids", |s| [s.heads, s.length], |s| s.rows)
        .further_indices(|_| [-1])
        .index("lengths", |s| [s.heads], |s| s.length + 1)
        .output("y", |s| [s.heads, s.length])
        .constraint("heads % tables == 0", |s| Lookup { heads: s.heads.next_multiple_of(s.tables), ..s })
        .reference(|s, x, y| {
            let of_table = s.heads / s.tables;
            for (at, (y, &id)) in y[0].iter_mut().zip(x[1]).enumerate() {
                let table = at / s.length / of_table;
                *y = if id < 0.0 { 0.0 } else { x[0][table * s.rows + id as usize] };
            }
        })
        .unspecified(|s, x, free| {
            let rows = free[0].chunks_mut(s.length).zip(x[2]);
            rows.for_each(|(row, &length)| row[length as usize..].fill(true));
        })
        .cost(|s, t| Cost { bytes: s.heads * s.length * (4 + 2 * t.size()), flops: 0 });
    let cuda = Cuda::source(KERNEL, "lookup", |s: &Lookup| {
        Launch::grid([s.length.div_ceil(64), s.heads, 1], [64, 1, 1])
            .scalar(s.heads as i32)
            .scalar((s.heads / s.tables) as i32)
            .scalar(s.length as i32)
            .scalar(s.rows as i32)
    })
    .tile("length", 64);
    Suite::of(op).dtypes([F32, I64]).candidate("cuda", cuda.dtypes([F32, I64])).into()
}
