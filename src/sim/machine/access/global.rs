//! Global memory as a warp sees it: bounds, liveness, alignment, initialisation, then the words.

use crate::sim::machine::access::faults;
use crate::sim::machine::context::Context;
use crate::sim::machine::counters::Counters;
use crate::sim::machine::memory::Memory;
use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::allocation::Allocation;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::{Kind, Payload, define, gather, kind_name, scatter};
use crate::sim::machine::race::message::Strong;
use crate::sim::machine::registers::LANES;
use crate::sim::metrics::Traffic;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;

/// Runs `visit` for each allocation that valid lanes of the pattern touch; the others are reported and left out.
#[inline(always)]
pub(crate) fn for_each_allocation(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    kind: Kind,
    mut visit: impl FnMut(&mut Context<'_>, &Allocation, usize, &Pattern),
) {
    match only_allocation(ctx.grid.memory, pattern, kind) {
        Some((number, allocation)) => visit(ctx, allocation, number, pattern),
        None => for_each_part(ctx, pattern, kind, &mut visit),
    }
}

/// The allocation that all lanes may access, in the common case that there is one.
#[inline(always)]
fn only_allocation<'a>(memory: &'a Memory, pattern: &Pattern, kind: Kind) -> Option<(usize, &'a Allocation)> {
    let (number, allocation) = memory.find(pattern.lowest)?;
    let end = pattern.highest.wrapping_sub(pattern.lowest & !OFFSET_MASK).saturating_add(u64::from(pattern.bytes));
    let may = end <= allocation.bytes()
        && allocation.is_live()
        && !pattern.suspect
        && !(kind != Kind::Read && allocation.read_only);
    may.then_some((number, allocation))
}

#[cold]
fn for_each_part(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    kind: Kind,
    visit: &mut dyn FnMut(&mut Context<'_>, &Allocation, usize, &Pattern),
) {
    let memory = ctx.grid.memory;
    let mut rest = pattern.mask;
    while rest != 0 {
        let group = pattern.address[rest.trailing_zeros() as usize] & !OFFSET_MASK;
        let members = pattern.lanes_at(|address| address & !OFFSET_MASK == group);
        rest &= !members;
        let valid = valid_lanes(ctx, &pattern.restrict(members), kind);
        if valid != 0
            && let Some((number, allocation)) = memory.find(group)
        {
            visit(ctx, allocation, number, &pattern.restrict(valid));
        }
    }
}

/// Reports the lanes that must not access; all addresses lie in one allocation (or none).
#[cold]
fn valid_lanes(ctx: &mut Context<'_>, pattern: &Pattern, kind: Kind) -> u32 {
    let found = ctx.grid.memory.find(pattern.lowest);
    let bytes = pattern.bytes;
    let access = kind_name(kind);
    faults::valid_lanes(ctx, pattern, |address, tell| {
        let offset = address & OFFSET_MASK;
        match found {
            None => tell(Check::OutOfBounds, format_args!("{access} of {bytes} bytes at an address in no allocation")),
            Some((_, allocation)) if !allocation.is_live() => {
                tell(Check::UseAfterFree, format_args!("{access} of {bytes} bytes in freed memory"));
            }
            Some((_, allocation)) if offset + u64::from(bytes) > allocation.bytes() => {
                let size = allocation.bytes();
                let message =
                    format_args!("{access} of {bytes} bytes at offset {offset} of an allocation of {size} bytes");
                tell(Check::OutOfBounds, message);
            }
            Some((_, allocation)) if kind != Kind::Read && allocation.read_only => {
                tell(Check::ReadOnly, format_args!("{access} of {bytes} bytes to memory that is read-only"));
            }
            _ if !offset.is_multiple_of(u64::from(bytes)) => {
                let message = format_args!("{access} of {bytes} bytes at an address that is no multiple of {bytes}");
                tell(Check::Misaligned, message);
            }
            _ => {}
        }
    })
}

/// Loads; lanes that may not load get 0.
#[inline(always)]
pub(crate) fn read<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern, strong: Option<Scope>) -> Payload<W> {
    let mut data = [[0; LANES]; W];
    // The common case is no closure, so that it gets the build for wide registers.
    match only_allocation(ctx.grid.memory, pattern, Kind::Read) {
        Some((number, allocation)) => read_part(ctx, allocation, number, pattern, strong, &mut data),
        None => for_each_part(ctx, pattern, Kind::Read, &mut |ctx, allocation, number, pattern| {
            read_part(ctx, allocation, number, pattern, strong, &mut data);
        }),
    }
    count(ctx, pattern, |counters| &mut counters.global_reads);
    data
}

