//! Launch rules.

use super::persistent;
use super::shape::{GATES, Sequences};
use crate::core::gpu::{multiprocessors, scaled};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::ops::family::aligned::{ELEMENT_BYTES, is_aligned};

/// Threads of a block of the naive kernel, a cell each.
pub const NAIVE_THREADS: usize = 128;
/// Rows and columns of the gates that a block of the product makes, its threads and its pipeline in half width.
const PRODUCT_TILE: usize = 128;
const PRODUCT_THREADS: usize = 256;
const PRODUCT_SHARED: usize = 64 << 10;
/// Units and sequences of a block of the step kernel, and its threads.
pub const STEP_UNITS: usize = 4;
pub const STEP_SEQUENCES: usize = 32;
const STEP_THREADS: usize = 512;
/// Units of a block of the cluster kernel, sequences of a cluster, threads of a block.
pub const BLOCK_UNITS: usize = 32;
pub const CLUSTER_SEQUENCES: usize = 8;
/// Sequences whose states take one product where more take two.
const FEW_SEQUENCES: usize = 4;
const CLUSTER_THREADS: usize = 256;
/// The most units whose weights fit a cluster: 16 blocks, 128 registers a thread.
pub const MOST_CLUSTER_UNITS: usize = 16 * BLOCK_UNITS;
/// Entries of the cluster kernel serve multiples of so many units.
pub const ENTRY_UNITS: usize = 128;

/// Numbers of a dtype of half width that a state goes into.
const STATE_PARTS: usize = 2;

/// Every state of every step and layer in f32, then every layer's cells.
pub fn naive_workspace_bytes(s: &Sequences) -> usize {
    s.layers * (s.steps + 1) * s.cells() * size_of::<f32>()
}

/// Gates of the inputs of a layer, the states of the layer below, in f32; those at half width are two numbers in rows of a
/// multiple of 8. Behind them what one version needs, in bytes.
pub(super) fn workspace_bytes(s: &Sequences, more: usize) -> usize {
    let below = if s.layers == 2 { s.steps * s.batch * s.hidden.next_multiple_of(8) } else { 0 };
    (s.steps * s.cells() * GATES + below) * size_of::<f32>() + more
}

/// Two steps of states and the cells.
pub fn step_workspace_bytes(s: &Sequences) -> usize {
    workspace_bytes(s, 3 * s.cells() * size_of::<f32>())
}

/// Rows of the recurrent weights where they need a copy.
pub(super) fn copied_bytes(s: &Sequences) -> usize {
    let rows = s.layers * GATES * s.hidden;
    if is_aligned(s.hidden) { 0 } else { rows * s.hidden.next_multiple_of(8) * ELEMENT_BYTES }
}

/// What the way needs that a layer of so many units takes.
pub fn resident_workspace_bytes(s: &Sequences) -> usize {
    match s.hidden {
        units if units <= MOST_CLUSTER_UNITS => workspace_bytes(s, copied_bytes(s)),
        units if units <= persistent::MOST_UNITS => persistent::workspace_bytes(s),
        _ => step_workspace_bytes(s),
    }
}

pub(super) fn with_scalars(launch: Launch, scalars: impl IntoIterator<Item = usize>) -> Launch {
    scalars.into_iter().fold(launch, |launch, value| launch.scalar(value as i32))
}

/// Sets so many words of states a layer to such that no persistent kernel takes.
pub(super) fn clear_states(s: &Sequences, words: usize) -> Launch {
    /// Of a block, and words that one of them sets.
    const THREADS: usize = 256;
    const RUN: usize = 16;
    let blocks = (s.layers * words).div_ceil(RUN * THREADS).min(multiprocessors());
    let launch = Launch::blocks(blocks, THREADS).entry("lstm_persistent_start");
    with_scalars(launch, [s.steps, s.batch, s.hidden, s.layers, words])
}

