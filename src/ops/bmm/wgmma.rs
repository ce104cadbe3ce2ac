//! The products on warpgroups: gemm's, with the item as the outermost coordinate of every tensor map.

use super::Products;
use crate::ops::gemm::wgmma::Operation;

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
        dependent: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::IntoCandidate;
    use crate::core::shape::Shape;
    use crate::ops::agreement::judged_in_simulator;
    use crate::ops::bmm::{Extents, operator, shape, wgmma_kernel};
    use crate::ops::gemm::batched;
    use rstest::rstest;

    #[rstest]
    #[case((64, 256, 256, 64), "nt", "swap_ab_128x64_x2")]
    #[case((12, 197, 197, 64), "nt", "swap_ab_64x64_x3")]
    #[case((8, 1000, 1000, 1000), "nn", "128x256_cluster2")]
    #[case((4, 1536, 1536, 1536), "tn", "swap_ab_192x128")]
    #[case((3, 1280, 1280, 1280), "nt", "swap_ab_112x128")]
    #[case((3, 1280, 1280, 1280), "tn", "swap_ab_192x128")]
    #[case((1, 1024, 4096, 1024), "tn", "128x256")]
    #[case((16, 512, 64, 512), "nn", "64x64")]
    #[case((8, 1024, 1024, 1024), "nn", "128x256")]
    #[case((96, 197, 197, 64), "nt", "swap_ab_64x64_x3")]
    #[case((4, 1537, 1537, 512), "nn", "swap_ab_112x128")]
    #[case((8, 1001, 1001, 1000), "nt", "128x256_cluster2")]
    #[case((1, 4096, 4095, 4096), "nt", "128x256")]
    fn rows_make_whole_waves_of_the_batch(#[case] extents: Extents, #[case] layout: &str, #[case] name: &str) {
        let s = shape((extents, layout));
        assert_eq!(operation(&s).choose(&s.item(), false).name, name);
    }

    /// More tiles than blocks run at once, of which a multiprocessor has several.
    #[rstest]
    fn a_second_tile_leaves_the_stores_of_the_first_alone(
        #[values("swap_ab_128x64_x2", "swap_ab_64x64_x3")] name: &str,
    ) {
        let tile = batched::tiles().find(|tile| tile.name == name).unwrap();
        let candidate = wgmma_kernel(move |_| tile).named("tile");
        let judged = judged_in_simulator(&operator(), &candidate, shape(((140, 72, 72, 8), "nn")).to_point());
        assert!(judged.is_ok(), "{judged:#?}");
    }

    /// The gate's shapes are small: most tiles are chosen for none of them.
    #[rstest]
    fn every_tile_is_right_in_the_simulator(
        // Rows for maps in all; several tiles an item; copies of a or b; of both, c by elements.
        #[values((3, 72, 136, 40), (2, 200, 264, 136), (2, 65, 72, 200), (2, 130, 71, 67))] extents: Extents,
        #[values("nn", "nt", "tn", "tt")] layout: &str,
    ) {
        let s = shape((extents, layout));
        for tile in batched::tiles().filter(|tile| operation(&s).has(tile)) {
            let candidate = wgmma_kernel(move |_| tile).named("tile");
            let judged = judged_in_simulator(&operator(), &candidate, s.to_point());
            assert!(judged.is_ok(), "{} {s:?}: {judged:#?}", tile.name);
        }
    }
}
