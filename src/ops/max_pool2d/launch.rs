//! Launch rules of max pooling: a row of the output a line of threads, packs of channels where they lie side by side.

use super::Pooling;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::rows::launch::{PACK, WARP};

const THREADS: usize = 256;
/// Rows of the output in a block, at the most.
const ROWS: usize = THREADS / WARP;

fn kernel(plan: fn(&Pooling) -> Launch) -> Cuda<Pooling> {
    kernel!("max_pool2d/max_pool2d.cu", "max_pool2d_naive", plan)
}

/// Lesson 1: a thread an output.
pub fn naive() -> Cuda<Pooling> {
    kernel(|s| {
        let ((planes, inner), (down, across)) = (s.planes(), s.places());
        scalars(s, Launch::blocks((planes * down * across * inner).div_ceil(THREADS), THREADS))
            .entry("max_pool2d_naive")
    })
    .untimed()
    .lesson()
}

/// Rows of the output side by side in a block, so that no thread divides by more than its own row.
pub fn best() -> Cuda<Pooling> {
    let kernel = kernel(|s| {
        let ((planes, inner), (down, across)) = (s.planes(), s.places());
        let is_packed = inner.is_multiple_of(PACK);
        let accesses = across * if is_packed { inner / PACK } else { inner };
        // As wide as a row needs, in whole warps.
        let wide = accesses.div_ceil(WARP).next_power_of_two().clamp(1, ROWS) * WARP;
        let rows = THREADS / wide;
        let grid = [(planes * down).div_ceil(rows), accesses.div_ceil(wide).min(MOST_Y), 1];
        let halves = s.tall == 2 && s.wide == 2 && s.padding == 0;
        let entry = match (is_packed, halves) {
            (true, true) => "max_pool2d_packs_2x2",
            (true, false) => "max_pool2d_packs",
            (false, true) => "max_pool2d_elements_2x2",
            (false, false) => "max_pool2d_elements",
        };
        scalars(s, Launch::grid(grid, [wide, rows, 1])).entry(entry)
    });
    kernel.tiles([("channels", PACK), ("width", 2 * WARP), ("width", 2 * THREADS), ("height", 2 * ROWS)])
}

/// Blocks along y that every device takes.
const MOST_Y: usize = 65_535;

fn scalars(s: &Pooling, launch: Launch) -> Launch {
    let ((planes, inner), (down, across)) = (s.planes(), s.places());
    let extents = [s.height, s.width, inner, down, across, s.tall, s.wide, s.stride, s.padding];
    let launch = launch.scalar((planes * down) as i64);
    extents.into_iter().chain([s.activation as usize]).fold(launch, |launch, extent| launch.scalar(extent as i32))
}
