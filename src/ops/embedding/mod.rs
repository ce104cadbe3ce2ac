//! Embedding: `y[i] = table[ids[i]]`, rows of `dim` elements copied out of `vocab`.

mod launch;

use super::family::rows::double;
use super::float::Float;
use super::simd;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::seed::permutation;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a look-up.
    pub struct Lookup {
        /// Rows of the table.
        vocab: 1..=1 << 20,
        /// Elements of a row.
        dim: 1..=1 << 16,
        /// Rows to copy.
        ids: 0..=1 << 20,
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive())
        .candidate("lesson2_vectorised", launch::vectorised())
        .candidate("lesson3_four_rows", launch::four_rows())
        .candidate("cuda", launch::best_f32())
        .candidate("cuda", launch::best_half())
        .into()
}

fn operator() -> Op<Lookup> {
    Op::new("embedding")
        .input("table", |s: &Lookup| [s.vocab, s.dim])
        .index("ids", |s| [s.ids], |s| s.vocab)
        .output("y", |s| [s.ids, s.dim])
        .reference(reference)
        // Nothing is computed, so nothing may be lost.
        .magnitude(|_, _, y| y[0].fill(0.0))
        .cost(cost)
        .separable("ids")
        .exact_relation(
            "a doubled table doubles the output",
            |_, inputs, _| double(&mut inputs[0]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .exact_relation(
            "renamed rows are found again",
            |s, inputs, rng| {
                let order = permutation(rng, s.vocab);
                let table = inputs[0].clone();
                for (from, &to) in order.iter().enumerate() {
                    inputs[0][to * s.dim..][..s.dim].copy_from_slice(&table[from * s.dim..][..s.dim]);
                }
                inputs[1].iter_mut().for_each(|id| *id = order[*id as usize] as f64);
            },
            |_, _, _, _| {},
        )
        .shapes(cases().map(|(vocab, dim, ids)| Lookup { vocab, dim, ids }))
        .perf([
            Lookup { vocab: 32_000, dim: 2048, ids: 16_384 },
            Lookup { vocab: 32_000, dim: 2047, ids: 16_384 },
            Lookup { vocab: 50_257, dim: 768, ids: 8192 },
        ])
}

/// As (vocab, dim, ids), always different: nothing, every narrow row, a table of one row, fewer and more ids than rows.
fn cases() -> impl Iterator<Item = (usize, usize, usize)> {
    let narrow = (1..=33).map(|dim| (41, dim, 37));
    let edges = [(9, 4, 0), (1, 5, 3)];
    let realistic = [
        (1000, 64, 37),
        (37, 2048, 50),
        (29, 4096, 31),
        (13, 1023, 300),
        (13, 1025, 110),
        (13, 614, 900),
        (50_257, 3, 12),
    ];
    narrow.chain(edges).chain(realistic)
}

/// The ids, each row of the output, and each row of the table that is named at least once: of `vocab` rows that
/// `ids` uniform draws leave out (1 − 1/vocab)^ids on average.
fn cost(s: &Lookup, dtype: DType) -> Cost {
    let named = s.vocab as f64 * (1.0 - (1.0 - 1.0 / s.vocab as f64).powf(s.ids as f64));
    let rows = named.round() as usize + s.ids;
    Cost { bytes: rows * s.dim * dtype.size() + s.ids * DType::I32.size(), flops: 0 }
}

fn reference(s: &Lookup, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let (table, ids) = (inputs[0], inputs[1]);
    for (y, &id) in outputs[0].chunks_exact_mut(s.dim).zip(ids) {
        y.copy_from_slice(&table[id as usize * s.dim..][..s.dim]);
    }
}

fn naive<T: Float>(s: &Lookup, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (table, ids) = (inputs.slice::<T>(0), inputs.slice::<i32>(1));
    for (y, &id) in outputs.slice::<T>(0).chunks_exact_mut(s.dim).zip(ids) {
        y.copy_from_slice(&table[id as usize * s.dim..][..s.dim]);
    }
}

fn tiled<T: Float>(s: &Lookup, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (table, ids) = (inputs.slice::<T>(0), inputs.slice::<i32>(1));
    if let Err(no_such_row) = simd::embedding(s.dim, table, ids, outputs.slice::<T>(0)) {
        panic!("{no_such_row}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn the_row_before_is_another_row() {
        let wrong = Cpu::new::<f32>(|s: &Lookup, inputs, outputs| {
            let (table, ids) = (inputs.slice::<f32>(0), inputs.slice::<i32>(1));
            for (y, &id) in outputs.slice::<f32>(0).chunks_exact_mut(s.dim).zip(ids) {
                let id = (id as usize).saturating_sub(1);
                y.copy_from_slice(&table[id * s.dim..][..s.dim]);
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_row_named_often_is_read_once() {
        let cost = cost(&Lookup { vocab: 2, dim: 8, ids: 1000 }, DType::F32);
        assert_eq!(cost.bytes, (2 + 1000) * 8 * 4 + 1000 * 4);
    }
}
