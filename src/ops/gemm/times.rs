//! What the tiles of the products for compute capability 9.0a take, as measured on an H200: `tiles.json`, and that of bmm.

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
    /// How much longer a tile takes whose outputs are stored element by element, µs.
    #[serde(default)]
    pub by_elements_us: f64,
}

/// The times of all tiles, as `kernelgate gemm-tiles` writes them.
#[derive(Debug, Deserialize, Serialize)]
pub struct Table {
    /// Where they were measured.
    pub device: String,
    /// By the names of tiles.
    pub tiles: BTreeMap<String, Times>,
}

/// Those of the tile of this name, if it was measured: of single products, or of batches.
pub fn of(name: &str, in_batches: bool) -> Option<&'static Times> {
    static TABLES: OnceLock<Option<[Table; 2]>> = OnceLock::new();
    let parsed = || {
        let texts = [include_str!("tiles.json"), include_str!("../bmm/tiles.json")];
        let [single, batched] = texts.map(|text| serde_json::from_str(text).ok());
        Some([single?, batched?])
    };
    TABLES.get_or_init(parsed).as_ref()?[usize::from(in_batches)].tiles.get(name)
}
