//! Probes of bandwidth: streams read and written, in several mixes.

use super::probe::Probe;
use crate::core::candidate::{Cpu, Cuda, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::tensor::{Inputs, Outputs};
use crate::device::Heat;
use crate::measure::yardstick;
use rayon::prelude::*;

crate::shape! {
    /// Elements of each stream, and how many streams are read and written.
    struct Streams { n: 4..=1 << 34, reads: 0..=8, writes: 1..=8 }
}

/// The mixes that are measured: streams read and written.
pub const MIXES: [(usize, usize); 7] = [(8, 1), (4, 1), (3, 1), (2, 1), (1, 1), (1, 2), (0, 1)];

const BLOCK: usize = 256;
const PACK: usize = 4;

/// `reads` streams read and `writes` written, `bytes` bytes together.
pub fn probe((reads, writes): (usize, usize), bytes: usize, heat: Heat) -> Probe {
    let operator = Op::<Streams>::new("stream")
        .input("x", |s| [(s.reads * s.n).max(PACK)])
        .output("y", |s| [s.writes * s.n])
        .reference(reference)
        .cost(|s, t| Cost { bytes: (s.reads + s.writes) * s.n * t.size(), flops: (s.reads + s.writes - 1) * s.n });
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/stream.cu"), "stream_r1_w1", |s: &Streams| {
        let launch = Launch::blocks(s.n.div_ceil(BLOCK * PACK), BLOCK).scalar(s.n as i64);
        launch.entry(format!("stream_r{}_w{}", s.reads, s.writes))
    });
    let cuda = cuda.file("kernels/calibrate/stream.cu").dtypes([DType::F32]);
    let n = (bytes / size_of::<f32>() / (reads + writes)).max(PACK).next_multiple_of(PACK);
    let candidates = vec![cuda.named("cuda"), Cpu::new::<f32>(on_host).named("cpu")];
    let shapes = [n, 10_000].map(|n| Streams { n, reads, writes });
    Probe::new(operator, candidates, shapes, DType::F32, heat)
}

/// Reads `bytes` bytes and writes hardly any.
pub fn reading(bytes: usize, heat: Heat) -> Probe {
    let (operator, candidates) = yardstick::reading();
    let shapes = [bytes, 10_000].map(yardstick::elements_to_read);
    Probe::new(operator, candidates, shapes, DType::F32, heat)
}

fn reference(s: &Streams, x: &[&[f64]], y: &mut [Vec<f64>]) {
    for (w, y) in y[0].chunks_mut(s.n).enumerate() {
        for (i, y) in y.iter_mut().enumerate() {
            *y = (0..s.reads).map(|r| x[0][r * s.n + i]).sum::<f64>() + w as f64;
        }
    }
}

/// A part of every stream a thread, in runs that stay in L1.
fn on_host(s: &Streams, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    const RUN: usize = 1 << 10;
    let (from, to) = (x.slice::<f32>(0), y.slice::<f32>(0));
    let part = s.n.div_ceil(rayon::current_num_threads()).next_multiple_of(RUN);
    let mut streams: Vec<_> = to.chunks_mut(s.n).map(|stream| stream.chunks_mut(part)).collect();
    let parts: Vec<Vec<&mut [f32]>> =
        (0..s.n.div_ceil(part)).map(|_| streams.iter_mut().filter_map(Iterator::next).collect()).collect();
    parts.into_par_iter().enumerate().for_each(|(number, mut outputs)| {
        let mut sums = [0.0f32; RUN];
        let length = outputs[0].len();
        for at in (0..length).step_by(RUN) {
            let count = RUN.min(length - at);
            let sums = &mut sums[..count];
            sums.fill(0.0);
            for r in 0..s.reads {
                let first = r * s.n + number * part + at;
                sums.iter_mut().zip(&from[first..first + count]).for_each(|(sum, x)| *sum += x);
            }
            for (w, output) in outputs.iter_mut().enumerate() {
                output[at..at + count].iter_mut().zip(&*sums).for_each(|(y, sum)| *y = sum + w as f32);
            }
        }
    });
}
