//! Attention of one new token of each sequence over keys and values in pages, as servers keep them: y = softmax(q kᵀ / √dim) v
//! over the sequence's own number of keys, key `j` of which is row `j % page` of the page that its table names at `j / page`.
//!
//! Pages may be shared: sequences with a common start name the same ones. A query head `h` reads the keys of head `h / group`.
//! A sequence without keys gives zeros.

mod launch;

use super::attention::{self, HALF, RANGE, rounded_weights};
use super::attention_cached::{self, Cached};
use super::family::FUNCTION_FLOPS;
use super::family::rows::double;
use super::float::Float;
use crate::core::candidate::Declare;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::seed::permutation;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs, Tensor};

crate::shape! {
    /// The shape of a step of attention over pages.
    pub struct Paged {
        /// Sequences.
        batch: 0..=1 << 12,
        /// Heads of keys and values.
        heads: 1..=1 << 8,
        /// Query heads to each of them.
        group: 1..=1 << 6,
        /// Keys of the shortest sequence.
        shortest: 0..=1 << 17,
        /// Keys that the longest one may have more.
        spread: 0..=1 << 17,
        /// Keys of a page.
        page: 1..=1 << 10,
        /// Pages that there are.
        pages: 1..=1 << 20,
        /// Elements of a query, a key, a value.
        dim: 1..=256,
    }
}

impl Paged {
    fn query_heads(&self) -> usize {
        self.heads * self.group
    }

    /// Entries of a sequence's table.
    fn table(&self) -> usize {
        (self.shortest + self.spread).div_ceil(self.page).max(1)
    }

    /// Elements of a page of keys.
    fn page_elements(&self) -> usize {
        self.page * self.heads * self.dim
    }

    /// Where the vector of key `j` of a sequence begins, of head 0.
    fn slot(&self, table: &[usize], j: usize) -> usize {
        table[j / self.page] * self.page_elements() + j % self.page * self.heads * self.dim
    }

    /// The same attention over the keys of one sequence, as attention_cached has it; none without keys.
    fn of_sequence(&self, length: usize) -> Option<Cached> {
        let &Paged { heads, group, dim, .. } = self;
        let past = length.checked_sub(1)?;
        Some(Cached { batch: 1, heads, group, queries: 1, past, dim })
    }

    /// Keys or values of a sequence, one behind the other.
    fn gathered<T: Copy>(&self, pool: &[T], table: &[usize], length: usize) -> Vec<T> {
        (0..length).flat_map(|j| &pool[self.slot(table, j)..][..self.heads * self.dim]).copied().collect()
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive().untimed().lesson())
        .candidate("cuda", launch::best().dtypes(HALF).tolerance(rounded_weights()))
        .candidate("cuda", launch::naive().dtypes([DType::F32]).untimed())
        .into()
}

