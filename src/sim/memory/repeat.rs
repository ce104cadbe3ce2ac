//! Loads of shared memory whose lanes lie to each other as they lay the last time: nearly all loads of a loop. What was
//! worked out then holds still, so that bounds, counts and runs of neighbours cost nothing; and what the first load of a
//! bundle finds holds for the others.

use super::shared::wavefronts_of_load;
use crate::sim::exec::{Context, Outcome};
use crate::sim::lanes::{Class, LANES, Registers, Slot};
use crate::sim::metrics::Counters;
use crate::sim::program::{ActionFn, Bundle, BundledLoad, Instr, MAX_WORDS};
use crate::sim::tier::{Tiers, tiers};

/// Runs of lanes that are copied as one; with more of them each lane goes by itself.
const MAX_RUNS: usize = 4;
/// Accesses that spread wider are looked at lane by lane.
const MAX_SPAN_BYTES: u32 = 4096;
/// Misses of a bundle after which it is left alone.
const MAX_MISSES: u32 = 64;

/// Neighbouring lanes with the same address, or each with the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    first_lane: usize,
    lanes: usize,
    /// Words from the lowest address.
    word: usize,
    is_one: bool,
}

/// How the lanes of a load lay.
#[derive(Debug, Clone)]
struct Arrangement {
    /// Bytes of each lane from the first one, for addresses in either kind of register.
    relative: [u32; LANES],
    relative_wide: [u64; LANES],
    /// Bytes from the lowest lane to the first one, and to the end of the highest.
    first: u32,
    span: u32,
    runs: [Run; MAX_RUNS],
    /// 0 where there are too many.
    run_count: usize,
    units: u64,
    ideal: u64,
    /// How often a bundle was carried out that way.
    times: u64,
}

/// What is known of a bundle.
#[derive(Debug, Clone, Default)]
struct Known {
    misses: u32,
    arrangement: Option<Box<Arrangement>>,
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

    /// Adds what is not counted yet.
    pub fn settle(&mut self, bundles: &[Bundle], counters: &mut Counters) {
        for (known, bundle) in self.by_bundle.iter_mut().zip(bundles) {
            if let Some(arrangement) = &mut known.arrangement {
                arrangement.settle(bundle, counters);
            }
        }
    }
}

impl Arrangement {
    /// `None` where lanes lie too far apart, or a lane does not lie at a multiple of its bytes from the first.
    fn of(address: &[u32; LANES], bytes: u32) -> Option<Arrangement> {
        let lowest = *address.iter().min()?;
        let span = (*address.iter().max()? - lowest).checked_add(bytes)?;
        if span > MAX_SPAN_BYTES || address.iter().any(|at| (at - lowest) % bytes != 0) {
            return None;
        }
        let (runs, run_count) = runs(address, lowest, bytes);
        let (units, ideal) = wavefronts_of_load(address, bytes);
        Some(Arrangement {
            relative: address.map(|at| at.wrapping_sub(address[0])),
            relative_wide: address.map(|at| u64::from(at).wrapping_sub(u64::from(address[0]))),
            first: address[0] - lowest,
            span,
            runs,
            run_count,
            units,
            ideal,
            times: 0,
        })
    }

    #[inline(always)]
    fn holds(&self, registers: &Registers, base: Slot) -> bool {
        match base.class {
            Class::Wide => {
                let address = registers.wide(base.index);
                let mut differ = 0;
                for (at, relative) in address.iter().zip(&self.relative_wide) {
                    differ |= at.wrapping_sub(address[0]) ^ relative;
                }
                differ == 0
            }
            _ => {
                let address = registers.word(base.index);
                let mut differ = 0;
                for (at, relative) in address.iter().zip(&self.relative) {
                    differ |= at.wrapping_sub(address[0]) ^ relative;
                }
                differ == 0
            }
        }
    }

