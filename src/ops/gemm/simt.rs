//! The launch rule of the f32 kernel that splits k where tiles are few.

use super::Product;
use crate::core::gpu::multiprocessors;
use crate::core::launch::{Launch, Plan};
use crate::core::work::{MatrixTile, Work};
use crate::ops::family::stretch::longest;

const TILE: [usize; 2] = [128, 128];
pub const THREADS: usize = 128;
/// Bytes of the sums of a tile.
pub const TILE_BYTES: usize = TILE[0] * TILE[1] * 4;
/// Of k, brought in at once.
pub const SLICE: usize = 8;
/// Floats from a k to the next in shared memory, of 128 rows of a K-major operand and of 128 columns of an MN-major one.
pub const PADDING_K_MAJOR: usize = 4;
pub const PITCH_K_MAJOR: usize = 128 + PADDING_K_MAJOR;
pub const PITCH_MN_MAJOR: usize = 128;
/// Slices on their way to a multiply-add.
pub const STAGES: usize = 4;
/// What a kernel takes for the slices of a stretch where a block sums all of its k in one go.
pub const IN_ONE_GO: i32 = i32::MAX;
/// Tiles that run at the same time on a multiprocessor.
const RESIDENT: usize = 2;
/// Most blocks that share a tile.
const MOST_PARTS: usize = 64;
/// A part is not worth its second pass below this k.
const LEAST_K: usize = 128;
/// A k of a wave of tiles, in µs: 0.12 where there are few tiles, 0.18 where all multiprocessors have two.
const WAVE_K_US: f64 = 0.15;
/// The second pass in units of one k of a wave of tiles: what it takes to start, and elements read or written in that time.
const ADDING_K: usize = 12;
const ADDED_A_K: usize = 140_000;

fn tiles(s: &Product) -> usize {
    s.m.div_ceil(TILE[0]) * s.n.div_ceil(TILE[1])
}

/// What `items` products take where so many blocks share a tile, in k of a wave of tiles: whole waves, and the second pass.
fn cost(items: usize, s: &Product, parts: usize) -> usize {
    let waves = (items * tiles(s) * parts).div_ceil(RESIDENT * multiprocessors());
    let adding = ADDING_K + items * s.m * s.n * (1 + parts) / ADDED_A_K;
    waves * s.k.div_ceil(parts) + if parts > 1 { adding } else { 0 }
}

/// How many blocks share a tile of one of `items` products: what takes the least time.
pub fn parts(items: usize, s: &Product) -> usize {
    let most = (s.k / LEAST_K).clamp(1, MOST_PARTS);
    (1..=most).min_by_key(|&parts| cost(items, s, parts)).unwrap_or(1)
}

/// About what that takes on an H200, in µs.
pub fn estimate_us(items: usize, s: &Product) -> f64 {
    cost(items, s, parts(items, s)) as f64 * WAVE_K_US
}

/// Bytes of the sums of the parts.
pub fn workspace_bytes(items: usize, s: &Product) -> usize {
    let parts = parts(items, s);
    if parts > 1 { parts * items * s.m * s.n * 4 } else { 0 }
}

/// Slices that are summed in one go, of `slices` that a block sums of `k` products: stretches of equal length.
pub fn stretch(k: usize, slices: usize) -> usize {
    slices.div_ceil(slices.div_ceil(longest(k) / SLICE))
}

/// The blocks of `items` products: four stages of a slice of both factors, with these pitches.
pub fn blocks(items: usize, s: &Product, parts: usize, pitches: [usize; 2]) -> Launch {
    let tile = MatrixTile { extents: TILE, shared_by: [1, 1], depth: s.k.div_ceil(parts), element_bytes: 4 };
    let blocks = items * tiles(s) * parts;
    let work = Work::product(blocks, RESIDENT, &tile);
    let work = if parts > 1 { work.with_partial_sums(TILE) } else { work };
    Launch::blocks(blocks, THREADS).shared(STAGES * SLICE * (pitches[0] + pitches[1]) * 4).shares(work)
}

/// One launch, or one and the sum of its parts.
pub fn plan(s: &Product) -> Plan {
    let parts = parts(1, s);
    let multiply = blocks(1, s, parts, [PITCH_K_MAJOR, PITCH_MN_MAJOR]).without_pointers();
    let multiply = multiply.entry(if s.n.is_multiple_of(4) { "gemm_simt" } else { "gemm_simt_any" });
    let multiply = multiply.pointer("a").pointer("b").pointer(if parts > 1 { "workspace" } else { "c" });
    let multiply = multiply.scalar(s.m as i32).scalar(s.n as i32).scalar(s.k as i32).scalar(parts as i32);
    let multiply = multiply.scalar(IN_ONE_GO);
    let add = Launch::blocks((s.m * s.n).div_ceil(256), 256).entry("gemm_simt_reduce").without_pointers();
    let add = add.pointer("workspace").pointer("c").scalar((s.m * s.n) as i64).scalar(parts as i32);
    Plan(if parts > 1 { vec![multiply, add] } else { vec![multiply] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(4096, 4096, 4096, 1)] // 1024 tiles
    #[case(1024, 1024, 1024, 4)] // 64 tiles
    #[case(512, 5632, 2048, 3)] // 176 tiles: two full waves of 264
    #[case(256, 128, 100, 1)] // nothing to share
    fn k_is_shared_where_tiles_are_few(#[case] m: usize, #[case] n: usize, #[case] k: usize, #[case] expected: usize) {
        assert_eq!(parts(1, &Product { m, n, k }), expected);
    }
}