#[inline(always)]
fn read_part<const W: usize>(
    ctx: &mut Context<'_>,
    allocation: &Allocation,
    number: usize,
    pattern: &Pattern,
    strong: Option<Scope>,
    data: &mut Payload<W>,
) {
    if allocation.tracks_definition() && ctx.grid.options.checks.initialised {
        check_defined(ctx, allocation, pattern);
    }
    ctx.track_global::<W>(number, pattern, Kind::Read, strong, None);
    if let Some(scope) = strong {
        pass_on(ctx, pattern, scope, Strong::Read);
    }
    gather(allocation.words(), pattern, data);
}

#[inline(always)]
fn check_defined(ctx: &mut Context<'_>, allocation: &Allocation, pattern: &Pattern) {
    let bytes = u64::from(pattern.bytes);
    let offset = pattern.lowest & OFFSET_MASK;
    if (pattern.contiguous || pattern.uniform)
        && allocation.is_defined(offset, pattern.highest - pattern.lowest + bytes)
    {
        return;
    }
    for lane in pattern.lanes() {
        if !allocation.is_defined(pattern.address[lane] & OFFSET_MASK, bytes) {
            let message = format!("read of {bytes} bytes that nothing has written");
            ctx.report(Check::UninitialisedGlobal, lane, Some(pattern.address[lane]), message);
        }
    }
}

/// Stores the valid lanes.
#[inline(always)]
pub(crate) fn write<const W: usize>(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    data: &Payload<W>,
    strong: Option<Scope>,
) {
    match only_allocation(ctx.grid.memory, pattern, Kind::Write) {
        Some((number, allocation)) => write_part(ctx, allocation, number, pattern, data, strong),
        None => for_each_part(ctx, pattern, Kind::Write, &mut |ctx, allocation, number, pattern| {
            write_part(ctx, allocation, number, pattern, data, strong);
        }),
    }
    count(ctx, pattern, |counters| &mut counters.global_writes);
}

#[inline(always)]
fn write_part<const W: usize>(
    ctx: &mut Context<'_>,
    allocation: &Allocation,
    number: usize,
    pattern: &Pattern,
    data: &Payload<W>,
    strong: Option<Scope>,
) {
    let is_stored = ctx.track_global(number, pattern, Kind::Write, strong, Some(data));
    if let Some(scope) = strong {
        pass_on(ctx, pattern, scope, Strong::Write);
    }
    if allocation.tracks_definition() {
        define(allocation, pattern);
    }
    if !is_stored {
        scatter(allocation, pattern, data);
    }
}

fn pass_on(ctx: &mut Context<'_>, pattern: &Pattern, scope: Scope, what: Strong) {
    pattern.lanes().for_each(|lane| ctx.pass_on_global(pattern.address[lane], pattern.bytes, scope, what));
}

/// Counts sectors.
#[inline(always)]
pub(crate) fn count(ctx: &mut Context<'_>, pattern: &Pattern, traffic: fn(&mut Counters) -> &mut Traffic) {
    let bytes = u64::from(pattern.mask.count_ones() * pattern.bytes);
    let (units, ideal) = pattern.sectors_and_ideal();
    traffic(&mut ctx.log.counters).add(bytes, units, ideal);
    ctx.count_sectors(units, ideal);
}
