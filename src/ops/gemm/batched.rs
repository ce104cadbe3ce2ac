//! The tiles of batches of products, and their times.

use super::tile::{SWAP_AB, TILES, Tile, Work, tile};
use super::times::Times;
use crate::ops::family::aligned::MULTIPROCESSORS;

/// Those of batches alone: small ones of which a multiprocessor has several, so that with a short k the mainloop of one runs during
/// the stores of another.
const OWN: [Tile; 2] = [
    tile("swap_ab_128x64_x2", [128, 64], 3, Work::SwapAb(1), 2 * MULTIPROCESSORS),
    tile("swap_ab_64x64_x3", [64, 64], 4, Work::SwapAb(1), 3 * MULTIPROCESSORS),
];

/// The tiles with which there are batches of products, and how many µs it takes to store one, by TMA and by
/// elements: with a short k that is most of the time. What is left of the times of shapes on an H200, k of 64 to 4096 and 1
/// to 96 items, when the start and the slices of [`TIMES`] are taken off: by copies of 8 shapes (not swapped) and 58
/// (swapped, and in pairs), by elements of 14, where the tile that is chosen takes 1.003 of the fastest one's
/// time in the geometric mean (1.006 without swapping A and B).
const STORED_US: [(&str, [f64; 2]); 8] = [
    ("128x256", [1.3, 4.5]),
    ("128x256_cluster2", [1.3, 4.5]),
    ("64x64", [0.48, 1.4]),
    ("swap_ab_112x128", [0.7, 1.9]),
    ("swap_ab_128x128", [1.15, 2.3]),
    ("swap_ab_192x128", [0.88, 3.5]),
    ("swap_ab_128x64_x2", [0.78, 2.2]),
    ("swap_ab_64x64_x3", [0.41, 0.83]),
];

/// Their times: those that gemm's tiles had when [`STORED_US`] was found beside them, and those of `OWN` from the same shapes.
static TIMES: [(&str, Times); 8] = [
    ("128x256", Times { base_us: 4.635, slice_us: 0.6, further_us: 2.499, terabytes_per_s: 3.63 }),
    ("64x64", Times { base_us: 2.005, slice_us: 0.173, further_us: 0.45, terabytes_per_s: 4.019 }),
    ("swap_ab_112x128", Times { base_us: 2.759, slice_us: 0.291, further_us: 0.385, terabytes_per_s: 3.236 }),
    ("swap_ab_128x128", Times { base_us: 2.633, slice_us: 0.315, further_us: 1.117, terabytes_per_s: 3.765 }),
    ("swap_ab_192x128", Times { base_us: 2.526, slice_us: 0.492, further_us: 1.155, terabytes_per_s: 3.321 }),
    ("128x256_cluster2", Times { base_us: 5.141, slice_us: 0.6, further_us: 2.585, terabytes_per_s: 2.525 }),
    ("swap_ab_128x64_x2", Times { base_us: 2.929, slice_us: 0.459, further_us: 0.0, terabytes_per_s: 4.18 }),
    ("swap_ab_64x64_x3", Times { base_us: 2.698, slice_us: 0.42, further_us: 0.0, terabytes_per_s: 3.75 }),
];

/// Every tile of a batch of products, if the layout has it.
pub fn tiles() -> impl Iterator<Item = &'static Tile> + Clone {
    TILES.iter().chain(&SWAP_AB).chain(&OWN).filter(|tile| stored_us(tile.name).is_some())
}

/// What it takes to store this tile by bulk copies and by elements, µs, if batches have it.
pub fn stored_us(name: &str) -> Option<[f64; 2]> {
    STORED_US.iter().find(|(tile, _)| *tile == name).map(|(_, us)| *us)
}

/// The times of a tile of batches.
pub fn times_of(name: &str) -> Option<&'static Times> {
    TIMES.iter().find(|(tile, _)| *tile == name).map(|(_, times)| times)
}
