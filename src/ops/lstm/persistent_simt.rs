//! The launch rule of the persistent kernel of f32: how the batch is cut.

use super::launch::{self, clear_states, product, with_scalars};
use super::shape::{GATES, Sequences};
use crate::core::gpu::{Gpu, multiprocessors};
use crate::core::launch::{Launch, Plan};

const WARPS: usize = 8;
const THREADS: usize = 32 * WARPS;
/// Sequences of a group.
pub const GROUP: usize = 8;
/// Columns of a warp in registers.
const KEPT: usize = 64;
/// Units of a block, an entry each.
const BLOCK_UNITS: [usize; 2] = [8, 16];
/// The most units. Sums of so many terms are as exact as the tolerance asks for.
const MOST_UNITS: usize = 1024;
/// The most units of a GPU with less than 227 KiB of shared memory a block: all weights in registers.
const MOST_IN_REGISTERS: usize = WARPS * KEPT;

/// How a layer is shared out.
#[derive(Debug)]
struct Share {
    units: usize,
    /// Parts of the batch, each with blocks of its own.
    partitions: usize,
    blocks: usize,
    /// Groups of a partition, one after the other.
    groups: usize,
}

impl Share {
    /// The fastest by `microseconds`, where all blocks run at once.
    fn of(s: &Sequences) -> Option<Share> {
        let most = if Gpu::current().compute_capability.0 < 9 { MOST_IN_REGISTERS } else { MOST_UNITS };
        let shares = BLOCK_UNITS.into_iter().flat_map(|units| {
            let blocks = s.hidden.div_ceil(units);
            let partitions = s.batch.div_ceil(GROUP).min(multiprocessors() / blocks);
            (1..=partitions).map(move |partitions| {
                let groups = s.batch.div_ceil(partitions).div_ceil(GROUP);
                Share { units, partitions, blocks, groups }
            })
        });
        let shares = shares.filter(|_| s.hidden <= most);
        shares.min_by(|a, b| a.microseconds(s).total_cmp(&b.microseconds(s)))
    }

    /// Of a step, on an H200: within 15 % of 22 measured ones.
    fn microseconds(&self, s: &Sequences) -> f64 {
        /// Of sums that meet, cells and what is written.
        const TURN: f64 = 1.2;
        /// For a column of a warp: its states from L2, and products of eight units.
        const LOAD: f64 = 0.0175;
        const PRODUCTS: f64 = 0.0065;
        /// The way of its states to other blocks, where no other group hides it.
        const EXCHANGE: f64 = 0.007;
        let columns = s.hidden.div_ceil(WARPS) as f64;
        let exchange = if self.groups == 1 { EXCHANGE } else { 0.0 };
        let of_column = LOAD + PRODUCTS * (self.units / BLOCK_UNITS[0]) as f64 + exchange;
        (TURN + columns * of_column) * self.groups as f64
    }

    /// Words of states of two steps.
    fn words(&self, s: &Sequences) -> usize {
        2 * self.partitions * self.groups * GROUP * s.hidden
    }

    fn launch(&self, s: &Sequences, layer: usize) -> Launch {
        let rows = GATES * self.units;
        let floats =
            WARPS * GROUP * (KEPT + 2 * (rows + 4)) + WARPS * rows * (s.hidden.div_ceil(WARPS).max(KEPT) - KEPT);
        let entry = format!("lstm_persistent_simt_{}x{GROUP}", self.units);
        let launch =
            Launch::blocks(self.partitions * self.blocks, THREADS).shared(floats * size_of::<f32>()).entry(entry);
        with_scalars(launch.cooperative(), [s.steps, s.batch, s.hidden, s.layers, self.words(s), layer, self.blocks])
    }
}

/// States of two steps of every layer, for which a partition may have almost a group too many, and cells, from a multiple of 16
/// bytes on; or what a launch a step needs.
pub fn workspace_bytes(s: &Sequences) -> usize {
    let words = s.layers * 2 * (2 * s.batch + GROUP) * s.hidden + s.cells();
    launch::workspace_bytes(s, words * size_of::<f32>() + 12).max(launch::step_workspace_bytes(s))
}

/// A product and one launch a layer, behind one that sets the states to such that nobody takes; a launch a step where the
/// weights have no place.
pub fn plan(s: &Sequences) -> Plan {
    if s.batch == 0 {
        return Plan(Vec::new());
    }
    let Some(share) = Share::of(s) else {
        return launch::by_steps(s);
    };
    let layers = (0..s.layers).flat_map(|layer| [product(s, layer), share.launch(s, layer)]);
    Plan([clear_states(s, share.words(s))].into_iter().chain(layers).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn shape(batch: usize, hidden: usize) -> Sequences {
        Sequences { steps: 2, batch, inputs: 16, hidden, layers: 2 }
    }

    #[rstest]
    #[case::few_sequences_on_more_blocks(shape(8, 384), [8, 1, 48])]
    #[case::a_group_a_partition(shape(32, 512), [16, 4, 32])]
    #[case::as_many_partitions_as_fit(shape(48, 1024), [16, 2, 64])]
    fn the_batch_is_cut(#[case] s: Sequences, #[case] expected: [usize; 3]) {
        let share = Share::of(&s).unwrap();
        assert_eq!([share.units, share.partitions, share.blocks], expected);
    }

    #[rstest]
    fn all_have_room(
        #[values(1, 7, 8, 9, 31, 64, 128, 1000)] batch: usize,
        #[values(1, 513, 640, 1024)] hidden: usize,
    ) {
        let s = shape(batch, hidden);
        let share = Share::of(&s).unwrap();
        let launch = share.launch(&s, 0);
        assert!(launch.grid[0] <= multiprocessors());
        assert!(launch.shared_bytes <= 227 << 10);
        let used = (s.layers * share.words(&s) + s.cells()) * size_of::<f32>();
        assert!(launch::workspace_bytes(&s, used) <= workspace_bytes(&s));
    }

    #[rstest]
    #[case::wide_layer(shape(3, MOST_UNITS + 1), Gpu::SIMULATED)]
    #[case::little_shared_memory(shape(3, MOST_IN_REGISTERS + 1), Gpu::SIMULATED.of_capability(8, 0))]
    fn what_has_no_place_takes_a_launch_a_step(#[case] s: Sequences, #[case] gpu: Gpu) {
        let plan = gpu.during(|| plan(&s));
        assert_eq!(plan.0[plan.0.len() - 1].entry.as_deref(), Some("lstm_step"));
    }
}
