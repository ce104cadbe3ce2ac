//! LSTM: per step gates i, f, o = σ(p), g = tanh(p) of p = W x + R h + b; then c = f c + i g and h = o tanh(c).
//!
//! Both states start as zeros. Of two layers the second reads what the first gives. Rows of W, R and b are those of i,
//! f, g, o, `hidden` each.

mod launch;
mod persistent;
mod persistent_simt;
mod shape;
#[cfg(feature = "cuda")]
mod vendor;

use self::shape::GATES;
pub use self::shape::Sequences;
use super::float::{Float, sum};
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::Plan;
use crate::core::operator::Op;
use crate::core::seed::Rng;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::tolerance::ACCUMULATOR_EPSILON;

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate(
            "lesson1_naive",
            kernel(launch::naive)
                .workspace(launch::naive_workspace_bytes)
                .tile("hidden", launch::NAIVE_THREADS)
                .untimed()
                .lesson(),
        )
        .candidate("lesson2_input_gemm", input_gemm_kernel().lesson())
        .candidate("lesson3_persistent", persistent_kernel().lesson())
        .candidate("cuda", resident_kernel())
        .candidate("cuda", resident_kernel_f32());
    with_vendor!(own, "cudnn", vendor::cudnn)
}

fn operator() -> Op<Sequences> {
    Op::new("lstm")
        .input("x", |s: &Sequences| [s.steps, s.batch, s.inputs])
        .weight("w", |s| s.inputs, |s| [GATES * s.hidden, s.inputs])
        .weight("w_above", |s| s.hidden, |s| [s.layers - 1, GATES * s.hidden, s.hidden])
        .weight("r", |s| s.hidden, |s| [s.layers, GATES * s.hidden, s.hidden])
        .parameter("bias", 0.0, |s| [s.layers, GATES * s.hidden])
        .output("y", |s| [s.steps, s.batch, s.hidden])
        .output("h", |s| [s.layers, s.batch, s.hidden])
        .output("c", |s| [s.layers, s.batch, s.hidden])
        .reference(|s, inputs, outputs| unroll(s, inputs, outputs, |of| of.value))
        .magnitude(|s, inputs, outputs| unroll(s, inputs, outputs, |of| of.size))
        .depth(|s| s.inputs.max(s.hidden) + s.hidden + STEPS)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(cost)
        .separable("batch")
        .relation("no output sees a later input", |s, x, _| change_last_step(s, &mut x[0]), expect_last_step)
        .varied_around(Sequences { steps: 3, batch: 5, inputs: 7, hidden: 11, layers: 2 })
        .shapes(cases().map(|(steps, batch, inputs, hidden, layers)| Sequences {
            steps,
            batch,
            inputs,
            hidden,
            layers,
        }))
        .perf([
            Sequences { steps: 128, batch: 32, inputs: 512, hidden: 512, layers: 1 },
            Sequences { steps: 64, batch: 8, inputs: 256, hidden: 384, layers: 2 },
        ])
}

/// Roundings besides those of the sums: bias, three of a function, three of the cell, two of the state.
const STEPS: usize = 9;
/// Gates are flat long before.
const RANGE: f64 = 64.0;
/// Gates of tiny values are those of the bias alone. A cell that met an infinity stays NaN or at its limit, which says
/// nothing of the steps behind it.
const UNDEFINED: [Distribution; 3] = [Distribution::Tiny, Distribution::LargeMean, Distribution::NonFinite];

/// x, y, the states and all weights once.
fn cost(s: &Sequences, dtype: DType) -> Cost {
    let sequences = s.steps * s.batch * (s.inputs + s.hidden) + 2 * s.layers * s.cells();
    let pointwise = 30;
    let products = 2 * (s.weights() - s.layers * GATES * s.hidden) * s.batch;
    let flops = s.steps * (products + s.layers * s.cells() * pointwise);
    Cost { bytes: (sequences + s.weights()) * dtype.size(), flops }
}

