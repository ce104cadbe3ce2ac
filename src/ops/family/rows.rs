//! Operators over the rows of a matrix: `rows` independent rows of `cols` elements.

use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::seed::{Rng, below, permutation};
use crate::core::shape::Shape;

/// The extents of a matrix.
type Extents = (usize, usize);

/// Shapes to check, as (rows, cols): no row at all, every narrow width, both sides of usual block sizes, and what
/// models hold. Rows and columns are never equal, so that they can't be swapped.
pub fn cases() -> impl Iterator<Item = Extents> {
    let none = [(0, 128)];
    let narrow = (1..=33).map(|cols| (if cols == 5 { 6 } else { 5 }, cols));
    let edges = [(3, 1023), (2, 1024), (3, 1025), (9, 4099)];
    let realistic = [(197, 768), (300, 1000), (64, 4096), (36, 8192), (7, 32_000), (5, 50_257), (1, 262_144)];
    none.into_iter().chain(narrow).chain(edges).chain(realistic)
}

/// Shapes to time, as (rows, cols).
pub const TIMED: [Extents; 3] = [(2048, 1024), (8192, 4096), (8192, 4095)];

/// Columns up to which a warp is shared by several rows, one warp and one block keep a row in registers.
const LANES_UP_TO: usize = 256;
const WARP_UP_TO: usize = 1024;
const BLOCK_UP_TO: usize = 32_768;
/// Columns that a block of a cluster takes, and past which a cluster is used at all.
const CLUSTER_SHARE: usize = 16_384;
const LARGEST_CLUSTER: usize = 8;

/// Threads of a block that holds several teams.
const SHARED_BLOCK: usize = 128;
const WARP: usize = 32;
/// Elements of a thread: of one that shares a warp, of any other.
const FEW: usize = 8;
const MANY: usize = 32;

/// Threads that hold so many columns, `MANY` each.
const fn team(columns: usize) -> usize {
    WARP * columns.div_ceil(WARP * MANY)
}

/// Up to how many columns version 5 of an operator gives a thread of a block half of `MANY` elements, and up to how many
/// it has an entry for small blocks.
#[derive(Clone, Copy)]
pub struct Held {
    pub few_up_to: usize,
    pub block_up_to: usize,
}

/// The launch rule of version 5: rows held as packs.
fn launch_held(op: &str, held: Held, (rows, cols): Extents) -> Launch {
    /// Columns of the widest row that one warp holds, that a block of 256 threads does, and that one of 1024 does.
    const WARP_HOLDS: usize = 512;
    const LARGE_HOLDS: usize = 8192;
    const BLOCK_HOLDS: usize = 32_768;
    let odd = if cols.is_multiple_of(FEW) { "" } else { "_odd" };
    let entry = |path: &str| format!("{op}_v5_{path}{odd}");
    let half = WARP * cols.div_ceil(WARP * MANY / 2);
    if cols <= WARP_HOLDS {
        let teams = SHARED_BLOCK / WARP;
        Launch::grid([rows.div_ceil(teams), 1, 1], [WARP, teams, 1]).entry(entry("warp"))
    } else if cols <= held.few_up_to {
        Launch::blocks(rows, half).entry(entry("few"))
    } else if cols <= held.block_up_to {
        Launch::blocks(rows, team(cols)).entry(entry("block"))
    } else if held.block_up_to < LARGE_HOLDS && cols <= LARGE_HOLDS {
        Launch::blocks(rows, team(cols)).entry(entry("large"))
    } else if cols <= BLOCK_HOLDS {
        Launch::blocks(rows, team(cols)).entry(entry("wide"))
    } else {
        let cluster = cols.div_ceil(BLOCK_HOLDS).next_power_of_two().min(LARGEST_CLUSTER);
        let share = FEW * cols.div_ceil(FEW * cluster);
        Launch::blocks(rows * cluster, team(share)).cluster(cluster).entry(entry("cluster"))
    }
}

/// The launch rule of version 6, where it serves the shape: sums and squares are matrix products.
fn launch_by_product(op: &str, (rows, cols): Extents) -> Option<Launch> {
    let path = match cols {
        4096 => "block",
        1025..4096 if !cols.is_multiple_of(FEW) => "block_odd",
        _ => return None,
    };
    Some(Launch::blocks(rows, team(cols)).entry(format!("{op}_v6_{path}")))
}

