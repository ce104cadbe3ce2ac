//! The launch rule of the persistent kernel: which weights of a block stay where.

use super::launch;
use super::launch::{align, clear_states, copied_bytes, fastest_product, with_scalars};
use super::shape::Sequences;
use crate::core::gpu::multiprocessors;
use crate::core::launch::{Launch, Plan};

/// The most units: the states of eight sequences have a place beside the sums of a block.
pub const MOST_UNITS: usize = 4096;
/// Units of a packet, and of a slice along k.
const PACKET_UNITS: usize = 4;
pub const SLICE_UNITS: usize = 16;
pub const WARPS: usize = 8;
const THREADS: usize = 32 * WARPS;
/// Sequences of a tile; those in the workspace are a multiple of two tiles.
pub const TILE_SEQUENCES: usize = 8;
/// What the warps of a block have in shared memory of one fragment each: 16 x 16 weights, or 16 x 8 sums.
const FRAGMENTS_BYTES: usize = WARPS * 512;
/// Dynamic shared memory of a block of compute capability 9.0, beside the mbarriers.
const SHARED_BYTES: usize = 226 << 10;

/// What a launch may take.
struct Limits {
    /// Blocks, all at once.
    blocks: usize,
    /// Slices of weights that a warp has in shared memory, where that has room for them.
    in_shared: usize,
}

/// A block a multiprocessor. On a GPU with fewer of them blocks take more rounds.
fn all() -> Limits {
    Limits { blocks: multiprocessors(), in_shared: usize::MAX }
}
/// So little that small layers go all ways of the kernel: several rounds, weights in registers, in shared memory, in L2.
pub const FEW_BLOCKS: usize = 16;
const LITTLE: Limits = Limits { blocks: FEW_BLOCKS, in_shared: 1 };

/// An entry of the kernel.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Packets of units that a block makes at a time.
    packets: usize,
    /// Tiles of sequences at a time.
    tiles: usize,
    /// Slices of weights that a warp has in registers.
    kept: usize,
    /// Whether weights may be left in L2.
    from_l2: bool,
}

const ENTRIES: [Entry; 6] = [
    Entry { packets: 2, tiles: 1, kept: 8, from_l2: false },
    Entry { packets: 4, tiles: 1, kept: 8, from_l2: false },
    Entry { packets: 4, tiles: 2, kept: 8, from_l2: false },
    Entry { packets: 6, tiles: 1, kept: 4, from_l2: false },
    Entry { packets: 8, tiles: 1, kept: 4, from_l2: false },
    Entry { packets: 8, tiles: 1, kept: 4, from_l2: true },
];

/// How a layer is shared out.
#[derive(Debug)]
struct Share {
    entry: Entry,
    /// Parts of the batch, each with blocks of its own.
    partitions: usize,
    blocks: usize,
    rounds: usize,
    of_warp: usize,
    in_shared: usize,
    /// Groups of sequences of a partition, one after the other.
    groups: usize,
}

fn slices(s: &Sequences) -> usize {
    s.hidden.div_ceil(SLICE_UNITS)
}

fn packets(s: &Sequences) -> usize {
    slices(s) * (SLICE_UNITS / PACKET_UNITS)
}

impl Share {
    /// The fastest by `microseconds` of all that have a place for every weight.
    fn of(s: &Sequences, limits: &Limits) -> Share {
        let partitions = 1..=s.batch.div_ceil(TILE_SEQUENCES).min(limits.blocks);
        let shares = partitions.flat_map(|partitions| {
            ENTRIES.into_iter().filter_map(move |entry| Share::with(s, limits, entry, partitions))
        });
        let shares = shares.min_by(|a, b| a.microseconds().total_cmp(&b.microseconds()));
        shares.expect("the entry that leaves weights in L2 takes every layer")
    }

    fn with(s: &Sequences, limits: &Limits, entry: Entry, partitions: usize) -> Option<Share> {
        let blocks = packets(s).div_ceil(entry.packets).min(limits.blocks / partitions);
        let rounds = packets(s).div_ceil(blocks * entry.packets);
        let of_warp = slices(s).div_ceil(WARPS);
        let left = rounds * of_warp - entry.kept.min(of_warp);
        let room = (SHARED_BYTES / FRAGMENTS_BYTES / entry.packets).saturating_sub(2 * entry.tiles);
        let in_shared = left.min(room).min(limits.in_shared);
        let sequences = s.batch.div_ceil(partitions);
        let share = Share {
            entry,
            partitions,
            blocks,
            rounds,
            of_warp,
            in_shared,
            groups: sequences.div_ceil(entry.tiles * TILE_SEQUENCES),
        };
        (entry.from_l2 || in_shared == left).then_some(share)
    }

