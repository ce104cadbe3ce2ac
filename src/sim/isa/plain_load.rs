//! Loads of words from global memory whose lanes lie to each other as they lay the last time. Where nobody writes what
//! they read, there is little to do but to find the allocation and to copy.

use crate::sim::ir::program::{ActionFn, Instr, PlainLoad, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::allocation::Allocation;
use crate::sim::machine::memory::arrangement::Load;
use crate::sim::machine::memory::bundle::MAX_WORDS;
use crate::sim::machine::memory::repeats_global::{Repeated, SECTOR_BYTES};
use crate::sim::machine::registers::{Class, LANES, Slot};
use crate::sim::tier::{Tiers, tiers};

/// Of a wider one it is not asked whether all of it is initialised.
const MAX_SPAN_TO_LOOK_AT: u64 = 4096;

/// Misses of a load after which it is left alone.
const MAX_MISSES: u32 = 64;

impl Load for PlainLoad {
    #[inline(always)]
    fn words_ahead(&self) -> isize {
        0
    }

    #[inline(always)]
    fn slots(&self) -> &[Option<u32>; MAX_WORDS] {
        &self.slots
    }
}

/// The handler of such a load. What else a load may have to do is the handler of any load.
pub(crate) fn handler(bytes: u32) -> Option<Tiers<ActionFn>> {
    Some(match bytes {
        4 => tiers!(load::<1>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        8 => tiers!(load::<2>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        16 => tiers!(load::<4>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        _ => return None,
    })
}

#[inline(always)]
fn load<const W: usize>(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let plain = &program.plain_loads[instr.a as usize];
    if mask == u32::MAX && repeat::<W>(ctx, instr, plain) {
        return Outcome::Next;
    }
    (plain.otherwise)(ctx, program, instr, mask)
}

#[inline(always)]
fn repeat<const W: usize>(ctx: &mut Context<'_>, instr: &Instr, plain: &PlainLoad) -> bool {
    let bytes = 4 * W as u32;
    let base = Slot { class: Class::Wide, index: plain.base };
    let Some(repeated) = ctx.log.global_loads[instr.a as usize].repeated.as_deref() else {
        return learn(ctx, instr, plain, bytes);
    };
    let arrangement = &repeated.arrangement;
    if !arrangement.holds(&ctx.warp.registers, base) {
        return learn(ctx, instr, plain, bytes);
    }
    let lowest = arrangement.lowest(ctx.warp.registers.wide(plain.base)[0].wrapping_add(plain.offset as u64));
    let (start, span) = (lowest & OFFSET_MASK, u64::from(arrangement.span));
    let Some((number, allocation)) = ctx.grid.memory.find(lowest) else { return false };
    if start + span > allocation.bytes()
        || !allocation.is_live()
        || lowest & u64::from(bytes - 1) != 0
        || ctx.grid.races.watches(number)
        || (ctx.grid.options.checks.initialised && !is_defined(allocation, start, span))
    {
        return false;
    }
    let first = start as usize / 4;
    arrangement.copy::<W>(allocation.words(), first, std::slice::from_ref(plain), &mut ctx.warp.registers);
    let (sectors, ideal) = repeated.sectors[start as usize % SECTOR_BYTES / 4];
    ctx.log.counters.global_reads.add(u64::from(bytes) * LANES as u64, sectors, ideal);
    ctx.count_sectors(sectors, ideal);
    true
}

/// Whether all that a load reaches over is known to be initialised.
#[inline(always)]
fn is_defined(allocation: &Allocation, start: u64, span: u64) -> bool {
    !allocation.tracks_definition() || (span <= MAX_SPAN_TO_LOOK_AT && allocation.is_defined(start, span))
}

/// Remembers how the lanes lie now; this time the load goes the slower way.
#[cold]
fn learn(ctx: &mut Context<'_>, instr: &Instr, plain: &PlainLoad, bytes: u32) -> bool {
    let known = &mut ctx.log.global_loads[instr.a as usize];
    if known.misses < MAX_MISSES {
        known.misses += 1;
        known.repeated = Repeated::of(ctx.warp.registers.wide(plain.base), bytes).map(Box::new);
    }
    false
}
