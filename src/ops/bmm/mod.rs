//! A batch of matrix products: `C[i] = op(A[i]) op(B[i])`, where op(A\[i\]) is `m`×`k`, op(B\[i\]) `k`×`n` and C\[i\]
//! `m`×`n`, all row-major, the items of a tensor one behind the other. op leaves a matrix as it is or transposes it: a factor
//! that is transposed has its extents the other way round in memory.

mod shape;
mod simt;
#[cfg(feature = "cuda")]
mod vendor;
mod wgmma;

pub use shape::Products;

use super::float::Float;
use super::gemm::tile::Tile;
use super::gemm::tuning::Tuned;
use super::gemm::{self, Product, batched};
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::{Launch, Plan};
use crate::core::operator::Op;
use crate::core::seed::{Rng, below, permutation};
use crate::core::shape::Shape as _;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use rayon::prelude::*;
use std::borrow::Cow;

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", naive_kernel().untimed().lesson())
        .candidate(
            "cuda",
            wgmma_kernel(|s| wgmma::operation(s).choose(&s.item(), false)).tiles([
                ("m", 64),
                ("m", 128),
                ("n", 64),
                ("k", 64),
            ]),
        )
        .candidate(
            "cuda",
            simt_kernel(simt::plan).workspace(simt::workspace_bytes).tiles([("m", 128), ("n", 128), ("k", 8)]),
        );
    with_vendor!(own, "cublaslt", vendor::cublaslt)
}

/// For timing its tiles.
pub fn tuned() -> Tuned {
    let suite = Suite::of(operator());
    let own = batched::tiles().fold(suite, |suite, tile| suite.candidate(tile.name, wgmma_kernel(move |_| tile)));
    Tuned {
        tiles: batched::tiles().collect(),
        suite: with_vendor!(own, "cublaslt", vendor::cublaslt),
        problem: |point| {
            let s = Products::from_point(point);
            (wgmma::operation(&s), s.item())
        },
        extents: 6,
        point: <[usize]>::to_vec,
        listed: TIMED.map(|timed| shape(timed).to_point()).to_vec(),
    }
}

fn operator() -> Op<Products> {
    Op::new("bmm")
        .input("a", |s: &Products| [s.batch, s.a()[0], s.a()[1]])
        .input("b", |s| [s.batch, s.b()[0], s.b()[1]])
        .output("c", |s| [s.batch, s.m, s.n])
        .reference(|s, inputs, outputs| multiply(s, inputs, &mut outputs[0], |a, b| a * b))
        .magnitude(|s, inputs, outputs| multiply(s, inputs, &mut outputs[0], |a, b| (a * b).abs()))
        .element(|s, x, at| {
            let (item, i, j) = (at / (s.m * s.n), at / s.n % s.m, at % s.n);
            gemm::dot(s.k, |p| x[0].get(s.at_a(item, i, p)) * x[1].get(s.at_b(item, p, j)))
        })
        .depth(|s| s.k)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(|s, dtype| Cost {
            bytes: s.batch * (s.m * s.k + s.k * s.n + s.m * s.n) * dtype.size(),
            flops: 2 * s.batch * s.m * s.n * s.k,
        })
        .separable("batch")
        .exact_relation(
            "one item of a doubled doubles that item of c and no other",
            |s, inputs, rng| double_item(&mut inputs[0], s, rng),
            |s, _, outputs, rng| double_item(&mut outputs[0], s, rng),
        )
        .exact_relation("permuted columns of op(b) permute those of c", permute_columns, permute_outputs)
        .exact_relation("the order of summation is free", permute_terms, |_, _, _, _| {})
        // A (B + E) = A B + A E, with one element in E.
        .relation(
            "additive in b",
            |s, inputs, rng| {
                let (item, row, column, value) = single(s, rng);
                inputs[1][s.at_b(item, row, column)] += value;
            },
            |s, inputs, outputs, rng| {
                let (item, row, column, value) = single(s, rng);
                for i in 0..s.m {
                    outputs[0][(item * s.m + i) * s.n + column] += inputs[0][s.at_a(item, i, row)] * value;
                }
            },
        )
        .shapes(cases())
        .perf(TIMED.map(shape))
}

/// As in gemm: products of two tiny values are 0, and sums of products of two large means overflow f16.
const UNDEFINED: [Distribution; 2] = [Distribution::Tiny, Distribution::LargeMean];

/// 2¹⁸ products of two such values still fit an f32 sum.
const RANGE: f64 = 1e16;

/// As (batch, m, n, k).
type Extents = (usize, usize, usize, usize);

