//! What a bulk copy does when its time has come: the data moves, 16 bytes a unit.

use crate::sim::isa::atomic::change_global;
use crate::sim::isa::barrier_object::notify;
use crate::sim::machine::access::{global, shared};
use crate::sim::machine::bulk_queue::Flight;
use crate::sim::machine::context::Context;
use crate::sim::machine::memory::address::{OFFSET_MASK, SHARED_RANK_SHIFT};
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::{Kind, Payload, define};
use crate::sim::machine::race::flight::Range;
use crate::sim::machine::reduction::Reduction;
use crate::sim::machine::registers::LANES;
use crate::sim::machine::tensor_map::Unit;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;

/// Up to 32 units at a time, as if a warp moved them.
fn batches(flight: &Flight) -> impl Iterator<Item = (usize, &[Unit])> {
    flight.units.chunks(LANES).enumerate().map(|(at, units)| (at * LANES, units))
}

fn first_lanes(count: usize) -> u32 {
    if count >= LANES { u32::MAX } else { (1 << count) - 1 }
}

/// Moves the data of a copy into shared memory and tells the objects.
pub(crate) fn land(ctx: &mut Context<'_>, flight: &Flight) {
    let here = std::mem::replace(&mut ctx.pc, flight.pc);
    for (first, units) in batches(flight) {
        let data = fetch(ctx, flight, units);
        for &(block, offset) in &flight.targets {
            let place =
                |lane: usize| flight.swizzle.apply(u64::from(offset) + 16 * (first + lane.min(units.len() - 1)) as u64);
            let rank = if block == ctx.me { 0 } else { (block as u64 + 1) << SHARED_RANK_SHIFT };
            let pattern = Pattern::new(std::array::from_fn(|lane| rank + place(lane)), first_lanes(units.len()), 16);
            shared::write_untracked(ctx, &pattern, &data);
        }
    }
    for (at, &(block, offset)) in flight.objects.iter().enumerate() {
        let (target, start) = flight.targets[at];
        let range = Range { block: target, offset: start, bytes: flight.bytes };
        if ctx.blocks[block].objects.bytes_arrive(offset, range, flight.pc) {
            notify(ctx, block);
        } else {
            let message = "no barrier object was made at this address".to_owned();
            ctx.report(Check::BarrierObject, flight.lane, Some(u64::from(offset)), message);
        }
    }
    ctx.pc = here;
}

fn fetch(ctx: &mut Context<'_>, flight: &Flight, units: &[Unit]) -> Payload<4> {
    let all = units
        .iter()
        .enumerate()
        .filter(|(_, unit)| is_whole(flight, unit))
        .fold(0u32, |set, (lane, _)| set | 1 << lane);
    let mut data: Payload<4> = [[0; LANES]; 4];
    if all != 0 {
        let pattern = Pattern::new(std::array::from_fn(|lane| units.get(lane).map_or(0, |unit| unit.address)), all, 16);
        data = if flight.far_is_shared { shared::read(ctx, &pattern, None) } else { global::read(ctx, &pattern, None) };
        // A read may leave anything in lanes that it was not asked for, and outside the tensor there are zeros.
        for (lane, word) in data.iter_mut().flat_map(|row| row.iter_mut().enumerate()) {
            if all >> lane & 1 == 0 {
                *word = 0;
            }
        }
    }
    for (lane, unit) in units.iter().enumerate().filter(|(lane, _)| all >> lane & 1 == 0) {
        for at in (0..16 / flight.element_bytes).filter(|at| unit.valid >> at & 1 != 0) {
            let position = at * flight.element_bytes;
            let pattern = Pattern::new([unit.address + u64::from(position); LANES], 1 << lane, flight.element_bytes);
            let element: Payload<2> = if flight.element_bytes == 8 {
                global::read(ctx, &pattern, None)
            } else {
                let low: Payload<1> = global::read(ctx, &pattern, None);
                [low[0], [0; LANES]]
            };
            data[position as usize / 4][lane] |= element[0][lane] << (position % 4 * 8);
            if flight.element_bytes == 8 {
                data[position as usize / 4 + 1][lane] |= element[1][lane];
            }
        }
    }
    data
}

/// Whether all elements of the unit lie inside the tensor.
fn is_whole(flight: &Flight, unit: &Unit) -> bool {
    let all = ((1u32 << (16 / flight.element_bytes)) - 1) as u16;
    unit.valid & all == all
}

/// Writes to global memory, or joins each element with what lies there.
fn put<const W: usize>(ctx: &mut Context<'_>, flight: &Flight, pattern: &Pattern, data: &Payload<W>) {
    match flight.reduction {
        Some(reduction) => reduce(ctx, pattern, data, reduction),
        None => global::write(ctx, pattern, data, None),
    }
}

/// Joins each element with what lies in global memory.
pub(in crate::sim::isa) fn reduce<const W: usize>(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    data: &Payload<W>,
    reduction: Reduction,
) {
    let width = reduction.element_bytes;
    global::for_each_allocation(ctx, pattern, Kind::Atomic, |ctx, allocation, number, pattern| {
        ctx.track_global::<1>(number, pattern, Kind::Atomic, Some(Scope::Device), None);
        for lane in pattern.lanes() {
            for at in (0..pattern.bytes as usize).step_by(width as usize) {
                let word = data[at / 4][lane] >> (at % 4 * 8);
                let value = match width {
                    8 => u64::from(word) | u64::from(data[at / 4 + 1][lane]) << 32,
                    4 => u64::from(word),
                    _ => u64::from(word & 0xFFFF),
                };
                let offset = (pattern.address[lane] & OFFSET_MASK) + at as u64;
                change_global(allocation, offset, width, |old| (reduction.change)(old, value, 0));
            }
        }
        define(allocation, pattern);
    });
    global::count(ctx, pattern, |counters| &mut counters.global_writes);
}

/// Moves the data of a copy out of shared memory.
pub(super) fn store(ctx: &mut Context<'_>, flight: &Flight) {
    let (block, offset) = flight.targets[0];
    for (first, units) in batches(flight) {
        let memory = &ctx.blocks[block].shared;
        let mut data: Payload<4> = [[0; LANES]; 4];
        for lane in 0..units.len() {
            let at = flight.swizzle.apply(u64::from(offset) + 16 * (first + lane) as u64) as usize / 4;
            for (word, row) in data.iter_mut().enumerate() {
                row[lane] = memory.words[at + word];
            }
        }
        let whole = units
            .iter()
            .enumerate()
            .filter(|(_, unit)| is_whole(flight, unit))
            .fold(0u32, |set, (lane, _)| set | 1 << lane);
        let address = std::array::from_fn(|lane| units.get(lane).map_or(0, |unit| unit.address));
        if whole != 0 {
            let pattern = Pattern::new(address, whole, 16);
            put(ctx, flight, &pattern, &data);
        }
        for (lane, unit) in units.iter().enumerate().filter(|(lane, _)| whole >> lane & 1 == 0) {
            for at in (0..16 / flight.element_bytes).filter(|at| unit.valid >> at & 1 != 0) {
                let position = at * flight.element_bytes;
                let pattern =
                    Pattern::new([unit.address + u64::from(position); LANES], 1 << lane, flight.element_bytes);
                let word = position as usize / 4;
                let low = data[word].map(|value| value >> (position % 4 * 8));
                if flight.element_bytes == 8 {
                    put(ctx, flight, &pattern, &[data[word], data[word + 1]]);
                } else {
                    put(ctx, flight, &pattern, &[low]);
                }
            }
        }
    }
}
