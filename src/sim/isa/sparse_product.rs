//! `mma.sp`: products whose left factor is stored without half of its elements, which are zeros; metadata says where the
//! others stand.
//!
//! Letters: the product is 16 x 8, k is the summed dimension; the stored left factor has k / 2 columns. `group` is
//! lane / 4, `quad` is lane % 4. A chunk is a few neighbours along k of which half are stored; four bits of metadata
//! tell which.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::matrix::{self, results, sources, whole_warp};
use crate::sim::isa::rounding::{f16_to_f32, f32_to_f16};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{LANES, Registers};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::options::Accumulation;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::report::Check;
use crate::sim::rng::Rng;

const M: usize = 16;
const N: usize = 8;

/// What the elements of a factor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Float(matrix::Element),
    Integer { bits: u32, signed: bool },
}

impl Element {
    fn from_name(name: &str) -> Option<Element> {
        use matrix::Element::{Bf16, E4m3, E5m2, F16, Tf32};
        let integer = |bits, signed| Element::Integer { bits, signed };
        Some(match name {
            "f16" => Element::Float(F16),
            "bf16" => Element::Float(Bf16),
            "tf32" => Element::Float(Tf32),
            "e4m3" => Element::Float(E4m3),
            "e5m2" => Element::Float(E5m2),
            "s8" => integer(8, true),
            "u8" => integer(8, false),
            "s4" => integer(4, true),
            "u4" => integer(4, false),
            _ => return None,
        })
    }

    fn per_register(self) -> usize {
        match self {
            Element::Float(element) => element.per_register(),
            Element::Integer { bits, .. } => 32 / bits as usize,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Element::Float(_))
    }

    /// Exact: every element of up to 16 bits is a number in single precision.
    fn unpack(self, register: u32, at: usize) -> f32 {
        match self {
            Element::Float(element) => element.unpack(register, at),
            Element::Integer { bits, signed } => {
                let spare = 32 - bits;
                let top = register >> (bits * at as u32) << spare;
                if signed { (top as i32 >> spare) as f32 } else { (top >> spare) as f32 }
            }
        }
    }
}

/// What the sums are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    F32,
    F16,
    Integer { saturates: bool },
}

/// How a left factor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// One of two: the four bits are 0b0100 for the first and 0b1110 for the second.
    OneOfTwo,
    /// Two of four, each by an index of two bits.
    TwoOfFour,
    /// Two pairs of neighbours out of four pairs.
    PairsOfFour,
}

impl Storage {
    fn of(element: Element) -> Storage {
        match element.per_register() {
            1 => Storage::OneOfTwo,
            8 => Storage::PairsOfFour,
            _ => Storage::TwoOfFour,
        }
    }

    /// Elements of a chunk; half of them are stored.
    fn chunk(self) -> usize {
        match self {
            Storage::OneOfTwo => 2,
            Storage::TwoOfFour => 4,
            Storage::PairsOfFour => 8,
        }
    }

    /// Where in its chunk each stored element stands; `None` for metadata that says nothing.
    fn places(self, bits: u32, ordered: bool) -> Option<Vec<usize>> {
        let (first, second) = ((bits & 3) as usize, (bits >> 2) as usize);
        match self {
            Storage::OneOfTwo => match bits {
                0b0100 => Some(vec![0]),
                0b1110 => Some(vec![1]),
                _ => None,
            },
            _ if first == second || (ordered && first > second) => None,
            Storage::TwoOfFour => Some(vec![first, second]),
            Storage::PairsOfFour => Some(vec![2 * first, 2 * first + 1, 2 * second, 2 * second + 1]),
        }
    }
}

