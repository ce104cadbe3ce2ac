//! How an output is shared out among the threads of rayon's pool.

use crate::core::work::HostWork;
use rayon::prelude::*;

/// Below this many elements waking a thread costs more than it computes.
const SERIAL_BELOW: usize = 128 << 10;
/// A piece is long against the cost of handing it over, short against the whole.
const PIECE: usize = 64 << 10;

/// Rows of a piece of so many elements in all; none where one thread takes all of them.
fn rows_of_piece(elements: usize, cols: usize) -> Option<usize> {
    (elements >= SERIAL_BELOW).then(|| (PIECE / cols).max(1))
}

/// How functions over rows of so many columns share them out.
pub fn rows_shares(rows: usize, cols: usize) -> HostWork {
    let pieces = rows_of_piece(rows * cols, cols).map(|of_piece| HostWork::tasks(rows.div_ceil(of_piece)));
    pieces.unwrap_or(HostWork::ONE_THREAD)
}

/// Runs `job(first_row, piece)` over pieces of whole rows of `y`, on one thread if `y` is small. The job is a reference so that
/// rayon's part in this is compiled once for each type of element.
pub(super) fn for_each_piece<T: Send>(cols: usize, y: &mut [T], job: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let Some(rows) = rows_of_piece(y.len(), cols) else { return job(0, y) };
    y.par_chunks_mut(rows * cols).enumerate().for_each(|(i, piece)| job(i * rows, piece));
}

type PairJob<'j, T> = dyn Fn(usize, &mut [T], &mut [T]) + Sync + 'j;

/// As [`for_each_piece`], over the same rows of two outputs.
pub(super) fn for_each_pair<T: Send>(cols: usize, y: &mut [T], z: &mut [T], job: &PairJob<'_, T>) {
    let Some(rows) = rows_of_piece(y.len(), cols) else { return job(0, y, z) };
    let pieces = y.par_chunks_mut(rows * cols).zip(z.par_chunks_mut(rows * cols));
    pieces.enumerate().for_each(|(i, (y, z))| job(i * rows, y, z));
}

/// Runs `job(row, element)` over the elements of `y`, each made from a row of `cols` elements.
pub(super) fn for_each_row<T: Send>(cols: usize, y: &mut [T], job: &(dyn Fn(usize, &mut T) + Sync)) {
    let Some(rows) = rows_of_piece(y.len() * cols, cols) else {
        return y.iter_mut().enumerate().for_each(|(row, y)| job(row, y));
    };
    y.par_iter_mut().enumerate().with_min_len(rows).for_each(|(row, y)| job(row, y));
}