/// The launch rule of version `version` of a norm of f32, where it serves the shape: short rows that start anywhere, of
/// up to `widest` columns, by elements.
fn launch_by_elements(op: &str, version: usize, widest: usize, (rows, cols): Extents) -> Option<Launch> {
    let (path, teams) = match cols {
        257..=384 => ("warp", 4),
        385..=512 => ("two_warps", 2),
        513..=1024 => ("four_warps", 1),
        _ => return None,
    };
    (cols <= widest && !cols.is_multiple_of(FEW))
        .then(|| Launch::blocks(rows.div_ceil(teams), SHARED_BLOCK).entry(format!("{op}_v{version}_{path}")))
}

/// How a version of f32 norms serves rows that start anywhere from whole lines on: those of more columns than these, a
/// path up to its columns.
#[derive(Clone, Copy)]
pub struct Lines {
    pub more_than: usize,
    pub paths: &'static [Path],
}

/// Rows of up to so many columns, so many elements a thread.
pub struct Path {
    pub up_to: usize,
    pub name: &'static str,
    pub elements: usize,
}

impl Lines {
    /// The launch rule of version `version`, where it serves the shape.
    pub fn launch(self, op: &str, version: usize, (rows, cols): Extents) -> Option<Launch> {
        if cols <= self.more_than || cols.is_multiple_of(FEW) {
            return None;
        }
        let path = self.paths.iter().find(|path| cols <= path.up_to)?;
        let threads = WARP * cols.div_ceil(WARP * path.elements);
        Some(Launch::blocks(rows, threads).entry(format!("{op}_v{version}_{}", path.name)))
    }

    /// Declares the extents at which such a version takes another path.
    pub fn tiles<S: Shape>(self, kernel: Cuda<S>) -> Cuda<S> {
        self.paths.iter().fold(kernel, |kernel, path| kernel.tile("cols", path.up_to)).dtypes([DType::F32])
    }
}

/// The launch rule that the kernels of norms and softmax share, without their scalars: version `version` of operator
/// `op`, by the version before where a version does not serve the shape.
pub fn launch(op: &str, version: usize, held: Held, (rows, cols): Extents) -> Launch {
    match version {
        1 => Launch::blocks(rows, 256).entry(format!("{op}_v1")),
        6 => launch_by_product(op, (rows, cols)).unwrap_or_else(|| launch(op, 5, held, (rows, cols))),
        3..=5 if cols <= LANES_UP_TO => {
            let lanes = cols.div_ceil(FEW).next_power_of_two();
            let teams = SHARED_BLOCK / lanes;
            Launch::grid([rows.div_ceil(teams), 1, 1], [lanes, teams, 1]).entry(format!("{op}_v3_lanes"))
        }
        5 => launch_held(op, held, (rows, cols)),
        3 | 4 if cols <= WARP_UP_TO => {
            let teams = SHARED_BLOCK / WARP;
            Launch::grid([rows.div_ceil(teams), 1, 1], [WARP, teams, 1]).entry(format!("{op}_v3_warp"))
        }
        4 if cols > CLUSTER_SHARE => {
            let cluster = cols.div_ceil(CLUSTER_SHARE).next_power_of_two().min(LARGEST_CLUSTER);
            let share = FEW * cols.div_ceil(FEW * cluster);
            Launch::blocks(rows * cluster, team(share)).cluster(cluster).entry(format!("{op}_v4_cluster"))
        }
        3 | 4 if cols <= BLOCK_UP_TO => Launch::blocks(rows, team(cols)).entry(format!("{op}_v3_block")),
        _ => Launch::blocks(rows, team(cols).min(1024)).entry(format!("{op}_v2")),
    }
}

/// Declares the extents at which version `version` takes another path, and that version 6 is one of half width.
pub fn tiles<S: Shape>(version: usize, kernel: Cuda<S>) -> Cuda<S> {
    match version {
        1 => kernel.tile("cols", 256),
        2 => kernel.tiles([("cols", 8), ("cols", WARP_UP_TO), ("cols", BLOCK_UP_TO)]),
        _ => {
            let teams = kernel.tiles([("rows", 4), ("rows", 128), ("cols", 8), ("cols", LANES_UP_TO)]);
            let team = teams.tiles([("cols", WARP_UP_TO), ("cols", CLUSTER_SHARE)]);
            match version {
                3 => team,
                4 => team.tile("cols", 4 * CLUSTER_SHARE),
                _ => {
                    let held = team.tiles([("cols", 512), ("cols", 4096), ("cols", 8192), ("cols", BLOCK_UP_TO)]);
                    let by_product = [DType::F16, DType::BF16];
                    if version == 5 { held } else { held.dtypes(by_product) }
                }
            }
        }
    }
}

