//! Matrix product: the cut into tasks, blocks and tiles.
//!
//! Letters: C (m x n) = A (m x k) B (k x n), all row-major. A task owns a block of C. It loops over k
//! in steps of `DEPTH`, packs its columns of B for that step into panels one tile wide, and runs the
//! register tile over them. B is packed because its rows lie far apart and a panel has to stream; the few
//! rows of A that a tile reads are moved together, so that they do not compete for the same cache lines.

mod pack;
mod thin;
mod tile;

use std::ops::Range;
use std::slice;

use rayon::prelude::*;

use super::super::family::stretch::longest;
use super::convert::convert;
use super::lane::Lane;
use super::level::Level;
use super::scratch::with_scratch;
use super::vector::{Kernel, MAX_LANES, Simd};
use crate::core::work::HostWork;
use pack::{DEPTH, Panels, Slab};
use tile::Tile;

/// Columns a task at most: its packed B, 768 KiB, still fits a second-level cache of 1 MiB; each step down k then
/// reads A half as often as with 256.
const WIDTH: usize = 512;
/// Columns a task at least where there are more threads than work: below it packing B shows.
const LEAST_WIDTH: usize = 96;
/// Rows a task at most where C is not f32 and the sums need a block of their own: 1 MiB.
const ROWS: usize = 512;
/// Whole tiles of either instruction set's rows.
const TILE_ROWS: usize = 24;
/// Up to this many rows of A reading B dominates, and packing it would cost more than it gains.
const THIN_ROWS: usize = 32;
/// Below this many multiplications waking a thread costs more than it computes: behind a stage that took one thread, the
/// others sleep.
pub(in crate::ops) const SERIAL_BELOW: usize = 1 << 22;

/// `c = a b` for row-major `a` (m x k), `b` (k x n), `c` (m x n); sums in f32.
///
/// # Panics
/// If a slice does not have the length that `m`, `n` and `k` give it.
pub fn gemm<T: Lane>(m: usize, n: usize, k: usize, a: &[T], b: &[T], c: &mut [T]) {
    product(Level::best(), (m, n, k), a, b, c);
}

/// How [`gemm`] shares out a product.
pub fn shares(m: usize, n: usize, k: usize) -> HostWork {
    let multiplications = m.saturating_mul(n).saturating_mul(k);
    let (path, serial_below, tasks) = if m <= THIN_ROWS {
        ("few rows", thin::SERIAL_BELOW, n.div_ceil(thin::LEAST_WIDTH))
    } else {
        ("blocks", SERIAL_BELOW, n.div_ceil(LEAST_WIDTH) * m.div_ceil(TILE_ROWS))
    };
    let tasks = if multiplications < serial_below { 1 } else { tasks };
    // Vectors go along the columns, and the last one may be partly outside of C.
    let flops = m.saturating_mul(k).saturating_mul(2 * n.next_multiple_of(MAX_LANES));
    HostWork { path, tasks, flops: Some(flops), fits_threads: true }
}

fn product<T: Lane>(level: Level, (m, n, k): (usize, usize, usize), a: &[T], b: &[T], c: &mut [T]) {
    assert_eq!(a.len(), m * k, "a is not m x k");
    assert_eq!(b.len(), k * n, "b is not k x n");
    assert_eq!(c.len(), m * n, "c is not m x n");
    if c.is_empty() || k == 0 {
        c.fill(T::default());
        return;
    }
    if m <= THIN_ROWS {
        thin::product(level, (m, n, k), a, b, c);
        return;
    }
    if let Some(a) = T::as_f32(a) {
        blocks(level, (m, n, k), a, b, c);
    } else {
        with_scratch(a.len(), |wide| {
            convert(level, a, wide);
            blocks(level, (m, n, k), wide, b, c);
        });
    }
}

/// The block of C that a task owns.
struct Block {
    rows: Range<usize>,
    cols: Range<usize>,
}

/// How C is cut into blocks.
struct Grid {
    extents: (usize, usize),
    rows: usize,
    cols: usize,
}

