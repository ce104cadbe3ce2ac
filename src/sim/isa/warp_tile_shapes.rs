//! `wmma` in its other shapes and types: 32 x 8 and 8 x 32 in 16 bits, integers of 8, 4 and 1 bits, TF32 and double precision.
//!
//! PTX leaves open which lane holds which element. Here the elements of a matrix follow each other, `outer` (rows of a and of
//! sums, columns of b) before `inner` (k, or columns of sums): as many as fit in one register of lane 0, of lane 1, and so
//! on, then in the next registers. What hardware keeps several times (factors in f16) is kept so here.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::matrix::{fragment, order_of_k, whole_warp};
use crate::sim::isa::rounding::{bf16_to_f32, f16_to_f32, f32_to_f16};
use crate::sim::isa::warp_tile_memory::{Part, matrix_start, read, write};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::ptx::ast::Operand;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Space;

/// What the elements of a matrix are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S32,
    Integer { bits: u32, signed: bool },
}

impl Element {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "s32" => Element::S32,
            "u8" => Element::Integer { bits: 8, signed: false },
            "s8" => Element::Integer { bits: 8, signed: true },
            "u4" => Element::Integer { bits: 4, signed: false },
            "s4" => Element::Integer { bits: 4, signed: true },
            "b1" => Element::Integer { bits: 1, signed: false },
            _ => return None,
        })
    }

    fn bits(self) -> u32 {
        match self {
            Element::F16 | Element::Bf16 => 16,
            Element::Tf32 | Element::F32 | Element::S32 => 32,
            Element::F64 => 64,
            Element::Integer { bits, .. } => bits,
        }
    }

    /// Elements in a register.
    fn per_register(self) -> usize {
        (32 / self.bits() as usize).max(1)
    }

    fn class(self) -> Class {
        if self == Element::F64 { Class::Wide } else { Class::Word }
    }

    /// The number in the lowest bits, exact in f64.
    fn number(self, bits: u64) -> f64 {
        match self {
            Element::F16 => f64::from(f16_to_f32(bits as u16)),
            Element::Bf16 => f64::from(bf16_to_f32(bits as u16)),
            // The hardware reads the upper 19 bits.
            Element::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1FFF)),
            Element::F32 => f64::from(f32::from_bits(bits as u32)),
            Element::F64 => f64::from_bits(bits),
            Element::S32 => f64::from(bits as u32 as i32),
            Element::Integer { bits: width, signed } => {
                let top = (bits as u32) << (32 - width);
                if signed { f64::from(top as i32 >> (32 - width)) } else { f64::from(top >> (32 - width)) }
            }
        }
    }
}

/// Rows, columns and the summed dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

impl Shape {
    fn take(op: &mut Opcode<'_>) -> Option<Self> {
        op.take_map(|modifier| {
            let (m, rest) = modifier.strip_prefix('m')?.split_once('n')?;
            let (n, k) = rest.split_once('k')?;
            Some(Shape { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
        })
    }

    /// Whether there are factors of a kind in this shape.
    fn has(self, factor: Element) -> bool {
        let tall = matches!((self.m, self.n, self.k), (16, 16, 16) | (32, 8, 16) | (8, 32, 16));
        match factor {
            Element::F16 | Element::Bf16 | Element::Integer { bits: 8, .. } => tall,
            Element::Tf32 => (self.m, self.n, self.k) == (16, 16, 8),
            Element::F64 => (self.m, self.n, self.k) == (8, 8, 4),
            Element::Integer { bits: 4, .. } => (self.m, self.n, self.k) == (8, 8, 32),
            Element::Integer { .. } => (self.m, self.n, self.k) == (8, 8, 128),
            Element::F32 | Element::S32 => false,
        }
    }

    /// Whether some factors have this shape, and sums of a kind.
    fn sums(self, sum: Element) -> bool {
        let integers = [8, 4, 1].map(|bits| Element::Integer { bits, signed: false });
        match sum {
            Element::F16 => self.has(Element::F16),
            Element::F32 => self.has(Element::F16) || self.has(Element::Tf32),
            Element::F64 => self.has(Element::F64),
            Element::S32 => integers.into_iter().any(|factor| self.has(factor)),
            _ => false,
        }
    }

    /// Outer and inner extent of a matrix.
    fn extents(self, part: Part) -> (usize, usize) {
        match part {
            Part::A => (self.m, self.k),
            Part::B => (self.n, self.k),
            Part::Sums => (self.m, self.n),
        }
    }
}

/// A matrix in registers.
#[derive(Debug, Clone)]
pub(crate) struct Fragment {
    element: Element,
    outer: usize,
    inner: usize,
    slots: Vec<u32>,
}

/// A decoded instruction.
#[derive(Debug, Clone)]
pub(crate) enum ShapedMatrix {
    Access { fragment: Fragment, address: AddressOperand, space: Space, is_along: bool, pitch: u32 },
    Product { d: Fragment, a: Fragment, b: Fragment, c: Fragment, saturates: bool, joins: Join },
}

/// How factors come together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    Product,
    Xor,
}

impl Fragment {
    fn units(&self) -> usize {
        self.outer * self.inner / self.element.per_register()
    }

