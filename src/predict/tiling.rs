//! The tiles that a case is computed in: what a launch says of them, and those that a library may choose from.

use crate::core::work::{HostWork, Work};

/// Tiles that the blocks of a launch work off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiling {
    /// Tiles.
    pub tiles: f64,
    /// Tiles that a unit works on at the same time.
    pub resident: f64,
    /// Operations of all tiles, those outside of the output counted.
    pub flops: f64,
    /// Bytes that all tiles bring in through the caches.
    pub cache_bytes: f64,
    /// Rows and columns of a tile of a product; 0 of anything else.
    pub extents: [f64; 2],
    /// Whether they are cut so that each unit has as much, where there are more of them than units.
    pub fits_units: bool,
}

/// Tiles of a library's kernels, rows and columns of the output.
const LIBRARY_TILES: [[usize; 2]; 12] = [
    [16, 64],
    [16, 128],
    [32, 128],
    [64, 64],
    [64, 128],
    [128, 64],
    [64, 256],
    [128, 128],
    [128, 192],
    [192, 128],
    [128, 256],
    [256, 128],
];
/// Parts of k, and the least that a part has.
const LIBRARY_PARTS: [usize; 6] = [1, 2, 3, 4, 8, 16];
const LEAST_DEPTH: usize = 256;
/// k that they take at a time.
const SLICE: usize = 64;

impl Tiling {
    /// A tile a block, about whose work nothing more is known.
    pub fn of_blocks(blocks: usize, flops: f64) -> Self {
        Tiling {
            tiles: blocks.max(1) as f64,
            resident: 1.0,
            flops,
            cache_bytes: 0.0,
            extents: [0.0; 2],
            fits_units: false,
        }
    }

    /// The tasks of a host function.
    pub fn of_host(work: &HostWork, flops: f64) -> Self {
        Tiling {
            fits_units: work.fits_threads,
            ..Self::of_blocks(work.tasks, work.flops.map_or(flops, |flops| flops as f64))
        }
    }

    /// What a launch or a library says.
    pub fn of(work: &Work) -> Self {
        let tiles = work.tiles.max(1) as f64;
        Tiling {
            tiles,
            resident: work.resident.max(1) as f64,
            flops: tiles * work.flops as f64,
            cache_bytes: tiles * work.cache_bytes as f64,
            extents: work.extents.map(|extent| extent as f64),
            fits_units: false,
        }
    }

    /// What a library may do for a product of `[m, n]` outputs with sums of `k` terms.
    pub fn of_library([m, n, k]: [usize; 3], element_bytes: usize) -> Vec<Self> {
        use crate::core::work::MatrixTile;
        let splits = LIBRARY_PARTS.into_iter().filter(|&parts| parts == 1 || k / parts >= LEAST_DEPTH);
        let tilings = splits.flat_map(|parts| {
            LIBRARY_TILES.into_iter().map(move |extents| {
                let depth = k.div_ceil(SLICE).div_ceil(parts) * SLICE;
                let tile = MatrixTile { extents, shared_by: [1, 1], depth, element_bytes };
                let work = Work::product(m.div_ceil(extents[0]) * n.div_ceil(extents[1]) * parts, 1, &tile);
                Tiling::of(&if parts > 1 { work.with_partial_sums(extents) } else { work })
            })
        });
        tilings.collect()
    }

    /// Waves over so many units.
    pub fn waves(&self, units: f64) -> f64 {
        self.tiles / (units * self.resident)
    }

    /// Waves that take the time of a whole one each.
    pub fn whole_waves(&self, units: f64) -> f64 {
        let waves = self.waves(units).max(1.0);
        if self.fits_units { waves } else { waves.ceil() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_wave_is_a_whole_one_unless_tasks_are_cut_for_the_threads() {
        let waves = |tasks, fits_threads| {
            let work = HostWork { fits_threads, ..HostWork::tasks(tasks) };
            Tiling::of_host(&work, 1.0).whole_waves(4.0)
        };
        assert_eq!([waves(5, false), waves(6, true), waves(4, false)], [2.0, 1.5, 1.0]);
        assert_eq!([waves(1, false), waves(1, true)], [1.0; 2], "one task takes a wave, however few threads it has");
    }

    #[test]
    fn a_library_splits_k_only_where_it_is_long() {
        let short = Tiling::of_library([512, 512, 256], 2);
        assert_eq!(short.len(), LIBRARY_TILES.len());
        let long = Tiling::of_library([512, 512, 4096], 2);
        assert_eq!(long.len(), LIBRARY_TILES.len() * LIBRARY_PARTS.len());
        assert!(long.iter().all(|tiling| tiling.flops >= 2.0 * 512.0 * 512.0 * 4096.0), "no tile does less than all");
        assert!((long[0].waves(132.0) - 32.0 * 8.0 / 132.0).abs() < 1e-9);
    }
}
