//! The factors of warp-group products in shared memory: looked up by their descriptors, checked, and taken to single
//! precision.
//!
//! A unit is 16 bytes: neighbours along k, or along m or n where a factor lies across.

use crate::sim::isa::descriptor::Descriptor;
use crate::sim::isa::matrix::{Element, with_element};
use crate::sim::machine::context::Context;
use crate::sim::machine::memory::shared_memory::SharedMemory;
use crate::sim::machine::product_queue::{MAX_K, ROWS};
use crate::sim::machine::race::flight::Range;
use crate::sim::report::Check;

/// What a factor is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub element: Element,
    /// Whether neighbours in memory are neighbours along m or n instead of k.
    pub is_across: bool,
}

/// The rows of the left factor that are this warp's, and the shared memory that they came from; `None` where a
/// descriptor leads elsewhere.
#[inline(always)]
pub(super) fn load_left(
    ctx: &mut Context<'_>,
    descriptor: u64,
    side: Side,
    k: usize,
    a: &mut [[f32; MAX_K]; ROWS],
) -> Option<Range> {
    let descriptor = Descriptor::new(descriptor);
    let first = ctx.warp.index % 4 * ROWS as u32;
    let units = if side.is_across {
        descriptor.across(first / 8..(first + ROWS as u32) / 8, k)
    } else {
        descriptor.along_k(first..first + ROWS as u32)
    };
    let range = check(ctx, &units)?;
    let shared = &ctx.blocks[ctx.me].shared;
    if side.is_across {
        with_element!(side.element, left_across(shared, &units, k, a));
    } else {
        with_element!(side.element, left_along_k(shared, &units, a));
    }
    Some(range)
}

/// The right factor by k, then by n, and the shared memory that it came from.
#[inline(always)]
pub(super) fn load_right(ctx: &mut Context<'_>, descriptor: u64, side: Side, n: usize, b: &mut [f32]) -> Option<Range> {
    let descriptor = Descriptor::new(descriptor);
    let units =
        if side.is_across { descriptor.across(0..n as u32 / 8, b.len() / n) } else { descriptor.along_k(0..n as u32) };
    let range = check(ctx, &units)?;
    let shared = &ctx.blocks[ctx.me].shared;
    if side.is_across {
        with_element!(side.element, right_across(shared, &units, n, b));
    } else {
        with_element!(side.element, right_along_k(shared, &units, n, b));
    }
    Some(range)
}

/// The stretch of shared memory that units lie in, if there is such; reports what nobody has written.
#[inline(always)]
fn check(ctx: &mut Context<'_>, units: &[u32]) -> Option<Range> {
    let (mut low, mut high) = (u32::MAX, 0);
    for unit in units {
        low = low.min(*unit);
        high = high.max(*unit);
    }
    let end = high + 16;
    let shared = &ctx.blocks[ctx.me].shared;
    if end > shared.bytes() {
        let message = format!("a matrix descriptor leads to offset {end} of {} bytes of shared memory", shared.bytes());
        ctx.report(Check::OutOfBounds, 0, Some(u64::from(end)), message);
        return None;
    }
    if ctx.grid.options.checks.initialised && !shared.is_defined(u64::from(low), u64::from(end - low)) {
        let hole = units.iter().find(|unit| !shared.is_defined(u64::from(**unit), 16));
        if let Some(hole) = hole {
            let message = "a matrix operation reads shared memory that nothing has written".to_owned();
            ctx.report(Check::UninitialisedShared, 0, Some(u64::from(*hole)), message);
        }
    }
    Some(Range { block: ctx.me, offset: low, bytes: end - low })
}

/// The elements of a unit, `W` in each of its words.
#[inline(always)]
fn elements<const W: usize>(shared: &SharedMemory, unit: u32, unpack: &impl Fn(u32, usize) -> f32) -> [[f32; W]; 4] {
    let words = &shared.words[unit as usize / 4..][..4];
    let mut out = [[0.0; W]; 4];
    for (out, word) in out.iter_mut().zip(words) {
        for (at, out) in out.iter_mut().enumerate() {
            *out = unpack(*word, at);
        }
    }
    out
}

#[inline(always)]
fn left_along_k<const W: usize>(
    shared: &SharedMemory,
    units: &[u32],
    a: &mut [[f32; MAX_K]; ROWS],
    unpack: impl Fn(u32, usize) -> f32,
) {
    for (row, parts) in a.iter_mut().zip(units.as_chunks::<2>().0) {
        for (out, unit) in row.chunks_exact_mut(4 * W).zip(parts) {
            out.copy_from_slice(elements::<W>(shared, *unit, &unpack).as_flattened());
        }
    }
}

#[inline(always)]
fn left_across<const W: usize>(
    shared: &SharedMemory,
    units: &[u32],
    k: usize,
    a: &mut [[f32; MAX_K]; ROWS],
    unpack: impl Fn(u32, usize) -> f32,
) {
    for (rows, units) in a.as_chunks_mut::<8>().0.iter_mut().zip(units.chunks_exact(k)) {
        for (at, unit) in units.iter().enumerate() {
            let neighbours = elements::<W>(shared, *unit, &unpack);
            for (row, value) in rows.iter_mut().zip(neighbours.as_flattened()) {
                row[at] = *value;
            }
        }
    }
}

#[inline(always)]
fn right_along_k<const W: usize>(
    shared: &SharedMemory,
    units: &[u32],
    n: usize,
    b: &mut [f32],
    unpack: impl Fn(u32, usize) -> f32,
) {
    // Eight columns at a time, so that eight neighbours of a row are there at once.
    for (eight, units) in units.as_chunks::<16>().0.iter().enumerate() {
        for (part, rows) in b.chunks_exact_mut(4 * W * n).enumerate() {
            let mut columns = [[[0.0; W]; 4]; 8];
            for (at, column) in columns.iter_mut().enumerate() {
                *column = elements(shared, units[2 * at + part], &unpack);
            }
            for (at, row) in rows.chunks_exact_mut(n).enumerate() {
                for (out, column) in row[8 * eight..][..8].iter_mut().zip(&columns) {
                    *out = column.as_flattened()[at];
                }
            }
        }
    }
}

#[inline(always)]
fn right_across<const W: usize>(
    shared: &SharedMemory,
    units: &[u32],
    n: usize,
    b: &mut [f32],
    unpack: impl Fn(u32, usize) -> f32,
) {
    let k = b.len() / n;
    for (part, units) in units.chunks_exact(k).enumerate() {
        for (row, unit) in b.chunks_exact_mut(n).zip(units) {
            let neighbours = elements::<W>(shared, *unit, &unpack);
            for (out, value) in row[8 * part..][..8].iter_mut().zip(neighbours.as_flattened()) {
                *out = *value;
            }
        }
    }
}
