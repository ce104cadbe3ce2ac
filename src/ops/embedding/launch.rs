//! Which kernel of embedding serves which rows.

use super::Lookup;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;

/// Threads of a block, and elements that one of them copies at a time.
const THREADS: usize = 256;
const PACK: usize = 8;
const PACK_OF_F32: usize = 4;
const WARP: usize = 32;
/// Threads of a block of few rows, and those of a multiprocessor up to which they are few: what is resident at once.
const FEW_BLOCK: usize = 128;
const FEW_THREADS: usize = 2048;

fn kernel(rule: fn(&Lookup) -> Launch) -> Cuda<Lookup> {
    let plan = move |s: &Lookup| rule(s).scalar(s.ids as i32).scalar(s.dim as i32).scalar(s.vocab as i32);
    kernel!("embedding/embedding.cu", "embedding_naive", plan)
}

pub fn naive() -> Cuda<Lookup> {
    kernel(|s| Launch::blocks(s.ids, THREADS)).tile("dim", 256).untimed().lesson()
}

pub fn vectorised() -> Cuda<Lookup> {
    tiles(kernel(|s| blocks(s, 1).entry("embedding_vectorised"))).lesson()
}

pub fn four_rows() -> Cuda<Lookup> {
    tiles(kernel(|s| blocks(s, 4).entry("embedding_four_rows"))).lesson()
}

