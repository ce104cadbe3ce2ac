//! Filling registers before code runs: constants and arguments once a worker, special registers once a block.

use crate::sim::machine::block::Block;
use crate::sim::machine::grid::Position;
use crate::sim::machine::memory::shared_memory::SharedMemory;
use crate::sim::machine::registers::{Class, LANES, Registers, Row, Slot};
use crate::sim::machine::warp::Warp;
use crate::sim::ptx::special::Special;
use crate::sim::run::job::Job;

/// The warps of a block with everything that holds for the whole launch.
pub(super) fn warps(grid: &Job<'_>) -> Vec<Warp> {
    let count = grid.threads.div_ceil(LANES as u32);
    (0..count)
        .map(|index| {
            let mut registers = registers(grid);
            fill_specials(grid, &mut registers, index);
            Warp {
                registers,
                local: vec![Row::splat(0); grid.program.local_bytes.div_ceil(4) as usize],
                index,
                ..Warp::default()
            }
        })
        .collect()
}

/// The special registers as they are in the first block; those that differ elsewhere are set when a block starts.
fn fill_specials(grid: &Job<'_>, registers: &mut Registers, warp: u32) {
    let place = grid.position(0, 0);
    for row in &grid.program.specials {
        let value = |lane: usize| special(grid, &place, row.special, warp, lane as u32);
        if matches!(row.special, Special::Gridid | Special::Clock64 | Special::Globaltimer) {
            registers.wides[row.slot as usize] = Row(std::array::from_fn(|lane| u64::from(value(lane))));
        } else {
            registers.words[row.slot as usize] = Row(std::array::from_fn(value));
        }
    }
}

pub(super) fn block(grid: &Job<'_>) -> Block {
    Block { shared: SharedMemory::new(grid.shared_bytes), alone: grid.cluster_blocks() == 1, ..Block::default() }
}

fn registers(grid: &Job<'_>) -> Registers {
    let program = grid.program;
    let mut registers = Registers {
        words: vec![Row::splat(0); program.word_rows as usize],
        wides: vec![Row::splat(0); program.wide_rows as usize],
        preds: vec![0; program.pred_rows as usize],
    };
    registers.preds[0] = u32::MAX;
    for &(slot, value) in &program.word_constants {
        registers.words[slot as usize] = Row::splat(value);
    }
    for &(slot, value) in &program.wide_constants {
        registers.wides[slot as usize] = Row::splat(value);
    }
    for row in &program.param_rows {
        let mut value = 0u64;
        for at in (0..row.bytes.min(8)).rev() {
            value = value << 8 | u64::from(grid.params.get((row.offset + at) as usize).copied().unwrap_or(0));
        }
        if row.signed {
            let spare = 64 - row.bytes.min(8) * 8;
            value = (((value << spare) as i64) >> spare) as u64;
        }
        fill(&mut registers, row.slot, value);
    }
    for row in &program.symbol_rows {
        registers.wides[row.slot as usize] = Row::splat(grid.symbols[row.variable].wrapping_add(row.offset as u64));
    }
    for &(slot, offset) in &program.dynamic_rows {
        fill(&mut registers, slot, u64::from(grid.dynamic_shared_start).wrapping_add(offset as u64));
    }
    registers
}

fn fill(registers: &mut Registers, slot: Slot, value: u64) {
    match slot.class {
        Class::Word => registers.words[slot.index as usize] = Row::splat(value as u32),
        Class::Wide => registers.wides[slot.index as usize] = Row::splat(value),
        Class::Pred => registers.preds[slot.index as usize] = if value != 0 { u32::MAX } else { 0 },
    }
}

/// Makes block `rank` of cluster `number` ready to run.
pub(super) fn start_block(grid: &Job<'_>, number: u64, rank: u32, base: u32, warps: &mut [Warp], block: &mut Block) {
    let place = grid.position(number, rank);
    block.restart(place.linear, place.block, grid.threads);
    block.races.begin(base);
    for warp in warps {
        let first = warp.index * LANES as u32;
        let count = (grid.threads - first).min(LANES as u32);
        let members = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        warp.restart(members);
        warp.race.restart(base, rank * 32 + warp.index);
        let written = std::mem::take(&mut warp.local_written).min(warp.local.len());
        warp.local[..written].fill(Row::splat(0));
        for slot in &grid.program.zeroed {
            fill(&mut warp.registers, *slot, 0);
        }
        for row in grid.program.specials.iter().filter(|row| names_block(row.special)) {
            let value = special(grid, &place, row.special, warp.index, 0);
            warp.registers.words[row.slot as usize] = Row::splat(value);
        }
    }
}

/// Whether a special register changes from block to block; it is the same in all threads of one.
fn names_block(special: Special) -> bool {
    matches!(special, Special::Ctaid(_) | Special::Clusterid(_) | Special::ClusterCtaid(_) | Special::ClusterCtarank)
}

fn special(grid: &Job<'_>, place: &Position, special: Special, warp: u32, lane: u32) -> u32 {
    let axis = |values: [u32; 3], axis: u8| values[axis as usize % 3];
    match special {
        Special::Tid(at) => axis(grid.thread_index(warp * 32 + lane), at),
        Special::Ntid(at) => axis(grid.block_dim, at),
        Special::Ctaid(at) => axis(place.block, at),
        Special::Nctaid(at) => axis(grid.grid_dim, at),
        Special::Clusterid(at) => axis(place.cluster, at),
        Special::Nclusterid(at) => axis(grid.clusters(), at),
        Special::ClusterCtaid(at) => axis(place.in_cluster, at),
        Special::ClusterNctaid(at) => axis(grid.cluster_dim, at),
        Special::ClusterCtarank => place.rank,
        Special::ClusterNctarank => grid.cluster_blocks(),
        Special::IsExplicitCluster => u32::from(grid.cluster_blocks() > 1),
        Special::Envreg(1) => (grid.workspace >> 32) as u32,
        Special::Envreg(2) => grid.workspace as u32,
        Special::Envreg(_) => 0,
        Special::Laneid => lane,
        Special::Warpid => warp,
        Special::Nwarpid => grid.threads.div_ceil(32),
        Special::LanemaskEq => 1 << lane,
        Special::LanemaskLt => (1 << lane) - 1,
        Special::LanemaskLe => ((1u64 << (lane + 1)) - 1) as u32,
        Special::LanemaskGt => !(((1u64 << (lane + 1)) - 1) as u32),
        Special::LanemaskGe => !((1 << lane) - 1),
        Special::Nsmid => 1,
        Special::DynamicSmemSize => grid.shared_bytes.saturating_sub(grid.dynamic_shared_start),
        Special::TotalSmemSize => grid.shared_bytes,
        Special::Smid
        | Special::Gridid
        | Special::Clock
        | Special::ClockHi
        | Special::Clock64
        | Special::Globaltimer => 0,
    }
}
