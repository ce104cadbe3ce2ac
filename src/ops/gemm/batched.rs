//! The tiles of batches of products.

use super::tile::{SPLIT_K, SWAP_AB, TILES, Tile, Work, tile};
use super::times;
use crate::core::gpu::H200_MULTIPROCESSORS;

/// Those of batches alone: small ones of which a multiprocessor has several, so that with a short k the mainloop of one runs during
/// the stores of another.
const OWN: [Tile; 2] = [
    tile("swap_ab_128x64_x2", [128, 64], 3, Work::SwapAb([1, 1]), 2 * H200_MULTIPROCESSORS),
    tile("swap_ab_64x64_x3", [64, 64], 4, Work::SwapAb([1, 1]), 3 * H200_MULTIPROCESSORS),
];

/// Every tile of a batch of products, if the layout has it: those that were timed.
pub fn tiles() -> impl Iterator<Item = &'static Tile> + Clone {
    let all = TILES.iter().chain(&SWAP_AB).chain(SPLIT_K.iter().flatten()).chain(&OWN);
    all.filter(|tile| times::of(tile.name, true).is_some())
}