/// What is kept of an instruction.
#[derive(Debug, Clone)]
struct SparseProduct {
    k: usize,
    a_element: Element,
    b_element: Element,
    sum_in: Sum,
    sum_out: Sum,
    /// Indices must rise within a chunk.
    ordered: bool,
    d: Vec<u32>,
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
    metadata: u32,
    /// Which lanes of four hold metadata, where not all of them do.
    selector: usize,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let parts: Vec<&str> = op.parts().collect();
    let is_sparse = op.name == "mma" && parts.iter().any(|part| matches!(*part, "sp" | "sp::ordered_metadata"));
    if !is_sparse {
        return Ok(false);
    }
    if !op.all_of(&["sync", "aligned", "row", "col"]) || parts.iter().any(|part| part.contains("kind::")) {
        return Err(op.unsupported());
    }
    let k = parts.iter().find_map(|part| part.strip_prefix("m16n8k")?.parse::<usize>().ok());
    // The types come last, in the order of the operands: d, a, b, c.
    let types = parts.len().checked_sub(4).map(|start| &parts[start..]);
    let (Some(k), Some([d_type, a_type, b_type, c_type])) = (k, types) else { return Err(op.unsupported()) };
    let saturates = parts.contains(&"satfinite");
    let sum = |name: &str| match name {
        "f32" => Some(Sum::F32),
        "f16" => Some(Sum::F16),
        "s32" => Some(Sum::Integer { saturates }),
        _ => None,
    };
    let elements = [Element::from_name(a_type), Element::from_name(b_type)];
    let ([Some(a_element), Some(b_element)], [Some(sum_out), Some(sum_in)]) = (elements, [sum(d_type), sum(c_type)])
    else {
        return Err(op.unsupported());
    };
    let shape_fits = match a_element.per_register() {
        1 => matches!(k, 8 | 16),
        2 => matches!(k, 16 | 32),
        4 if a_element.is_float() => k == 64,
        4 => matches!(k, 32 | 64),
        _ => matches!(k, 64 | 128),
    };
    let is_integer = |sum: Sum| matches!(sum, Sum::Integer { .. });
    let types_fit = a_element.per_register() == b_element.per_register()
        && a_element.is_float() == b_element.is_float()
        && is_integer(sum_in) != a_element.is_float()
        && is_integer(sum_in) == is_integer(sum_out);
    if !shape_fits || !types_fit {
        return Err(op.unsupported());
    }
    let ordered = parts.contains(&"sp::ordered_metadata");
    op.ignore(|_| true);
    let [d, a, b, c, metadata, Operand::Integer(selector)] = instruction.operands.as_slice() else {
        return Err(Error::parse(op.line, "`mma.sp` takes six operands, the last of them a number"));
    };
    let (a_count, b_count) = (k / (4 * a_element.per_register()), k / (4 * b_element.per_register()));
    let holders = holders(k, a_element);
    let groups = 4 / holders;
    if *selector >= groups as u64 {
        return Err(Error::parse(
            op.line,
            format!(
                "the sparsity selector is {selector}; in this shape {holders} of 4 threads hold metadata: below {groups}"
            ),
        ));
    }
    let count = |sum: Sum| if sum == Sum::F16 { 2 } else { 4 };
    let product = SparseProduct {
        k,
        a_element,
        b_element,
        sum_in,
        sum_out,
        ordered,
        d: results(emitter, d, count(sum_out))?,
        a: sources(emitter, a, a_count)?,
        b: sources(emitter, b, b_count)?,
        c: sources(emitter, c, count(sum_in))?,
        metadata: sources(emitter, metadata, 1)?[0],
        selector: *selector as usize,
    };
    emitter.traits.sums_products |= a_element.is_float();
    let x = emitter.detail(product);
    emitter.push_plain(multiply, Tensor, [0, 0, 0, 0, x]);
    Ok(true)
}

/// Lanes of four whose registers hold metadata: 32 bits each, of the 16 rows that the four have together.
fn holders(k: usize, a: Element) -> usize {
    let chunks_of_two_rows = 2 * k / Storage::of(a).chunk();
    4 * chunks_of_two_rows / 32
}

/// The stored elements of a row, each with its place along k.
type Stored = Vec<(usize, f32)>;

impl SparseProduct {
    /// The bits of one chunk of a row.
    fn metadata(&self, words: &[u32; LANES], row: usize, chunk: usize) -> u32 {
        let (group, half) = (row % 8, row / 8);
        let chunks = self.k / Storage::of(self.a_element).chunk();
        // Two rows share a lane where one takes no more than 16 bits of it; else each lane has one row.
        let (holder, bit) = match self.a_element.per_register() {
            1 | 2 => (chunk / 4, 16 * half + chunk % 4 * 4),
            _ => (chunk / 8 * 2 + half, chunk % 8 * 4),
        };
        debug_assert!(chunk < chunks);
        let first = self.selector * holders(self.k, self.a_element);
        words[4 * group + first + holder] >> bit & 0xF
    }

    /// The stored elements of each row; on failure the row and the metadata of a chunk.
    fn left(&self, registers: &Registers) -> std::result::Result<Vec<Stored>, (usize, u32)> {
        let (storage, width) = (Storage::of(self.a_element), self.a_element.per_register());
        let words = registers.word(self.metadata);
        let stored = storage.chunk() / 2;
        let mut rows = Vec::with_capacity(M);
        for row in 0..M {
            let mut elements = Vec::with_capacity(self.k / 2);
            for chunk in 0..self.k / storage.chunk() {
                let bits = self.metadata(words, row, chunk);
                let places = storage.places(bits, self.ordered).ok_or((row, bits))?;
                for (at, place) in places.into_iter().enumerate() {
                    let column = chunk * stored + at;
                    // Registers go over the two halves of the rows first, then along k.
                    let register = column / (4 * width) * 2 + row / 8;
                    let lane = row % 8 * 4 + column % (4 * width) / width;
                    let value = self.a_element.unpack(registers.word(self.a[register])[lane], column % width);
                    elements.push((chunk * storage.chunk() + place, value));
                }
            }
            elements.sort_by_key(|(place, _)| *place);
            rows.push(elements);
        }
        Ok(rows)
    }