    /// The elements, `outer` by `inner`, as numbers.
    fn numbers(&self, ctx: &Context<'_>) -> Vec<f64> {
        let (per, bits) = (self.element.per_register(), self.element.bits());
        let mut numbers = Vec::with_capacity(self.outer * self.inner);
        for unit in 0..self.units() {
            let (slot, lane) = (self.slots[unit / LANES], unit % LANES);
            let word = match self.element.class() {
                Class::Wide => ctx.warp.registers.wide(slot)[lane],
                _ => u64::from(ctx.warp.registers.word(slot)[lane]),
            };
            numbers.extend((0..per).map(|at| self.element.number(word >> (at as u32 * bits % 64))));
        }
        numbers
    }

    /// Puts the bits of all units into registers, as often as there are registers.
    fn put(&self, ctx: &mut Context<'_>, units: &[u64]) {
        let rows = units.len() / LANES;
        for (at, slot) in self.slots.iter().enumerate() {
            let row = &units[at % rows * LANES..][..LANES];
            match self.element.class() {
                Class::Wide => ctx.warp.registers.set_wide(*slot, &std::array::from_fn(|lane| row[lane]), u32::MAX),
                _ => ctx.warp.registers.set_word(*slot, &std::array::from_fn(|lane| row[lane] as u32), u32::MAX),
            }
        }
    }
}

fn element(op: &Opcode<'_>, at: usize) -> Result<Element> {
    let mut found = op.parts().filter_map(Element::from_name);
    found.nth(at).ok_or_else(|| op.unsupported())
}

fn part_fragment(
    emitter: &mut Emitter<'_>,
    op: &Opcode<'_>,
    operand: &Operand,
    (shape, part, element): (Shape, Part, Element),
    is_result: bool,
) -> Result<Fragment> {
    let fits = if part == Part::Sums { shape.sums(element) } else { shape.has(element) };
    if !fits {
        return Err(op.unsupported());
    }
    let (outer, inner) = shape.extents(part);
    let count = match (part, element) {
        // Kept several times.
        (Part::A | Part::B, Element::F16) => 8,
        _ => (outer * inner / element.per_register() / LANES).max(1),
    };
    let items = fragment(emitter, operand, count)?;
    let slots = items.iter().map(|item| match is_result {
        true => emitter.result(element.class(), item),
        false => emitter.source(element.class(), item),
    });
    Ok(Fragment { element, outer, inner, slots: slots.collect::<Result<_>>()? })
}

/// A load or store, whose opcode is taken apart but for its shape.
pub(super) fn access(
    emitter: &mut Emitter<'_>,
    op: &mut Opcode<'_>,
    operands: &[Operand],
    (part, is_row, space): (Part, bool, Space),
    loads: bool,
) -> Result<()> {
    let (shape, element) = (Shape::take(op).ok_or_else(|| op.unsupported())?, element(op, 0)?);
    op.ignore(|modifier| Element::from_name(modifier).is_some());
    let (place, registers, stride) = match (operands, loads) {
        ([registers, place, rest @ ..], true) => (place, registers, rest.first()),
        ([place, registers, rest @ ..], false) => (place, registers, rest.first()),
        _ => return Err(Error::parse(op.line, "`wmma` takes an address and a fragment")),
    };
    let fragment = part_fragment(emitter, op, registers, (shape, part, element), loads)?;
    let is_along = is_row != (part == Part::B);
    if element.bits() < 8 && !is_along {
        return Err(op.unsupported());
    }
    let pitch = match stride {
        Some(stride) => emitter.source(Class::Word, stride)?,
        None => emitter.word_constant(if is_along { fragment.inner } else { fragment.outer } as u32),
    };
    let address = emitter.address_operand(place)?;
    let x = emitter.detail(ShapedMatrix::Access { fragment, address, space, is_along, pitch });
    emitter.push_plain(if loads { load } else { store }, Tensor, [0, 0, 0, 0, x]);
    Ok(())
}

/// A product, whose opcode is taken apart but for its shape and types.
pub(super) fn multiply(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let shape = Shape::take(op).ok_or_else(|| op.unsupported())?;
    let (saturates, rounds) = (op.take("satfinite"), op.take("rn"));
    let joins = if op.take("xor") { Join::Xor } else { Join::Product };
    let of_bits = joins == Join::Xor || op.take("and");
    let elements: Vec<Element> = op.parts().filter_map(Element::from_name).collect();
    op.ignore(|modifier| matches!(modifier, "row" | "col" | "popc") || Element::from_name(modifier).is_some());
    let (d, a, b, c) = match *elements.as_slice() {
        [d, c] => (d, Element::F16, Element::F16, c),
        [d, a, b, c] => (d, a, b, c),
        _ => return Err(op.unsupported()),
    };
    let is_bit = matches!(a, Element::Integer { bits: 1, .. });
    if a.bits() != b.bits() || of_bits != is_bit || (rounds && a != Element::F64) {
        return Err(op.unsupported());
    }
    let [to, left, right, from] = operands else { return Err(Error::parse(op.line, "`wmma.mma` takes four operands")) };
    let a = part_fragment(emitter, op, left, (shape, Part::A, a), false)?;
    let b = part_fragment(emitter, op, right, (shape, Part::B, b), false)?;
    let c = part_fragment(emitter, op, from, (shape, Part::Sums, c), false)?;
    let d = part_fragment(emitter, op, to, (shape, Part::Sums, d), true)?;
    let x = emitter.detail(ShapedMatrix::Product { d, a, b, c, saturates, joins });
    emitter.push_plain(product, Tensor, [0, 0, 0, 0, x]);
    Ok(())
}

fn load(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    move_matrix(ctx, program, instr, mask, true)
}

fn store(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    move_matrix(ctx, program, instr, mask, false)
}

fn move_matrix(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32, loads: bool) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let ShapedMatrix::Access { fragment, address, space, is_along, pitch } = program.detail::<ShapedMatrix>(instr.x)
    else {
        return Outcome::Next;
    };
    let (per, bits) = (fragment.element.per_register(), fragment.element.bits());
    let Some((base, pitch_bytes)) = matrix_start(ctx, address, *pitch, bits) else { return Outcome::Next };
    // Neighbours in memory move together, others one by one.
    let pieces = if *is_along { 1 } else { per };
    let bytes = if *is_along { (per as u32 * bits / 8).max(1) } else { bits / 8 };
    let mut units = vec![0u64; fragment.units()];
    for first in (0..units.len()).step_by(LANES) {
        for piece in 0..pieces {
            let addresses: [u64; LANES] = std::array::from_fn(|lane| {
                let at = (first + lane) * per + piece;
                let (outer, inner) = ((at / fragment.inner) as u64, (at % fragment.inner) as u64);
                let (row, column) = if *is_along { (outer, inner) } else { (inner, outer) };
                base.wrapping_add(row.wrapping_mul(pitch_bytes)).wrapping_add(column * u64::from(bits) / 8)
            });
            if loads {
                let [low, high] = read(ctx, *space, addresses, bytes);
                let kept = if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
                for lane in 0..LANES {
                    let value = (u64::from(low[lane]) | u64::from(high[lane]) << 32) & kept;
                    units[first + lane] |= value << (piece as u32 * bits % 64);
                }
            } else {
                let slot = fragment.slots[first / LANES];
                let row: [u64; LANES] = match fragment.element.class() {
                    Class::Wide => *ctx.warp.registers.wide(slot),
                    _ => ctx.warp.registers.word(slot).map(u64::from),
                };
                let data = row.map(|word| word >> (piece as u32 * bits % 64));
                write(
                    ctx,
                    *space,
                    addresses,
                    bytes,
                    &[data.map(|word| word as u32), data.map(|word| (word >> 32) as u32)],
                );
            }
        }
    }
    if loads {
        fragment.put(ctx, &units);
    }
    ctx.meet();
    Outcome::Next
}

