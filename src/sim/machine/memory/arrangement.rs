//! How the lanes of a warp lie to each other. In a loop they nearly always lie as they did the last time: what was worked
//! out then holds still.

use crate::sim::machine::memory::bundle::MAX_WORDS;
use crate::sim::machine::registers::{Class, LANES, Registers, Slot};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// The addresses of a load by all lanes, but for where it begins.
#[derive(Debug, Clone)]
pub(crate) struct Arrangement {
    /// Bytes of each lane from the first one, for addresses in either kind of register.
    pub relative: [u32; LANES],
    relative_wide: [u64; LANES],
    /// Bytes from the lowest lane to the first one, and to the end of the highest.
    pub first: u32,
    pub span: u32,
    pieces: Pieces,
}

/// As few pieces of the warp as its lanes make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pieces {
    Whole([Piece; 1]),
    Halves([Piece; 2]),
    Quarters([Piece; 4]),
    /// Lanes that lie in no such way.
    Lanes,
}

/// Lanes with the same address, or each with the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Piece {
    /// Words from the lowest address.
    word: u32,
    is_one: bool,
}

/// A word of one memory or the other.
pub(crate) trait Word {
    fn get(&self) -> u32;
}

impl Word for u32 {
    #[inline(always)]
    fn get(&self) -> u32 {
        *self
    }
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn get(&self) -> u32 {
        self.load(Relaxed)
    }
}

/// A load that goes with others.
pub(crate) trait Load {
    /// From the first of them.
    fn words_ahead(&self) -> isize;
    /// The register of each word.
    fn slots(&self) -> &[Option<u32>; MAX_WORDS];
}

impl Arrangement {
    /// `None` where lanes lie further apart than `max_span`, or a lane does not lie at a multiple of its bytes from the
    /// lowest.
    pub fn of(address: &[u64; LANES], bytes: u32, max_span: u32) -> Option<Self> {
        let lowest = *address.iter().min()?;
        let span = u32::try_from(address.iter().max()? - lowest).ok()?.checked_add(bytes)?;
        if span > max_span || address.iter().any(|at| !(at - lowest).is_multiple_of(u64::from(bytes))) {
            return None;
        }
        let relative_wide = address.map(|at| at.wrapping_sub(address[0]));
        Some(Arrangement {
            relative: relative_wide.map(|relative| relative as u32),
            relative_wide,
            first: (address[0] - lowest) as u32,
            span,
            pieces: Pieces::of(&address.map(|at| (at - lowest) as u32), bytes),
        })
    }

