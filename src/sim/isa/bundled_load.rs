//! Loads of shared memory whose lanes lie to each other as they lay the last time: nearly all loads of a loop. What was
//! worked out then holds still, so that bounds, counts and runs of neighbours cost nothing; and what the first load of a
//! bundle finds holds for the others.

use crate::sim::ir::program::{ActionFn, BundledLoad, Instr, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::arrangement::Load;
use crate::sim::machine::memory::bundle::{Bundle, MAX_WORDS};
use crate::sim::machine::memory::repeats::{NEVER, Repeated};
use crate::sim::machine::registers::{Class, LANES, Registers, Slot};
use crate::sim::tier::{Tiers, tiers};

/// Misses of a bundle after which it is left alone.
const MAX_MISSES: u32 = 64;

/// The addresses in a register, where they fit into 32 bits.
fn narrow(registers: &Registers, base: Slot) -> Option<[u64; LANES]> {
    if base.class != Class::Wide {
        return Some(registers.word(base.index).map(u64::from));
    }
    let wide = registers.wide(base.index);
    wide.iter().all(|address| *address <= u64::from(u32::MAX)).then_some(*wide)
}

impl Load for BundledLoad {
    #[inline(always)]
    fn words_ahead(&self) -> isize {
        self.place.ahead as isize >> 2
    }

    #[inline(always)]
    fn slots(&self) -> &[Option<u32>; MAX_WORDS] {
        &self.slots
    }
}

/// The handlers of the first load of a bundle and of the others. The latter is small; what else a load may have to do is
/// the handler of any load.
pub(crate) struct OfBundle {
    pub leader: Tiers<ActionFn>,
    pub follower: Tiers<ActionFn>,
}

macro_rules! of_bundle {
    ($words:literal) => {
        OfBundle {
            leader: tiers!(load_first::<$words>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
            follower: tiers!(load_next::<$words>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        }
    };
}

/// Those of loads of so many bytes a lane.
pub(crate) fn handlers(bytes: u32) -> Option<OfBundle> {
    Some(match bytes {
        4 => of_bundle!(1),
        8 => of_bundle!(2),
        16 => of_bundle!(4),
        32 => of_bundle!(8),
        _ => return None,
    })
}

#[inline(always)]
fn load_first<const W: usize>(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let loads = &program.bundled_loads[instr.a as usize..];
    let together = program.bundles[loads[0].place.bundle as usize].together;
    if mask == u32::MAX && lead(ctx, program, instr, &loads[0]) && carry_out::<W>(ctx, &loads[..together as usize]) {
        return if together == 1 { Outcome::Next } else { Outcome::Past(together - 1) };
    }
    // What an earlier round of a loop found holds for none of this one.
    ctx.log.repeats.by_bundle[loads[0].place.bundle as usize].turn = NEVER;
    (loads[0].otherwise)(ctx, program, instr, mask)
}

#[inline(always)]
fn load_next<const W: usize>(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let load = &program.bundled_loads[instr.a as usize];
    if mask == u32::MAX && carry_out::<W>(ctx, std::slice::from_ref(load)) {
        return Outcome::Next;
    }
    (load.otherwise)(ctx, program, instr, mask)
}

/// Carries out loads of a bundle by the whole warp, if its first one has been looked at in this turn.
#[inline(always)]
fn carry_out<const W: usize>(ctx: &mut Context<'_>, loads: &[BundledLoad]) -> bool {
    let repeats = &ctx.log.repeats;
    let known = &repeats.by_bundle[loads[0].place.bundle as usize];
    let Some(repeated) = known.repeated.as_ref().filter(|_| known.turn == repeats.turn) else { return false };
    let words = &ctx.blocks[ctx.me].shared.words;
    repeated.arrangement.copy::<W>(words, known.lowest as usize / 4, loads, &mut ctx.warp.registers);
    true
}

/// Looks at the whole bundle before its first load: whether the lanes lie as before, and nothing needs a closer look.
#[inline(always)]
fn lead(ctx: &mut Context<'_>, program: &Program, instr: &Instr, bundled: &BundledLoad) -> bool {
    let access = &program.accesses[instr.x as usize];
    let Some(base) = access.address.base else { return false };
    let bundle = &program.bundles[bundled.place.bundle as usize];
    let registers = &ctx.warp.registers;
    let known = &mut ctx.log.repeats.by_bundle[bundled.place.bundle as usize];
    let Some(repeated) = known.repeated.as_deref_mut() else {
        return learn(ctx, bundle, bundled.place.bundle, base);
    };
    let arrangement = &repeated.arrangement;
    if !arrangement.holds(registers, base) {
        return learn(ctx, bundle, bundled.place.bundle, base);
    }
    let first = match base.class {
        Class::Wide => registers.wide(base.index)[0],
        _ => u64::from(registers.word(base.index)[0]),
    };
    // What wraps around lies outside, or is left to the slower way.
    let lowest = arrangement.lowest(first).wrapping_add(access.address.offset as u64);
    let Ok(lowest) = u32::try_from(lowest) else { return false };
    let Some(start) = lowest.checked_add_signed(bundle.low) else { return false };
    let span = u64::from(bundle.high.abs_diff(bundle.low)) + u64::from(arrangement.span);
    let end = u64::from(start) + span;
    let shared = &ctx.blocks[ctx.me].shared;
    let checks = &ctx.grid.options.checks;
    if end > u64::from(shared.bytes()) || lowest & (bundle.bytes - 1) != 0 {
        return false;
    }
    // A bundle may leave gaps that nobody has written.
    let of_member = |ahead: i32| u64::from(lowest.wrapping_add_signed(ahead));
    if checks.initialised
        && !shared.is_defined(u64::from(start), span)
        && !bundle.members.iter().all(|member| shared.is_defined(of_member(member.ahead), arrangement.span.into()))
    {
        return false;
    }
    let races = &mut ctx.blocks[ctx.me].races;
    let first = lowest.wrapping_add(arrangement.first);
    if checks.races
        && !races.list_bundle(&ctx.warp.race, bundled.place.bundle, &arrangement.relative, first, u64::from(start)..end)
    {
        return false;
    }
    repeated.times += 1;
    (known.turn, known.lowest) = (ctx.log.repeats.turn, lowest);
    true
}

/// Remembers how the lanes lie now; this time the load goes the slower way.
#[cold]
fn learn(ctx: &mut Context<'_>, bundle: &Bundle, at: u32, base: Slot) -> bool {
    let known = &mut ctx.log.repeats.by_bundle[at as usize];
    if known.misses == MAX_MISSES {
        return false;
    }
    known.misses += 1;
    if let Some(before) = &mut known.repeated {
        before.settle(bundle, &mut ctx.log.counters);
    }
    let address = narrow(&ctx.warp.registers, base);
    known.repeated = address.and_then(|address| Repeated::of(&address, bundle.bytes)).map(Box::new);
    false
}