/// Always different from each other: nothing, single items, rows, columns and products, both sides of
/// usual tiles, rows on 16 bytes and off, sums of thousands of terms.
const EXTENTS: [Extents; 26] = [
    (0, 8, 16, 24),
    (4, 1, 2, 3),
    (3, 1, 17, 33),
    (2, 17, 1, 9),
    (3, 5, 7, 1),
    (1, 15, 16, 17),
    (5, 16, 24, 8),
    (7, 33, 31, 32),
    (2, 63, 65, 64),
    (3, 64, 48, 80),
    (2, 72, 40, 136),
    (2, 127, 129, 128),
    (1, 129, 128, 127),
    (2, 100, 200, 300),
    (1, 255, 257, 31),
    (1, 36, 96, 1024),
    (2, 3, 8, 4104),
    // One for each tile that a batch of few operations takes.
    (100, 8, 200, 8),
    (100, 200, 8, 8),
    (96, 72, 8, 72),
    (96, 72, 136, 8),
    (96, 136, 72, 8),
    (96, 176, 72, 8),
    (96, 192, 72, 8),
    (100, 72, 200, 8),
    (100, 200, 72, 8),
];

/// Every extents in every layout.
fn cases() -> impl Iterator<Item = Products> {
    EXTENTS.into_iter().flat_map(|extents| ["nn", "nt", "tn", "tt"].map(|layout| shape((extents, layout))))
}

/// Scores and values of attention heads, long sums of small items, items that fill a GPU, the gradient of a layer's weights.
const TIMED: [(Extents, &str); 5] = [
    ((16, 512, 512, 64), "nt"),
    ((16, 512, 64, 512), "nn"),
    ((32, 128, 128, 4096), "nt"),
    ((8, 1024, 1024, 1024), "nn"),
    ((1, 1024, 4096, 1024), "tn"),
];

fn shape(((batch, m, n, k), layout): (Extents, &str)) -> Products {
    Products { batch, m, n, k, transposed_a: layout.starts_with('t'), transposed_b: layout.ends_with('t') }
}

/// An item, an element of its `k`×`n` factor by row and column, and a multiple of 1/8 in [1/8, 4].
fn single(s: &Products, rng: &mut Rng) -> (usize, usize, usize, f64) {
    (below(rng, s.batch), below(rng, s.k), below(rng, s.n), (1 + below(rng, 32)) as f64 / 8.0)
}

fn double_item(tensor: &mut [f64], s: &Products, rng: &mut Rng) {
    let item = below(rng, s.batch);
    let elements = tensor.len() / s.batch;
    super::family::rows::double(&mut tensor[item * elements..][..elements]);
}

/// Puts element `order[to]` of an axis at `to`, in tensors where `at(item, along, across)` is the place of an element.
fn permute(
    tensor: &mut [f64],
    s: &Products,
    across: usize,
    order: &[usize],
    at: impl Fn(usize, usize, usize) -> usize,
) {
    let before = tensor.to_vec();
    for item in 0..s.batch {
        for (to, &from) in order.iter().enumerate() {
            (0..across).for_each(|other| tensor[at(item, to, other)] = before[at(item, from, other)]);
        }
    }
}

fn permute_columns(s: &Products, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.n);
    permute(&mut inputs[1], s, s.k, &order, |item, column, row| s.at_b(item, row, column));
}

fn permute_outputs(s: &Products, _: &[Vec<f64>], outputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.n);
    permute(&mut outputs[0], s, s.m, &order, |item, column, row| (item * s.m + row) * s.n + column);
}

fn permute_terms(s: &Products, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.k);
    permute(&mut inputs[0], s, s.m, &order, |item, p, i| s.at_a(item, i, p));
    permute(&mut inputs[1], s, s.n, &order, |item, p, j| s.at_b(item, p, j));
}

/// A matrix with its rows as columns where it is transposed, and as it is otherwise.
fn as_factor<T: Copy>(matrix: &[T], [rows, cols]: [usize; 2], transposed: bool) -> Cow<'_, [T]> {
    if transposed {
        Cow::Owned((0..cols).flat_map(|col| (0..rows).map(move |row| matrix[row * cols + col])).collect())
    } else {
        Cow::Borrowed(matrix)
    }
}

/// gemm's loops for every item, the rows of an item on all threads.
fn multiply(s: &Products, inputs: &[&[f64]], c: &mut [f64], term: fn(f64, f64) -> f64) {
    let items = inputs[0].chunks_exact(s.m * s.k).zip(inputs[1].chunks_exact(s.k * s.n));
    for ((a, b), c) in items.zip(c.chunks_exact_mut(s.m * s.n)) {
        let (a, b) = (as_factor(a, s.a(), s.transposed_a), as_factor(b, s.b(), s.transposed_b));
        let row = Product { m: 1, ..s.item() };
        let rows = a.par_chunks_exact(s.k).zip(c.par_chunks_exact_mut(s.n));
        rows.for_each(|(a, c)| gemm::multiply(&row, a, &b, c, term));
    }
}

