//! Loads of shared memory whose lanes lie to each other as they lay the last time: nearly all loads of a loop. What was
//! worked out then holds still, so that bounds, counts and runs of neighbours cost nothing.

use super::shared::wavefronts_of_load;
use crate::sim::exec::Context;
use crate::sim::lanes::{Class, LANES, Registers, Slot};
use crate::sim::program::Access;

/// Runs of lanes that are copied as one; with more of them each lane goes by itself.
const MAX_RUNS: usize = 4;
/// Accesses that spread wider are looked at lane by lane.
const MAX_SPAN_BYTES: u32 = 4096;
/// Misses of an instruction after which it is left alone.
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

/// How the lanes of an instruction lay.
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
}

/// The arrangements by instruction.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    by_pc: Vec<(u32, Option<Box<Arrangement>>)>,
}

impl Repeats {
    pub fn new(instructions: usize) -> Self {
        Repeats { by_pc: vec![(0, None); instructions] }
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
        })
    }

    #[inline(always)]
    fn holds(&self, address: &[u32; LANES]) -> bool {
        let mut differ = 0;
        for (at, relative) in address.iter().zip(&self.relative) {
            differ |= at.wrapping_sub(address[0]) ^ relative;
        }
        differ == 0
    }

    #[inline(always)]
    fn holds_wide(&self, address: &[u64; LANES]) -> bool {
        let mut differ = 0;
        for (at, relative) in address.iter().zip(&self.relative_wide) {
            differ |= at.wrapping_sub(address[0]) ^ relative;
        }
        differ == 0
    }

    /// Puts the words of all lanes, which start at the lowest one, into their rows.
    #[inline(always)]
    fn copy<const W: usize>(&self, words: &[u32], registers: &mut Registers, access: &Access) {
        for (word, slot) in access.slots.iter().flatten().enumerate().take(W) {
            let row = &mut registers.words[slot.index as usize].0;
            if self.run_count == 0 {
                for (out, relative) in row.iter_mut().zip(&self.relative) {
                    *out = words[(relative.wrapping_add(self.first) / 4) as usize + word];
                }
            }
            for run in &self.runs[..self.run_count] {
                let target = &mut row[run.first_lane..run.first_lane + run.lanes];
                if run.is_one {
                    target.fill(words[run.word + word]);
                } else if W == 1 {
                    target.copy_from_slice(&words[run.word..run.word + run.lanes]);
                } else {
                    let source = words[run.word + word..].iter().step_by(W);
                    target.iter_mut().zip(source).for_each(|(out, value)| *out = *value);
                }
            }
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

/// Carries out a load of the whole warp if its lanes lie as before and nothing about it needs a closer look.
#[inline(always)]
pub(crate) fn load<const W: usize>(ctx: &mut Context<'_>, access: &Access) -> bool {
    let Some(base) = access.address.base else { return false };
    let bytes = 4 * W as u32;
    let registers = &ctx.warp.registers;
    let (misses, known) = &mut ctx.log.repeats.by_pc[ctx.pc as usize];
    let first = match base.class {
        Class::Wide => registers.wide(base.index)[0],
        _ => u64::from(registers.word(base.index)[0]),
    };
    let as_before = |known: &Arrangement| match base.class {
        Class::Wide => known.holds_wide(registers.wide(base.index)),
        _ => known.holds(registers.word(base.index)),
    };
    let Some(known) = known.as_deref().filter(|known| as_before(known)) else {
        if *misses < MAX_MISSES {
            *misses += 1;
            *known = narrow(registers, base).and_then(|address| Arrangement::of(&address, bytes)).map(Box::new);
        }
        return false;
    };
    // What wraps around lies outside, or is left to the slower way.
    let lowest = first.wrapping_sub(u64::from(known.first)).wrapping_add(access.address.offset as u64);
    let Ok(lowest) = u32::try_from(lowest) else { return false };
    let end = u64::from(lowest) + u64::from(known.span);
    let shared = &ctx.blocks[ctx.me].shared;
    let checks = &ctx.grid.options.checks;
    if end > u64::from(shared.bytes())
        || !lowest.is_multiple_of(bytes)
        || (checks.initialised && !shared.is_defined(u64::from(lowest), u64::from(known.span)))
    {
        return false;
    }
    let clock = &ctx.warp.race;
    let races = &mut ctx.blocks[ctx.me].races;
    let start = lowest.wrapping_add(known.first);
    if checks.races && !races.list_read(clock, ctx.pc, &known.relative, start, bytes, u64::from(lowest)..end) {
        return false;
    }
    let start = lowest as usize / 4;
    let words = &ctx.blocks[ctx.me].shared.words[start..end.div_ceil(4) as usize];
    known.copy::<W>(words, &mut ctx.warp.registers, access);
    let (units, ideal) = (known.units, known.ideal);
    ctx.log.counters.shared_reads.add(u64::from(bytes) * LANES as u64, units, ideal);
    ctx.count_wavefronts(units, ideal);
    true
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
        assert!(found.holds(&address.map(|at| at + 4096)));
        assert!(!found.holds(&std::array::from_fn(|lane| address[lane] + 4 * (lane as u32 / 31))));
    }

    #[test]
    fn lanes_far_apart_are_left_to_others() {
        assert!(Arrangement::of(&std::array::from_fn(|lane| lane as u32 * 512), 4).is_none());
        assert!(Arrangement::of(&std::array::from_fn(|lane| lane as u32 * 6), 4).is_none());
    }
}