/// As (steps, batch, inputs, hidden, layers), extents always different: one of everything, no sequence, both sides of
/// usual tiles, one long sequence, few and many sequences of every number of units that clusters take, more units, and groups
/// of sequences that take turns.
fn cases() -> impl Iterator<Item = (usize, usize, usize, usize, usize)> {
    let narrow = (1..=17).map(|hidden| (3, 2, 5, hidden, 1 + hidden % 2));
    let edges = [(1, 1, 1, 1, 1), (3, 0, 4, 5, 2), (2, 3, 1, 4, 1), (1, 5, 7, 3, 2), (61, 1, 2, 3, 1)];
    let tiles = [(2, 15, 33, 31, 1), (2, 17, 31, 33, 2), (3, 5, 63, 65, 1), (2, 33, 48, 64, 1), (4, 7, 96, 80, 2)];
    let clusters = [(2, 1, 3, 130, 1), (2, 121, 3, 97, 1), (2, 61, 3, 129, 1), (2, 1, 5, 260, 1), (2, 29, 3, 257, 1)];
    let large = [(2, 1, 7, 390, 1), (2, 30, 4, 385, 1), (4, 1, 3, 520, 1), (3, 17, 5, 700, 1), (2, 10, 3, 1030, 2)];
    // Steps enough that a place for states is written again, by several groups of sequences and several units.
    let groups = [(5, 19, 3, 136, 1), (4, 35, 5, 72, 2), (6, 41, 2, 20, 1), (2, 11, 3, 250, 1)];
    narrow.chain(edges).chain(tiles).chain(clusters).chain(large).chain(groups)
}

/// A value and the size of what was added, cancelled or carried over to make it.
#[derive(Clone, Copy, Default)]
struct Of {
    value: f64,
    size: f64,
}

impl Of {
    /// A smooth function: its value and its slope.
    fn map(self, value: f64, slope: f64) -> Of {
        /// What leaves the normal numbers of f32 may be flushed to 0.
        const FLUSHED: f64 = f32::MIN_POSITIVE as f64 / ACCUMULATOR_EPSILON;
        Of { value, size: slope * self.size + value.abs() + FLUSHED }
    }

    fn sigmoid(self) -> Of {
        let value = 1.0 / (1.0 + (-self.value).exp());
        self.map(value, value * (1.0 - value))
    }

    fn tanh(self) -> Of {
        let value = self.value.tanh();
        self.map(value, 1.0 - value * value)
    }

    fn times(self, other: Of) -> Of {
        let value = self.value * other.value;
        Of { value, size: self.value.abs() * other.size + other.value.abs() * self.size + value.abs() }
    }

    fn plus(self, other: Of) -> Of {
        Of { value: self.value + other.value, size: self.size + other.size }
    }
}

/// A bias and two sums of products. What the factors carry adds up as roundings do that know nothing of each other.
fn gate(bias: f64, sums: [(&[f64], &[Of]); 2]) -> Of {
    let (mut of, mut carried) = (Of { value: bias, size: bias.abs() }, 0.0);
    for (w, x) in sums.into_iter().flat_map(|(w, x)| w.iter().zip(x)) {
        of.value += w * x.value;
        of.size += (w * x.value).abs();
        carried += (w * x.size).powi(2);
    }
    Of { size: of.size + carried.sqrt(), ..of }
}

/// Runs all steps of all layers and writes what `pick` takes of the last layer's states, and of every layer's last.
fn unroll(s: &Sequences, inputs: &[&[f64]], outputs: &mut [Vec<f64>], pick: fn(&Of) -> f64) {
    let put = |to: &mut [f64], from: &[Of]| to.iter_mut().zip(from).for_each(|(to, from)| *to = pick(from));
    let mut below: Vec<Of> = inputs[0].iter().map(|&value| Of { value, size: 0.0 }).collect();
    let of_layer = GATES * s.hidden * s.hidden;
    for layer in 0..s.layers {
        let width = s.width(layer);
        let w = if layer == 0 { inputs[1] } else { &inputs[2][(layer - 1) * of_layer..] };
        let (r, bias) = (&inputs[3][layer * of_layer..], &inputs[4][layer * GATES * s.hidden..]);
        let mut above = Vec::with_capacity(s.steps * s.cells());
        let (mut h, mut c) = (vec![Of::default(); s.cells()], vec![Of::default(); s.cells()]);
        for step in 0..s.steps {
            let before = h.clone();
            for cell in 0..s.cells() {
                let (n, unit) = (cell / s.hidden, cell % s.hidden);
                let (x, h_before) =
                    (&below[(step * s.batch + n) * width..][..width], &before[n * s.hidden..][..s.hidden]);
                let [i, f, g, o] = std::array::from_fn(|k| {
                    let row = k * s.hidden + unit;
                    gate(bias[row], [(&w[row * width..][..width], x), (&r[row * s.hidden..][..s.hidden], h_before)])
                });
                c[cell] = f.sigmoid().times(c[cell]).plus(i.sigmoid().times(g.tanh()));
                h[cell] = o.sigmoid().times(c[cell].tanh());
            }
            above.extend_from_slice(&h);
        }
        put(&mut outputs[1][layer * s.cells()..][..s.cells()], &h);
        put(&mut outputs[2][layer * s.cells()..][..s.cells()], &c);
        below = above;
    }
    put(&mut outputs[0], &below);
}

