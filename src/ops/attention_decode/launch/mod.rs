//! Launch rules: how the keys of a head are split, and which kernel takes which shape.

mod cluster_tma;
mod keys_first;
mod share;
mod split;
mod split_kv_tma;
mod warpgroups;

use crate::core::gpu::multiprocessors;
use crate::core::launch::{Launch, Plan};
use crate::ops::attention::{Heads, naive_launch, with_scalars};

pub use cluster_tma::plan as cluster_tma;
pub use share::{MOST_DIM, MOST_ROWS};
pub use split_kv_tma::{plan as split_kv_tma, workspace_bytes as tma_workspace_bytes};

use share::{MOST_PARTS, Share, entry, is_served, key_heads, rows, with_tensors};

/// In half width: warpgroups (wgmma) where they pay, else keys before values in clusters of 64 blocks, else clusters, else
/// persistent blocks.
pub fn best_in_half(s: &Heads) -> Plan {
    warpgroups::in_half_width(s).or_else(|| keys_first::plan(s)).unwrap_or_else(|| cluster_tma(s))
}

/// In f32: warpgroups (fma) where they pay, else clusters with bulk copies.
pub fn best_in_f32(s: &Heads) -> Plan {
    warpgroups::in_f32(s).unwrap_or_else(|| cluster_bulk(s))
}

/// A query a block, for every shape.
pub fn naive(s: &Heads) -> Plan {
    with_scalars(s, naive_launch(s)).into()
}

/// Blocks of `split_kv` that run at the same time on a multiprocessor.
const RESIDENT: usize = 3;
fn split_share(s: &Heads) -> Share {
    Share::of(s, RESIDENT * multiprocessors(), MOST_PARTS)
}

/// Splits, and a launch that reduces their partials.
pub fn split_kv(s: &Heads) -> Plan {
    if !is_served(s) {
        return with_scalars(s, with_tensors(naive_launch(s).without_pointers())).into();
    }
    let share = split_share(s);
    let partials = share.with_scalars(s, with_tensors(share.launch(s, "split_kv", 128)).pointer("workspace"));
    let reduce =
        Launch::blocks(key_heads(s) * rows(s), 128).entry("attention_decode_split_kv_reduce").without_pointers();
    let reduce = reduce.pointer("y").pointer("workspace").scalar(s.dim as i32).scalar(share.parts as i32);
    Plan(if share.parts > 1 { vec![partials, reduce] } else { vec![partials] })
}

/// A partial (m, l, O) for each row of each split: largest score, sum of weights, weighted sum.
pub fn split_kv_workspace_bytes(s: &Heads) -> usize {
    let parts = if is_served(s) { split_share(s).parts } else { 1 };
    // One part writes to y, but the entry takes the address.
    parts * key_heads(s).max(1) * rows(s) * (2 + s.dim) * 4
}

/// The splits of a head are a cluster.
pub fn cluster_bulk(s: &Heads) -> Plan {
    /// Blocks of a cluster that every device takes.
    const LARGEST_CLUSTER: usize = 8;
    /// Four consumer warps and a producer.
    const THREADS: usize = 160;
    /// More of them would not read faster, and have more to reduce.
    const BLOCKS: usize = 160;
    /// Of two blocks a multiprocessor.
    const PIPELINE_BYTES: usize = 96 << 10;
    /// Of a stage, an element of dim, whatever the dtype.
    const STAGE_BYTES: usize = 256;
    if !is_served(s) {
        return with_scalars(s, naive_launch(s)).into();
    }
    let share = Share::of(s, BLOCKS, LARGEST_CLUSTER);
    let stages = PIPELINE_BYTES / (STAGE_BYTES * entry(s).0);
    let launch = with_tensors(share.launch(s, "cluster_bulk", THREADS)).cluster(share.parts);
    share.with_scalars(s, launch.shared(PIPELINE_BYTES + stages * 16)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use rstest::rstest;

    /// One query for each of four heads of q to one of k, of 128 elements.
    pub fn of(batch: usize, heads: usize, keys: usize) -> Heads {
        Heads { batch, heads, keys, ..TIMED[0].clone() }
    }

    #[rstest]
    #[case(&TIMED[0], 6, 704)]
    #[case(&TIMED[3], 1, 1024)]
    #[case(&Heads { batch: 1, heads: 1, keys: 100, ..TIMED[0].clone() }, 2, 64)]
    fn parts_fill_the_device_and_cover_the_keys(#[case] s: &Heads, #[case] parts: usize, #[case] keys: usize) {
        let share = split_share(s);
        assert_eq!((share.parts, share.keys), (parts, keys));
        assert!(share.parts * share.keys >= s.keys && (share.parts - 1) * share.keys < s.keys);
    }
}