    /// Puts the words of all lanes, which start at the lowest one, into their rows.
    #[inline(always)]
    fn copy<const W: usize>(&self, words: &[u32], registers: &mut Registers, slots: &[Option<u32>; MAX_WORDS]) {
        for word in 0..W {
            let Some(slot) = slots[word] else { continue };
            let row = &mut registers.words[slot as usize].0;
            if self.run_count == 0 {
                for (out, relative) in row.iter_mut().zip(&self.relative) {
                    *out = words[(relative.wrapping_add(self.first) / 4) as usize + word];
                }
            }
            for run in &self.runs[..self.run_count] {
                let source = &words[run.word + word..];
                match run.lanes {
                    LANES => run.copy::<LANES, W>(source, row),
                    16 => run.copy::<16, W>(source, row),
                    8 => run.copy::<8, W>(source, row),
                    lanes => {
                        let step = if run.is_one { 0 } else { W };
                        let target = row[run.first_lane..run.first_lane + lanes].iter_mut();
                        target.enumerate().for_each(|(lane, out)| *out = source[lane * step]);
                    }
                }
            }
        }
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

impl Run {
    /// The copy of a run whose length is known when this is compiled.
    #[inline(always)]
    fn copy<const N: usize, const W: usize>(&self, source: &[u32], row: &mut [u32; LANES]) {
        let Some((target, _)) = row[self.first_lane..].split_first_chunk_mut::<N>() else { return };
        if self.is_one {
            *target = [source[0]; N];
        } else {
            let source = &source[..(N - 1) * W + 1];
            *target = std::array::from_fn(|lane| source[lane * W]);
        }
    }
}

fn runs(address: &[u32; LANES], lowest: u32, bytes: u32) -> ([Run; MAX_RUNS], usize) {
    let mut runs = [Run::default(); MAX_RUNS];
    let mut count = 0;
    let mut lane = 0;
    while lane < LANES {
        if count == MAX_RUNS {
            return (runs, 0);
        }
        let step = match address.get(lane + 1) {
            Some(next) if *next == address[lane] => 0,
            _ => bytes,
        };
        let goes_on = |at: &usize| address[*at] == address[*at - 1].wrapping_add(step);
        let lanes = 1 + (lane + 1..LANES).take_while(goes_on).count();
        let word = ((address[lane] - lowest) / 4) as usize;
        runs[count] = Run { first_lane: lane, lanes, word, is_one: step == 0 };
        (count, lane) = (count + 1, lane + lanes);
    }
    (runs, count)
}

/// The addresses in a register, where they fit into 32 bits.
fn narrow(registers: &Registers, base: Slot) -> Option<[u32; LANES]> {
    if base.class != Class::Wide {
        return Some(*registers.word(base.index));
    }
    let wide = registers.wide(base.index);
    wide.iter().all(|address| *address <= u64::from(u32::MAX)).then(|| wide.map(|address| address as u32))
}

/// The handler of a load that is part of a bundle. It is small: what else a load may have to do is the handler of any load.
pub(crate) fn handler(bytes: u32) -> Option<Tiers<ActionFn>> {
    Some(match bytes {
        4 => tiers!(load::<1>: fn(c: &mut Context<'_>, i: &Instr, m: u32) -> Outcome),
        8 => tiers!(load::<2>: fn(c: &mut Context<'_>, i: &Instr, m: u32) -> Outcome),
        16 => tiers!(load::<4>: fn(c: &mut Context<'_>, i: &Instr, m: u32) -> Outcome),
        32 => tiers!(load::<8>: fn(c: &mut Context<'_>, i: &Instr, m: u32) -> Outcome),
        _ => return None,
    })
}

#[inline(always)]
fn load<const W: usize>(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let program = ctx.grid.program;
    let bundled = &program.bundled_loads[instr.a as usize];
    if mask == u32::MAX && (!bundled.place.leads || lead(ctx, instr, bundled)) && follow::<W>(ctx, bundled) {
        return Outcome::Next;
    }
    (bundled.otherwise)(ctx, instr, mask)
}

/// Carries out a load of the whole warp if the first of its bundle has been, in this turn.
#[inline(always)]
fn follow<const W: usize>(ctx: &mut Context<'_>, bundled: &BundledLoad) -> bool {
    let repeats = &ctx.log.repeats;
    let known = &repeats.by_bundle[bundled.place.bundle as usize];
    if known.turn != repeats.turn {
        return false;
    }
    let Some(arrangement) = &known.arrangement else { return false };
    let start = known.lowest.wrapping_add_signed(bundled.place.ahead);
    let end = start + arrangement.span;
    let words = &ctx.blocks[ctx.me].shared.words[start as usize / 4..end.div_ceil(4) as usize];
    arrangement.copy::<W>(words, &mut ctx.warp.registers, &bundled.slots);
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
    let holds = match &known.arrangement {
        Some(arrangement) => arrangement.holds(registers, base),
        None => false,
    };
    let Some(arrangement) = known.arrangement.as_deref_mut() else {
        return learn(ctx, bundle, bundled.place.bundle, base);
    };
    if !holds {
        return learn(ctx, bundle, bundled.place.bundle, base);
    }
    let first = match base.class {
        Class::Wide => registers.wide(base.index)[0],
        _ => u64::from(registers.word(base.index)[0]),
    };
    // What wraps around lies outside, or is left to the slower way.
    let lowest = first.wrapping_sub(u64::from(arrangement.first)).wrapping_add(access.address.offset as u64);
    let Ok(lowest) = u32::try_from(lowest) else { return false };
    let Some(start) = lowest.checked_add_signed(bundle.low) else { return false };
    let span = u64::from(bundle.high.abs_diff(bundle.low)) + u64::from(arrangement.span);
    let end = u64::from(start) + span;
    let shared = &ctx.blocks[ctx.me].shared;
    let checks = &ctx.grid.options.checks;
    if end > u64::from(shared.bytes()) || !lowest.is_multiple_of(bundle.bytes) {
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
    arrangement.times += 1;
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
    if let Some(before) = &mut known.arrangement {
        before.settle(bundle, &mut ctx.log.counters);
    }
    let address = narrow(&ctx.warp.registers, base);
    known.arrangement = address.and_then(|address| Arrangement::of(&address, bundle.bytes)).map(Box::new);
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::one(|_| 64, 4, &[(0, 32, true)])]
    #[case::in_turn(|lane| 64 + 4 * lane, 4, &[(0, 32, false)])]
    #[case::twice_in_turn(|lane| lane % 16 * 16, 16, &[(0, 16, false), (16, 16, false)])]
    #[case::one_each_half(|lane| lane / 16 * 256, 16, &[(0, 16, true), (16, 16, true)])]
    #[case::backwards(|lane| 4 * (31 - lane), 4, &[])]
    fn runs_are_found(#[case] place: fn(u32) -> u32, #[case] bytes: u32, #[case] expected: &[(usize, usize, bool)]) {
        let address = std::array::from_fn(|lane| place(lane as u32));
        let found = Arrangement::of(&address, bytes).unwrap();
        let runs: Vec<_> =
            found.runs[..found.run_count].iter().map(|run| (run.first_lane, run.lanes, run.is_one)).collect();
        assert_eq!(runs, expected);
        let holds = |address: [u32; LANES]| {
            let slot = |class| Slot { class, index: 0 };
            let registers = Registers {
                words: vec![crate::sim::lanes::Row(address)],
                wides: vec![crate::sim::lanes::Row(address.map(u64::from))],
                preds: Vec::new(),
            };
            [Class::Word, Class::Wide].map(|class| found.holds(&registers, slot(class)))
        };
        assert_eq!(holds(address.map(|at| at + 4096)), [true; 2]);
        assert_eq!(holds(std::array::from_fn(|lane| address[lane] + 4 * (lane as u32 / 31))), [false; 2]);
    }

    #[test]
    fn lanes_far_apart_are_left_to_others() {
        assert!(Arrangement::of(&std::array::from_fn(|lane| lane as u32 * 512), 4).is_none());
        assert!(Arrangement::of(&std::array::from_fn(|lane| lane as u32 * 6), 4).is_none());
    }
}