impl Grid {
    /// Columns are cut first, since each block packs its own; rows are cut where that leaves threads
    /// idle, or where blocks would outgrow `most_rows`.
    fn new(m: usize, n: usize, threads: usize, most_rows: usize) -> Grid {
        let across = n.div_ceil(WIDTH).next_multiple_of(threads).min(n.div_ceil(LEAST_WIDTH));
        let cols = n.div_ceil(across).next_multiple_of(MAX_LANES);
        let down = threads.div_ceil(n.div_ceil(cols)).max(m.div_ceil(most_rows));
        let rows = m.div_ceil(down).next_multiple_of(TILE_ROWS);
        Grid { extents: (m, n), rows, cols }
    }

    fn blocks(&self) -> usize {
        let (m, n) = self.extents;
        m.div_ceil(self.rows) * n.div_ceil(self.cols)
    }

    fn block(&self, index: usize) -> Block {
        let (m, n) = self.extents;
        let across = n.div_ceil(self.cols);
        let (i, j) = (index / across * self.rows, index % across * self.cols);
        Block { rows: i..(i + self.rows).min(m), cols: j..(j + self.cols).min(n) }
    }
}

/// C, of which each task writes its own block.
#[derive(Clone, Copy)]
struct Target<T>(*mut T);
// SAFETY: tasks reach disjoint blocks through it, and its owner waits for them.
unsafe impl<T: Send> Sync for Target<T> {}

fn blocks<T: Lane>(level: Level, (m, n, k): (usize, usize, usize), a: &[f32], b: &[T], c: &mut [T]) {
    let target = Target(c.as_mut_ptr());
    let most_rows = if T::f32_pointer(target.0).is_some() { usize::MAX } else { ROWS };
    let grid = Grid::new(m, n, rayon::current_num_threads(), most_rows);
    let job = |index| {
        let target = &target;
        let block = grid.block(index);
        let (rows, width) = (block.rows.len(), block.cols.len().next_multiple_of(MAX_LANES));
        // SAFETY: the block begins within C.
        let corner = unsafe { target.0.add(block.rows.start * n + block.cols.start) };
        let packed_len = DEPTH.min(k) * width;
        match T::f32_pointer(corner) {
            Some(c) => with_scratch(packed_len, |packed| {
                level.run(Multiply { extents: (n, k), a, b, block: &block, packed, c, stride: n });
            }),
            None => with_scratch(packed_len + rows * width, |scratch| {
                let (packed, sums) = scratch.split_at_mut(packed_len);
                let c = sums.as_mut_ptr();
                level.run(Multiply { extents: (n, k), a, b, block: &block, packed, c, stride: width });
                for (i, sums) in sums.chunks_exact(width).enumerate() {
                    let from = &sums[..block.cols.len()];
                    // SAFETY: a row of this task's block, which nobody else reaches.
                    let to = unsafe { slice::from_raw_parts_mut(corner.add(i * n), from.len()) };
                    convert(level, from, to);
                }
            }),
        }
    };
    if shares(m, n, k).tasks == 1 {
        (0..grid.blocks()).for_each(job);
    } else {
        (0..grid.blocks()).into_par_iter().with_max_len(1).for_each(job);
    }
}

/// The product of one block of C.
struct Multiply<'a, T> {
    /// n and k: the row lengths of B and A.
    extents: (usize, usize),
    a: &'a [f32],
    b: &'a [T],
    block: &'a Block,
    packed: &'a mut [f32],
    /// The corner of the block, whose rows are `stride` apart.
    c: *mut f32,
    stride: usize,
}

