//! Probes of the caches: windows that are read again and again.

use super::calibration::Level;
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
    /// Windows, the 16-byte packs of each, and how often it is read.
    struct Windows { windows: 1..=1 << 20, packs: 1..=1 << 24, repeats: 1..=1 << 20 }
}

const BLOCK: usize = 256;
/// Packs that a thread has under way.
const UNROLL: usize = 4;
/// Floats of a pack.
const PACK: usize = 4;

/// Reads `windows` windows of about `window_bytes` bytes `repeats` times out of `level`.
pub fn probe(level: Level, windows: usize, window_bytes: usize, repeats: usize) -> Probe {
    let entry = match level {
        Level::Shared => "read_shared",
        Level::L1 => "read_l1",
        _ => "read_l2",
    };
    let operator = Op::<Windows>::new(entry)
        .input("x", |s| [s.windows * s.packs * PACK])
        .output("y", |s| [s.windows * BLOCK])
        .reference(reference)
        .depth(|s| s.packs * s.repeats)
        .cost(|s, t| {
            let elements = s.windows * s.packs * PACK * s.repeats;
            Cost { bytes: elements * t.size(), flops: elements }
        });
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/levels.cu"), entry, move |s: &Windows| {
        let launch = Launch::blocks(s.windows, BLOCK).scalar(s.packs as i32).scalar(s.repeats as i32);
        launch.shared(if level == Level::Shared { s.packs * 16 } else { 0 })
    });
    let cuda = cuda.file("kernels/calibrate/levels.cu").dtypes([DType::F32]);
    let packs = (window_bytes / 16).next_multiple_of(BLOCK * UNROLL);
    let candidates = vec![cuda.named("cuda"), Cpu::new::<f32>(on_host).named("cpu")];
    let small = Windows { windows: 2, packs: BLOCK * UNROLL, repeats: 3 };
    Probe::new(operator, candidates, [Windows { windows, packs, repeats }, small], DType::F32, Heat::Hot)
}

fn reference(s: &Windows, x: &[&[f64]], y: &mut [Vec<f64>]) {
    for (window, y) in x[0].chunks(s.packs * PACK).zip(y[0].chunks_mut(BLOCK)) {
        for (i, pack) in window.chunks(PACK).enumerate() {
            y[i % BLOCK] += pack.iter().sum::<f64>() * s.repeats as f64;
        }
    }
}

/// A window a thread; partial sums in vectors.
fn on_host(s: &Windows, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    const THREADS: usize = BLOCK;
    let windows = x.slice::<f32>(0).par_chunks(s.packs * PACK).zip(y.slice::<f32>(0).par_chunks_mut(THREADS));
    windows.for_each(|(window, y)| {
        y.fill(0.0);
        for _ in 0..s.repeats {
            let mut sums = [0.0f32; THREADS * PACK];
            let window = std::hint::black_box(window);
            for run in window.chunks_exact(THREADS * PACK) {
                sums.iter_mut().zip(run).for_each(|(sum, x)| *sum += x);
            }
            y.iter_mut().zip(sums.as_chunks::<PACK>().0).for_each(|(y, pack)| *y += pack.iter().sum::<f32>());
        }
    });
}