fn product(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let ShapedMatrix::Product { d, a, b, c, saturates, joins } = program.detail::<ShapedMatrix>(instr.x) else {
        return Outcome::Next;
    };
    let k = a.inner;
    let shuffled = order_of_k(ctx, k.min(64));
    let order = |at: usize| if k <= 64 { shuffled[at] } else { at };
    let (left, right, start) = (a.numbers(ctx), b.numbers(ctx), c.numbers(ctx));
    let sum = |row: usize, column: usize| -> u64 {
        let pairs = (0..k).map(|at| (left[row * k + order(at)], right[column * k + order(at)]));
        let begin = start[row * c.inner + column];
        match d.element {
            Element::F64 => pairs.fold(begin, |sum, (a, b)| a.mul_add(b, sum)).to_bits(),
            Element::F32 | Element::F16 => {
                let sum = pairs.fold(begin as f32, |sum, (a, b)| (a as f32).mul_add(b as f32, sum));
                if d.element == Element::F16 { u64::from(f32_to_f16(sum)) } else { u64::from(sum.to_bits()) }
            }
            _ => {
                // Integers of 8 bits at most: exact.
                let join = |(a, b): (f64, f64)| if *joins == Join::Xor { f64::from(u8::from(a != b)) } else { a * b };
                let sum = begin as i64 + pairs.map(join).sum::<f64>() as i64;
                let kept = if *saturates { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { sum };
                u64::from(kept as u32)
            }
        }
    };
    let per = d.element.per_register();
    let units: Vec<u64> = (0..d.units())
        .map(|unit| {
            let one = |at: usize| sum((unit * per + at) / d.inner, (unit * per + at) % d.inner);
            (0..per).fold(0, |word, at| word | one(at) << (at as u32 * d.element.bits() % 64))
        })
        .collect();
    d.put(ctx, &units);
    ctx.meet();
    Outcome::Next
}
