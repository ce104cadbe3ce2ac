//! Shared memory of one block: words, a bit a byte for what was written, bank conflicts.

use super::address::SHARED_RANK_SHIFT;
use super::allocation::for_each_map_word;
use super::global::{Kind, Payload, kind_name, sub_word};
use super::pattern::Pattern;
use crate::sim::exec::Context;
use crate::sim::lanes::LANES;
use crate::sim::ptx::types::Scope;
use crate::sim::race::Strong;
use crate::sim::report::Check;

const POISON: u32 = 0xA5A5_A5A5;
const OFFSET_MASK: u64 = (1 << SHARED_RANK_SHIFT) - 1;

/// The shared memory of a block.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    pub words: Vec<u32>,
    bytes: u32,
    defined: Vec<u32>,
}

impl SharedMemory {
    pub fn new(bytes: u32) -> Self {
        let words = vec![POISON; bytes.div_ceil(4) as usize];
        SharedMemory { words, bytes, defined: vec![0; bytes.div_ceil(32) as usize] }
    }

    /// As a new block finds it: nothing of the block before may show, or results would depend on the schedule.
    pub fn reset(&mut self) {
        self.words.fill(POISON);
        self.defined.fill(0);
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    pub fn define(&mut self, offset: u64, bytes: u64) {
        if (offset | bytes).is_multiple_of(32) {
            return self.defined[offset as usize / 32..][..bytes as usize / 32].fill(u32::MAX);
        }
        for_each_map_word(offset, bytes, |word, bits| self.defined[word] |= bits);
    }

    #[inline(always)]
    pub fn is_defined(&self, offset: u64, bytes: u64) -> bool {
        let mut all = true;
        for_each_map_word(offset, bytes, |word, bits| all &= self.defined[word] & bits == bits);
        all
    }

    /// Stores the lanes of a pattern that was checked.
    #[inline(always)]
    fn store<const W: usize>(&mut self, pattern: &Pattern, data: &Payload<W>) {
        let bytes = u64::from(pattern.bytes);
        if pattern.contiguous {
            self.define(pattern.lowest, pattern.highest - pattern.lowest + bytes);
        } else {
            for lane in pattern.lanes() {
                self.define(pattern.address[lane], bytes);
            }
        }
        if pattern.contiguous && pattern.mask == u32::MAX && pattern.bytes >= 4 {
            let start = (pattern.lowest / 4) as usize;
            let target = &mut self.words[start..start + LANES * W];
            for lane in 0..LANES {
                for word in 0..W {
                    target[lane * W + word] = data[word][lane];
                }
            }
            return;
        }
        for lane in pattern.lanes() {
            let offset = pattern.address[lane] as usize;
            match pattern.bytes {
                1 => self.write_byte(offset, data[0][lane] as u8),
                2 => {
                    self.write_byte(offset, data[0][lane] as u8);
                    self.write_byte(offset + 1, (data[0][lane] >> 8) as u8);
                }
                _ => {
                    let target = &mut self.words[offset / 4..offset / 4 + W];
                    for word in 0..W {
                        target[word] = data[word][lane];
                    }
                }
            }
        }
    }

    pub fn write_byte(&mut self, offset: usize, value: u8) {
        let shift = offset % 4 * 8;
        let word = &mut self.words[offset / 4];
        *word = (*word & !(0xFF << shift)) | u32::from(value) << shift;
    }
}

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
        let members = pattern
            .lanes()
            .filter(|&lane| pattern.address[lane] >> SHARED_RANK_SHIFT == group)
            .fold(0, |mask, lane| mask | 1 << lane);
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
    let mut valid = pattern.mask;
    for lane in pattern.lanes() {
        let (offset, bytes) = (pattern.address[lane], pattern.bytes);
        let problem = match size {
            None => Some((
                Check::OutOfBounds,
                format!("{} of {bytes} bytes in the shared memory of no block of the cluster", kind_name(kind)),
            )),
            Some(size) if offset + u64::from(bytes) > u64::from(size) => Some((
                Check::OutOfBounds,
                format!("{} of {bytes} bytes at offset {offset} of {size} bytes of shared memory", kind_name(kind)),
            )),
            _ if offset % u64::from(bytes) != 0 => Some((
                Check::Misaligned,
                format!("{} of {bytes} bytes at shared offset {offset}, no multiple of {bytes}", kind_name(kind)),
            )),
            _ => None,
        };
        if let Some((check, message)) = problem {
            ctx.report(check, lane, Some(offset), message);
            valid &= !(1 << lane);
        }
    }
    valid
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

/// Counts wavefronts.
#[inline(always)]
pub(crate) fn count(ctx: &mut Context<'_>, pattern: &Pattern, is_write: bool) {
    let bytes = u64::from(pattern.mask.count_ones() * pattern.bytes);
    let (units, ideal) = if pattern.highest >> SHARED_RANK_SHIFT == 0 {
        wavefronts_and_ideal(ctx, pattern, is_write)
    } else {
        // What goes to other blocks of the cluster takes another way than the banks of this one.
        let own = |rank: u64| rank == 0 || rank == ctx.me as u64 + 1;
        let here = pattern.lanes().filter(|lane| own(pattern.address[*lane] >> SHARED_RANK_SHIFT));
        match here.fold(0, |mask, lane| mask | 1 << lane) {
            0 => (0, 0),
            here => wavefronts_and_ideal(ctx, &pattern.restrict(here), is_write),
        }
    };
    let counters = &mut ctx.log.counters;
    if is_write { &mut counters.shared_writes } else { &mut counters.shared_reads }.add(bytes, units, ideal);
    ctx.count_wavefronts(units, ideal);
}

/// Wavefronts of an access, and how many it would have taken without conflicts.
#[inline(always)]
fn wavefronts_and_ideal(ctx: &mut Context<'_>, pattern: &Pattern, is_write: bool) -> (u64, u64) {
    if pattern.uniform && pattern.bytes <= if is_write { 4 } else { 8 } {
        (1, 1)
    } else if pattern.contiguous && pattern.lowest.is_multiple_of(128) {
        let ideal = u64::from(pattern.mask.count_ones() * pattern.bytes).div_ceil(128);
        (ideal, ideal)
    } else {
        ctx.log.wavefronts.get(ctx.pc, pattern, is_write)
    }
}

/// Patterns that are remembered of an instruction.
const PATTERNS: usize = 4;

/// Remembers the conflicts of the last address patterns of each instruction: patterns repeat, counting is slow.
#[derive(Debug, Default)]
pub(crate) struct WavefrontMemo {
    by_pc: Vec<Vec<Conflicts>>,
    misses: usize,
}

/// A pattern of addresses, and the wavefronts that it takes and would take without conflicts.
type Conflicts = (Relative, (u64, u64));

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Relative {
    offset: [u32; LANES],
    mask: u32,
}

impl WavefrontMemo {
    pub fn new(instructions: usize) -> Self {
        WavefrontMemo { by_pc: vec![Vec::new(); instructions], misses: 0 }
    }

