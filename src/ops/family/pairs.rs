//! Matrices times few vectors in a step of a model that writes a token: what the operators on `kernels/lib/gemv_pair.cuh`
//! share, their launch rule and their references.

use crate::core::launch::Launch;
use crate::ops::float::{Float, sum};

/// Vectors that one launch takes.
pub const MOST_BATCH: usize = 8;
const THREADS: usize = 256;
const WARPS: usize = 8;
/// Elements that a warp has in flight of a row before it waits for the launch ahead: four packs of eight a lane.
const IN_FLIGHT: usize = 4 * 8 * 32;
/// Packs of both widths are whole in multiples of so many elements.
const UNIT: usize = 8;

/// Warps that share a pair of rows of `k` elements: so many that all of it is in flight at once.
pub fn warps(k: usize) -> usize {
    k.div_ceil(IN_FLIGHT).next_power_of_two().min(WARPS)
}

/// The launch for `pairs` pairs of rows of `k` elements, by the entries `<name>_one`, `_few` and `_naive`.
pub fn launch(name: &str, batch: usize, pairs: usize, k: usize) -> Launch {
    if !k.is_multiple_of(UNIT) || batch == 0 {
        return naive(name, batch, pairs);
    }
    let entry = if batch == 1 { "one" } else { "few" };
    Launch::blocks(pairs.div_ceil(WARPS / warps(k)), THREADS).entry(format!("{name}_{entry}")).dependent()
}

/// A block a pair and vector.
pub fn naive(name: &str, batch: usize, pairs: usize) -> Launch {
    Launch::blocks(pairs * batch, THREADS).entry(format!("{name}_naive")).dependent()
}

/// Both sides of what a pack, a warp, two and more warps of a pair have in flight, and rows of no whole pack.
pub const TILES: [(&str, usize); 4] = [("k", UNIT), ("k", IN_FLIGHT), ("k", 2 * IN_FLIGHT), ("k", WARPS * IN_FLIGHT)];

/// As (batch, n, k): nothing, one row, rows of no whole pack, both sides of what one, two and eight warps have in flight, and
/// layers of models.
pub const CASES: [(usize, usize, usize); 12] = [
    (0, 8, 16),
    (1, 1, 8),
    (2, 3, 5),
    (1, 17, 24),
    (8, 16, 40),
    (3, 33, 1024),
    (1, 35, 1032),
    (5, 9, 2056),
    (1, 31, 2048),
    (1, 7, 4104),
    (2, 5, 8200),
    (1, 6, 9001),
];

/// Each row of x over its root mean square, times `weight`.
pub fn normalised(x: &[f64], weight: &[f64], eps: f32) -> Vec<f64> {
    let of_row = |row: &[f64]| {
        let mean_square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let root = (mean_square + f64::from(eps)).sqrt();
        row.iter().zip(weight).map(|(x, weight)| x / root * weight).collect::<Vec<f64>>()
    };
    x.chunks_exact(weight.len()).flat_map(of_row).collect()
}

/// The same in f32, of any float.
pub fn normalised_f32<T: Float>(x: &[T], weight: &[T], eps: f32) -> Vec<f32> {
    let of_row = |row: &[T]| {
        let mean_square = sum(row.len(), &|j| row[j].to_f32().powi(2)) / row.len() as f32;
        let root = (mean_square + eps).sqrt();
        row.iter().zip(weight).map(|(x, weight)| x.to_f32() / root * weight.to_f32()).collect::<Vec<f32>>()
    };
    x.chunks_exact(weight.len()).flat_map(of_row).collect()
}

/// Σ term(x[b, j] · w[i, j]) over j, for each row b of x and i of w.
pub fn products(k: usize, x: &[f64], w: &[f64], term: fn(f64) -> f64) -> Vec<f64> {
    let of = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| term(x * w)).sum::<f64>();
    x.chunks_exact(k).flat_map(|x| w.chunks_exact(k).map(move |w| of(x, w))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(8, 1)]
    #[case(1024, 1)]
    #[case(1032, 2)]
    #[case(2048, 2)]
    #[case(5632, 8)]
    #[case(28_672, 8)]
    fn a_row_is_in_flight_as_a_whole(#[case] k: usize, #[case] expected: usize) {
        assert_eq!(warps(k), expected);
    }
}
