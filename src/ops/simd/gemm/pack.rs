//! A and B, copied so that a tile reads two streams.

use std::ops::Range;

use super::super::lane::{Lane, load_ragged};
use super::super::vector::Simd;

/// Steps of k a block. A panel of B, 48 columns wide, is then 72 KiB and streams from the second level at 16 bytes a
/// cycle, which it bears easily; more steps between the loads and stores of C were worth about 1 % over 256 at 1024³.
pub(super) const DEPTH: usize = 384;

/// Floats from one row of a slab to the next: no multiple of a page, where all rows would compete for the same lines of
/// the first-level cache, and a constant, so that a tile addresses all rows by one register.
pub(super) const SLAB_STRIDE: usize = DEPTH + 16;
/// Rows of the tallest tile.
const SLAB_ROWS: usize = 8;
/// Floats of a cache line.
const LINE: usize = 16;
/// Rows of B that are asked for before they are packed: each is a short stretch of a page of its own, which the
/// prefetcher finds too late. Without, packing took 7 % of a product of 1024³.
const ROWS_AHEAD: usize = 8;

/// The rows of A of one tile, for the steps of k of a block.
pub(super) struct Slab([f32; SLAB_ROWS * SLAB_STRIDE]);

impl Slab {
    pub(super) fn new() -> Self {
        Slab([0.0; SLAB_ROWS * SLAB_STRIDE])
    }

    /// Takes over `rows` and `steps` of `a`, whose rows are `k` long.
    #[inline(always)]
    pub(super) fn fill(&mut self, a: &[f32], k: usize, rows: Range<usize>, steps: Range<usize>) {
        for (to, row) in self.0.chunks_exact_mut(SLAB_STRIDE).zip(rows) {
            to[..steps.len()].copy_from_slice(&a[row * k..][steps.clone()]);
        }
    }

    pub(super) fn as_ptr(&self) -> *const f32 {
        self.0.as_ptr()
    }
}

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
            for x in row.chunks(LINE) {
                simd.prefetch(x.as_ptr().wrapping_add(ROWS_AHEAD * n).cast());
            }
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

    /// How many panels there are.
    #[inline(always)]
    pub(super) fn count<S: Simd>(&self) -> usize {
        self.cols.div_ceil(S::TILE_VECTORS * S::LANES)
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
/// has too few sums to hide the latency of its additions, so where one would be left over its neighbour is one narrower.
#[inline(always)]
fn panels<S: Simd>(cols: usize) -> impl Iterator<Item = Range<usize>> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let left = (cols - first).div_ceil(S::LANES);
        let narrower = S::TILE_VECTORS > 2 && left == S::TILE_VECTORS + 1;
        let vectors = if narrower { S::TILE_VECTORS - 1 } else { S::TILE_VECTORS };
        let panel = first..cols.min(first + vectors * S::LANES);
        first = panel.end;
        (!panel.is_empty()).then_some(panel)
    })
}
