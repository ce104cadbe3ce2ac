//! What the tiles of the products for compute capability 9.0a take, as measured on an H200: `tiles.json`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The times of one tile.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Times {
    /// What starts and ends a product, µs.
    pub base_us: f64,
    /// 64 of k of a tile, µs.
    pub slice_us: f64,
    /// A tile after the first, µs; where parts are added up, a million bytes of their sums.
    pub further_us: f64,
    /// What is read from memory at the most, 10¹² bytes a second.
    pub terabytes_per_s: f64,
}

/// The times of all tiles, as `kernelgate gemm-tiles` writes them.
#[derive(Debug, Deserialize, Serialize)]
pub struct Table {
    /// Where they were measured.
    pub device: String,
    /// By the names of tiles.
    pub tiles: BTreeMap<String, Times>,
}

/// Those of the tile of this name, if it was measured.
pub fn of(name: &str) -> Option<&'static Times> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(|| serde_json::from_str(include_str!("tiles.json")).ok());
    table.as_ref()?.tiles.get(name)
}
