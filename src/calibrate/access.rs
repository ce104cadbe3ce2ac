//! Probes of access that is not contiguous: elements apart, and whole rows in random order.

use super::probe::Probe;
use crate::core::candidate::{Cpu, Cuda, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::tensor::{Inputs, Outputs};
use crate::device::Heat;
use rayon::prelude::*;

crate::shape! {
    /// Threads, elements that each reads, and how far apart neighbours are, in elements.
    struct Strided { threads: 1..=1 << 28, loads: 1..=64, stride: 1..=1 << 12 }
}

crate::shape! {
    /// Rows of a table, the 16-byte packs of each, and how many are picked.
    struct Gathered { rows: 1..=1 << 28, packs: 1..=1 << 10, picked: 1..=1 << 28 }
}

const BLOCK: usize = 256;
/// Elements that a thread reads.
const LOADS: usize = 8;
/// Floats of a pack.
const PACK: usize = 4;
/// Threads of a piece of work on the host.
const PIECE: usize = 1 << 14;

/// Reads elements that are `stride` apart out of `footprint` bytes.
pub fn strided(stride: usize, footprint: usize) -> Probe {
    let operator = Op::<Strided>::new("strided")
        .input("x", |s| [s.threads * s.loads * s.stride])
        .output("y", |s| [s.threads])
        .reference(|s, x, y| {
            let element = |t: usize, j: usize| x[0][(j * s.threads + t) * s.stride];
            y[0].iter_mut().enumerate().for_each(|(t, y)| *y = (0..s.loads).map(|j| element(t, j)).sum());
        })
        .depth(|s| s.loads)
        .cost(|s, t| Cost { bytes: s.threads * (s.loads + 1) * t.size(), flops: s.threads * s.loads });
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/access.cu"), "strided", |s: &Strided| {
        let launch = Launch::blocks(s.threads.div_ceil(BLOCK), BLOCK).scalar(s.threads as i64);
        launch.scalar(s.loads as i32).scalar(s.stride as i32)
    });
    let cuda = cuda.file("kernels/calibrate/access.cu").dtypes([DType::F32]);
    let candidates = vec![cuda.named("cuda"), Cpu::new::<f32>(strided_on_host).named("cpu")];
    let threads = (footprint / size_of::<f32>() / LOADS / stride).max(1);
    let shapes = [(threads, LOADS), (300, 3)].map(|(threads, loads)| Strided { threads, loads, stride });
    Probe::new(operator, candidates, shapes, DType::F32, Heat::Cold)
}

fn strided_on_host(s: &Strided, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    let from = x.slice::<f32>(0);
    y.slice::<f32>(0).par_chunks_mut(PIECE).enumerate().for_each(|(piece, y)| {
        y.fill(0.0);
        for j in 0..s.loads {
            let first = (j * s.threads + piece * PIECE) * s.stride;
            y.iter_mut().zip(from[first..].iter().step_by(s.stride)).for_each(|(y, x)| *y += x);
        }
    });
}

/// Reads rows of `row_bytes` bytes in random order out of a table of `footprint` bytes, as many as it has.
pub fn gathered(row_bytes: usize, footprint: usize) -> Probe {
    let operator = Op::<Gathered>::new("gathered")
        .input("x", |s| [s.rows, s.packs * PACK])
        .index("index", |s| [s.picked], |s| s.rows)
        .output("y", |s| [s.picked, s.packs])
        .reference(|s, x, y| {
            for (i, y) in y[0].chunks_mut(s.packs).enumerate() {
                let row = &x[0][x[1][i] as usize * s.packs * PACK..];
                y.iter_mut().zip(row.chunks(PACK)).for_each(|(y, pack)| *y = pack.iter().sum());
            }
        })
        .depth(|_| PACK)
        .cost(|s, t| {
            let packs = s.picked * s.packs;
            Cost { bytes: packs * (PACK + 1) * t.size() + s.picked * DType::I32.size(), flops: packs * PACK }
        });
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/access.cu"), "gathered", |s: &Gathered| {
        let threads = s.picked * s.packs;
        Launch::blocks(threads.div_ceil(BLOCK), BLOCK).scalar(threads as i64).scalar(s.packs as i32)
    });
    let cuda = cuda.file("kernels/calibrate/access.cu").dtypes([DType::F32]);
    let candidates = vec![cuda.named("cuda"), Cpu::new::<f32>(gathered_on_host).named("cpu")];
    let packs = (row_bytes / 16).max(1);
    let rows = (footprint / row_bytes).max(1);
    let shapes = [(rows, rows), (50, 70)].map(|(rows, picked)| Gathered { rows, packs, picked });
    Probe::new(operator, candidates, shapes, DType::F32, Heat::Cold)
}

fn gathered_on_host(s: &Gathered, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    let (table, index) = (x.slice::<f32>(0), x.slice::<i32>(1));
    let rows = index.par_chunks(PIECE / s.packs.min(PIECE));
    let outputs = y.slice::<f32>(0).par_chunks_mut(PIECE / s.packs.min(PIECE) * s.packs);
    rows.zip(outputs).for_each(|(index, y)| {
        for (y, &row) in y.chunks_mut(s.packs).zip(index) {
            let row = &table[row as usize * s.packs * PACK..][..s.packs * PACK];
            y.iter_mut().zip(row.as_chunks::<PACK>().0).for_each(|(y, pack)| *y = pack.iter().sum());
        }
    });
}
