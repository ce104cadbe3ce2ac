//! Probes of the tensor cores: wgmma on tiles that stay in shared memory.

use super::probe::Probe;
use crate::core::candidate::{Cuda, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::device::Heat;

crate::shape! {
    /// Blocks of two warpgroups, and how often each multiplies its tiles.
    struct Tiles { blocks: 1..=1 << 20, steps: 1..=1 << 20, width: 32..=128 }
}

const BLOCK: usize = 256;
const WARPGROUPS: usize = 2;
/// Rows of A and B, and the bytes of each.
const ROWS_A: usize = 64;
const ROWS_B: usize = 256;
const ROW_BYTES: usize = 128;

/// The dtypes of operands; f32 stands for tf32.
pub const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::E4M3];

/// `steps` steps in each of `blocks` blocks, in a dtype; f32 stands for tf32.
pub fn probe(dtype: DType, blocks: usize, steps: usize) -> Probe {
    let operator = Op::<Tiles>::new("tensor")
        .input("a", |s| [ROWS_A, s.width])
        .input("b", |s| [ROWS_B, s.width])
        .output("y", |s| [s.blocks * BLOCK])
        .in_dtype(DType::F32)
        .reference(reference)
        .depth(|s| s.steps * s.width)
        .cost(|s, _| Cost { bytes: 0, flops: 2 * s.blocks * WARPGROUPS * ROWS_A * ROWS_B * s.width * s.steps });
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/tensor.cu"), "tensor", |s: &Tiles| {
        Launch::blocks(s.blocks, BLOCK).shared((ROWS_A + ROWS_B) * ROW_BYTES).scalar(s.steps as i32)
    });
    let cuda = cuda.file("kernels/calibrate/tensor.cu").needs("sm_90a").dtypes(DTYPES);
    let shapes =
        [(blocks, steps), (2, 3)].map(|(blocks, steps)| Tiles { blocks, steps, width: ROW_BYTES / dtype.size() });
    Probe::new(operator, vec![cuda.named("cuda")], shapes, dtype, Heat::Hot)
}

/// A thread holds rows `lane / 4` and `lane / 4 + 8` of its warp's sixteen, columns `8 j + lane % 4 * 2` and the next.
fn reference(s: &Tiles, x: &[&[f64]], y: &mut [Vec<f64>]) {
    let product = |row: usize, column: usize| -> f64 {
        let (a, b) = (&x[0][row * s.width..][..s.width], &x[1][column * s.width..][..s.width]);
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    };
    let of_thread = |thread: usize| -> f64 {
        let (warp, lane) = (thread / 32 % 4, thread % 32);
        let rows = [0, 8].map(|below| warp * 16 + lane / 4 + below);
        let columns = (0..ROWS_B / 8).flat_map(|j| [0, 1].map(|right| 8 * j + lane % 4 * 2 + right));
        columns.flat_map(|column| rows.map(|row| product(row, column))).sum::<f64>() * s.steps as f64
    };
    let block: Vec<f64> = (0..BLOCK).map(of_thread).collect();
    y[0].chunks_mut(BLOCK).for_each(|y| y.copy_from_slice(&block));
}
