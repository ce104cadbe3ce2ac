//! Yardsticks: kernels whose time is a ceiling, measured in the same session as the candidate. A slower card of the
//! same model slows both, so their quotient stays.

use crate::core::candidate::{Candidate, Cpu, Cuda, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::{Op, Operator};
use crate::core::shape::{Point, Shape};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs, Tensor};
use crate::device::fault::Fault;
use crate::device::{Device, Job, Problem};
use rayon::prelude::*;
use std::sync::Arc;

crate::shape! {
    /// Elements to copy, or to read.
    pub struct Elements {
        /// Elements.
        n: 1..=1 << 34
    }
}

crate::shape! {
    /// Threads, and steps of every chain of a thread.
    pub struct Chains {
        /// Threads.
        threads: 1..=1 << 28,
        /// Steps of every chain.
        steps: 1..=1 << 20
    }
}

/// Threads of a block of the `copy` and `fma` kernels.
const BLOCK: usize = 256;

/// Of the `read` kernel: elements of a sum, threads of a block, elements that a thread asks for at once.
const SUMMED: usize = 256;
const READ_BLOCK: usize = 512;
const READ_AT_ONCE: usize = 8;

/// Chains a thread of the `fma` kernel: enough to hide the latency of an FMA at any occupancy.
pub const CHAINS: usize = 16;

/// A yardstick: an operator, the candidates that compute it, and the point to run it at.
pub struct Yardstick {
    operator: Arc<dyn Operator>,
    candidates: Vec<Candidate>,
    point: Point,
    inputs: Vec<Tensor>,
}

impl Yardstick {
    /// A copy that reads and writes `bytes` bytes together.
    pub fn copy(bytes: usize) -> Self {
        let operator = Op::<Elements>::new("copy")
            .input("x", |s| [s.n])
            .output("y", |s| [s.n])
            .reference(|_, x, y| y[0].copy_from_slice(x[0]))
            .cost(|s, t| Cost { bytes: 2 * s.n * t.size(), flops: 0 });
        let cuda = Cuda::source(include_str!("../../kernels/copy.cu"), "copy_v1", |s: &Elements| {
            Launch::blocks(s.n.div_ceil(BLOCK * 4), BLOCK).scalar(s.n as i64)
        });
        let shape = Elements { n: (bytes / 8).max(1) };
        Yardstick::new(operator, vec![cuda.named("cuda"), Cpu::new::<f32>(copy_on_host).named("cpu")], &shape)
    }

    /// A kernel that reads `bytes` bytes and writes hardly any.
    pub fn read(bytes: usize) -> Self {
        let (operator, candidates) = reading();
        Yardstick::new(operator, candidates, &elements_to_read(bytes))
    }

    /// Fused multiply-adds in f32 registers, about `flops` operations (an FMA counts as two), and hardly a byte moved.
    /// Only for GPUs: what the compiler makes of such a loop on a CPU is no ceiling.
    pub fn fma(flops: usize) -> Self {
        let (operator, candidates) = multiplying();
        Yardstick::new(operator, candidates, &chains_of(flops))
    }

    fn new<S: Shape>(operator: Op<S>, candidates: Vec<Candidate>, shape: &S) -> Self {
        let point = shape.to_point();
        let inputs = super::inputs::draw(&operator, &point, DType::F32, 0);
        Yardstick { operator: Arc::new(operator), candidates, point, inputs }
    }

    /// All yardsticks as suites in the dtype that they run in: their kernels are compiled ahead like any other.
    pub fn suites() -> Vec<Suite> {
        let suite = |yardstick: Yardstick| Suite {
            operator: yardstick.operator,
            dtypes: vec![DType::F32],
            candidates: yardstick.candidates,
        };
        vec![suite(Yardstick::copy(0)), suite(Yardstick::read(0)), suite(Yardstick::fma(0))]
    }

    /// What is computed.
    pub fn operator(&self) -> &dyn Operator {
        self.operator.as_ref()
    }

    /// How much work it is.
    pub fn cost(&self) -> Cost {
        self.operator.cost(&self.point, DType::F32)
    }