fn change_last_step(s: &Sequences, x: &mut [f64]) {
    x[(s.steps - 1) * s.batch * s.inputs..].iter_mut().for_each(|x| *x = 1.0 - *x);
}

/// What the last step then gives; the outputs of all others stay.
fn expect_last_step(s: &Sequences, inputs: &[Vec<f64>], outputs: &mut [Vec<f64>], _: &mut Rng) {
    let mut changed = inputs.to_vec();
    change_last_step(s, &mut changed[0]);
    let changed: Vec<&[f64]> = changed.iter().map(Vec::as_slice).collect();
    let mut afresh: Vec<Vec<f64>> = outputs.iter().map(|y| vec![0.0; y.len()]).collect();
    unroll(s, &changed, &mut afresh, |of| of.value);
    let last = (s.steps - 1) * s.cells();
    outputs[0][last..].copy_from_slice(&afresh[0][last..]);
    outputs[1..].clone_from_slice(&afresh[1..]);
}

/// The definition in f32; states keep f32 between steps.
fn naive<T: Float>(s: &Sequences, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let mut below: Vec<f32> = inputs.slice::<T>(0).iter().map(|x| x.to_f32()).collect();
    let of_layer = GATES * s.hidden * s.hidden;
    for layer in 0..s.layers {
        let width = s.width(layer);
        let w = if layer == 0 { inputs.slice::<T>(1) } else { &inputs.slice::<T>(2)[(layer - 1) * of_layer..] };
        let r = &inputs.slice::<T>(3)[layer * of_layer..];
        let bias = &inputs.slice::<T>(4)[layer * GATES * s.hidden..];
        let mut above = Vec::with_capacity(s.steps * s.cells());
        let (mut h, mut c) = (vec![0.0f32; s.cells()], vec![0.0f32; s.cells()]);
        for step in 0..s.steps {
            let before = h.clone();
            for cell in 0..s.cells() {
                let (n, unit) = (cell / s.hidden, cell % s.hidden);
                let (x, before) = (&below[(step * s.batch + n) * width..], &before[n * s.hidden..]);
                let [i, f, g, o] = std::array::from_fn(|k| {
                    let row = k * s.hidden + unit;
                    let of_input = sum(width, &|at| w[row * width + at].to_f32() * x[at]);
                    of_input + sum(s.hidden, &|at| r[row * s.hidden + at].to_f32() * before[at]) + bias[row].to_f32()
                });
                c[cell] = sigmoid(f) * c[cell] + sigmoid(i) * g.tanh();
                h[cell] = sigmoid(o) * c[cell].tanh();
            }
            above.extend_from_slice(&h);
        }
        put::<T>(&mut outputs.slice::<T>(1)[layer * s.cells()..], &h);
        put::<T>(&mut outputs.slice::<T>(2)[layer * s.cells()..], &c);
        below = above;
    }
    put::<T>(outputs.slice::<T>(0), &below);
}

fn put<T: Float>(to: &mut [T], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::from_f32(from));
}

fn tiled<T: Float>(s: &Sequences, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let mut below: Vec<f32> = inputs.slice::<T>(0).iter().map(|x| x.to_f32()).collect();
    let of_layer = GATES * s.hidden * s.hidden;
    for layer in 0..s.layers {
        let extents = simd::LayerExtents { batch: s.batch, width: s.width(layer), hidden: s.hidden };
        let w =
            if layer == 0 { inputs.slice::<T>(1) } else { &inputs.slice::<T>(2)[(layer - 1) * of_layer..][..of_layer] };
        let r = &inputs.slice::<T>(3)[layer * of_layer..][..of_layer];
        let bias = &inputs.slice::<T>(4)[layer * GATES * s.hidden..][..GATES * s.hidden];
        let mut above = vec![0.0; s.steps * s.cells()];
        let mut c = vec![0.0; s.cells()];
        simd::lstm_layer(&extents, &below, (w, r, bias), &mut above, &mut c);
        put::<T>(&mut outputs.slice::<T>(1)[layer * s.cells()..], &above[(s.steps - 1) * s.cells()..]);
        put::<T>(&mut outputs.slice::<T>(2)[layer * s.cells()..], &c);
        below = above;
    }
    put::<T>(outputs.slice::<T>(0), &below);
}