/// A launch a step and layer.
pub fn naive(s: &Sequences) -> Plan {
    let launches = (0..s.layers).flat_map(|layer| {
        (0..s.steps).map(move |step| {
            let launch = Launch::blocks(s.cells().div_ceil(NAIVE_THREADS), NAIVE_THREADS);
            with_scalars(launch, [s.steps, s.batch, s.inputs, s.hidden, s.layers, layer, step])
        })
    });
    Plan(launches.collect())
}

/// The product that gives the gates of the inputs of all steps of a layer.
pub(super) fn product(s: &Sequences, layer: usize) -> Launch {
    let tiles = (s.steps * s.batch).div_ceil(PRODUCT_TILE) * (GATES * s.hidden).div_ceil(PRODUCT_TILE);
    let entry = if s.width(layer).is_multiple_of(8) { "lstm_input_gemm" } else { "lstm_input_gemm_any" };
    let launch = Launch::blocks(tiles, PRODUCT_THREADS).shared(PRODUCT_SHARED).entry(entry);
    with_scalars(launch, [s.steps, s.batch, s.inputs, s.hidden, s.layers, layer])
}

/// The same by wgmma, for widths whose rows tensor maps take.
fn wgmma_product(s: &Sequences, layer: usize) -> Launch {
    /// Elements of a swizzled row.
    const SLICE: usize = 64;
    /// Slices of both operands in flight, each with two mbarriers.
    const STAGE_BYTES: usize = 2 * PRODUCT_TILE * SLICE * ELEMENT_BYTES + 16;
    const STAGES: usize = 3;
    /// Two consumer warpgroups and a producer warp.
    const THREADS: usize = 2 * 128 + 32;
    let (rows, width) = (s.steps * s.batch, s.width(layer));
    let parts = if layer == 0 { 1 } else { STATE_PARTS };
    let (from, weights) = if layer == 0 { ("x", "w") } else { ("workspace", "w_above") };
    let skipped = if layer == 0 { 0 } else { s.steps * s.cells() * GATES * size_of::<f32>() };
    let from = TensorMap::of(from, [parts * rows, width]).offset(skipped).tile([PRODUCT_TILE, SLICE]);
    // The four gates of a unit side by side.
    let weights = TensorMap::of(weights, [s.hidden, GATES, width]).strides([width, s.hidden * width]);
    let weights = weights.tile([PRODUCT_TILE / GATES, GATES, SLICE]);
    let tiles = rows.div_ceil(PRODUCT_TILE) * (GATES * s.hidden).div_ceil(PRODUCT_TILE);
    let launch =
        Launch::blocks(tiles, THREADS).shared(STAGES * STAGE_BYTES).entry("lstm_input_gemm_wgmma").without_pointers();
    let launch = [from, weights].into_iter().map(|map| map.swizzle(Swizzle::Bytes128)).fold(launch, Launch::map);
    with_scalars(launch.pointer("workspace"), [rows, s.hidden, width, parts])
}

/// A product a layer, then a launch a step.
pub fn by_steps(s: &Sequences) -> Plan {
    let launches = (0..s.layers).flat_map(|layer| {
        let steps = (0..s.steps).map(move |step| {
            let blocks = s.hidden.div_ceil(STEP_UNITS) * s.batch.div_ceil(STEP_SEQUENCES);
            let launch = Launch::blocks(blocks, STEP_THREADS).entry("lstm_step");
            with_scalars(launch, [s.steps, s.batch, s.hidden, s.layers, layer, step])
        });
        [product(s, layer)].into_iter().chain(steps)
    });
    Plan(launches.collect())
}

/// Clusters of so many blocks that run at the same time, one block a multiprocessor: those of an H200 by the driver's own count.
fn clusters_at_once(blocks: usize) -> usize {
    match blocks {
        0..=4 => scaled(30),
        5..=8 => scaled(15),
        _ => scaled(7),
    }
}

/// The product by the way that its rows allow.
pub(super) fn fastest_product(s: &Sequences, layer: usize) -> Launch {
    if is_aligned(s.width(layer)) { wgmma_product(s, layer) } else { product(s, layer) }
}