/// The same of the version that takes f32 rows by elements.
fn tiles_by_elements<S: Shape>(kernel: Cuda<S>) -> Cuda<S> {
    tiles(5, kernel).tiles([("rows", 2), ("cols", 384)]).dtypes([DType::F32])
}

/// A norm whose last two versions take f32 rows that start anywhere: short ones by elements, then longer ones from whole
/// lines on.
#[derive(Clone, Copy)]
pub struct Norm {
    pub op: &'static str,
    pub held: Held,
    /// The version that takes rows by elements, and its most columns; the next one goes by lines.
    pub by_elements: usize,
    pub widest: usize,
    pub lines: Lines,
}

impl Norm {
    /// The launch rule of each version, without its scalars: by the version before where one does not serve the shape.
    pub fn launch(self, version: usize, extents: Extents) -> Launch {
        let served = match version.checked_sub(self.by_elements) {
            None => return launch(self.op, version, self.held, extents),
            Some(0) => launch_by_elements(self.op, version, self.widest, extents),
            Some(_) => self.lines.launch(self.op, version, extents),
        };
        let before = if version == self.by_elements { 5 } else { self.by_elements };
        served.unwrap_or_else(|| self.launch(before, extents))
    }

    /// Declares the extents at which a version takes another path.
    pub fn tiles<S: Shape>(self, version: usize, kernel: Cuda<S>) -> Cuda<S> {
        match version.checked_sub(self.by_elements) {
            None => tiles(version, kernel),
            Some(0) => tiles_by_elements(kernel),
            Some(_) => self.lines.tiles(tiles_by_elements(kernel)),
        }
    }
}

/// Adds to each row a multiple of 1/8 in [-4, 4]: exact on a grid of such values.
pub fn shift_rows(values: &mut [f64], cols: usize, rng: &mut Rng) {
    for row in values.chunks_exact_mut(cols) {
        let shift = (below(rng, 65) as f64 - 32.0) / 8.0;
        row.iter_mut().for_each(|value| *value += shift);
    }
}

/// Puts the columns of every tensor into one random order; a tensor of `cols` elements is a single row.
pub fn permute_columns(tensors: &mut [Vec<f64>], cols: usize, rng: &mut Rng) {
    let order = permutation(rng, cols);
    for row in tensors.iter_mut().flat_map(|tensor| tensor.chunks_exact_mut(cols)) {
        let before = row.to_vec();
        for (value, &from) in row.iter_mut().zip(&order) {
            *value = before[from];
        }
    }
}

/// Multiplies all values by a power of two, which is exact.
pub fn double(values: &mut [f64]) {
    values.iter_mut().for_each(|value| *value *= 2.0);
}

