//! The sums of matrix products: the registers in which a warp holds 16 rows of them, and the same as rows.
//!
//! Two registers hold two neighbours of a row each, four lanes a row of eight columns, eight rows. Such pairs go over the
//! two halves of the rows first, then along the columns. Sums of 16 bits are two in a register.

use crate::sim::isa::rounding::{f16_to_f32, f32_to_f16};
use crate::sim::machine::registers::{LANES, Registers};

/// What two registers hold.
pub(super) type Pair = [[f32; LANES]; 2];

/// Where the values of registers begin that hold `W` neighbours of a row, in rows of n.
#[inline(always)]
const fn first<const W: usize>(at: usize, n: usize) -> usize {
    at % 2 * 8 * n + at / 2 * 4 * W
}

/// The `at`-th `W` registers, or those that one is taken apart into, into rows of n.
#[inline(always)]
pub(super) fn put<const W: usize>(values: &[[f32; LANES]; W], at: usize, n: usize, rows: &mut [f32]) {
    for row in 0..8 {
        let out = &mut rows[first::<W>(at, n) + row * n..][..4 * W];
        for quad in 0..4 {
            for (neighbour, values) in values.iter().enumerate() {
                out[W * quad + neighbour] = values[4 * row + quad];
            }
        }
    }
}

/// A pair out of rows of n.
#[inline(always)]
pub(super) fn take(pair: usize, n: usize, sums: &[f32]) -> Pair {
    let mut values = [[0.0; LANES]; 2];
    for row in 0..8 {
        let from = &sums[first::<2>(pair, n) + row * n..][..8];
        for quad in 0..4 {
            values[0][4 * row + quad] = from[2 * quad];
            values[1][4 * row + quad] = from[2 * quad + 1];
        }
    }
    values
}

/// Registers to rows of n.
#[inline(always)]
pub(super) fn read(registers: &Registers, slots: &[u32], are_halves: bool, n: usize, sums: &mut [f32]) {
    for pair in 0..n / 4 {
        let mut values = [[0.0; LANES]; 2];
        if are_halves {
            for (lane, word) in registers.word(slots[pair]).iter().enumerate() {
                values[0][lane] = f16_to_f32(*word as u16);
                values[1][lane] = f16_to_f32((word >> 16) as u16);
            }
        } else {
            for (values, slot) in values.iter_mut().zip(&slots[2 * pair..]) {
                for (value, word) in values.iter_mut().zip(registers.word(*slot)) {
                    *value = f32::from_bits(*word);
                }
            }
        }
        put(&values, pair, n, sums);
    }
}

/// Rows of n to registers.
#[inline(always)]
pub(super) fn write(registers: &mut Registers, slots: &[u32], are_halves: bool, n: usize, sums: &[f32]) {
    for pair in 0..n / 4 {
        let values = take(pair, n, sums);
        let mut words = [0; LANES];
        if are_halves {
            for (lane, word) in words.iter_mut().enumerate() {
                let [low, high] = [f32_to_f16(values[0][lane]), f32_to_f16(values[1][lane])];
                *word = u32::from(low) | u32::from(high) << 16;
            }
            registers.set_word(slots[pair], &words, u32::MAX);
        } else {
            for (values, slot) in values.iter().zip(&slots[2 * pair..]) {
                for (word, value) in words.iter_mut().zip(values) {
                    *word = value.to_bits();
                }
                registers.set_word(*slot, &words, u32::MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::machine::registers::Row;
    use rstest::rstest;

    /// As the manual of the instructions draws it: row and column of the `at`-th sum of a lane.
    fn place(at: usize, lane: usize) -> (usize, usize) {
        (lane / 4 + at % 4 / 2 * 8, at / 4 * 8 + lane % 4 * 2 + at % 2)
    }

    #[rstest]
    fn registers_and_rows_are_the_same_sums(#[values(8, 24, 256)] n: usize, #[values(false, true)] are_halves: bool) {
        let number = |row: usize, column: usize| (row * 128 + column % 128) as f32;
        let sums: Vec<f32> = (0..16 * n).map(|at| number(at / n, at % n)).collect();
        let slots: Vec<u32> = (0..if are_halves { n / 4 } else { n / 2 } as u32).collect();
        let words = vec![Row::splat(0); slots.len()];
        let mut registers = Registers { words, wides: Vec::new(), preds: Vec::new() };
        write(&mut registers, &slots, are_halves, n, &sums);
        for at in 0..n / 2 {
            for lane in 0..LANES {
                let (row, column) = place(at, lane);
                let found = if are_halves {
                    f16_to_f32((registers.word(at as u32 / 2)[lane] >> (at % 2 * 16)) as u16)
                } else {
                    f32::from_bits(registers.word(at as u32)[lane])
                };
                assert_eq!(found, number(row, column), "sum {at} of lane {lane}");
            }
        }
        let mut back = vec![0.0; sums.len()];
        read(&registers, &slots, are_halves, n, &mut back);
        assert_eq!(back, sums);
    }
}
