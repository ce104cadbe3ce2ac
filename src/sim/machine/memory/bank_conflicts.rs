//! How many wavefronts an access to shared memory takes, by its bank conflicts, and would take without.

use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::registers::LANES;

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

    pub fn get(&mut self, pc: u32, pattern: &Pattern, is_write: bool) -> (u64, u64) {
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
pub(crate) fn wavefronts_of_load(address: &[u32; LANES], bytes: u32) -> (u64, u64) {
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
}