pub fn best_f32() -> Cuda<Lookup> {
    kernel(f32_rows).tiles([("ids", 128), ("dim", 8), ("dim", 1024)]).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Lookup> {
    tiles(kernel(half_rows)).dtypes([DType::F16, DType::BF16])
}

fn tiles(kernel: Cuda<Lookup>) -> Cuda<Lookup> {
    kernel.tiles([("ids", 128), ("dim", 8), ("dim", 256), ("dim", 2048)])
}

/// As many threads a row as have a pack of it, up to a block, each with so many rows.
fn blocks(s: &Lookup, rows_of_thread: usize) -> Launch {
    let of_row = match s.dim {
        ..=256 => s.dim.div_ceil(PACK).next_power_of_two(),
        dim => (WARP * dim.div_ceil(WARP * PACK)).min(THREADS),
    };
    let rows = THREADS / of_row;
    Launch::grid([s.ids.div_ceil(rows_of_thread * rows), 1, 1], [of_row, rows, 1])
}

fn f32_rows(s: &Lookup) -> Launch {
    let accesses = Accesses::of(s, PACK_OF_F32);
    accesses.few_rows().unwrap_or_else(|| accesses.many_rows())
}

fn half_rows(s: &Lookup) -> Launch {
    Accesses::of(s, PACK).few_rows().unwrap_or_else(|| many_half_rows(s))
}

/// Long rows that start on single elements go by packs shifted into place: two loads for eight.
fn many_half_rows(s: &Lookup) -> Launch {
    const LONG: usize = 640;
    const COLUMNS_OF_WARP: usize = 512;
    const MOST_WARPS: usize = 4;
    let accesses = Accesses::of(s, PACK);
    if accesses.width > 1 || s.dim <= LONG {
        return accesses.many_rows();
    }
    let warps = s.dim.div_ceil(COLUMNS_OF_WARP).min(MOST_WARPS);
    Launch::blocks(s.ids, WARP * warps).entry("embedding_shifted_packs")
}

/// Rows by accesses of `width` elements, the widest that every row is aligned to.
struct Accesses {
    width: usize,
    pack: usize,
    of_row: usize,
    rows: usize,
}

impl Accesses {
    fn of(s: &Lookup, pack: usize) -> Self {
        let width = (1 << s.dim.trailing_zeros()).min(pack);
        Accesses { width, pack, of_row: s.dim / width, rows: s.ids }
    }

    /// An access a thread in blocks of few warps, where they leave room on the GPU: nothing but the latency of an id and its row
    /// counts then.
    fn few_rows(&self) -> Option<Launch> {
        let few = self.rows * self.of_row <= FEW_THREADS * multiprocessors();
        let [x, rows] = self.block(FEW_BLOCK);
        let grid = [self.rows.div_ceil(rows), self.of_row.div_ceil(x), 1];
        few.then(|| Launch::grid(grid, [x, rows, 1]).entry("embedding_vectorised"))
    }

    /// Whole packs, or rows shorter than one, by rows; else the packs of y, whichever rows they lie in.
    fn many_rows(&self) -> Launch {
        /// Packs that a thread writes.
        const PACKS: usize = 2;
        let dim = self.of_row * self.width;
        if self.width == self.pack || dim < self.pack {
            return self.four_rows();
        }
        let blocks = (self.rows * dim).div_ceil(PACKS * self.pack * THREADS);
        Launch::blocks(blocks, THREADS).entry("embedding_output_packs")
    }

    /// Accesses of four rows a thread. A block has whole rows: blocks that share one would read its parts at different times.
    fn four_rows(&self) -> Launch {
        let [x, rows] = self.block(THREADS);
        Launch::grid([self.rows.div_ceil(4 * rows), 1, 1], [x, rows, 1]).entry("embedding_four_rows")
    }

    /// Short rows share a block without an idle thread between them; long ones are parts of whole warps, as even as can be.
    fn block(&self, most: usize) -> [usize; 2] {
        let of_part = self.of_row.div_ceil(self.of_row.div_ceil(most));
        let rows = most / of_part;
        [if rows == 1 { of_part.next_multiple_of(WARP) } else { of_part }, rows]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::IntoCandidate;
    use crate::core::gpu::Gpu;
    use crate::core::shape::Shape;
    use crate::ops::agreement::{is_right_in_bf16, judged_in_simulator};
    use crate::ops::embedding::operator;
    use rstest::rstest;

    const fn of(ids: usize, dim: usize) -> Lookup {
        Lookup { vocab: 32_000, dim, ids }
    }

    fn is_launched(launch: Launch, entry: &str, [blocks, parts]: [usize; 2], [x, y]: [usize; 2]) {
        let entry = Some(format!("embedding_{entry}"));
        assert_eq!((launch.entry, launch.grid, launch.block), (entry, [blocks, parts, 1], [x, y, 1]));
    }

    #[rstest]
    #[case::parts_of_half_packs(of(228, 612), "vectorised", [228, 2], [96, 1])]
    #[case::a_pack_a_thread(of(64, 768), "vectorised", [64, 1], [96, 1])]
    #[case::parts_of_packs(of(7, 5000), "vectorised", [7, 5], [128, 1])]
    #[case::short_rows_share_a_block(of(100, 37), "vectorised", [34, 1], [37, 3])]
    #[case::an_element_a_thread(of(440, 613), "vectorised", [440, 5], [128, 1])]
    #[case::more_than_are_resident(of(442, 613), "output_packs", [67, 1], [256, 1])]
    #[case::quarters_of_packs(of(4096, 614), "output_packs", [614, 1], [256, 1])]
    #[case::halves_of_packs(of(8192, 612), "output_packs", [1224, 1], [256, 1])]
    #[case::long_and_starting_anywhere(of(4096, 2501), "shifted_packs", [4096, 1], [128, 1])]
    #[case::long_quarters_of_packs(of(4096, 2502), "output_packs", [2502, 1], [256, 1])]
    #[case::without_idle_threads(of(13_120, 384), "four_rows", [656, 1], [48, 5])]
    #[case(of(32_768, 128), "four_rows", [512, 1], [16, 16])]
    #[case(of(8192, 1024), "four_rows", [1024, 1], [128, 2])]
    #[case::long_rows_in_one_block(of(2048, 4096), "four_rows", [512, 1], [256, 1])]
    #[case::shorter_than_a_pack(of(65_536, 7), "four_rows", [456, 1], [7, 36])]
    #[case::nothing(of(0, 4), "vectorised", [0, 1], [1, 128])]
    fn rows_of_half_width(#[case] s: Lookup, #[case] entry: &str, #[case] grid: [usize; 2], #[case] block: [usize; 2]) {
        is_launched(half_rows(&s), entry, grid, block);
    }

    #[rstest]
    #[case(of(228, 613), "vectorised", [228, 5], [128, 1])]
    #[case(of(228, 614), "vectorised", [228, 3], [128, 1])]
    #[case(of(300, 1001), "output_packs", [147, 1], [256, 1])]
    #[case(of(4096, 614), "output_packs", [1228, 1], [256, 1])]
    #[case(of(16_384, 2048), "four_rows", [4096, 1], [256, 1])]
    #[case(of(65_536, 36), "four_rows", [586, 1], [9, 28])]
    fn rows_of_single_precision(
        #[case] s: Lookup,
        #[case] entry: &str,
        #[case] grid: [usize; 2],
        #[case] block: [usize; 2],
    ) {
        is_launched(f32_rows(&s), entry, grid, block);
    }

    #[test]
    fn few_rows_are_fewer_on_a_smaller_gpu() {
        let entry = |s: Lookup| Gpu::with_multiprocessors(16).during(|| half_rows(&s).entry);
        assert_eq!(entry(of(228, 612)).as_deref(), Some("embedding_output_packs"));
        assert_eq!(entry(of(50, 612)).as_deref(), Some("embedding_vectorised"));
    }

    /// A few rows are enough to see a kernel of many.
    #[rstest]
    #[case(Lookup { vocab: 9, dim: 612, ids: 23 })]
    #[case(Lookup { vocab: 9, dim: 614, ids: 23 })]
    #[case(Lookup { vocab: 9, dim: 613, ids: 23 })]
    #[case(Lookup { vocab: 9, dim: 4097, ids: 5 })]
    #[case(Lookup { vocab: 9, dim: 2500, ids: 7 })]
    #[case(Lookup { vocab: 9, dim: 100, ids: 99 })]
    #[case(Lookup { vocab: 9, dim: 131, ids: 19 })]
    fn kernels_of_many_rows_are_right(#[case] s: Lookup) {
        is_right_in_bf16(operator(), kernel(many_half_rows), s);
    }

    #[rstest]
    #[case(Lookup { vocab: 9, dim: 614, ids: 23 })]
    #[case(Lookup { vocab: 9, dim: 613, ids: 23 })]
    fn kernels_of_many_f32_rows_are_right(#[case] s: Lookup) {
        let many = kernel(|s| Accesses::of(s, PACK_OF_F32).many_rows()).dtypes([DType::F32]);
        let judged = judged_in_simulator(&operator(), &many.named("many"), s.to_point());
        assert!(judged.is_ok(), "{judged:#?}");
    }
}