    /// Whether the addresses in a register lie so.
    #[inline(always)]
    pub fn holds(&self, registers: &Registers, base: Slot) -> bool {
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

    /// The lowest address, given the first.
    #[inline(always)]
    pub fn lowest(&self, first: u64) -> u64 {
        first.wrapping_sub(u64::from(self.first))
    }

    /// The addresses of all lanes, the lowest of which is given.
    pub fn from(&self, lowest: u64) -> [u64; LANES] {
        self.relative_wide.map(|relative| lowest.wrapping_add(u64::from(self.first)).wrapping_add(relative))
    }

    /// Puts the words of all lanes into their rows, for loads that lie in the same way; `lowest` is the word where the
    /// lowest lane of a load without an offset lies.
    #[inline(always)]
    pub fn copy<const W: usize>(
        &self,
        words: &[impl Word],
        lowest: usize,
        loads: &[impl Load],
        registers: &mut Registers,
    ) {
        match &self.pieces {
            Pieces::Whole(pieces) if pieces[0].is_one => {
                fill::<LANES, 1, 1, W>(pieces, words, lowest, loads, registers)
            }
            Pieces::Whole(pieces) => fill::<LANES, 1, 0, W>(pieces, words, lowest, loads, registers),
            Pieces::Halves(pieces) => match pieces.map(|piece| piece.is_one) {
                [false, false] => fill::<{ LANES / 2 }, 2, 0b00, W>(pieces, words, lowest, loads, registers),
                [true, false] => fill::<{ LANES / 2 }, 2, 0b01, W>(pieces, words, lowest, loads, registers),
                [false, true] => fill::<{ LANES / 2 }, 2, 0b10, W>(pieces, words, lowest, loads, registers),
                [true, true] => fill::<{ LANES / 2 }, 2, 0b11, W>(pieces, words, lowest, loads, registers),
            },
            Pieces::Quarters(pieces) => fill::<{ LANES / 4 }, 4, ANY, W>(pieces, words, lowest, loads, registers),
            Pieces::Lanes => {
                for load in loads {
                    for (word, slot) in load.slots()[..W].iter().enumerate() {
                        let Some(slot) = slot else { continue };
                        let source = &words[lowest.wrapping_add_signed(load.words_ahead()) + word..];
                        for (out, relative) in registers.words[*slot as usize].0.iter_mut().zip(&self.relative) {
                            *out = source[(relative.wrapping_add(self.first) / 4) as usize].get();
                        }
                    }
                }
            }
        }
    }
}

/// For pieces that are asked what they are.
const ANY: u32 = u32::MAX;

/// Fills the rows of loads, in `COUNT` pieces of `N` lanes; bits in `ONES` mark those that are one word.
#[inline(always)]
fn fill<const N: usize, const COUNT: usize, const ONES: u32, const W: usize>(
    pieces: &[Piece; COUNT],
    words: &[impl Word],
    lowest: usize,
    loads: &[impl Load],
    registers: &mut Registers,
) {
    for load in loads {
        let start = lowest.wrapping_add_signed(load.words_ahead());
        for (word, slot) in load.slots()[..W].iter().enumerate() {
            let Some(slot) = slot else { continue };
            let row = registers.words[*slot as usize].0.as_chunks_mut::<N>().0;
            for at in 0..COUNT {
                let source = &words[start + pieces[at].word as usize..];
                let is_one = if ONES == ANY { pieces[at].is_one } else { ONES >> at & 1 != 0 };
                if is_one {
                    row[at] = [source[word].get(); N];
                } else {
                    let source = &source[..N * W];
                    let mut taken = [0; N];
                    for (lane, taken) in taken.iter_mut().enumerate() {
                        *taken = source[lane * W + word].get();
                    }
                    row[at] = taken;
                }
            }
        }
    }
}

impl Pieces {
    fn of(above: &[u32; LANES], bytes: u32) -> Self {
        pieces::<LANES, 1>(above, bytes)
            .map(Pieces::Whole)
            .or_else(|| pieces::<{ LANES / 2 }, 2>(above, bytes).map(Pieces::Halves))
            .or_else(|| pieces::<{ LANES / 4 }, 4>(above, bytes).map(Pieces::Quarters))
            .unwrap_or(Pieces::Lanes)
    }
}

/// The warp in pieces of `N` lanes, if they lie so.
fn pieces<const N: usize, const COUNT: usize>(above: &[u32; LANES], bytes: u32) -> Option<[Piece; COUNT]> {
    let mut pieces = [Piece::default(); COUNT];
    for (piece, lanes) in pieces.iter_mut().zip(above.as_chunks::<N>().0) {
        let steps = |step: u32| lanes.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(step));
        let is_one = steps(0);
        if !is_one && !steps(bytes) {
            return None;
        }
        *piece = Piece { word: lanes[0] / 4, is_one };
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::machine::registers::Row;
    use rstest::rstest;

    fn one(word: u32) -> Piece {
        Piece { word, is_one: true }
    }

    fn line(word: u32) -> Piece {
        Piece { word, is_one: false }
    }

    #[rstest]
    #[case::one(|_| 64, 4, Pieces::Whole([one(0)]))]
    #[case::in_turn(|lane| 64 + 4 * lane, 4, Pieces::Whole([line(0)]))]
    #[case::twice_in_turn(|lane| lane % 16 * 16, 16, Pieces::Halves([line(0); 2]))]
    #[case::one_each_half(|lane| lane / 16 * 256, 16, Pieces::Halves([one(0), one(64)]))]
    #[case::one_and_others(|lane: u64| lane.max(16) * 4, 4, Pieces::Halves([one(0), line(0)]))]
    #[case::rows_of_eight(|lane| lane / 8 * 64 + lane % 8 * 4, 4, Pieces::Quarters([0, 16, 32, 48].map(line)))]
    #[case::backwards(|lane| 4 * (31 - lane), 4, Pieces::Lanes)]
    #[case::fours(|lane| lane / 4 * 4, 4, Pieces::Lanes)]
    fn pieces_are_found(#[case] place: fn(u64) -> u64, #[case] bytes: u32, #[case] expected: Pieces) {
        let address = std::array::from_fn(|lane| place(lane as u64));
        let found = Arrangement::of(&address, bytes, 4096).unwrap();
        assert_eq!(found.pieces, expected);
        assert_eq!(found.from(*address.iter().min().unwrap()), address);
        let registers = |address: [u64; LANES]| Registers {
            words: vec![Row(address.map(|at| at as u32)), Row::splat(0)],
            wides: vec![Row(address)],
            preds: Vec::new(),
        };
        let holds = |address: [u64; LANES]| {
            [Class::Word, Class::Wide].map(|class| found.holds(&registers(address), Slot { class, index: 0 }))
        };
        assert_eq!(holds(address.map(|at| at + 4096)), [true; 2]);
        assert_eq!(holds(std::array::from_fn(|lane| address[lane] + 4 * (lane as u64 / 31))), [false; 2]);

        let words: Vec<u32> = (0..found.span / 4).collect();
        let mut registers = registers(address);
        match bytes {
            4 => found.copy::<1>(&words, 0, &[ByOneWord], &mut registers),
            _ => found.copy::<4>(&words, 0, &[ByOneWord], &mut registers),
        }
        let lowest = *address.iter().min().unwrap();
        assert_eq!(*registers.word(1), address.map(|at| ((at - lowest) / 4) as u32));
    }

    struct ByOneWord;

    impl Load for ByOneWord {
        fn words_ahead(&self) -> isize {
            0
        }

        fn slots(&self) -> &[Option<u32>; MAX_WORDS] {
            &[Some(1), None, None, None, None, None, None, None]
        }
    }

    #[test]
    fn lanes_far_apart_are_left_to_others() {
        assert!(Arrangement::of(&std::array::from_fn(|lane| lane as u64 * 512), 4, 4096).is_none());
        assert!(Arrangement::of(&std::array::from_fn(|lane| lane as u64 * 6), 4, 4096).is_none());
    }
}
