//! The products on warp groups: gemm's, with the item as the outermost coordinate of every tensor map.

use super::Products;
use crate::ops::gemm::hopper::{Operation, Tile};

/// The product as the launch rule of gemm's kernels knows it.
pub fn operation(s: &Products) -> Operation {
    Operation {
        name: match s.layout() {
            "nn" => "bmm_nn",
            "nt" => "bmm_nt",
            "tn" => "bmm_tn",
            _ => "bmm_tt",
        },
        align: "bmm_align",
        factors: ["a", "b"],
        output: "c",
        a_along_k: !s.transposed_a,
        b_along_k: s.transposed_b,
        batch: Some(s.batch),
        others: &[],
    }
}

/// The tile that is estimated to be the fastest.
pub fn chosen(s: &Products) -> &'static Tile {
    operation(s).choose(&s.item())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::Case;
    use crate::check::judge::judge_case;
    use crate::check::{Context, Subject};
    use crate::core::candidate::IntoCandidate;
    use crate::core::distribution::Distribution;
    use crate::core::dtype::DType;
    use crate::core::shape::Shape;
    use crate::device::sim::{FOLDER, SimDevice};
    use crate::ops::bmm::{hopper_kernel, operator, shape};
    use crate::ops::gemm::hopper::{BATCHED, TILES};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case((8, 1024, 1024, 1024), "128x256")]
    #[case((1, 4096, 4096, 4096), "128x256")]
    #[case((16, 512, 512, 64), "128x128")]
    #[case((64, 256, 256, 64), "128x128")]
    #[case((16, 1024, 1024, 128), "128x256")]
    #[case((16, 512, 64, 512), "64x64")]
    #[case((12, 197, 197, 64), "64x128")]
    #[case((8, 1000, 1000, 1000), "128x256")]
    fn the_tile_follows_the_shape(#[case] extents: (usize, usize, usize, usize), #[case] name: &str) {
        assert_eq!(chosen(&shape((extents, "nt"))).name, name);
    }

    /// The gate's shapes are small: most tiles are chosen for none of them.
    #[rstest]
    fn every_tile_is_right_in_the_simulator(
        // Rows for maps in all; several tiles an item; copies of a, of b, of both, c from registers.
        #[values((3, 72, 136, 40), (2, 200, 264, 136), (2, 65, 72, 200), (3, 130, 71, 72), (2, 129, 259, 65))]
        extents: (usize, usize, usize, usize),
        #[values("nn", "nt", "tn", "tt")] layout: &str,
    ) {
        let device = SimDevice::new(Some(format!("{}/{FOLDER}", env!("CARGO_MANIFEST_DIR")).into()));
        let s = shape((extents, layout));
        for tile in TILES.iter().filter(|tile| BATCHED.iter().any(|(name, _)| *name == tile.name)) {
            let candidate = hopper_kernel(move |_| tile).named("tile");
            let context = Context::new(&device, 1, Duration::from_secs(60));
            let subject = Subject { operator: &operator(), candidate: &candidate, dtype: DType::BF16 };
            let judged = judge_case(&context, &subject, &Case::new(s.to_point(), Distribution::Normal, 1));
            assert!(judged.is_ok(), "{} {s:?}: {judged:#?}", tile.name);
        }
    }
}
