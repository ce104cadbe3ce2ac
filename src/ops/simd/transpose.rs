//! Matrices with their rows as columns.

use super::convert::convert;
use super::lane::Lane;
use super::level::Level;

/// Columns that are written at a time: so many cache lines stay open, and what is read comes in whole lines.
const STRIP: usize = 16;

/// The matrix, whose rows are `width` long, with its rows as columns.
pub(super) fn transpose<T: Lane>(matrix: &[T], width: usize) -> Vec<T> {
    let height = matrix.len() / width;
    let mut out = vec![T::default(); matrix.len()];
    for first in (0..width).step_by(STRIP) {
        for (row, values) in matrix.chunks_exact(width).enumerate() {
            let strip = values[first..].iter().take(STRIP);
            strip.enumerate().for_each(|(col, &value)| out[(first + col) * height + row] = value);
        }
    }
    out
}

/// The same in f32.
pub(super) fn transposed<T: Lane>(matrix: &[T], width: usize) -> Vec<f32> {
    let mut wide = vec![0.0; matrix.len()];
    convert(Level::best(), matrix, &mut wide);
    transpose(&wide, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let matrix: Vec<f32> = (0..3 * 37).map(|at| at as f32).collect();
        let out = transpose(&matrix, 37);
        assert!((0..3 * 37).all(|at| out[at] == (at % 3 * 37 + at / 3) as f32), "{out:?}");
    }
}
