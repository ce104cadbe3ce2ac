//! Products with few rows of A, which cost what reading B costs.

use std::ops::Range;
use std::slice;

use rayon::prelude::*;

use super::super::convert::convert;
use super::super::lane::{Lane, load_ragged};
use super::super::level::Level;
use super::super::scratch::with_scratch;
use super::super::vector::{Kernel, MAX_LANES, Simd};
use super::{Target, longest, shares};

/// Sums a task at most, of all its rows: they stay in the first-level cache while B streams by.
const SUMS: usize = 8 << 10;
/// Columns a task at least: shorter stretches of B's rows defeat the prefetcher.
pub(super) const LEAST_WIDTH: usize = 128;
/// Below this many multiplications waking a thread costs more than it computes.
pub(super) const SERIAL_BELOW: usize = 64 * 64 * 64;
/// Rows of B at a time: that many streams, and one load and store of the sums for all.
const STEPS: usize = 8;

pub(super) fn product<T: Lane>(level: Level, (m, n, k): (usize, usize, usize), a: &[T], b: &[T], c: &mut [T]) {
    let threads = rayon::current_num_threads();
    let width = n.div_ceil(threads).clamp(LEAST_WIDTH, SUMS / m).next_multiple_of(MAX_LANES);
    let stretch = longest(k);
    let target = Target(c.as_mut_ptr());
    let job = |task: usize| {
        let target = &target;
        let first = task * width;
        let cols = width.min(n - first);
        with_scratch(m * (2 * width + k), |scratch| {
            let (wide, sums) = scratch.split_at_mut(m * k);
            let (totals, more) = sums.split_at_mut(m * width);
            convert(level, a, wide);
            let sum = |steps: Range<usize>, sums: &mut [f32]| {
                sums.fill(0.0);
                level.run(Columns { extents: (n, k), steps, a: wide, b: &b[first..], cols, sums, stride: width });
            };
            sum(0..stretch.min(k), totals);
            for p in (stretch..k).step_by(stretch) {
                sum(p..k.min(p + stretch), more);
                totals.iter_mut().zip(&*more).for_each(|(total, sum)| *total += sum);
            }
            for (i, sums) in totals.chunks_exact(width).enumerate() {
                let from = &sums[..cols];
                // SAFETY: a row of this task's columns, which nobody else reaches.
                let to = unsafe { slice::from_raw_parts_mut(target.0.add(i * n + first), cols) };
                convert(level, from, to);
            }
        });
    };
    if shares(m, n, k).tasks == 1 {
        (0..n.div_ceil(width)).for_each(job);
    } else {
        (0..n.div_ceil(width)).into_par_iter().for_each(job);
    }
}

/// Some columns of C: rows of `sums`, `stride` apart.
struct Columns<'a, T> {
    /// n and k: the row lengths of B and A.
    extents: (usize, usize),
    /// The steps of k to sum.
    steps: Range<usize>,
    a: &'a [f32],
    b: &'a [T],
    cols: usize,
    sums: &'a mut [f32],
    stride: usize,
}

impl<T: Lane> Kernel for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Range { start, end } = self.steps;
        let whole = end - (end - start) % STEPS;
        for p in (start..whole).step_by(STEPS) {
            self.steps::<S, STEPS>(simd, p);
        }
        for p in whole..end {
            self.steps::<S, 1>(simd, p);
        }
    }
}

impl<T: Lane> Columns<'_, T> {
    /// Adds the products of `N` rows of B.
    #[inline(always)]
    fn steps<S: Simd, const N: usize>(&mut self, simd: S, p: usize) {
        let (n, k) = self.extents;
        let rows: [&[T]; N] = std::array::from_fn(|s| &self.b[(p + s) * n..][..self.cols]);
        for j in (0..self.cols).step_by(S::LANES) {
            let mut b = [simd.splat(0.0); N];
            for (b, row) in b.iter_mut().zip(rows) {
                *b = match row[j..].get(..S::LANES) {
                    // SAFETY: the slice holds LANES elements.
                    Some(whole) => unsafe { T::load(simd, whole.as_ptr()) },
                    None => load_ragged(simd, &row[j..]),
                };
            }
            for (a, sums) in self.a.chunks_exact(k).zip(self.sums.chunks_exact_mut(self.stride)) {
                let sums = &mut sums[j..][..S::LANES];
                // SAFETY: the slice holds LANES floats.
                let mut sum = unsafe { simd.load(sums.as_ptr()) };
                for (&a, b) in a[p..p + N].iter().zip(b) {
                    sum = simd.mul_add(simd.splat(a), b, sum);
                }
                // SAFETY: the same slice.
                unsafe { simd.store(sums.as_mut_ptr(), sum) };
            }
        }
    }
}
