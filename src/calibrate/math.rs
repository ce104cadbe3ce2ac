//! Probes of arithmetic in registers: f32 multiply-adds and the special function unit.

use super::probe::Probe;
use crate::core::candidate::{Cpu, Cuda, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::tensor::{Inputs, Outputs};
use crate::device::Heat;
use crate::measure::yardstick::{CHAINS, Chains, SCALE, SHIFT, multiplying};
use rayon::prelude::*;

const BLOCK: usize = 256;
const SMALL: Chains = Chains { threads: 300, steps: 9 };

/// Chains a thread of `special`.
const SPECIAL_CHAINS: usize = 8;

/// Fused multiply-adds, two operations each.
pub fn fma(threads: usize, steps: usize) -> Probe {
    let (operator, mut candidates) = multiplying();
    candidates.push(Cpu::new::<f32>(fma_on_host).named("cpu"));
    Probe::new(operator, candidates, [Chains { threads, steps }, SMALL], DType::F32, Heat::Hot)
}

/// ex2.approx, one operation each.
pub fn special(threads: usize, steps: usize) -> Probe {
    let operator = Op::<Chains>::new("special")
        .input("x", |s| [s.threads])
        .output("y", |s| [s.threads])
        .reference(|s, x, y| {
            let chain = |x: f64| (0..s.steps).fold(x, |v, _| (-v).exp2());
            let start = |x: f64, j: usize| x + j as f64 / SPECIAL_CHAINS as f64;
            y[0].iter_mut().zip(x[0]).for_each(|(y, &x)| *y = (0..SPECIAL_CHAINS).map(|j| chain(start(x, j))).sum());
        })
        .depth(|s| s.steps)
        .cost(|s, t| Cost { bytes: 2 * s.threads * t.size(), flops: SPECIAL_CHAINS * s.threads * s.steps });
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/math.cu"), "special", |s: &Chains| {
        let launch = Launch::blocks(s.threads.div_ceil(BLOCK), BLOCK);
        launch.scalar(s.threads as i32).scalar(s.steps as i32).scalar(0.0f32)
    });
    let cuda = cuda.file("kernels/calibrate/math.cu").dtypes([DType::F32]);
    Probe::new(operator, vec![cuda.named("cuda")], [Chains { threads, steps }, SMALL], DType::F32, Heat::Hot)
}

/// Elements that a core works on at once: enough vectors to hide the latency of a multiply-add.
const LANES: usize = 128;

fn fma_on_host(s: &Chains, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    let threads = x.slice::<f32>(0).par_chunks(LANES).zip(y.slice::<f32>(0).par_chunks_mut(LANES));
    threads.for_each(|(x, y)| {
        y.fill(0.0);
        for j in 0..CHAINS {
            let mut v = [0.0f32; LANES];
            v.iter_mut().zip(x).for_each(|(v, x)| *v = x + j as f32);
            steps(&mut v, s.steps);
            y.iter_mut().zip(&v).for_each(|(y, v)| *y += v);
        }
    });
}

#[multiversion::multiversion(targets("x86_64+avx512f+fma", "x86_64+avx2+fma"))]
fn steps(v: &mut [f32; LANES], steps: usize) {
    for _ in 0..steps {
        v.iter_mut().for_each(|v| *v = v.mul_add(SCALE, SHIFT));
    }
}
