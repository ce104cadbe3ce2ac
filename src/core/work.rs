//! What the blocks of a launch share: the tiles of a persistent kernel, of which its grid says nothing, and what they take.

use serde::{Deserialize, Serialize};

/// Equal tiles that blocks work off. What predicts times needs them; nothing that runs does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Tiles, each part of a split k counted.
    pub tiles: usize,
    /// Tiles that a multiprocessor works on at the same time.
    pub resident: usize,
    /// Operations of a tile, those outside of the output counted.
    pub flops: usize,
    /// Bytes that a tile brings in through the caches, and what it leaves there for a second pass.
    pub cache_bytes: usize,
    /// Bytes of the workspace that are read and written besides the operands: copies with other strides.
    pub copied_bytes: usize,
    /// Rows and columns of a tile of a product; 0 of anything else.
    #[serde(default)]
    pub extents: [usize; 2],
}

/// How a host function shares out a case. What predicts times needs it; nothing that runs does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostWork {
    /// Which of its ways it takes.
    pub path: &'static str,
    /// Into how many tasks it cuts the case: 1 on one thread.
    pub tasks: usize,
    /// Operations of all tasks, those outside of the output counted, where they are not those of the operator's cost.
    pub flops: Option<usize>,
    /// Whether it makes as many of them as there are threads, where there are fewer of those.
    pub fits_threads: bool,
}

impl HostWork {
    /// Work on the thread of the caller.
    pub const ONE_THREAD: HostWork = HostWork { path: "one thread", tasks: 1, flops: None, fits_threads: false };

    /// Tasks of one size, whatever the number of threads.
    pub const fn tasks(tasks: usize) -> Self {
        HostWork { path: "threads", tasks, flops: None, fits_threads: false }
    }
}

/// One tile of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixTile {
    /// Rows and columns of the output.
    pub extents: [usize; 2],
    /// How many blocks share what they read of the left factor, and of the right one, by multicast.
    pub shared_by: [usize; 2],
    /// Of k.
    pub depth: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
}

impl Work {
    /// `tiles` tiles of a product, of which a multiprocessor has `resident`.
    pub fn product(tiles: usize, resident: usize, tile: &MatrixTile) -> Self {
        let [rows, cols] = tile.extents;
        let read = rows / tile.shared_by[0].max(1) + cols / tile.shared_by[1].max(1);
        Work {
            tiles,
            resident,
            flops: 2 * rows * cols * tile.depth,
            cache_bytes: read * tile.depth * tile.element_bytes,
            copied_bytes: 0,
            extents: tile.extents,
        }
    }

    /// The same where k is split: sums of every tile are written for a second pass, in f32, and read by it.
    pub fn with_partial_sums(mut self, extents: [usize; 2]) -> Self {
        self.cache_bytes += 2 * extents[0] * extents[1] * size_of::<f32>();
        self
    }

    /// A copy that reads and writes so many bytes.
    pub fn copy(read: usize, written: usize) -> Self {
        Work { copied_bytes: read + written, ..Work::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_reads_what_it_does_not_share() {
        let tile = MatrixTile { extents: [128, 256], shared_by: [1, 2], depth: 64, element_bytes: 2 };
        let work = Work::product(6, 1, &tile);
        assert_eq!((work.flops, work.cache_bytes), (2 * 128 * 256 * 64, (128 + 128) * 64 * 2));
        assert_eq!(work.with_partial_sums([128, 256]).cache_bytes - work.cache_bytes, 2 * 128 * 256 * 4);
        assert_eq!(Work::copy(3, 4).copied_bytes, 7);
    }
}
