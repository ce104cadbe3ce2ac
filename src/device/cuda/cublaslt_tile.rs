//! The extents that stand behind the numbers of cuBLASLt's tiles, and the work of a product in such tiles.

use crate::core::work::{MatrixTile, Work};

/// Runs of numbers whose extents grow by steps.
const TILES: &str = include_str!("cublaslt_tiles.txt");

/// k that the kernels take at a time.
const SLICE: usize = 64;

/// Rows and columns of a tile by its number, as the library counts them: columns first.
pub(super) fn extents(number: u32) -> Option<[usize; 2]> {
    let number = number as usize;
    TILES.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let run: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[first, rows, cols, down, across, count] = run.as_slice() else { return None };
        let at = number.checked_sub(first).filter(|at| *at < count)?;
        Some([rows + at * down, cols + at * across])
    })
}

/// The number of a tile and the parts of k in a description of an algorithm: `…, tile 23, stages 35, split_k 1, …`.
pub(super) fn described(text: &str) -> Option<(u32, u32)> {
    let number = |name: &str| {
        let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        words.windows(2).find(|pair| pair[0] == name)?[1].parse().ok()
    };
    Some((number("tile")?, number("split_k")?))
}

/// The work of `batch` products c[m,n] = a[m,k] b[k,n] in tiles of these extents. The library is told of cᵀ, so that rows of
/// a tile are columns of c.
pub(super) fn work(
    batch: usize,
    [m, n, k]: [usize; 3],
    extents: [usize; 2],
    parts: usize,
    element_bytes: usize,
) -> Work {
    let [rows, cols] = extents;
    let depth = k.div_ceil(SLICE).div_ceil(parts) * SLICE;
    let tile = MatrixTile { extents, shared_by: [1, 1], depth, element_bytes };
    let work = Work::product(batch * n.div_ceil(rows) * m.div_ceil(cols) * parts, 1, &tile);
    if parts > 1 { work.with_partial_sums(extents) } else { work }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::cublaslt::sys::cublasLtMatmulTile_t as Tile;

    /// The bindings name what the numbers stand for.
    #[test]
    fn numbers_have_the_extents_of_their_names() {
        let named = [
            Tile::CUBLASLT_MATMUL_TILE_8x8,
            Tile::CUBLASLT_MATMUL_TILE_64x32,
            Tile::CUBLASLT_MATMUL_TILE_128x128,
            Tile::CUBLASLT_MATMUL_TILE_128x256,
            Tile::CUBLASLT_MATMUL_TILE_256x128,
            Tile::CUBLASLT_MATMUL_TILE_96x128,
            Tile::CUBLASLT_MATMUL_TILE_64x192,
            Tile::CUBLASLT_MATMUL_TILE_192x192,
            Tile::CUBLASLT_MATMUL_TILE_128x72,
            Tile::CUBLASLT_MATMUL_TILE_192x96,
            Tile::CUBLASLT_MATMUL_TILE_256x256,
            Tile::CUBLASLT_MATMUL_TILE_768x80,
        ];
        for tile in named {
            let name = format!("{tile:?}");
            let (rows, cols) = name.rsplit_once('_').and_then(|(_, extents)| extents.split_once('x')).unwrap();
            assert_eq!(extents(tile as u32), Some([rows, cols].map(|text| text.parse().unwrap())), "{name}");
        }
        assert_eq!((extents(0), extents(100_000)), (None, None), "undefined, and of a later version");
    }

    #[test]
    fn descriptions_are_read() {
        let text = "algorithm 66, tile 23, stages 35, split_k 3, swizzle 0, custom 4, inner_shape ?, cluster_shape ?";
        assert_eq!(described(text), Some((23, 3)));
        assert_eq!(described("cuDNN 9.14.0: engine 2"), None);
        assert_eq!(described("tile ?, split_k 1"), None, "the library did not say");
    }

    #[test]
    fn a_product_is_cut_along_the_columns_of_c_first() {
        let found = work(1, [1024, 512, 2048], [128, 256], 2, 2);
        assert_eq!((found.tiles, found.flops), (4 * 4 * 2, 2 * 128 * 256 * 1024));
        assert_eq!(found.cache_bytes, (128 + 256) * 1024 * 2 + 2 * 128 * 256 * 4);
    }
}