/// The copy of recurrent weights whose rows are no multiple of 16 bytes.
pub(super) fn align(s: &Sequences) -> Option<Launch> {
    let launch = Launch::blocks(s.layers * GATES * s.hidden, 128).entry("lstm_align");
    (!is_aligned(s.hidden)).then(|| with_scalars(launch, [s.steps, s.batch, s.hidden, s.layers]))
}

/// One launch for all steps of a layer wherever its weights have a place: those of a small one in a cluster, which exchanges
/// states without L2; those of a larger one in all multiprocessors together.
pub fn resident(s: &Sequences) -> Plan {
    match s.hidden {
        _ if s.batch == 0 => Plan(Vec::new()),
        units if units <= MOST_CLUSTER_UNITS => by_clusters(s),
        units if units <= persistent::MOST_UNITS => persistent::on_all(s),
        _ => by_steps(s),
    }
}

/// A product and one launch a layer.
fn by_clusters(s: &Sequences) -> Plan {
    let launches = (0..s.layers).flat_map(|layer| {
        // Blocks send to each other, which one that is no cluster cannot.
        let cluster = s.hidden.div_ceil(BLOCK_UNITS).max(2);
        // A second wave of clusters takes as long as the first. Fewer sequences are less to send, but no cluster alone is
        // much faster for it, and those that share a part of the chip are slower together.
        let sequences = s.batch.div_ceil(clusters_at_once(cluster)).clamp(FEW_SEQUENCES, CLUSTER_SEQUENCES);
        let sequences = sequences.min(s.batch);
        let most = if sequences > FEW_SEQUENCES { CLUSTER_SEQUENCES } else { FEW_SEQUENCES };
        let launch = Launch::blocks(s.batch.div_ceil(sequences) * cluster, CLUSTER_THREADS)
            .cluster(cluster)
            .entry(format!("lstm_cluster_{}x{most}", s.hidden.next_multiple_of(ENTRY_UNITS)));
        [fastest_product(s, layer), with_scalars(launch, [s.steps, s.batch, s.hidden, s.layers, layer, sequences])]
    });
    Plan(align(s).into_iter().chain(launches).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn shape(batch: usize, hidden: usize) -> Sequences {
        Sequences { steps: 2, batch, inputs: 16, hidden, layers: 1 }
    }

    #[rstest]
    #[case::few_sequences_share_a_cluster(shape(8, 384), "lstm_cluster_384x4", [2 * 12, 12])]
    #[case::no_second_wave(shape(32, 512), "lstm_cluster_512x8", [7 * 16, 16])]
    #[case::several_waves(shape(100, 500), "lstm_cluster_512x8", [13 * 16, 16])]
    #[case::at_least_two_blocks(shape(3, 1), "lstm_cluster_128x4", [2, 2])]
    fn clusters_cover_the_batch(#[case] s: Sequences, #[case] entry: &str, #[case] blocks_and_cluster: [usize; 2]) {
        let plan = by_clusters(&s);
        let recurrent = &plan.0[plan.0.len() - 1];
        assert_eq!(recurrent.entry.as_deref(), Some(entry));
        assert_eq!([recurrent.grid[0], recurrent.cluster], blocks_and_cluster);
    }

    #[rstest]
    #[case::no_cluster_holds_it(MOST_CLUSTER_UNITS + 1, "lstm_persistent_8x8")]
    #[case::the_most_units_that_stay(persistent::MOST_UNITS, "lstm_persistent_32x8_l2")]
    #[case::too_many(persistent::MOST_UNITS + 1, "lstm_step")]
    fn a_layer_goes_the_way_that_holds_its_weights(#[case] hidden: usize, #[case] entry: &str) {
        let plan = resident(&shape(3, hidden));
        assert_eq!(plan.0[plan.0.len() - 1].entry.as_deref(), Some(entry));
    }
}
