//! Launch rules: a query a block, or the keys of a head split among the blocks of a cluster.

use super::Paged;
use crate::core::candidate::{Cuda, Declare};
use crate::core::gpu::{Gpu, multiprocessors};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};

/// Threads of a block of the naive kernel.
const NAIVE_THREADS: usize = 256;
/// Keys that a warp copies at a time, all of one page.
const STEP: usize = 16;
/// Elements of a key that a box has.
const BOX: usize = 64;
/// Stages of a warp's pipeline.
const STAGES: usize = 2;
/// What rows of tensor maps are a multiple of.
const UNIT: usize = 8;
/// Query heads to a head of keys that the tensor cores take together; of larger groups each so many read the keys.
const ROWS: usize = 8;
/// Blocks that keep a multiprocessor reading: one nearly does, and a second reads while the first begins or ends.
const BLOCKS_EACH: usize = 2;
/// Keys of a block from which on another split pays: fewer are read before they are reduced.
const FEWEST_KEYS: usize = 128;

fn kernel(plan: fn(&Paged) -> Plan) -> Cuda<Paged> {
    kernel!("attention_paged/attention_paged.cu", "attention_paged_naive", plan)
}

fn with_scalars(s: &Paged, launch: Launch) -> Launch {
    let extents = [s.heads, s.group, s.dim, s.page, s.table()].map(|extent| extent as i32);
    extents.into_iter().fold(launch, Launch::scalar).scalar((1.0 / (s.dim as f64).sqrt()) as f32)
}

fn a_query_a_block(s: &Paged) -> Plan {
    let launch = Launch::blocks(s.batch * s.query_heads(), NAIVE_THREADS).without_pointers();
    let launch = ["q", "k", "v", "page_table", "lengths", "y"].into_iter().fold(launch, Launch::pointer);
    with_scalars(s, launch).into()
}

/// An entry of the split kernel.
struct Entry {
    dim: usize,
    warps: usize,
}

impl Entry {
    fn of(s: &Paged) -> Entry {
        let (dim, warps) = match s.dim {
            ..=64 => (64, 4),
            65..=128 => (128, 4),
            _ => (256, 2),
        };
        Entry { dim, warps }
    }

    /// The pipelines of all warps.
    fn shared_bytes(&self) -> usize {
        self.warps * STAGES * STEP * 2 * self.dim * size_of::<half::f16>()
    }
}

/// Blocks of which each would have all keys of a head.
fn unsplit(s: &Paged) -> usize {
    s.batch * s.heads * s.group.div_ceil(ROWS)
}

/// Blocks of a cluster: as many as keep the device reading, of powers of two, none with few keys.
fn splits(s: &Paged) -> usize {
    let longest = s.shortest + s.spread;
    let wanted = (BLOCKS_EACH * multiprocessors() / unsplit(s).max(1)).min(longest / FEWEST_KEYS);
    let most = wanted.clamp(1, Gpu::current().largest_cluster());
    1 << most.ilog2()
}

fn split_kv(s: &Paged) -> Plan {
    if !s.dim.is_multiple_of(UNIT) || !s.page.is_multiple_of(STEP) {
        return a_query_a_block(s);
    }
    let (entry, splits) = (Entry::of(s), splits(s));
    let map = |buffer| {
        let rows = TensorMap::of(buffer, [s.pages * s.page, s.heads, s.dim]);
        rows.tile([STEP, 1, BOX]).swizzle(Swizzle::Bytes128)
    };
    let launch = Launch::blocks(unsplit(s) * splits, 32 * entry.warps)
        .entry(format!("attention_paged_tma_{}", entry.dim))
        .cluster(splits)
        .shared(entry.shared_bytes())
        .without_pointers();
    let launch = ["q", "page_table", "lengths", "y"].into_iter().fold(launch, Launch::pointer);
    with_scalars(s, launch.map(map("k")).map(map("v"))).into()
}

pub fn naive() -> Cuda<Paged> {
    kernel(a_query_a_block).tiles([("shortest", NAIVE_THREADS), ("dim", 32)])
}

pub fn best() -> Cuda<Paged> {
    let kernel = kernel(split_kv).tiles([("shortest", STEP), ("shortest", FEWEST_KEYS), ("page", STEP)]);
    kernel.tiles([("group", ROWS), ("dim", UNIT), ("dim", 64), ("dim", 128)]).needs("sm_90")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn of(batch: usize, heads: usize, keys: usize) -> Paged {
        Paged { batch, heads, group: 4, shortest: keys, spread: 0, page: 16, pages: 9, dim: 128 }
    }

    #[rstest]
    #[case::few_heads(of(1, 8, 8192), 16)]
    #[case::few_keys(of(1, 8, 600), 4)]
    #[case::hardly_any(of(1, 8, 9), 1)]
    #[case::heads_that_leave_room_for_two(of(16, 8, 4096), 2)]
    #[case::heads_that_fill_the_device(of(64, 8, 4096), 1)]
    #[case::groups_in_two(Paged { group: 9, ..of(2, 8, 4096) }, 8)]
    #[case::nothing(of(0, 8, 4096), 16)]
    fn keys_are_split_while_blocks_run_at_once(#[case] s: Paged, #[case] expected: usize) {
        assert_eq!(splits(&s), expected);
    }
}
