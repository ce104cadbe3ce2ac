//! Launch rules of max pooling: a row of the output a line of threads, packs of channels where they lie side by side, else of
//! columns where lines keep them whole.

use super::Pooling;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::rows::launch::{PACK, WARP};

const THREADS: usize = 256;
/// Rows of the output in a block whose rows have a warp each.
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

/// How a row of the output is cut.
struct Row {
    entry: &'static str,
    /// Accesses of a row, a thread each.
    accesses: usize,
}

impl Row {
    fn of(s: &Pooling) -> Row {
        let ((_, inner), (_, across)) = (s.planes(), s.places());
        let side = if s.tall == s.wide && s.padding <= s.tall.saturating_sub(2) { s.tall } else { 0 };
        let keeps_packs = inner == 1 && across.is_multiple_of(PACK) && across * s.stride == s.width;
        let of_line = match (side, s.stride) {
            (2, 2) => Some("max_pool2d_lines_2x2"),
            (3, 1) => Some("max_pool2d_lines_3x3"),
            (3, 2) => Some("max_pool2d_lines_3x3_stride2"),
            _ => None,
        };
        if let Some(entry) = of_line.filter(|_| keeps_packs) {
            return Row { entry, accesses: across / PACK };
        }
        let is_packed = inner.is_multiple_of(PACK);
        let entry = match (is_packed, side) {
            (true, 2) => "max_pool2d_packs_2x2",
            (true, 3) => "max_pool2d_packs_3x3",
            (true, _) => "max_pool2d_packs",
            (false, 2) => "max_pool2d_elements_2x2",
            (false, 3) => "max_pool2d_elements_3x3",
            (false, _) => "max_pool2d_elements",
        };
        Row { entry, accesses: across * if is_packed { inner / PACK } else { inner } }
    }
}

/// Rows of the output side by side in a block, so that no thread divides by more than its own row.
pub fn best() -> Cuda<Pooling> {
    let kernel = kernel(|s| {
        let ((planes, _), (down, _)) = (s.planes(), s.places());
        let Row { entry, accesses } = Row::of(s);
        let wide = accesses.next_power_of_two().clamp(1, THREADS);
        let rows = THREADS / wide;
        let grid = [(planes * down).div_ceil(rows), accesses.div_ceil(wide).min(MOST_Y), 1];
        scalars(s, Launch::grid(grid, [wide, rows, 1])).entry(entry)
    });
    kernel.tiles([("channels", PACK), ("width", 2 * PACK), ("width", 2 * THREADS), ("height", 2 * ROWS)])
}

/// Blocks along y that every device takes.
const MOST_Y: usize = 65_535;

fn scalars(s: &Pooling, launch: Launch) -> Launch {
    let ((planes, inner), (down, across)) = (s.planes(), s.places());
    let extents = [s.height, s.width, inner, down, across, s.tall, s.wide, s.stride, s.padding];
    let launch = launch.scalar((planes * down) as i64);
    extents.into_iter().chain([s.activation as usize]).fold(launch, |launch, extent| launch.scalar(extent as i32))
}