/// The same loops in f32.
fn naive<T: Float>(s: &Products, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let items = inputs.slice::<T>(0).chunks_exact(s.m * s.k).zip(inputs.slice::<T>(1).chunks_exact(s.k * s.n));
    for ((a, b), c) in items.zip(outputs.slice::<T>(0).chunks_exact_mut(s.m * s.n)) {
        let (a, b) = (as_factor(a, s.a(), s.transposed_a), as_factor(b, s.b(), s.transposed_b));
        gemm::naive_product(&s.item(), &a, &b, c);
    }
}

fn tiled<T: Float>(s: &Products, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let transposed = [s.transposed_a, s.transposed_b];
    let (a, b) = (inputs.slice::<T>(0), inputs.slice::<T>(1));
    simd::bmm((s.m, s.n, s.k), transposed, a, b, outputs.slice::<T>(0));
}

const HALF: [DType; 2] = [DType::F16, DType::BF16];

/// A thread an output, in every layout.
fn naive_kernel() -> Cuda<Products> {
    kernel!("bmm/bmm.cu", "bmm_naive", naive_launch).tile("n", 256)
}

/// gemm's tiles of multiply-adds in f32 under a launch rule of theirs.
fn simt_kernel(plan: fn(&Products) -> Plan) -> Cuda<Products> {
    kernel!("bmm/bmm_simt.cu", "bmm_simt_nn", plan).dtypes([DType::F32])
}

/// gemm's kernels on warpgroups, with the tile that `choose` says.
fn wgmma_kernel(choose: impl Fn(&Products) -> &'static Tile + Clone + Send + Sync + 'static) -> Cuda<Products> {
    let chosen = choose.clone();
    kernel!("bmm/bmm_wgmma.cu", "bmm_nn_128x256", move |s: &Products| wgmma::operation(s).plan(
        choose(s),
        &s.item(),
        &[s.batch as i32]
    ))
    .workspace(move |s| wgmma::operation(s).workspace_bytes(chosen(s), &s.item()))
    .needs("sm_90a")
    .dtypes(HALF)
}

fn naive_launch(s: &Products) -> Launch {
    let extents = [s.batch, s.m, s.n, s.k, usize::from(s.transposed_a), usize::from(s.transposed_b)];
    let launch = Launch::blocks((s.batch * s.m * s.n).div_ceil(256), 256);
    extents.into_iter().fold(launch, |launch, extent| launch.scalar(extent as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::Case;
    use crate::check::judge::judge_case;
    use crate::check::{Context, Subject};
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::shape::Shape;
    use crate::device::Device;
    use crate::device::cpu::CpuDevice;
    use crate::ops::agreement::{rejects, simulator};
    use rstest::rstest;
    use std::time::Duration;

    /// A naive product at another shape than the one that was asked for.
    fn wrong(change: impl Fn(&Products) -> Products + Send + Sync + 'static) -> Cpu<Products> {
        Cpu::new::<f32>(move |s: &Products, inputs, outputs| naive::<f32>(&change(s), inputs, outputs))
    }

    #[test]
    fn a_factor_read_the_wrong_way_is_seen() {
        rejects(operator(), wrong(|s| Products { transposed_a: !s.transposed_a, ..s.clone() }));
        rejects(operator(), wrong(|s| Products { transposed_b: !s.transposed_b, ..s.clone() }));
    }

    #[test]
    fn the_second_item_of_a_factor_taken_for_the_first_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Products, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let (a, b) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1));
            if s.batch > 1 {
                let b = as_factor(&b[s.k * s.n..][..s.k * s.n], s.b(), s.transposed_b);
                let a = as_factor(&a[..s.m * s.k], s.a(), s.transposed_a);
                gemm::naive_product(&s.item(), &a, &b, &mut outputs.slice::<f32>(0)[..s.m * s.n]);
            }
        });
        rejects(operator(), wrong);
    }

    /// Equal products, whose roundings all go one way: in one stretch, two, three and more.
    #[rstest]
    fn a_long_sum_does_not_lean(
        #[values("naive", "tiled", "lesson1_naive", "cuda")] name: &str,
        #[values(1, 40)] m: usize,
        #[values(144, 255, 513, 1100)] k: usize,
    ) {
        let sim = simulator();
        let cpu = CpuDevice::new();
        let (candidate, device): (Candidate, &dyn Device) = match name {
            "naive" => (Cpu::new::<f32>(naive::<f32>).named(name), &cpu),
            "tiled" => (Cpu::new::<f32>(tiled::<f32>).named(name), &cpu),
            "lesson1_naive" => (naive_kernel().named(name), &sim),
            _ => (simt_kernel(|s| simt::in_parts(s, 1)).named(name), &sim),
        };
        let operator = operator();
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let context = Context::new(device, 1, Duration::from_secs(60));
        for seed in 1..=4 {
            let case = Case::new(shape(((1, m, 7, k), "nt")).to_point(), Distribution::ConstantRows, seed);
            let judged = judge_case(&context, &subject, &case);
            assert!(judged.is_ok(), "{judged:#?}");
        }
    }
}