impl<T: Lane> Kernel for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (n, k) = self.extents;
        let Block { rows, cols } = self.block;
        // Steps of equal length: a short last one would pack and store for little.
        let most = k.div_ceil(k.div_ceil(DEPTH.min(longest(k))));
        let mut slab = Slab::new();
        for p in (0..k).step_by(most) {
            let depth = most.min(k - p);
            let panels = Panels::pack(simd, self.b, n, p..p + depth, cols.clone(), self.packed);
            for i in rows.clone().step_by(S::TILE_ROWS) {
                let after = i + S::TILE_ROWS;
                slab.fill(self.a, k, i..rows.end.min(after), p..p + depth);
                // What the next slab takes over is asked for meanwhile, a share a panel.
                let next = after..rows.end.min(after + S::TILE_ROWS);
                let mut ahead = (0..depth).step_by(MAX_LANES).flat_map(|q| next.clone().map(move |r| (r, q)));
                let share = (depth.div_ceil(MAX_LANES) * next.len()).div_ceil(panels.count::<S>());
                for panel in panels.iter::<S>() {
                    for (r, q) in ahead.by_ref().take(share) {
                        simd.prefetch(self.a.as_ptr().wrapping_add(r * k + p + q));
                    }
                    let tile = Tile {
                        depth,
                        a: &slab,
                        b: panel.values,
                        // SAFETY: the tile begins within the block.
                        c: unsafe { self.c.add((i - rows.start) * self.stride + panel.first) },
                        c_stride: self.stride,
                        cols: panel.cols,
                        accumulate: p > 0,
                    };
                    // SAFETY: the tile's rows and columns lie within the block.
                    unsafe { tile.multiply(simd, S::TILE_ROWS.min(rows.end - i)) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use rstest::rstest;

    use super::super::testing::{Real, assert_close, reals, values};
    use super::*;

    fn reference((m, n, k): (usize, usize, usize), a: &[f64], b: &[f64]) -> Vec<f64> {
        let mut c = vec![0.0; m * n];
        for i in 0..m {
            for p in 0..k {
                for j in 0..n {
                    c[i * n + j] += a[i * k + p] * b[p * n + j];
                }
            }
        }
        c
    }

    #[rstest]
    #[case(700, 1000, 64)]
    #[case(33, 4000, 500)]
    #[case(5000, 40, 500)]
    fn what_is_said_of_tasks_is_as_fine_as_they_can_be(#[case] m: usize, #[case] n: usize, #[case] k: usize) {
        let (said, blocks) = (shares(m, n, k), |threads| Grid::new(m, n, threads, usize::MAX).blocks());
        assert!(blocks(4) < said.tasks && (said.tasks / 2..=said.tasks).contains(&blocks(1 << 20)), "{said:?}");
        assert_eq!(said.flops, Some(2 * m * k * n.next_multiple_of(16)));
        assert_eq!(shares(m, n, 1).tasks, 1, "too little to wake another thread");
    }

    fn check<T: Real>((m, n, k): (usize, usize, usize), a: &[T], b: &[T]) {
        let want = reference((m, n, k), &reals(a), &reals(b));
        // Products of up to 16, sums of k of them.
        let scale = 16.0 * (k as f64).sqrt();
        for level in Level::available() {
            let mut memory = vec![T::of(f64::NAN); m * n + 1];
            let c = &mut memory[1..];
            product(level, (m, n, k), a, b, c);
            assert_close(&format!("{level:?} {m}x{n}x{k}"), c, &want, scale, 1e-6);
        }
    }

    #[rstest]
    fn every_shape_agrees_with_the_reference(
        #[values((1, 1, 1), (1, 1, 600), (1, 300, 9), (2, 17, 33), (4, 1025, 31), (5, 1, 7), (5, 3, 1),
            (7, 49, 300), (9, 47, 16), (13, 31, 257), (24, 48, 256), (34, 49, 300), (35, 33, 40), (37, 17, 400),
            (39, 63, 385), (49, 1111, 64), (65, 33, 129), (100, 16, 513), (257, 263, 259), (1030, 20, 40))]
        shape: (usize, usize, usize),
    ) {
        let (m, n, k) = shape;
        check::<f32>(shape, &values(m * k, 1), &values(k * n, 2));
        check::<f16>(shape, &values(m * k, 3), &values(k * n, 4));
        check::<bf16>(shape, &values(m * k, 5), &values(k * n, 6));
    }

    #[rstest]
    #[case::nan(f32::NAN)]
    #[case::infinity(f32::INFINITY)]
    fn one_odd_element_reaches_its_row_or_column_and_no_more(#[case] odd: f32, #[values(3, 40)] m: usize) {
        let (n, k) = (70, 300);
        let (mut a, mut b) = (values::<f32>(m * k, 1), values::<f32>(k * n, 2));
        a[k + 299] = odd;
        check((m, n, k), &a, &b);
        a[k + 299] = 1.0;
        b[5 * n + 69] = odd;
        check((m, n, k), &a, &b);
    }

    #[test]
    fn no_steps_give_zeros() {
        let mut c = [f32::NAN; 6];
        gemm(2, 3, 0, &[], &[], &mut c);
        assert_eq!(c, [0.0; 6]);
        gemm::<f32>(0, 3, 2, &[], &[0.0; 6], &mut []);
    }
}