    /// Readies it on a device.
    ///
    /// # Errors
    /// As [`Device::prepare`]; [`Fault::Unsupported`] when none of its candidates runs there.
    pub fn prepare<'d>(&self, device: &'d dyn Device) -> Result<Box<dyn Problem + 'd>, Fault> {
        let runs = |candidate: &&Candidate| device.runs(&candidate.body);
        let candidate = self.candidates.iter().find(runs).ok_or_else(|| {
            Fault::Unsupported(format!(
                "the yardstick `{}` has no candidate for {}",
                self.operator.name(),
                device.kind()
            ))
        })?;
        device.prepare(&Job {
            operator: self.operator.as_ref(),
            candidate,
            point: &self.point,
            dtype: DType::F32,
            inputs: &self.inputs,
            offset_bytes: 0,
        })
    }
}

/// What reads and writes hardly anything, on either kind of device.
pub fn reading() -> (Op<Elements>, Vec<Candidate>) {
    let operator = Op::<Elements>::new("read")
        .input("x", |s| [s.n])
        .output("y", |s| [s.n.div_ceil(SUMMED)])
        .reference(|_, x, y| y[0].iter_mut().zip(x[0].chunks(SUMMED)).for_each(|(y, x)| *y = x.iter().sum()))
        .magnitude(|_, x, y| {
            y[0].iter_mut().zip(x[0].chunks(SUMMED)).for_each(|(y, x)| *y = x.iter().map(|x| x.abs()).sum());
        })
        .depth(|s| s.n.min(SUMMED))
        .cost(|s, t| Cost { bytes: (s.n + s.n.div_ceil(SUMMED)) * t.size(), flops: s.n });
    let cuda = Cuda::source(include_str!("../../kernels/read.cu"), "read_v1", |s: &Elements| {
        Launch::blocks(s.n.div_ceil(READ_BLOCK * READ_AT_ONCE), READ_BLOCK).scalar(s.n as i64)
    });
    let cuda = cuda.header("common.cuh", include_str!("../../kernels/lib/common.cuh"));
    (operator, vec![cuda.named("cuda"), Cpu::new::<f32>(read_on_host).named("cpu")])
}

/// The shape at which [`reading`] moves `bytes` bytes.
pub fn elements_to_read(bytes: usize) -> Elements {
    Elements { n: (bytes / size_of::<f32>() * SUMMED / (SUMMED + 1)).max(1) }
}

/// What multiplies and adds in registers, on a GPU.
pub fn multiplying() -> (Op<Chains>, Vec<Candidate>) {
    let operator = Op::<Chains>::new("fma")
        .input("x", |s| [s.threads])
        .output("y", |s| [s.threads])
        .reference(|s, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, &x)| *y = chains(x, s.steps)))
        .depth(|s| s.steps)
        .cost(|s, t| Cost { bytes: 2 * s.threads * t.size(), flops: 2 * CHAINS * s.threads * s.steps });
    let cuda = Cuda::source(include_str!("../../kernels/fma.cu"), "fma_v1", |s: &Chains| {
        let launch = Launch::blocks(s.threads.div_ceil(BLOCK), BLOCK);
        launch.scalar(s.threads as i32).scalar(s.steps as i32).scalar(SCALE).scalar(SHIFT)
    });
    (operator, vec![cuda.dtypes([DType::F32]).named("cuda")])
}

/// Elements below which the work is over before other threads are awake.
const WORTH_SHARING: usize = 1 << 18;