    fn get(&mut self, pc: u32, pattern: &Pattern, is_write: bool) -> (u64, u64) {
        // Shifting all lanes by whole words turns the banks and changes no conflict.
        let base = pattern.lowest & !3;
        let relative =
            Relative { offset: pattern.address.map(|address| address.wrapping_sub(base) as u32), mask: pattern.mask };
        let known = &mut self.by_pc[pc as usize];
        if let Some((_, units)) = known.iter().find(|(before, _)| *before == relative) {
            return *units;
        }
        let units = wavefronts(&relative, pattern.bytes, is_write);
        self.misses += 1;
        if known.len() < PATTERNS {
            known.push((relative, units));
        } else {
            known[self.misses % PATTERNS] = (relative, units);
        }
        units
    }
}

/// Wavefronts of a request, and the parts that it is cut into. 8-byte accesses go in halves of the warp, 16-byte ones in
/// quarters; of a load, two parts go together if in the whole warp neighbours share their addresses.
fn wavefronts(relative: &Relative, bytes: u32, is_write: bool) -> (u64, u64) {
    let words = bytes.div_ceil(4);
    let apart = match words {
        1 => LANES,
        2 => LANES / 2,
        _ => LANES / 4,
    };
    let part = if words > 1 && !is_write && neighbours_agree(relative) { 2 * apart } else { apart };
    let each = (0..LANES).step_by(part).map(|start| wavefronts_of_part(relative, words, start..start + part));
    // A part without active lanes takes none.
    each.fold((0, 0), |(units, parts), of_part| (units + of_part, parts + of_part.min(1)))
}

/// The same of a load by all lanes.
pub(super) fn wavefronts_of_load(address: &[u32; LANES], bytes: u32) -> (u64, u64) {
    wavefronts(&Relative { offset: *address, mask: u32::MAX }, bytes, false)
}

/// Whether each active lane has the address of the next one, or each that of the one after it, as far as those are
/// active.
fn neighbours_agree(relative: &Relative) -> bool {
    [1, 2].into_iter().any(|distance| {
        (0..LANES).all(|lane| {
            let other = lane ^ distance;
            let both = relative.mask >> lane & relative.mask >> other & 1 != 0;
            !both || relative.offset[lane] == relative.offset[other]
        })
    })
}

/// Most words that a part reads.
const PART_WORDS: usize = 64;

/// Within a part, the bank with the most distinct words decides.
fn wavefronts_of_part(relative: &Relative, words: u32, lanes: std::ops::Range<usize>) -> u64 {
    // The words of a bank are a chain: the newest of each bank, and the one before each word, as numbers from 1.
    let (mut newest, mut before, mut seen) = ([0u8; 32], [0u8; PART_WORDS + 1], [0u32; PART_WORDS + 1]);
    let (mut depth, mut most, mut count) = ([0u8; 32], 0, 0);
    for lane in lanes.filter(|lane| relative.mask >> lane & 1 != 0) {
        for word in (0..words.min(4)).map(|word| relative.offset[lane] / 4 + word) {
            let bank = word as usize % 32;
            let mut at = newest[bank];
            while at != 0 && seen[usize::from(at)] != word {
                at = before[usize::from(at)];
            }
            if at == 0 {
                count += 1;
                (seen[count], before[count], newest[bank]) = (word, newest[bank], count as u8);
                depth[bank] += 1;
                most = depth[bank].max(most);
            }
        }
    }
    u64::from(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(4, 4, 1)]
    #[case(8, 4, 2)]
    #[case(128, 4, 32)]
    #[case(132, 4, 1)]
    #[case(0, 4, 1)]
    #[case(16, 16, 4)]
    #[case(32, 16, 8)]
    #[case(8, 8, 2)]
    fn bank_conflicts(#[case] stride: u32, #[case] bytes: u32, #[case] expected: u64) {
        let relative = Relative { offset: std::array::from_fn(|lane| lane as u32 * stride), mask: u32::MAX };
        assert_eq!(wavefronts(&relative, bytes, false).0, expected);
    }

    #[rstest]
    #[case::pairs(|lane| lane / 2, 16, 2)]
    #[case::lanes_two_apart(|lane| lane & !2, 16, 4)]
    #[case::lanes_four_apart(|lane| lane & !4, 16, 4)]
    #[case::half_warps(|lane| lane / 16, 16, 2)]
    #[case::pairs_of_eight_bytes(|lane| lane / 2, 8, 1)]
    #[case::half_warps_of_eight_bytes(|lane| lane % 16, 8, 2)]
    #[case::pairs_in_one_half(|lane| if lane < 16 { lane / 2 } else { lane }, 16, 4)]
    fn lanes_that_share_addresses(#[case] place: fn(u32) -> u32, #[case] bytes: u32, #[case] expected: u64) {
        let relative = Relative { offset: std::array::from_fn(|lane| place(lane as u32) * bytes), mask: u32::MAX };
        assert_eq!(wavefronts(&relative, bytes, false).0, expected);
    }

    #[test]
    fn stores_never_go_together() {
        let relative = Relative { offset: [0; LANES], mask: u32::MAX };
        assert_eq!([4, 8, 16].map(|bytes| wavefronts(&relative, bytes, true)), [(1, 1), (2, 2), (4, 4)]);
        assert_eq!([4, 8, 16].map(|bytes| wavefronts(&relative, bytes, false)), [(1, 1), (1, 1), (2, 2)]);
    }

    #[test]
    fn a_reset_forgets_what_was_written() {
        let mut shared = SharedMemory::new(40);
        shared.write_byte(33, 7);
        shared.define(33, 1);
        assert!(shared.is_defined(33, 1) && shared.words[8] >> 8 & 0xFF == 7);
        shared.reset();
        assert!(!shared.is_defined(33, 1));
    }
}
