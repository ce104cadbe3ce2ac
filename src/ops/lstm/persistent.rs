//! The launch rule of the persistent kernel: which weights of a block stay where.

use super::launch;
use super::launch::{align, copied_bytes, fastest_product, with_scalars};
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
/// What the warps of a block have in shared memory of one fragment each: 16 x 16 weights, 16 x 8 states in two parts, sums.
const FRAGMENTS_BYTES: usize = WARPS * 512;
/// Dynamic shared memory of a block of compute capability 9.0.
const SHARED_BYTES: usize = 227 << 10;

/// What a launch may take.
struct Limits {
    /// Blocks of whose number all packets are to be had in one round.
    blocks: usize,
    /// Slices of weights that a warp has in registers, by the packets of a block at a time.
    in_registers: [usize; 4],
    /// Slices of weights that a warp has in shared memory, where that has room for them.
    in_shared: usize,
}

/// A block a multiprocessor. On a GPU with fewer of them blocks take more rounds.
fn all() -> Limits {
    Limits { blocks: multiprocessors(), in_registers: [8, 10, 9, 7], in_shared: usize::MAX }
}
/// So little that small layers go all ways of the kernel: several rounds, weights in registers, in shared memory, in L2.
pub const FEW_BLOCKS: usize = 16;
const LITTLE: Limits = Limits { blocks: FEW_BLOCKS, in_registers: [1; 4], in_shared: 1 };

/// How a layer is shared out.
#[derive(Debug, PartialEq)]
struct Share {
    /// Packets that a block makes at a time.
    packets: usize,
    /// Tiles of sequences at a time.
    tiles: usize,
    in_registers: usize,
    in_shared: usize,
    /// Turns whose states are in shared memory at once.
    buffers: usize,
    blocks: usize,
    shared_bytes: usize,
    /// Slices of weights of a warp that neither registers nor shared memory hold.
    streamed: usize,
}

fn slices(s: &Sequences) -> usize {
    s.hidden.div_ceil(SLICE_UNITS)
}

fn packets(s: &Sequences) -> usize {
    slices(s) * (SLICE_UNITS / PACKET_UNITS)
}

impl Share {
    /// As few packets a block as make one round. Two tiles read each weight half as often from shared memory, and with two
    /// buffers states arrive during the products of another group; but where states leave no room for weights these would come
    /// from L2 each time.
    fn of(s: &Sequences, limits: &Limits) -> Share {
        let most = limits.in_registers.len();
        let packets = packets(s).div_ceil(limits.blocks).min(most);
        let of = |(tiles, buffers)| Share::with(s, limits, packets, tiles, buffers);
        let groups = |tiles: usize| s.batch.div_ceil(tiles * TILE_SEQUENCES);
        // A group waits for the one before the last, so fewer than three would wait for each other.
        let ways = [(2, 2), (2, 1), (1, 2)].into_iter();
        let mut ways = ways.filter(|&(tiles, buffers)| groups(1) >= tiles && (buffers == 1 || groups(tiles) > 2));
        ways.find_map(|way| Some(of(way)).filter(|share| share.streamed == 0)).unwrap_or_else(|| of((1, 1)))
    }

    fn with(s: &Sequences, limits: &Limits, at_once: usize, tiles: usize, buffers: usize) -> Share {
        let of_warp = slices(s).div_ceil(WARPS);
        let rounds = packets(s).div_ceil(limits.blocks * at_once);
        let in_registers = limits.in_registers[at_once - 1].min(of_warp);
        let left = rounds * of_warp - in_registers;
        let states_and_sums = (buffers * of_warp + at_once) * tiles;
        let room = (SHARED_BYTES / FRAGMENTS_BYTES).saturating_sub(states_and_sums) / at_once;
        let in_shared = left.min(limits.in_shared).min(room);
        Share {
            packets: at_once,
            tiles,
            in_registers,
            in_shared,
            buffers,
            blocks: packets(s).div_ceil(at_once).min(limits.blocks),
            shared_bytes: (states_and_sums + in_shared * at_once) * FRAGMENTS_BYTES,
            streamed: left - in_shared,
        }
    }