    /// Of a step, on an H200: within 6 % of 33 measured ones without weights from L2.
    fn microseconds(&self) -> f64 {
        /// Of sums that meet, cells and what is written.
        const TURN: f64 = 1.19;
        /// The way of states to other blocks, where no other group hides it.
        const EXCHANGE: f64 = 0.62;
        /// For a slice of a warp: states of a tile from L2, products of a fragment, weights of a packet from shared memory and
        /// from L2.
        const LOAD: f64 = 0.067;
        const PRODUCTS: f64 = 0.021;
        const FROM_SHARED: f64 = 0.0083;
        const FROM_L2: f64 = 0.1;
        let Entry { packets, tiles, kept, .. } = self.entry;
        let made = (self.rounds * self.of_warp) as f64;
        let streamed = made - (kept.min(self.of_warp) + self.in_shared) as f64;
        let weights = packets as f64 * (FROM_SHARED * self.in_shared as f64 + FROM_L2 * streamed);
        let products = made * (LOAD * tiles as f64 + PRODUCTS * (packets * tiles) as f64);
        let turn = TURN * self.rounds as f64 + products + weights;
        turn * self.groups as f64 + if self.groups == 1 { EXCHANGE } else { 0.0 }
    }

    /// Words of states of two steps.
    fn words(&self, s: &Sequences) -> usize {
        2 * self.partitions * self.groups * self.entry.tiles * TILE_SEQUENCES * packets(s) * PACKET_UNITS
    }

    fn launch(&self, s: &Sequences, layer: usize) -> Launch {
        let Entry { packets, tiles, from_l2, .. } = self.entry;
        let l2 = if from_l2 { "_l2" } else { "" };
        let entry = format!("lstm_persistent_{}x{}{l2}", packets * PACKET_UNITS, tiles * TILE_SEQUENCES);
        let shared = (self.in_shared + 2 * tiles) * packets * FRAGMENTS_BYTES;
        let launch = Launch::blocks(self.partitions * self.blocks, THREADS).shared(shared).entry(entry).cooperative();
        let words = self.words(s);
        with_scalars(launch, [s.steps, s.batch, s.hidden, s.layers, words, layer, self.blocks, self.in_shared])
    }
}

/// The copy of weights, the states of two steps of every layer, for which a partition may have almost two tiles too many, and
/// cells.
pub fn workspace_bytes(s: &Sequences) -> usize {
    let sequences = 3 * s.batch + 2 * TILE_SEQUENCES;
    let words = s.layers * 2 * sequences * packets(s) * PACKET_UNITS + s.cells();
    launch::workspace_bytes(s, copied_bytes(s) + words * size_of::<f32>())
}

/// A product and one launch a layer, behind one that sets the states to such that nobody takes.
fn plan(s: &Sequences, limits: &Limits) -> Plan {
    if s.batch == 0 {
        return Plan(Vec::new());
    }
    let share = Share::of(s, limits);
    let layers = (0..s.layers).flat_map(|layer| [fastest_product(s, layer), share.launch(s, layer)]);
    Plan(align(s).into_iter().chain([clear_states(s, share.words(s))]).chain(layers).collect())
}

/// On the whole chip.
pub fn on_all(s: &Sequences) -> Plan {
    plan(s, &all())
}

/// On few multiprocessors.
pub fn on_few(s: &Sequences) -> Plan {
    plan(s, &LITTLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn share(batch: usize, hidden: usize, limits: &Limits) -> Share {
        Share::of(&Sequences { steps: 2, batch, inputs: 16, hidden, layers: 1 }, limits)
    }

    /// Packets, tiles, partitions, blocks of each, rounds, slices in shared memory.
    #[rstest]
    #[case::a_tile_a_partition(17, 700, [4, 1, 3, 44, 1, 0])]
    #[case::few_sequences_on_most_blocks(8, 1024, [2, 1, 1, 128, 1, 0])]
    #[case::partitions_before_blocks(48, 1024, [6, 1, 3, 43, 1, 4])]
    #[case::many_sequences(128, 1024, [8, 1, 4, 32, 1, 4])]
    #[case::weights_of_two_partitions_have_no_place(32, 1536, [4, 2, 1, 96, 1, 4])]
    #[case::some_in_l2(16, 4096, [8, 1, 1, 128, 1, 5])]
    fn weights_have_places(#[case] batch: usize, #[case] hidden: usize, #[case] expected: [usize; 6]) {
        let Share { entry, partitions, blocks, rounds, in_shared, .. } = share(batch, hidden, &all());
        assert_eq!([entry.packets, entry.tiles, partitions, blocks, rounds, in_shared], expected);
    }

    #[rstest]
    fn all_have_room(
        #[values(1, 7, 8, 9, 31, 64, 128, 1000)] batch: usize,
        #[values(1, 513, 640, 2000, 4096)] hidden: usize,
    ) {
        let s = Sequences { steps: 2, batch, inputs: 16, hidden, layers: 1 };
        for limits in [all(), LITTLE] {
            let share = Share::of(&s, &limits);
            let launch = share.launch(&s, 0);
            assert!(launch.grid[0] <= limits.blocks);
            assert!(launch.shared_bytes <= SHARED_BYTES);
            let used = share.words(&s) * size_of::<f32>() + s.cells() * size_of::<f32>();
            assert!(launch::workspace_bytes(&s, copied_bytes(&s) + used) <= workspace_bytes(&s));
        }
    }

    #[test]
    fn small_layers_go_all_ways_on_few_blocks() {
        let ways = |batch, hidden| {
            let share = share(batch, hidden, &LITTLE);
            (share.partitions > 1, share.rounds > 1, share.in_shared, share.entry.from_l2)
        };
        assert_eq!(ways(9, 64), (true, false, 0, false));
        assert_eq!(ways(3, 520), (false, true, 1, true));
    }
}