fn kernel(plan: fn(&Sequences) -> Plan) -> Cuda<Sequences> {
    kernel!("lstm/lstm.cu", "lstm_naive", plan)
}

/// The inputs of all steps in one product, then a launch a step.
fn input_gemm_kernel() -> Cuda<Sequences> {
    let kernel = kernel(launch::by_steps).workspace(launch::step_workspace_bytes);
    kernel.tiles([("hidden", launch::STEP_UNITS), ("batch", launch::STEP_SEQUENCES)])
}

/// The same product, then one launch for all steps by few blocks that stay and meet at each step.
fn persistent_kernel() -> Cuda<Sequences> {
    let kernel = kernel(persistent::on_few).workspace(persistent::workspace_bytes);
    let tiles = [
        ("hidden", persistent::SLICE_UNITS),
        ("hidden", persistent::SLICE_UNITS * persistent::WARPS),
        ("batch", persistent::TILE_SEQUENCES),
    ];
    kernel.tiles(tiles).needs("sm_90a").dtypes([DType::F16, DType::BF16])
}

/// The same product, then one launch for all steps: by clusters, or by a block on every multiprocessor.
fn resident_kernel() -> Cuda<Sequences> {
    let kernel = kernel(launch::resident).workspace(launch::resident_workspace_bytes);
    let tiles = [
        ("hidden", launch::BLOCK_UNITS),
        ("hidden", launch::ENTRY_UNITS),
        ("hidden", launch::MOST_CLUSTER_UNITS),
        ("batch", launch::CLUSTER_SEQUENCES),
    ];
    kernel.tiles(tiles).needs("sm_90a").dtypes([DType::F16, DType::BF16])
}

/// The same in f32, by blocks on all multiprocessors.
fn resident_kernel_f32() -> Cuda<Sequences> {
    let kernel = kernel(persistent_simt::plan).workspace(persistent_simt::workspace_bytes);
    kernel.tiles([("hidden", 8), ("hidden", 16), ("batch", persistent_simt::GROUP)]).dtypes([DType::F32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_forgotten_state_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Sequences, inputs, outputs| {
            // Every step as the first of a sequence of its own.
            let one = Sequences { steps: 1, batch: s.steps * s.batch, ..s.clone() };
            let (mut h, mut c) = (vec![0.0; s.layers * one.cells()], vec![0.0; s.layers * one.cells()]);
            let all: Vec<Vec<f64>> =
                (0..5).map(|i| inputs.slice::<f32>(i).iter().map(|&x| f64::from(x)).collect()).collect();
            let all: Vec<&[f64]> = all.iter().map(Vec::as_slice).collect();
            let y = vec![0.0; s.steps * s.cells()];
            let mut made = [y, std::mem::take(&mut h), std::mem::take(&mut c)];
            unroll(&one, &all, &mut made, |of| of.value);
            outputs.slice::<f32>(0).iter_mut().zip(&made[0]).for_each(|(to, &from)| *to = from as f32);
            let last = (s.steps - 1) * s.cells();
            for (i, made) in made.iter().enumerate().skip(1) {
                for layer in 0..s.layers {
                    let from = &made[layer * one.cells() + last..][..s.cells()];
                    let to = &mut outputs.slice::<f32>(i)[layer * s.cells()..][..s.cells()];
                    to.iter_mut().zip(from).for_each(|(to, &from)| *to = from as f32);
                }
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn one_cell_by_hand() {
        let s = Sequences { steps: 2, batch: 1, inputs: 1, hidden: 1, layers: 1 };
        let mut outputs = vec![vec![0.0; 2], vec![0.0], vec![0.0]];
        let (w, r, bias) = ([0.0, 0.0, 1.0, 0.0], [0.0; 4], [0.0; 4]);
        unroll(&s, &[&[1.0, 0.0], &w, &[], &r, &bias], &mut outputs, |of| of.value);
        // Every gate is 1/2: c is half of tanh 1, then a quarter of it.
        let c = 1.0f64.tanh() / 4.0;
        approx::assert_relative_eq!(outputs[2][0], c, max_relative = 1e-15);
        approx::assert_relative_eq!(outputs[1][0], c.tanh() / 2.0, max_relative = 1e-15);
        assert_eq!(outputs[0][1], outputs[1][0]);
    }
}