fn operator() -> Op<Paged> {
    Op::new("attention_paged")
        .input("q", |s: &Paged| [s.batch, s.query_heads(), s.dim])
        .input("k", |s| [s.pages, s.page, s.heads, s.dim])
        .input("v", |s| [s.pages, s.page, s.heads, s.dim])
        .index("page_table", |s| [s.batch, s.table()], |s| s.pages)
        .index("lengths", |s| [s.batch], |s| s.shortest + s.spread + 1)
        .index_from(|s| s.shortest)
        .output("y", |s| [s.batch, s.query_heads(), s.dim])
        .reference(|s, inputs, outputs| {
            each_key(s, inputs, &mut outputs[0], |y, weight, _, v| {
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * v);
            });
        })
        // An error of a score changes its weight by as much, and a score collects the sizes of its products.
        .magnitude(|s, inputs, outputs| {
            outputs[0].fill(0.0);
            each_key(s, inputs, &mut outputs[0], |y, weight, size, v| {
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * (1.0 + size) * v.abs());
            });
        })
        .element(element)
        .depth(|s| s.dim + s.shortest + s.spread + STEPS)
        .range(RANGE)
        .exclude_distributions([Distribution::Tiny, Distribution::LargeMean, Distribution::NonFinite])
        .cost(cost)
        .separable("batch")
        .relation(
            "doubled values double the output",
            |_, inputs, _| double(&mut inputs[2]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .exact_relation(
            "renamed pages are found again",
            |s, inputs, rng| {
                let order = permutation(rng, s.pages);
                for pool in &mut inputs[1..3] {
                    let before = pool.clone();
                    for (page, &to) in before.chunks_exact(s.page_elements()).zip(&order) {
                        pool[to * s.page_elements()..][..s.page_elements()].copy_from_slice(page);
                    }
                }
                inputs[3].iter_mut().for_each(|page| *page = order[*page as usize] as f64);
            },
            |_, _, _, _| {},
        )
        .exact_relation(
            "slots that no key lies in are not seen",
            |s, inputs, _| spoil_free_slots(s, inputs),
            |_, _, _, _| {},
        )
        .varied_around(Paged { batch: 3, heads: 2, group: 2, shortest: 17, spread: 14, page: 16, pages: 5, dim: 8 })
        .shapes(CASES.map(of))
        .perf(
            [
                [16, 8, 4, 2048, 0, 16, 4096, 128],
                [32, 8, 4, 512, 1024, 64, 1024, 128],
                [4, 8, 8, 4096, 0, 16, 2048, 128],
                [64, 4, 8, 512, 512, 16, 8192, 64],
                [8, 8, 2, 2048, 0, 32, 1024, 256],
            ]
            .map(of),
        )
}

/// Roundings besides those of the two sums: scale, difference, two of the exponential, quotient, and three corrections.
const STEPS: usize = 8;

/// As (batch, heads, group, shortest, spread, page, pages, dim): nothing, no keys, a key, pages of every kind, the last one full
/// or not, groups that read their keys more than once, rows that no tensor core takes, every entry, sequences that differ, more than a warp takes at once.
const CASES: [[usize; 8]; 18] = [
    [0, 2, 1, 4, 1, 4, 3, 8],
    [2, 1, 1, 0, 0, 16, 1, 8],
    [1, 1, 1, 1, 0, 1, 1, 1],
    [3, 2, 3, 0, 20, 5, 30, 16],
    [2, 3, 1, 7, 9, 16, 4, 24],
    [1, 2, 4, 64, 0, 16, 9, 64],
    [2, 1, 5, 65, 0, 32, 7, 72],
    [4, 2, 8, 0, 200, 16, 70, 128],
    [1, 2, 19, 40, 0, 16, 5, 64],
    [2, 2, 2, 33, 40, 48, 8, 40],
    [1, 1, 3, 700, 0, 16, 50, 128],
    [3, 1, 2, 100, 300, 64, 11, 256],
    [1, 4, 1, 129, 0, 128, 3, 136],
    [2, 1, 7, 31, 1, 16, 3, 100],
    [40, 4, 2, 0, 40, 16, 99, 32],
    [17, 8, 1, 10, 60, 16, 200, 64],
    [1, 1, 8, 4200, 0, 16, 300, 64],
    [5, 3, 4, 255, 2, 256, 6, 80],
];

fn of([batch, heads, group, shortest, spread, page, pages, dim]: [usize; 8]) -> Paged {
    Paged { batch, heads, group, shortest, spread, page, pages, dim }
}

/// q, y, tables, lengths, and each page of the keys and values that is named: of `pages` pages that so many uniform draws leave out
/// (1 − 1/pages)^draws on average. Two products for each key of a query, and its exponential. Lengths are half way between the
/// shortest and the longest.
fn cost(s: &Paged, dtype: DType) -> Cost {
    let keys = s.batch * (2 * s.shortest + s.spread) / 2;
    let draws = keys as f64 / s.page as f64;
    let named = s.pages as f64 * (1.0 - (1.0 - 1.0 / s.pages as f64).powf(draws));
    let of_keys = 2 * ((named * s.page as f64) as usize).min(keys) * s.heads * s.dim;
    let of_queries = 2 * s.batch * s.query_heads() * s.dim;
    let flops = s.query_heads() * keys * (4 * s.dim + FUNCTION_FLOPS);
    let indices = s.batch + keys / s.page;
    Cost { bytes: (of_queries + of_keys) * dtype.size() + indices * DType::I32.size(), flops }
}

/// The table of a sequence and its number of keys.
fn keys_of(s: &Paged, inputs: &[&[f64]], sequence: usize) -> (Vec<usize>, usize) {
    let table = inputs[3][sequence * s.table()..][..s.table()].iter().map(|&page| page as usize).collect();
    (table, inputs[4][sequence] as usize)
}

/// Calls `visit(y, weight, score_size, v)` for every key that every query sees.
fn each_key(s: &Paged, inputs: &[&[f64]], y: &mut [f64], mut visit: impl FnMut(&mut [f64], f64, f64, &[f64])) {
    let of_token = s.query_heads() * s.dim;
    for (sequence, y) in y.chunks_exact_mut(of_token).enumerate() {
        let (table, length) = keys_of(s, inputs, sequence);
        let Some(shape) = s.of_sequence(length) else { continue };
        let [k, v] = [1, 2].map(|pool| s.gathered(inputs[pool], &table, length));
        attention_cached::each_key(&shape, &[&inputs[0][sequence * of_token..][..of_token], &k, &v], y, &mut visit);
    }
}

/// One element of the output, and its magnitude.
fn element(s: &Paged, inputs: &[Tensor], at: usize) -> [f64; 2] {
    let (sequence, head) = (at / s.dim / s.query_heads(), at / s.dim % s.query_heads() / s.group);
    let table: Vec<usize> = (0..s.table()).map(|i| inputs[3].get(sequence * s.table() + i) as usize).collect();
    let length = inputs[4].get(sequence) as usize;
    attention::element_over(s.dim, inputs, at, (0..length).map(|j| s.slot(&table, j) + head * s.dim))
}

/// Fills every slot of keys and values in which no key of a sequence lies.
fn spoil_free_slots(s: &Paged, inputs: &mut [Vec<f64>]) {
    let row = s.heads * s.dim;
    let mut is_free = vec![true; s.pages * s.page];
    let borrowed: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    for sequence in 0..s.batch {
        let (table, length) = keys_of(s, &borrowed, sequence);
        (0..length).for_each(|j| is_free[s.slot(&table, j) / row] = false);
    }
    for pool in &mut inputs[1..3] {
        let free = pool.chunks_exact_mut(row).zip(&is_free).filter(|(_, is_free)| **is_free);
        free.for_each(|(slot, _)| slot.fill(f64::NAN));
    }
}

/// Computes sequence by sequence as attention_cached does.
fn by_sequence<T: Float>(
    s: &Paged,
    inputs: &Inputs<'_>,
    outputs: &mut Outputs<'_>,
    compute: fn(&Cached, &Inputs<'_>, &mut Outputs<'_>),
) {
    let (q, k, v) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    let (tables, lengths) = (inputs.slice::<i32>(3), inputs.slice::<i32>(4));
    let of_token = s.query_heads() * s.dim;
    let y = outputs.slice::<T>(0);
    let tokens = q.chunks_exact(of_token).zip(y.chunks_exact_mut(of_token));
    for (((q, y), table), &length) in tokens.zip(tables.chunks_exact(s.table())).zip(lengths) {
        let Some(shape) = s.of_sequence(length as usize) else {
            y.fill(T::from_f32(0.0));
            continue;
        };
        let table: Vec<usize> = table.iter().map(|&page| page as usize).collect();
        let [k, v] = [k, v].map(|pool| s.gathered(pool, &table, length as usize));
        let inputs = Inputs(vec![bytemuck::cast_slice(q), bytemuck::cast_slice(&k), bytemuck::cast_slice(&v)]);
        compute(&shape, &inputs, &mut Outputs(vec![bytemuck::cast_slice_mut(y)]));
    }
}

fn naive<T: Float>(s: &Paged, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    by_sequence::<T>(s, inputs, outputs, attention_cached::naive::<T>);
}

fn tiled<T: Float>(s: &Paged, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    by_sequence::<T>(s, inputs, outputs, attention_cached::tiled::<T>);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_table_that_is_read_a_page_too_far_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Paged, inputs, outputs| {
            let mut tables = inputs.slice::<i32>(3).to_vec();
            let by = tables.len().min(1);
            tables.rotate_left(by);
            let mut inputs = Inputs(inputs.0.clone());
            inputs.0[3] = bytemuck::cast_slice(&tables);
            naive::<f32>(s, &inputs, outputs);
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_key_that_is_left_out_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Paged, inputs, outputs| {
            let lengths: Vec<i32> = inputs.slice::<i32>(4).iter().map(|&length| (length - 1).max(0)).collect();
            let mut inputs = Inputs(inputs.0.clone());
            inputs.0[4] = bytemuck::cast_slice(&lengths);
            naive::<f32>(s, &inputs, outputs);
        });
        rejects(operator(), wrong);
    }
}