/// Changes the sign of all values.
pub fn negate(values: &mut [f64]) {
    values.iter_mut().for_each(|value| *value = -*value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case((9, 256), None)]
    #[case((9, 257), Some(("op_v7_warp", 3)))]
    #[case((9, 385), Some(("op_v7_two_warps", 5)))]
    #[case((9, 512), None)]
    #[case((9, 1023), Some(("op_v7_four_warps", 9)))]
    #[case((9, 1025), None)]
    fn rows_by_elements(#[case] extents: Extents, #[case] expected: Option<(&str, usize)>) {
        let launch = launch_by_elements("op", 7, 1024, extents);
        assert_eq!(launch.as_ref().map(|launch| (launch.entry.as_deref().unwrap(), launch.grid[0])), expected);
        assert!(launch.is_none_or(|launch| launch.block == [128, 1, 1]));
    }

    #[rstest]
    #[case(8, 2049, "op_v8_many")]
    #[case(8, 1023, "op_v7_four_warps")]
    #[case(7, 2049, "op_v5_few_odd")]
    #[case(8, 8193, "op_v5_wide_odd")]
    #[case(8, 4096, "op_v5_block")]
    #[case(6, 4096, "op_v6_block")]
    #[case(5, 1023, "op_v5_few_odd")]
    fn a_norm_falls_back_to_the_version_that_serves(#[case] version: usize, #[case] cols: usize, #[case] entry: &str) {
        let lines = Lines { more_than: 1024, paths: &[Path { up_to: 8192, name: "many", elements: 32 }] };
        let held = Held { few_up_to: 2080, block_up_to: 4096 };
        let norm = Norm { op: "op", held, by_elements: 7, widest: 1024, lines };
        assert_eq!(norm.launch(version, (9, cols)).entry.as_deref(), Some(entry));
    }

    #[rstest]
    #[case((9, 1023), None)]
    #[case((9, 1025), Some(("op_v8_few", 96)))]
    #[case((9, 1032), None)]
    #[case((9, 2047), Some(("op_v8_few", 128)))]
    #[case((9, 2049), Some(("op_v8_many", 96)))]
    #[case((9, 8191), Some(("op_v8_many", 256)))]
    #[case((9, 8193), None)]
    fn rows_by_lines(#[case] extents: Extents, #[case] expected: Option<(&str, usize)>) {
        const FEW: Path = Path { up_to: 2048, name: "few", elements: 16 };
        const MANY: Path = Path { up_to: 8192, name: "many", elements: 32 };
        let launch = Lines { more_than: 1024, paths: &[FEW, MANY] }.launch("op", 8, extents);
        assert_eq!(launch.as_ref().map(|launch| (launch.entry.as_deref().unwrap(), launch.block[0])), expected);
        assert!(launch.is_none_or(|launch| launch.grid == [extents.0, 1, 1]));
    }

    #[rstest]
    #[case(5, (129, 8), "op_v3_lanes", 2, [1, 128], 1)]
    #[case(5, (9, 257), "op_v5_warp_odd", 3, [32, 4], 1)]
    #[case(5, (9, 512), "op_v5_warp", 3, [32, 4], 1)]
    #[case(5, (9, 513), "op_v5_few_odd", 9, [64, 1], 1)]
    #[case(5, (9, 1024), "op_v5_few", 9, [64, 1], 1)]
    #[case(5, (9, 1025), "op_v5_block_odd", 9, [64, 1], 1)]
    #[case(5, (9, 4096), "op_v5_block", 9, [128, 1], 1)]
    #[case(5, (9, 4104), "op_v5_large", 9, [160, 1], 1)]
    #[case(5, (9, 8192), "op_v5_large", 9, [256, 1], 1)]
    #[case(5, (9, 8193), "op_v5_wide_odd", 9, [288, 1], 1)]
    #[case(5, (9, 32_768), "op_v5_wide", 9, [1024, 1], 1)]
    #[case(5, (9, 32_769), "op_v5_cluster_odd", 18, [544, 1], 2)]
    #[case(5, (9, 262_144), "op_v5_cluster", 72, [1024, 1], 8)]
    #[case(6, (9, 1025), "op_v6_block_odd", 9, [64, 1], 1)]
    #[case(6, (9, 1032), "op_v5_block", 9, [64, 1], 1)]
    #[case(6, (9, 3072), "op_v5_block", 9, [96, 1], 1)]
    #[case(6, (9, 4095), "op_v6_block_odd", 9, [128, 1], 1)]
    #[case(6, (9, 4096), "op_v6_block", 9, [128, 1], 1)]
    #[case(6, (9, 8192), "op_v5_large", 9, [256, 1], 1)]
    #[case(1, (7, 5), "op_v1", 7, [256, 1], 1)]
    #[case(2, (7, 5), "op_v2", 7, [32, 1], 1)]
    #[case(2, (7, 1025), "op_v2", 7, [64, 1], 1)]
    #[case(2, (7, 262_144), "op_v2", 7, [1024, 1], 1)]
    #[case(3, (129, 8), "op_v3_lanes", 2, [1, 128], 1)]
    #[case(3, (129, 9), "op_v3_lanes", 3, [2, 64], 1)]
    #[case(3, (9, 256), "op_v3_lanes", 3, [32, 4], 1)]
    #[case(3, (9, 257), "op_v3_warp", 3, [32, 4], 1)]
    #[case(3, (9, 1025), "op_v3_block", 9, [64, 1], 1)]
    #[case(3, (9, 32_768), "op_v3_block", 9, [1024, 1], 1)]
    #[case(3, (9, 32_769), "op_v2", 9, [1024, 1], 1)]
    #[case(4, (9, 16_384), "op_v3_block", 9, [512, 1], 1)]
    #[case(4, (9, 16_385), "op_v4_cluster", 18, [288, 1], 2)]
    #[case(4, (9, 32_769), "op_v4_cluster", 36, [288, 1], 4)]
    #[case(4, (9, 262_144), "op_v4_cluster", 72, [1024, 1], 8)]
    fn the_rule_of_the_kernel_headers(
        #[case] version: usize,
        #[case] extents: Extents,
        #[case] entry: &str,
        #[case] blocks: usize,
        #[case] block: [usize; 2],
        #[case] cluster: usize,
    ) {
        let launch = launch("op", version, Held { few_up_to: 1024, block_up_to: 4096 }, extents);
        assert_eq!(launch.entry.as_deref(), Some(entry));
        assert_eq!((launch.grid, launch.block), ([blocks, 1, 1], [block[0], block[1], 1]));
        assert_eq!(launch.cluster, cluster);
    }
}