/// One memcpy a thread.
fn copy_on_host(_: &Elements, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    let (from, to) = (x.slice::<f32>(0), y.slice::<f32>(0));
    if from.len() < WORTH_SHARING {
        return to.copy_from_slice(from);
    }
    let chunk = from.len().div_ceil(rayon::current_num_threads());
    to.par_chunks_mut(chunk).zip(from.par_chunks(chunk)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// Sums of neighbours in lanes of a vector, which the compiler does not make of one chain.
fn read_on_host(_: &Elements, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    const LANES: usize = 64;
    let (from, to) = (x.slice::<f32>(0), y.slice::<f32>(0));
    let sum = |part: &[f32]| {
        let mut lanes = [0.0f32; LANES];
        let (whole, rest) = part.as_chunks::<LANES>();
        whole.iter().for_each(|chunk| lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += x));
        lanes.iter().chain(rest).sum::<f32>()
    };
    let sums = |to: &mut [f32], from: &[f32]| to.iter_mut().zip(from.chunks(SUMMED)).for_each(|(y, x)| *y = sum(x));
    if from.len() < WORTH_SHARING {
        return sums(to, from);
    }
    let each = to.len().div_ceil(rayon::current_num_threads());
    to.par_chunks_mut(each).zip(from.par_chunks(each * SUMMED)).for_each(|(to, from)| sums(to, from));
}

/// `v ← SCALE·v + SHIFT`: stays bounded for any number of steps.
pub const SCALE: f32 = 0.9375;
/// See [`SCALE`].
pub const SHIFT: f32 = 0.0625;

/// What one thread computes: the sum of its chains, which start at x, x + 1, x + 2 …
fn chains(x: f64, steps: usize) -> f64 {
    let chain = |j: usize| (0..steps).fold(x + j as f64, |v, _| v * f64::from(SCALE) + f64::from(SHIFT));
    (0..CHAINS).map(chain).sum()
}

/// Threads and steps for about `flops` operations. Long chains make loads and stores negligible; many blocks fill every
/// multiprocessor for several waves, so that the last one weighs little.
fn chains_of(flops: usize) -> Chains {
    const MANY_BLOCKS: usize = 4096;
    let a_step = 2 * CHAINS;
    let steps = (flops / (a_step * BLOCK * MANY_BLOCKS)).clamp(32, 2048);
    let threads = flops.div_ceil(a_step * steps).next_multiple_of(BLOCK);
    Chains { threads, steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::CpuDevice;
    use crate::device::{Heat, Poison, TimingPlan};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(1)]
    #[case(1000)]
    #[case(3 << 20)]
    fn a_copy_moves_the_bytes_it_is_asked_for(#[case] bytes: usize) {
        let copy = Yardstick::copy(bytes);
        assert!(copy.cost().bytes.abs_diff(bytes) < 8, "{:?}", copy.cost());
        let device = CpuDevice::new();
        let mut problem = copy.prepare(&device).unwrap();
        assert_eq!(problem.run(Poison::Nan).unwrap(), copy.inputs);
        let plan = TimingPlan {
            heat: Heat::Hot,
            chained: false,
            batch_us: 10.0,
            instances: 1,
            planted_us: 0.0,
            session: Duration::ZERO,
        };
        problem.arm(&plan).unwrap();
        assert!(problem.sample(0).unwrap().launch_us > 0.0);
        assert_eq!(problem.timed_outputs_agree(), Ok(true));
    }

    #[rstest]
    #[case(1)]
    #[case(1000)]
    #[case(3 << 20)]
    fn what_reads_moves_the_bytes_it_is_asked_for(#[case] bytes: usize) {
        let read = Yardstick::read(bytes);
        assert!(read.cost().bytes.abs_diff(bytes) <= 8, "{:?}", read.cost());
        let device = CpuDevice::new();
        let mut problem = read.prepare(&device).unwrap();
        let x = read.inputs[0].to_f64();
        let y = problem.run(Poison::Nan).unwrap()[0].to_f64();
        assert_eq!(y.len(), x.len().div_ceil(SUMMED));
        for (y, x) in y.iter().zip(x.chunks(SUMMED)) {
            approx::assert_abs_diff_eq!(*y, x.iter().sum::<f64>(), epsilon = 1e-4);
        }
    }

    #[rstest]
    #[case(2 * 1024usize.pow(3))]
    #[case(2 * 4096usize.pow(3))]
    fn fma_does_about_the_operations_it_is_asked_for(#[case] flops: usize) {
        let done = chains_of(flops);
        let flops_done = 2 * CHAINS * done.threads * done.steps;
        approx::assert_relative_eq!(flops_done as f64, flops as f64, max_relative = 0.01);
        assert!(done.threads / BLOCK >= 256);
    }

    #[test]
    fn fma_has_no_ceiling_to_show_on_a_cpu() {
        let fault = Yardstick::fma(1 << 20).prepare(&CpuDevice::new()).err();
        assert!(matches!(fault, Some(Fault::Unsupported(why)) if why.contains("fma")));
    }

    #[test]
    fn chains_stay_bounded() {
        approx::assert_relative_eq!(chains(-5.0, 2000), CHAINS as f64, max_relative = 1e-6);
        assert!(chains(3.0, 1) > chains(3.0, 2));
    }
}
