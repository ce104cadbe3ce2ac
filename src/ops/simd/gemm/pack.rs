//! B, copied so that a tile reads one stream.

use std::ops::Range;

use super::super::lane::{Lane, load_ragged};
use super::super::vector::Simd;

/// Some rows of B in panels of `TILE_VECTORS` vectors: row after row of the first panel, then the next.
/// Only the last panel may be narrower, by whole vectors; columns past the end hold zeros.
pub(super) struct Panels<'a> {
    depth: usize,
    cols: usize,
    values: &'a [f32],
}

/// Columns of one tile.
pub(super) struct Panel<'a> {
    /// Its first column, counted from the first that was packed.
    pub(super) first: usize,
    /// Columns that are real.
    pub(super) cols: usize,
    pub(super) values: &'a [f32],
}

impl<'a> Panels<'a> {
    /// Packs the rows and columns of `b`, whose rows are `n` long; widens to f32 on the way.
    #[inline(always)]
    pub(super) fn pack<S: Simd, T: Lane>(
        simd: S,
        b: &[T],
        n: usize,
        rows: Range<usize>,
        cols: Range<usize>,
        to: &'a mut [f32],
    ) -> Panels<'a> {
        let panel_cols = S::TILE_VECTORS * S::LANES;
        let depth = rows.len();
        assert!(to.len() >= depth * cols.len().next_multiple_of(S::LANES));
        for (p, row) in rows.enumerate() {
            let row = &b[row * n..][cols.clone()];
            for (j, part) in row.chunks(panel_cols).enumerate() {
                let width = part.len().next_multiple_of(S::LANES);
                let start = j * panel_cols * depth + p * width;
                for (v, x) in part.chunks(S::LANES).enumerate() {
                    let v = start + v * S::LANES;
                    // SAFETY: a whole chunk is LANES elements; v + LANES is at most the end of row p of
                    // panel j, which the assertion above has shown to lie within `to`.
                    unsafe {
                        let x = if x.len() == S::LANES {
                            T::load(simd, x.as_ptr())
                        } else {
                            simd.first(x.len(), load_ragged(simd, x), simd.splat(0.0))
                        };
                        simd.store(to.as_mut_ptr().add(v), x);
                    }
                }
            }
        }
        Panels { depth, cols: cols.len(), values: to }
    }

    /// The panels from left to right.
    #[inline(always)]
    pub(super) fn iter<S: Simd>(&self) -> impl Iterator<Item = Panel<'a>> {
        let panel_cols = S::TILE_VECTORS * S::LANES;
        let (depth, cols, values) = (self.depth, self.cols, self.values);
        (0..cols).step_by(panel_cols).map(move |first| Panel {
            first,
            cols: panel_cols.min(cols - first),
            values: &values[first * depth..],
        })
    }
}
