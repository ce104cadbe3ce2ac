//! Shared memory as a warp sees it: which block, bounds, alignment, initialisation, then the words.

use crate::sim::machine::access::faults;
use crate::sim::machine::access::wavefronts::count;
use crate::sim::machine::context::Context;
use crate::sim::machine::memory::address::SHARED_RANK_SHIFT;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::{Kind, Payload, kind_name, sub_word};
use crate::sim::machine::race::message::Strong;
use crate::sim::machine::registers::LANES;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;

const OFFSET_MASK: u64 = (1 << SHARED_RANK_SHIFT) - 1;

/// Runs `visit` for each block whose shared memory valid lanes touch. The pattern that it gets holds offsets in that
/// block.
#[inline(always)]
pub(crate) fn for_each_block(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    kind: Kind,
    mut visit: impl FnMut(&mut Context<'_>, usize, &Pattern),
) {
    if is_own(ctx, pattern) {
        visit(ctx, ctx.me, pattern);
    } else {
        for_each_part(ctx, pattern, kind, &mut visit);
    }
}

/// Whether all lanes may access the shared memory of their own block there, as they nearly always do.
#[inline(always)]
fn is_own(ctx: &Context<'_>, pattern: &Pattern) -> bool {
    let end = pattern.highest.saturating_add(u64::from(pattern.bytes));
    end <= u64::from(ctx.blocks[ctx.me].shared.bytes) && !pattern.suspect
}

#[cold]
fn for_each_part(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    kind: Kind,
    visit: &mut dyn FnMut(&mut Context<'_>, usize, &Pattern),
) {
    let mut rest = pattern.mask;
    while rest != 0 {
        let group = pattern.address[rest.trailing_zeros() as usize] >> SHARED_RANK_SHIFT;
        let members = pattern.lanes_at(|address| address >> SHARED_RANK_SHIFT == group);
        rest &= !members;
        let block = if group == 0 {
            Some(ctx.me)
        } else {
            usize::try_from(group - 1).ok().filter(|rank| *rank < ctx.blocks.len())
        };
        let offsets = Pattern::new(pattern.address.map(|address| address & OFFSET_MASK), members, pattern.bytes);
        let valid = valid_lanes(ctx, &offsets, kind, block);
        if let Some(block) = block
            && valid != 0
        {
            visit(ctx, block, &offsets.restrict(valid));
        }
    }
}

#[cold]
fn valid_lanes(ctx: &mut Context<'_>, pattern: &Pattern, kind: Kind, block: Option<usize>) -> u32 {
    let size = block.map(|block| ctx.blocks[block].shared.bytes);
    let bytes = pattern.bytes;
    let access = kind_name(kind);
    faults::valid_lanes(ctx, pattern, |offset, tell| match size {
        None => {
            let message = format_args!("{access} of {bytes} bytes in the shared memory of no block of the cluster");
            tell(Check::OutOfBounds, message);
        }
        Some(size) if offset + u64::from(bytes) > u64::from(size) => {
            let message = format_args!("{access} of {bytes} bytes at offset {offset} of {size} bytes of shared memory");
            tell(Check::OutOfBounds, message);
        }
        _ if offset % u64::from(bytes) != 0 => {
            let message = format_args!("{access} of {bytes} bytes at shared offset {offset}, no multiple of {bytes}");
            tell(Check::Misaligned, message);
        }
        _ => {}
    })
}

/// Loads; lanes that may not load get 0.
#[inline(always)]
pub(crate) fn read<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern, strong: Option<Scope>) -> Payload<W> {
    let mut data = [[0; LANES]; W];
    // The common case is no closure, so that it gets the build for wide registers.
    if is_own(ctx, pattern) {
        read_part(ctx, ctx.me, pattern, strong, &mut data);
    } else {
        for_each_part(ctx, pattern, Kind::Read, &mut |ctx, block, pattern| {
            let mut part = [[0; LANES]; W];
            read_part(ctx, block, pattern, strong, &mut part);
            for (row, part) in data.iter_mut().zip(&part) {
                pattern.lanes().for_each(|lane| row[lane] = part[lane]);
            }
        });
    }
    count(ctx, pattern, false);
    data
}

/// Loads from one block. Lanes that are not in the pattern get anything.
#[inline(always)]
fn read_part<const W: usize>(
    ctx: &mut Context<'_>,
    block: usize,
    pattern: &Pattern,
    strong: Option<Scope>,
    data: &mut Payload<W>,
) {
    if ctx.grid.options.checks.initialised {
        check_defined(ctx, block, pattern);
    }
    ctx.track_shared(block, pattern, Kind::Read, strong, None);
    if let Some(scope) = strong {
        pattern.lanes().for_each(|lane| ctx.pass_on_shared(block, pattern.address[lane], scope, Strong::Read));
    }
    let words = &ctx.blocks[block].shared.words;
    if pattern.bytes < 4 {
        for lane in pattern.lanes() {
            let offset = pattern.address[lane] as usize;
            data[0][lane] = sub_word(words[offset / 4], offset, pattern.bytes);
        }
    } else if pattern.uniform {
        let start = (pattern.lowest / 4) as usize;
        for (row, value) in data.iter_mut().zip(&words[start..start + W]) {
            *row = [*value; LANES];
        }
    } else if W == 1 && pattern.contiguous && pattern.mask == u32::MAX {
        let start = (pattern.lowest / 4) as usize;
        data[0].copy_from_slice(&words[start..start + LANES]);
    } else {
        // Inactive lanes repeat a valid address: no need to skip them.
        for lane in 0..LANES {
            let at = (pattern.address[lane] / 4) as usize;
            let source = &words[at..at + W];
            for word in 0..W {
                data[word][lane] = source[word];
            }
        }
    }
}

#[inline(always)]
fn check_defined(ctx: &mut Context<'_>, block: usize, pattern: &Pattern) {
    let bytes = u64::from(pattern.bytes);
    let shared = &ctx.blocks[block].shared;
    // The whole span is often defined even where it has gaps; only if it is not, each lane is looked at.
    let span = pattern.highest - pattern.lowest + bytes;
    if span <= 1024 && shared.is_defined(pattern.lowest, span) {
        return;
    }
    for lane in pattern.lanes() {
        if !ctx.blocks[block].shared.is_defined(pattern.address[lane], bytes) {
            let message = format!("read of {bytes} bytes of shared memory that nothing has written");
            ctx.report(Check::UninitialisedShared, lane, Some(pattern.address[lane]), message);
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
    if is_own(ctx, pattern) {
        write_part(ctx, ctx.me, pattern, data, strong);
    } else {
        for_each_part(ctx, pattern, Kind::Write, &mut |ctx, block, pattern| {
            write_part(ctx, block, pattern, data, strong);
        });
    }
    count(ctx, pattern, true);
}

/// Stores a register of all lanes, one word behind the other; `false` if they may not all be there.
#[inline(always)]
pub(crate) fn write_row(ctx: &mut Context<'_>, lowest: u64, register: u32) -> bool {
    const BYTES: u64 = 4 * LANES as u64;
    let is_inside = lowest.checked_add(BYTES).is_some_and(|end| end <= u64::from(ctx.blocks[ctx.me].shared.bytes));
    if !is_inside || !lowest.is_multiple_of(4) {
        return false;
    }
    if ctx.grid.options.checks.races {
        let row = *ctx.warp.registers.word(register);
        ctx.track_shared(ctx.me, &Pattern::row(lowest, 4), Kind::Write, None, Some(&[row]));
    }
    let shared = &mut ctx.blocks[ctx.me].shared;
    shared.define(lowest, BYTES);
    shared.words[lowest as usize / 4..][..LANES].copy_from_slice(ctx.warp.registers.word(register));
    // Neighbours lie in banks of their own.
    ctx.log.counters.shared_writes.add(BYTES, 1, 1);
    ctx.count_wavefronts(1, 1);
    true
}

#[inline(always)]
fn write_part<const W: usize>(
    ctx: &mut Context<'_>,
    block: usize,
    pattern: &Pattern,
    data: &Payload<W>,
    strong: Option<Scope>,
) {
    ctx.track_shared(block, pattern, Kind::Write, strong, Some(data));
    if let Some(scope) = strong {
        pattern.lanes().for_each(|lane| ctx.pass_on_shared(block, pattern.address[lane], scope, Strong::Write));
    }
    ctx.blocks[block].shared.store(pattern, data);
}

/// Stores without a look at races: the asynchronous copies have their own.
pub(crate) fn write_untracked<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern, data: &Payload<W>) {
    for_each_block(ctx, pattern, Kind::Write, |ctx, block, pattern| ctx.blocks[block].shared.store(pattern, data));
    count(ctx, pattern, true);
}
