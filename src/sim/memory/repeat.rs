//! Loads of shared memory whose lanes lie to each other as they lay the last time: nearly all loads of a loop. What was
//! worked out then holds still, so that bounds, counts and runs of neighbours cost nothing; and what the first load of a
//! bundle finds holds for the others.

use super::arrangement::{Arrangement, Load};
use super::wavefronts::wavefronts_of_load;
use crate::sim::exec::{Context, Outcome};
use crate::sim::lanes::{Class, LANES, Registers, Slot};
use crate::sim::metrics::Counters;
use crate::sim::program::{ActionFn, Bundle, BundledLoad, Instr, MAX_WORDS};
use crate::sim::tier::{Tiers, tiers};

/// Accesses that spread wider are looked at lane by lane.
const MAX_SPAN_BYTES: u32 = 4096;
/// Misses of a bundle after which it is left alone.
const MAX_MISSES: u32 = 64;

/// How the lanes of the loads of a bundle lay.
#[derive(Debug, Clone)]
struct Repeated {
    arrangement: Arrangement,
    units: u64,
    ideal: u64,
    /// How often a bundle was carried out that way.
    times: u64,
}

/// What is known of a bundle.
#[derive(Debug, Clone, Default)]
struct Known {
    misses: u32,
    repeated: Option<Box<Repeated>>,
    /// The turn in which its first load was carried out, and the lowest address of that load.
    turn: u64,
    lowest: u32,
}

/// The arrangements by bundle.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    by_bundle: Vec<Known>,
    /// Stretches of code so far in which nothing but the running lanes came to act.
    turn: u64,
}

impl Repeats {
    pub fn new(bundles: usize) -> Self {
        Repeats { by_bundle: vec![Known::default(); bundles], turn: 0 }
    }

    /// Others may have acted: what the first loads of bundles found holds no longer.
    #[inline(always)]
    pub fn next_turn(&mut self) {
        self.turn += 1;
    }

    #[inline(always)]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Adds what is not counted yet.
    pub fn settle(&mut self, bundles: &[Bundle], counters: &mut Counters) {
        for (known, bundle) in self.by_bundle.iter_mut().zip(bundles) {
            if let Some(repeated) = &mut known.repeated {
                repeated.settle(bundle, counters);
            }
        }
    }
}

impl Repeated {
    /// `None` where lanes lie too far apart.
    fn of(address: &[u64; LANES], bytes: u32) -> Option<Self> {
        let arrangement = Arrangement::of(address, bytes, MAX_SPAN_BYTES)?;
        let (units, ideal) = wavefronts_of_load(&address.map(|at| at as u32), bytes);
        Some(Repeated { arrangement, units, ideal, times: 0 })
    }

    /// Counts the loads of the bundle that were carried out that way.
    fn settle(&mut self, bundle: &Bundle, counters: &mut Counters) {
        let times = std::mem::take(&mut self.times);
        let bytes = u64::from(bundle.bytes) * LANES as u64;
        for member in &bundle.members {
            counters.shared_reads.add_often(times, bytes, self.units, self.ideal);
            let count = &mut counters.by_pc[member.pc as usize];
            count.wavefronts += times * self.units;
            count.bank_conflicts += times * (self.units - self.ideal);
        }
    }
}

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
            leader: tiers!(load_first::<$words>: fn(c: &mut Context<'_>, i: &Instr, m: u32) -> Outcome),
            follower: tiers!(load_next::<$words>: fn(c: &mut Context<'_>, i: &Instr, m: u32) -> Outcome),
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
fn load_first<const W: usize>(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let program = ctx.grid.program;
    let loads = &program.bundled_loads[instr.a as usize..];
    let together = program.bundles[loads[0].place.bundle as usize].together;
    if mask == u32::MAX && lead(ctx, instr, &loads[0]) && carry_out::<W>(ctx, &loads[..together as usize]) {
        return if together == 1 { Outcome::Next } else { Outcome::Past(together - 1) };
    }
    (loads[0].otherwise)(ctx, instr, mask)
}

#[inline(always)]
fn load_next<const W: usize>(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let program = ctx.grid.program;
    let load = &program.bundled_loads[instr.a as usize];
    if mask == u32::MAX && carry_out::<W>(ctx, std::slice::from_ref(load)) {
        return Outcome::Next;
    }
    (load.otherwise)(ctx, instr, mask)
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
fn lead(ctx: &mut Context<'_>, instr: &Instr, bundled: &BundledLoad) -> bool {
    let program = ctx.grid.program;
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
