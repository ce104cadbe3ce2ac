//! What the operations are tried on: corners in all combinations, then random bits.

use super::operations::{Kind, Operation};
use kernelgate::core::seed::{Rng, below, derive, rng};

/// A tuple of up to four operands, as 64-bit words.
pub const WORDS: usize = 4;
/// Most combinations of corners.
const MOST_CORNERS: usize = 3000;
const RANDOM: usize = 1096;

const SINGLES: [u32; 40] = [
    0,
    0x8000_0000,
    0x3F80_0000,
    0xBF80_0000,
    0x7F80_0000,
    0xFF80_0000,
    0x7FC0_0000,
    0xFFC0_0001,
    0x7F80_0001,
    1,
    0x8000_0001,
    0x007F_FFFF,
    0x0080_0000,
    0x8080_0000,
    0x7F7F_FFFF,
    0xFF7F_FFFF,
    0x3F00_0000,
    0x3FC0_0000,
    0x4020_0000,
    0xC020_0000,
    0x3F80_0001,
    0x3F7F_FFFF,
    0x4B80_0000,
    0x4B80_0001,
    0x4F00_0000,
    0xCF00_0001,
    0x4F80_0000,
    0x5F00_0000,
    0x477F_E000,
    0x477F_EFFF,
    0x477F_F000,
    0x3300_0000,
    0x3300_0001,
    0x3880_0000,
    0x387F_E000,
    0x7F7F_8000,
    0x3F80_8000,
    0x3F81_8000,
    0x42FD_0000,
    0xC315_8000,
];
const HALVES: [u16; 32] = [
    0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01, 1, 0x8001, 0x03FF, 0x0400, 0x8400, 0x7BFF,
    0xFBFF, 0x3800, 0x3E00, 0x4100, 0x3C01, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x0080, 0x007F, 0x7F7F, 0x3F81,
    0x7FFF, 0xFFFF, 31,
];
const WORDS_OF_32: [u32; 24] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    63,
    255,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x1_0000,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFE,
    0xFFFF_FFFF,
    0x5555_5555,
    0x3C00_BC00,
    0x7C00_FC00,
    0x7E00_0001,
    0x0400_83FF,
    0x3F80_BF80,
    0x7F7F_7BFF,
];
const WIDES: [u64; 16] = [
    0,
    1,
    2,
    63,
    64,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x1_0000_0000,
    0x20_0000_0000_0001,
    0x7FFF_FFFF_FFFF_FFFF,
    0x8000_0000_0000_0000,
    0xFFFF_FFFF_FFFF_FFFE,
    0xFFFF_FFFF_FFFF_FFFF,
    0x0123_4567_89AB_CDEF,
];
const DOUBLES: [u64; 24] = [
    0,
    0x8000_0000_0000_0000,
    0x3FF0_0000_0000_0000,
    0xBFF0_0000_0000_0000,
    0x7FF0_0000_0000_0000,
    0xFFF0_0000_0000_0000,
    0x7FF8_0000_0000_0000,
    0xFFF8_0000_0000_0001,
    0x7FF0_0000_0000_0001,
    1,
    0x000F_FFFF_FFFF_FFFF,
    0x0010_0000_0000_0000,
    0x7FEF_FFFF_FFFF_FFFF,
    0x3FE0_0000_0000_0000,
    0x4004_0000_0000_0000,
    0xC004_0000_0000_0000,
    0x3FF0_0000_0000_0001,
    0x3FF0_0000_1000_0000,
    0x3FF0_0000_3000_0000,
    0x41E0_0000_0000_0000,
    0xC1E0_0000_0020_0000,
    0x43E0_0000_0000_0000,
    0x47EF_FFFF_F000_0000,
    0x36A0_0000_0000_0000,
];

fn corners(kind: Kind) -> Vec<u64> {
    match kind {
        Kind::Half => HALVES.map(u64::from).to_vec(),
        Kind::Word => WORDS_OF_32.map(u64::from).to_vec(),
        Kind::Wide => WIDES.to_vec(),
        Kind::Single => SINGLES.map(u64::from).to_vec(),
        Kind::Double => DOUBLES.to_vec(),
        Kind::Pred => vec![0, 1],
    }
}

fn random(kind: Kind, rng: &mut Rng) -> u64 {
    let bits = (below(rng, 1 << 32) as u64) << 32 | below(rng, 1 << 32) as u64;
    match kind {
        Kind::Half => bits & 0xFFFF,
        Kind::Word => bits & 0xFFFF_FFFF,
        // Half of them near 1, where sums and products meet.
        Kind::Single if bits >> 63 == 0 => 0x3F00_0000 + (bits & 0x80FF_FFFF),
        Kind::Single => bits & 0xFFFF_FFFF,
        Kind::Double if bits & 1 == 0 => 0x3FE0_0000_0000_0000 + (bits >> 11 & 0x001F_FFFF_FFFF_FFFF),
        Kind::Wide | Kind::Double => bits,
        Kind::Pred => bits & 1,
    }
}

/// The tuples for an operation. Those with the same kinds of operands get the same, all 65,536 where there is one of 16
/// bits.
pub fn tuples(operation: &Operation) -> Vec<[u64; WORDS]> {
    let kinds = &operation.sources;
    let tuple = |operands: &[u64]| std::array::from_fn(|at| operands.get(at).copied().unwrap_or(0));
    let mut out: Vec<[u64; WORDS]> = Vec::new();
    if kinds.as_slice() == [Kind::Half] {
        out.extend((0..=0xFFFFu64).map(|bits| tuple(&[bits])));
    } else {
        let mut lists: Vec<Vec<u64>> = kinds.iter().map(|kind| corners(*kind)).collect();
        while lists.iter().map(Vec::len).product::<usize>() > MOST_CORNERS {
            let longest = lists.iter_mut().max_by_key(|list| list.len()).expect("operands");
            longest.pop();
        }
        let count: usize = lists.iter().map(Vec::len).product();
        for number in 0..count {
            let mut rest = number;
            let operands: Vec<u64> = lists
                .iter()
                .map(|list| {
                    let value = list[rest % list.len()];
                    rest /= list.len();
                    value
                })
                .collect();
            out.push(tuple(&operands));
        }
        let mut rng = rng(derive(1, &[&format!("{kinds:?}")]));
        for _ in 0..RANDOM {
            let operands: Vec<u64> = kinds.iter().map(|kind| random(*kind, &mut rng)).collect();
            out.push(tuple(&operands));
        }
    }
    if operation.divides_integers() {
        out.retain(|operands| operands[1] != 0);
    }
    out
}
