//! The products on warpgroups: gemm's, with an epilogue that adds a bias and what may follow.

use crate::ops::gemm::wgmma::Operation;

/// The product on warpgroups: w lies along k.
pub const LINEAR: Operation = Operation {
    name: "linear",
    align: "linear_align",
    factors: ["x", "w"],
    output: "y",
    a_along_k: true,
    b_along_k: true,
    batch: None,
    others: &["bias", "residual"],
    dependent: true,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::correctness::run_case;
    use crate::check::outcome::Verdict;
    use crate::core::candidate::{Candidate, IntoCandidate};
    use crate::core::shape::Shape;
    use crate::ops::agreement::{in_simulator, judged_in_simulator};
    use crate::ops::gemm::tile::tiles;
    use crate::ops::linear::{Activation, Layer, operator, wgmma_kernel};
    use rstest::rstest;

    fn by_tile(name: &str) -> Candidate {
        let tile = tiles().find(|tile| tile.name == name).unwrap();
        wgmma_kernel(move |_| tile).named("tile")
    }

    /// The gate's shapes are small: most tiles are chosen for none of them.
    #[rstest]
    #[case::whole_packs([200, 264, 136], Activation::Silu)]
    #[case::odd_rows([65, 71, 200], Activation::None)]
    #[case::odd_everywhere([129, 259, 65], Activation::GeluTanh)]
    #[case::alone([1, 8, 9], Activation::Silu)]
    #[case::alone_as_it_is([1, 8, 9], Activation::None)]
    #[case::alone_by_tanh([1, 8, 9], Activation::GeluTanh)]
    fn every_tile_is_right_in_the_simulator(#[case] extents: [usize; 3], #[case] activation: Activation) {
        let [m, n, k] = extents;
        let layer = Layer { m, n, k, activation, residual: activation != Activation::GeluTanh };
        for tile in tiles() {
            let judged = judged_in_simulator(&operator(), &by_tile(tile.name), layer.to_point());
            assert!(judged.is_ok(), "{} {layer:?}: {judged:#?}", tile.name);
        }
    }

    /// Relations are held by the gate at shapes that other kernels serve: features in another order are the same features.
    #[rstest]
    fn an_output_does_not_lean_on_its_neighbour(
        #[values("128x192", "swap_ab_128x64")] name: &str,
        #[values(Activation::GeluTanh, Activation::Silu)] activation: Activation,
    ) {
        let layer = Layer { m: 70, n: 136, k: 72, activation, residual: true };
        let outcome = in_simulator(&operator(), &by_tile(name), layer.to_point(), run_case);
        assert_eq!(outcome.verdict, Verdict::Pass, "{outcome:#?}");
    }

    #[rstest]
    #[case(512, 2048, 5632, true, "swap_ab_128x64")]
    #[case(1536, 1536, 1536, false, "swap_ab_144x128")]
    #[case(4096, 4096, 4096, false, "128x256_cluster2")]
    #[case(4096, 4096, 4096, true, "swap_ab_208x128")]
    #[case(16, 4096, 4096, false, "swap_ab_16x64_split2")]
    #[case(192, 4096, 4096, false, "64x128")]
    #[case(256, 11008, 4096, false, "128x192")]
    #[case(384, 4096, 4096, false, "swap_ab_112x128")]
    #[case(3000, 3000, 3000, false, "swap_ab_192x192_cluster2")]
    #[case(192, 6848, 3192, false, "swap_ab_96x128_cluster2x2")]
    #[case(64, 8704, 7075, false, "unaligned_b_64x64_split3")]
    #[case(32, 8400, 1640, false, "swap_ab_32x64_cluster2")]
    #[case(599, 2472, 10056, false, "swap_ab_112x128_cluster2x2")]
    #[case(70, 5976, 3856, false, "swap_ab_80x64_cluster4")]
    #[case(289, 4416, 7240, false, "swap_ab_112x128_cluster4")]
    fn rows_make_whole_waves(
        #[case] m: usize,
        #[case] n: usize,
        #[case] k: usize,
        #[case] residual: bool,
        #[case] name: &str,
    ) {
        let layer = Layer { m, n, k, activation: Activation::None, residual };
        assert_eq!(LINEAR.choose(&layer.product(), residual).name, name);
    }

    /// The residuals of a tile go where the outputs of the one before still leave.
    #[rstest]
    fn a_second_tile_leaves_the_stores_of_the_first_alone(#[values("swap_ab_208x128", "swap_ab_128x64")] name: &str) {
        // More tiles than there are multiprocessors.
        let layer = Layer { m: 12 * 128, n: 12 * 192, k: 8, activation: Activation::None, residual: true };
        let judged = judged_in_simulator(&operator(), &by_tile(name), layer.to_point());
        assert!(judged.is_ok(), "{judged:#?}");
    }
}