    fn launch(&self, s: &Sequences, layer: usize) -> Launch {
        let entry = format!("lstm_persistent_{}x{}", self.packets * PACKET_UNITS, self.tiles * TILE_SEQUENCES);
        let launch = Launch::blocks(self.blocks, THREADS).shared(self.shared_bytes).entry(entry).cooperative();
        with_scalars(
            launch,
            [s.steps, s.batch, s.hidden, s.layers, layer, self.in_registers, self.in_shared, self.buffers],
        )
    }
}

/// The copy of weights, states of two steps, cells, and what each block has done.
pub fn workspace_bytes(s: &Sequences) -> usize {
    const PACKET_BYTES: usize = 16;
    let states = 2 * s.batch.next_multiple_of(2 * TILE_SEQUENCES) * packets(s) * PACKET_BYTES;
    let words = s.cells() + s.layers * packets(s);
    launch::workspace_bytes(s, copied_bytes(s) + states + words * size_of::<f32>())
}

/// A product and one launch a layer, behind one that sets what blocks wait for back to nothing.
fn plan(s: &Sequences, limits: &Limits) -> Plan {
    if s.batch == 0 {
        return Plan(Vec::new());
    }
    let share = Share::of(s, limits);
    let start = Launch::blocks(1, THREADS).entry("lstm_persistent_start");
    let start = with_scalars(start, [s.steps, s.batch, s.hidden, s.layers]);
    let layers = (0..s.layers).flat_map(|layer| [fastest_product(s, layer), share.launch(s, layer)]);
    Plan(align(s).into_iter().chain([start]).chain(layers).collect())
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

    #[rstest]
    #[case::all_in_registers(700, 17, [2, 2, 1, 6, 0, 0, 88])]
    #[case::a_few_sequences(1024, 8, [2, 1, 1, 8, 0, 0, 128])]
    #[case::three_groups_and_two_buffers(1024, 48, [2, 2, 2, 8, 0, 0, 128])]
    #[case::some_in_shared_memory(1500, 48, [3, 2, 1, 9, 3, 0, 126])]
    #[case::states_of_eight_beside_weights(2048, 128, [4, 1, 1, 7, 9, 0, 128])]
    #[case::some_in_l2(4096, 16, [4, 1, 1, 7, 5, 52, 132])]
    fn weights_have_places(#[case] hidden: usize, #[case] batch: usize, #[case] expected: [usize; 7]) {
        let s = Sequences { steps: 2, batch, inputs: 16, hidden, layers: 1 };
        let share = Share::of(&s, &all());
        assert!(share.shared_bytes <= SHARED_BYTES);
        let Share { packets, tiles, buffers, in_registers, in_shared, streamed, blocks, .. } = share;
        assert_eq!([packets, tiles, buffers, in_registers, in_shared, streamed, blocks], expected);
    }

    #[test]
    fn small_layers_go_all_ways_on_few_blocks() {
        let ways = |batch, hidden| {
            let share = Share::of(&Sequences { steps: 2, batch, inputs: 1, hidden, layers: 1 }, &LITTLE);
            (share.packets, share.tiles, share.buffers, share.in_shared, share.streamed > 0)
        };
        assert_eq!(ways(9, 64), (1, 2, 1, 0, false));
        assert_eq!(ways(33, 64), (1, 2, 2, 0, false));
        assert_eq!(ways(9, 128), (2, 2, 1, 0, false));
        assert_eq!(ways(9, 130), (3, 2, 1, 1, false));
        assert_eq!(ways(9, 256), (4, 2, 1, 1, false));
        assert_eq!(ways(9, 257), (4, 1, 1, 1, true));
    }
}
