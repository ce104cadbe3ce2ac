//! Argmax: the place of the largest element of each row, the first of several; the next token of a model that writes the most
//! likely one. NaN is never the largest, and a row of nothing else gives 0.

mod launch;

use super::float::Float;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use crate::ops::softmax::Matrix;

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator()).cpu_tiers(every_float!(naive), every_float!(tiled)).candidate("cuda", launch::best()).into()
}

fn operator() -> Op<Matrix> {
    Op::new("argmax")
        .input("x", |s: &Matrix| [s.rows, s.cols])
        .output("index", |s| [s.rows])
        .in_dtype(DType::I32)
        .reference(|s, inputs, outputs| {
            let rows = inputs[0].chunks_exact(s.cols);
            outputs[0].iter_mut().zip(rows).for_each(|(y, row)| *y = largest(row.iter().copied()) as f64);
        })
        .cost(|s, dtype| Cost { bytes: s.rows * (s.cols * dtype.size() + 4), flops: s.rows * s.cols })
        .separable("rows")
        .varied_around(Matrix { rows: 3, cols: 1025 })
        .exact_relation(
            "a larger element at the end is found",
            |s, inputs, _| inputs[0].chunks_exact_mut(s.cols).for_each(|row| row[s.cols - 1] = f64::INFINITY),
            |s, _, outputs, _| outputs[0].fill((s.cols - 1) as f64),
        )
        .shapes(CASES.map(|(rows, cols)| Matrix { rows, cols }))
        .perf([(64, 32_000), (16, 151_936)].map(|(rows, cols)| Matrix { rows, cols }))
}

/// As (rows, cols): nothing, one element, rows of no whole pack, fewer and more elements than threads, and vocabularies.
const CASES: [(usize, usize); 9] =
    [(0, 8), (3, 1), (2, 7), (5, 33), (4, 1024), (3, 1025), (2, 8192), (3, 9001), (2, 32_000)];

/// The first of the largest.
fn largest(row: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    let mut is_first = true;
    for (at, x) in row.enumerate().filter(|(_, x)| !x.is_nan()) {
        if is_first || x > best.1 {
            best = (at, x);
        }
        is_first = false;
    }
    best.0
}

fn naive<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols);
    for (y, row) in outputs.slice::<i32>(0).iter_mut().zip(rows) {
        *y = largest(row.iter().map(|x| f64::from(x.to_f32()))) as i32;
    }
}

/// The largest in one pass, its place in another: both are simple loops.
fn tiled<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols);
    for (y, row) in outputs.slice::<i32>(0).iter_mut().zip(rows) {
        let most = row.iter().map(|x| x.to_f32()).fold(f32::NEG_INFINITY, f32::max);
        *y = row.iter().position(|x| x.to_f32() == most).unwrap_or(0) as i32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use rstest::rstest;

    #[rstest]
    #[case(&[1.0, 3.0, 3.0, 2.0], 1)]
    #[case(&[f64::NAN, f64::NEG_INFINITY], 1)]
    #[case(&[f64::NAN, f64::NAN], 0)]
    #[case(&[-2.0, f64::INFINITY, f64::NAN], 1)]
    fn the_first_of_the_largest(#[case] row: &[f64], #[case] expected: usize) {
        assert_eq!(largest(row.iter().copied()), expected);
    }

    #[test]
    fn the_last_of_the_largest_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Matrix, inputs, outputs| {
            let rows = inputs.slice::<f32>(0).chunks_exact(s.cols);
            for (y, row) in outputs.slice::<i32>(0).iter_mut().zip(rows) {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                *y = row.iter().rposition(|x| *x == most).unwrap_or(0) as i32;
            }
        });
        rejects(operator(), wrong);
    }
}
