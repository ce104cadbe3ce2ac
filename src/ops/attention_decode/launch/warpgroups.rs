//! Warpgroups that consume KV blocks of 64 keys (32 in f32): by wgmma in half width, by fma in f32.

use super::cluster_tma::{LARGEST_CLUSTER, scalars};
use super::split::{CtaGroups, Split};
use super::{entry, key_heads};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::ops::attention::Heads;

/// Consumer warpgroups of a block, and warps that produce and reduce.
const GROUPS: usize = 2;
const REDUCERS: usize = 4;
/// Stages of a warpgroup, and KV blocks of a batch, at most.
const MOST_STAGES: usize = 5;
const BATCH_BLOCKS: usize = 8;
/// Bytes of a row of a box.
const ROW_BYTES: usize = 128;
/// Warps of a group.
const WARPS: usize = 4;
/// Rows that numbers are kept of: of the B operands, queries and weights of a KV block.
const COLUMNS: usize = 8;
/// Elements of a row that a warp reduces.
const SHARE: usize = 64;
/// Work tiles under stream-K: the end of a head, a whole one, and the start of another.
const TILES: usize = 3;

/// What multiplies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    /// Tensor cores, in half width.
    Wgmma,
    /// Multiply-adds, in f32.
    Fma,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Wgmma => "wgmma",
            Unit::Fma => "fma",
        }
    }

    fn element_bytes(self) -> usize {
        match self {
            Unit::Wgmma => 2,
            Unit::Fma => 4,
        }
    }

    /// Keys of a KV block, and elements of a row of a box: a KV block has the same bytes in all dtypes.
    fn keys(self) -> usize {
        ROW_BYTES / self.element_bytes()
    }

    /// Rows of queries and weights in shared storage.
    fn columns(self, s: &Heads) -> usize {
        match self {
            Unit::Wgmma => COLUMNS,
            Unit::Fma => entry(s).1,
        }
    }
}

/// A launch: how heads are split, and what multiplies.
struct Groups<'a> {
    s: &'a Heads,
    split: Split,
    unit: Unit,
}

impl Groups<'_> {
    /// KV blocks of a head.
    fn kv_blocks(&self) -> usize {
        self.s.keys.div_ceil(self.unit.keys())
    }

    /// Values in flight with the first keys of the only batch would delay these.
    fn stages(&self) -> usize {
        let kv_blocks = (key_heads(self.s) * self.kv_blocks()).div_ceil(self.split.blocks(self.s) * GROUPS);
        self.split.stages.min(kv_blocks)
    }

    /// The KV blocks in flight, queries and weights, the partials of all splits, and mbarriers.
    fn shared_bytes(&self) -> usize {
        let (dim, rows) = entry(self.s);
        let columns = self.unit.columns(self.s);
        let of_queries = dim * columns * self.unit.element_bytes();
        let of_weights = BATCH_BLOCKS * self.unit.keys() * columns * self.unit.element_bytes();
        let of_warps = WARPS * COLUMNS * 2 * size_of::<f32>();
        let of_stages = MOST_STAGES * (dim * ROW_BYTES + 2 * size_of::<u64>());
        let partials = (rows * dim / SHARE).max(LARGEST_CLUSTER) * GROUPS;
        let reduce_buffer = partials * (SHARE + 2) * size_of::<f32>() + 2 * size_of::<u64>();
        let of_tile = reduce_buffer + GROUPS * (of_queries + of_warps);
        let tiles = if self.split.is_stream_k() { TILES } else { 1 };
        (GROUPS * (of_stages + of_weights) + tiles * of_tile).next_multiple_of(1024)
    }

    fn map(&self, name: &str) -> TensorMap {
        let (s, keys) = (self.s, self.unit.keys());
        let map =
            TensorMap::of(name, [key_heads(s), s.dim / keys, s.keys, keys]).strides([s.keys * s.dim, keys, s.dim]);
        map.tile([1, s.dim / keys, keys, keys]).swizzle(Swizzle::Bytes128)
    }

    fn launch(&self) -> Launch {
        let (s, split) = (self.s, &self.split);
        // What all CTA groups have under stream-K, heads, or each CTA group of a split head, KV blocks; such heads are along y.
        let (schedule, share, streaming, grid) = match split.cta_groups {
            CtaGroups::OfHeads => ("whole", 1, 1, [split.blocks(s), 1, 1]),
            CtaGroups::StreamK(groups) => ("stream_k", key_heads(s), groups, [split.blocks(s), 1, 1]),
            CtaGroups::OfEachHead(groups) => {
                let share = self.kv_blocks().div_ceil(groups);
                // None is without a KV block.
                ("split_kv", share, 1, [self.kv_blocks().div_ceil(share) * split.parts, key_heads(s), 1])
            }
        };
        let launch = Launch::grid(grid, [(GROUPS * WARPS + REDUCERS) * 32, 1, 1]).cluster(split.cluster);
        let entry = format!("attention_decode_{}_{schedule}_128_{}", self.unit.name(), entry(s).1);
        let launch = launch.shared(self.shared_bytes()).entry(entry).without_pointers();
        let launch = launch.pointer("q").pointer("y").map(self.map("k")).map(self.map("v"));
        let launch = scalars(s, launch).scalar(self.kv_blocks() as i32).scalar(share as i32);
        let launch = launch.scalar(streaming.ilog2() as i32).scalar(split.parts.ilog2() as i32);
        launch.scalar(self.stages() as i32)
    }
}

/// The launch in half width, where it pays.
pub fn in_half_width(s: &Heads) -> Option<Plan> {
    launch(s, Split::in_half_width(s), Unit::Wgmma)
}

/// The launch in f32, where it pays.
pub fn in_f32(s: &Heads) -> Option<Plan> {
    launch(s, Split::in_f32(s), Unit::Fma)
}

fn launch(s: &Heads, split: Option<Split>, unit: Unit) -> Option<Plan> {
    split.map(|split| Groups { s, split, unit }.launch().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::launch::tests::of;
    use rstest::rstest;

    #[rstest]
    #[case::as_many_rows_as_an_entry_takes(&Heads { group: 8, ..of(2, 4, 8192) }, 64, 8, 5)]
    #[case::a_batch_of_few_keys(&of(4, 8, 1024), 64, 8, 4)]
    #[case::two_clusters_a_group_of_multiprocessors(&of(7, 8, 2048), 112, 8, 4)]
    #[case::stream_k(&of(1, 10, 8192), 64, 8, 5)]
    #[case::stream_k_by_halves_of_clusters(&Heads { group: 8, ..of(3, 8, 4096) }, 64, 8, 5)]
    #[case::pairs(&of(5, 8, 2048), 80, 2, 4)]
    #[case::alone(&of(9, 8, 4096), 72, 3, 4)]
    #[case::cta_groups_of_the_same_head(&of(1, 2, 32768), 64, 8, 5)]
    fn blocks_read_evenly(#[case] s: &Heads, #[case] blocks: usize, #[case] cluster: usize, #[case] stages: usize) {
        let of = |split, unit| Groups { s, split, unit };
        let groups = of(Split::in_half_width(s).unwrap(), Unit::Wgmma);
        assert_eq!((groups.split.blocks(s), groups.split.cluster, groups.stages()), (blocks, cluster, stages));
        let in_f32 = of(Split::in_f32(s).unwrap(), Unit::Fma);
        assert!(groups.shared_bytes() <= 227 << 10 && in_f32.shared_bytes() <= 227 << 10);
    }
}
