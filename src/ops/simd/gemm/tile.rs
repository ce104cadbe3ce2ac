//! The register tile: a few rows of A times one panel of B, all sums in registers.

use std::slice;

use super::super::vector::{Kernel, MAX_LANES, Simd};
use super::pack::{SLAB_STRIDE, Slab};

/// One tile of C and what it is made from.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// Steps of k.
    pub(super) depth: usize,
    /// The rows of A.
    pub(super) a: &'a Slab,
    /// A packed panel, `depth` rows of whole vectors.
    pub(super) b: &'a [f32],
    pub(super) c: *mut f32,
    pub(super) c_stride: usize,
    /// Columns that are real.
    pub(super) cols: usize,
    /// Whether C holds the sum of earlier steps.
    pub(super) accumulate: bool,
}

impl Tile<'_> {
    /// Computes `rows` rows of the tile.
    ///
    /// # Safety
    /// `c` reaches `rows` rows of `cols` floats that nobody else accesses.
    #[inline(always)]
    pub(super) unsafe fn multiply<S: Simd>(self, simd: S, rows: usize) {
        let vectors = self.cols.div_ceil(S::LANES);
        assert!(self.b.len() >= self.depth * vectors * S::LANES);
        assert!(self.depth <= SLAB_STRIDE);
        // Each size is a function of its own: with the sizes constant, the sums are registers.
        macro_rules! sizes {
            ($(($rows:literal, $vectors:literal))+) => {
                match (rows, vectors) {
                    $(($rows, $vectors) if $rows <= S::TILE_ROWS && $vectors <= S::TILE_VECTORS => {
                        simd.vectorize(Sized::<$rows, $vectors>(self));
                    })+
                    _ => unreachable!("no tile is larger than TILE_ROWS by TILE_VECTORS"),
                }
            };
        }
        sizes! {
            (8, 3) (8, 2) (8, 1) (7, 3) (7, 2) (7, 1) (6, 3) (6, 2) (6, 1) (5, 3) (5, 2) (5, 1)
            (4, 3) (4, 2) (4, 1) (3, 3) (3, 2) (3, 1) (2, 3) (2, 2) (2, 1) (1, 3) (1, 2) (1, 1)
        }
    }
}

/// A tile of `R` rows and `V` vectors. Made only by [`Tile::multiply`], which checks the operands.
struct Sized<'a, const R: usize, const V: usize>(Tile<'a>);

impl<const R: usize, const V: usize> Kernel for Sized<'_, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tile = self.0;
        // The rows of C are wanted only at the end: by then they have arrived.
        for r in 0..R {
            for v in 0..V {
                simd.prefetch(tile.c.wrapping_add(r * tile.c_stride + v * S::LANES));
            }
        }
        let mut sums = [[simd.splat(0.0); V]; R];
        for p in 0..tile.depth {
            let mut b = [simd.splat(0.0); V];
            for (v, b) in b.iter_mut().enumerate() {
                // SAFETY: p < depth, and `multiply` has checked that b holds depth rows of V vectors.
                *b = unsafe { simd.load(tile.b.as_ptr().add((p * V + v) * S::LANES)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: p < depth, which `multiply` has checked to be within a row, and a slab has the rows of any tile.
                let a = simd.splat(unsafe { *tile.a.as_ptr().add(r * SLAB_STRIDE + p) });
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = simd.mul_add(a, b, *sum);
                }
            }
        }
        // Short, constant loops: were they not unrolled, the sums would live in memory all along.
        if tile.cols == V * S::LANES {
            for (r, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    // SAFETY: the caller of `multiply` vouches for rows x cols floats from c.
                    unsafe {
                        let c = tile.c.add(r * tile.c_stride + v * S::LANES);
                        let before = if tile.accumulate { simd.load(c) } else { simd.splat(0.0) };
                        simd.store(c, simd.add(before, sum));
                    }
                }
            }
        } else {
            let mut buffer = [[[0.0; MAX_LANES]; V]; R];
            for (sums, buffer) in sums.iter().zip(&mut buffer) {
                for (&sum, buffer) in sums.iter().zip(buffer) {
                    // SAFETY: the buffer holds MAX_LANES >= LANES floats.
                    unsafe { simd.store(buffer.as_mut_ptr(), sum) };
                }
            }
            tile.store_ragged(&buffer, S::LANES);
        }
    }
}

impl Tile<'_> {
    /// Stores sums of which the last columns do not exist.
    #[inline(never)]
    fn store_ragged<const R: usize, const V: usize>(&self, sums: &[[[f32; MAX_LANES]; V]; R], lanes: usize) {
        for (r, sums) in sums.iter().enumerate() {
            // SAFETY: the caller of `multiply` vouches for rows x cols floats from c.
            let c = unsafe { slice::from_raw_parts_mut(self.c.add(r * self.c_stride), self.cols) };
            for (c, sums) in c.chunks_mut(lanes).zip(sums) {
                for (c, sum) in c.iter_mut().zip(sums) {
                    *c = if self.accumulate { *c + sum } else { *sum };
                }
            }
        }
    }
}
