//! B, copied so that a tile reads one stream.

use std::ops::Range;

use super::super::lane::{Lane, load_ragged};
use super::super::vector::Simd;

/// Some rows of B in panels of up to `TILE_VECTORS` vectors: row after row of the first panel, then the next.
/// Columns past the end hold zeros.
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
        let depth = rows.len();
        assert!(to.len() >= depth * cols.len().next_multiple_of(S::LANES));
        for (p, row) in rows.enumerate() {
            let row = &b[row * n..][cols.clone()];
            for panel in panels::<S>(cols.len()) {
                let part = &row[panel.clone()];
                let width = part.len().next_multiple_of(S::LANES);
                let start = panel.start * depth + p * width;
                for (v, x) in part.chunks(S::LANES).enumerate() {
                    let v = start + v * S::LANES;
                    // SAFETY: a whole chunk is LANES elements; v + LANES is at most the end of row p of
                    // its panel, which the assertion above has shown to lie within `to`.
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
        let (depth, values) = (self.depth, self.values);
        panels::<S>(self.cols).map(move |cols| Panel {
            first: cols.start,
            cols: cols.len(),
            values: &values[cols.start * depth..],
        })
    }
}

/// The columns of each panel, from left to right. All but the last few are `TILE_VECTORS` wide. A panel of one vector
/// has too few sums to hide the latency of its additions, so where one would be left over its neighbour lends one.
#[inline(always)]
fn panels<S: Simd>(cols: usize) -> impl Iterator<Item = Range<usize>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = (cols - first).div_ceil(S::LANES);
        let lends = S::TILE_VECTORS > 2 && left == S::TILE_VECTORS + 1;
        let vectors = if lends { S::TILE_VECTORS - 1 } else { S::TILE_VECTORS };
        let panel = first..cols.min(first + vectors * S::LANES);
        first = panel.end;
        (!panel.is_empty()).then_some(panel)
    })
}
