//! Operators over the rows of a matrix: `rows` independent rows of `cols` elements.

pub mod launch;

use crate::core::seed::{Rng, below, permutation};

/// Rows and columns of a matrix.
pub type Extents = (usize, usize);

/// Shapes to check, as (rows, cols): no row at all, every narrow width, both sides of usual block sizes, and what
/// models hold. Rows and columns are never equal, so that they can't be swapped.
pub fn cases() -> impl Iterator<Item = Extents> {
    let none = [(0, 128)];
    let narrow = (1..=33).map(|cols| (if cols == 5 { 6 } else { 5 }, cols));
    let edges = [(3, 1023), (2, 1024), (3, 1025), (9, 4099)];
    let realistic = [(197, 768), (300, 1000), (64, 4096), (36, 8192), (7, 32_000), (5, 50_257), (1, 262_144)];
    none.into_iter().chain(narrow).chain(edges).chain(realistic)
}

/// Shapes to time, as (rows, cols).
pub const TIMED: [Extents; 3] = [(2048, 1024), (8192, 4096), (8192, 4095)];

/// Adds to each row a multiple of 1/8 in [-4, 4]: exact on a grid of such values.
pub fn shift_rows(values: &mut [f64], cols: usize, rng: &mut Rng) {
    for row in values.chunks_exact_mut(cols) {
        let shift = (below(rng, 65) as f64 - 32.0) / 8.0;
        row.iter_mut().for_each(|value| *value += shift);
    }
}

/// Puts the columns of every tensor into one random order; a tensor of `cols` elements is a single row.
pub fn permute_columns(tensors: &mut [Vec<f64>], cols: usize, rng: &mut Rng) {
    let order = permutation(rng, cols);
    for row in tensors.iter_mut().flat_map(|tensor| tensor.chunks_exact_mut(cols)) {
        let before = row.to_vec();
        for (value, &from) in row.iter_mut().zip(&order) {
            *value = before[from];
        }
    }
}

/// Multiplies all values by a power of two, which is exact.
pub fn double(values: &mut [f64]) {
    values.iter_mut().for_each(|value| *value *= 2.0);
}

/// Changes the sign of all values.
pub fn negate(values: &mut [f64]) {
    values.iter_mut().for_each(|value| *value = -*value);
}