    /// Element k of column n.
    fn right(&self, registers: &Registers, k: usize, n: usize) -> f32 {
        let width = self.b_element.per_register();
        let lane = 4 * n + k % (4 * width) / width;
        self.b_element.unpack(registers.word(self.b[k / (4 * width)])[lane], k % width)
    }

    /// The register and the half of it, if there are two in one, and the lane of a sum.
    fn sum_at(row: usize, column: usize) -> (usize, usize) {
        (row / 8 * 2 + column % 2, row % 8 * 4 + column / 2)
    }

    fn start(&self, registers: &Registers, row: usize, column: usize) -> u32 {
        let (at, lane) = Self::sum_at(row, column);
        match self.sum_in {
            Sum::F16 => {
                let word = registers.word(self.c[at / 2])[lane];
                f16_to_f32((word >> (16 * (at % 2))) as u16).to_bits()
            }
            _ => registers.word(self.c[at])[lane],
        }
    }
}

fn multiply(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let product = program.detail::<SparseProduct>(instr.x);
    let left = match product.left(&ctx.warp.registers) {
        Ok(left) => left,
        Err((row, bits)) => {
            let why = format!(
                "the metadata of a chunk of row {row} is {bits:#06b}, which names no elements{}",
                if product.ordered { " in rising order" } else { "" }
            );
            ctx.report(Check::Trap, row % 8 * 4, None, why);
            return Outcome::Abort;
        }
    };
    let mut sums = [[0u32; LANES]; 4];
    for (row, elements) in left.iter().enumerate() {
        let order = order(ctx, elements.len());
        for column in 0..N {
            let registers = &ctx.warp.registers;
            let terms = order.iter().map(|at| elements[*at]).map(|(k, a)| (a, product.right(registers, k, column)));
            let (at, lane) = SparseProduct::sum_at(row, column);
            let start = product.start(registers, row, column);
            sums[at][lane] = match product.sum_out {
                Sum::Integer { saturates } => {
                    let sum: i32 = terms.map(|(a, b)| a as i32 * b as i32).sum();
                    let start = start as i32;
                    (if saturates { start.saturating_add(sum) } else { start.wrapping_add(sum) }) as u32
                }
                _ => terms.fold(f32::from_bits(start), |sum, (a, b)| a.mul_add(b, sum)).to_bits(),
            };
        }
    }
    let registers = &mut ctx.warp.registers;
    for (at, &slot) in product.d.iter().enumerate() {
        let row = match product.sum_out {
            Sum::F16 => {
                let half = |at: usize, lane: usize| u32::from(f32_to_f16(f32::from_bits(sums[at][lane])));
                std::array::from_fn(|lane| half(2 * at, lane) | half(2 * at + 1, lane) << 16)
            }
            _ => sums[at],
        };
        registers.set_word(slot, &row, u32::MAX);
    }
    ctx.meet();
    Outcome::Next
}

/// The order in which the stored elements are summed.
fn order(ctx: &Context<'_>, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if ctx.grid.options.accumulation == Accumulation::Shuffled {
        Rng::new(ctx.grid.options.seed ^ u64::from(ctx.pc)).shuffle(&mut order);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("f16", 16, 1)]
    #[case("bf16", 32, 2)]
    #[case("tf32", 8, 1)]
    #[case("tf32", 16, 2)]
    #[case("u8", 32, 2)]
    #[case("s8", 64, 4)]
    #[case("e4m3", 64, 4)]
    #[case("u4", 64, 2)]
    #[case("s4", 128, 4)]
    fn so_many_lanes_of_four_hold_metadata(#[case] element: &str, #[case] k: usize, #[case] expected: usize) {
        assert_eq!(holders(k, Element::from_name(element).unwrap()), expected);
    }

    #[test]
    fn metadata_that_names_nothing_is_none() {
        for bits in [0b0000, 0b0101, 0b1010, 0b1111] {
            assert_eq!(Storage::TwoOfFour.places(bits, false), None);
            assert_eq!(Storage::PairsOfFour.places(bits, false), None);
        }
        assert_eq!(Storage::TwoOfFour.places(0b0010, false), Some(vec![2, 0]));
        assert_eq!(Storage::TwoOfFour.places(0b0010, true), None);
        assert_eq!(Storage::TwoOfFour.places(0b1101, true), Some(vec![1, 3]));
        assert_eq!(Storage::PairsOfFour.places(0b1101, true), Some(vec![2, 3, 6, 7]));
        assert_eq!((0..16).filter(|bits| Storage::OneOfTwo.places(*bits, true).is_some()).count(), 2);
    }
}
