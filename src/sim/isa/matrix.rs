//! `mma.sync`: products of small matrices whose elements lie spread over the lanes of a warp.
//!
//! Letters: the product is m x n, k is the summed dimension; `group` is lane / 4, `quad` is lane % 4. Each fragment is
//! unpacked once into single precision (exact for all formats of up to 16 bits), and sums run over k with fused
//! multiply-adds. Hardware sums in another order and precision; the shuffled mode shows what that may change.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::rounding::{bf16_to_f32, f16_to_f32};
use crate::sim::isa::small_formats::{from_e4m3, from_e5m2};
use crate::sim::isa::sum_fragment;
use crate::sim::isa::tile_product::accumulate;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::product_queue::MAX_K;
use crate::sim::machine::registers::{Class, LANES, Registers};
use crate::sim::machine::warp::Wait;
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::options::Accumulation;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::report::Check;
use crate::sim::rng::Rng;
use crate::sim::tier::tiers;

const M: usize = 16;
const N: usize = 8;

/// What the elements of a factor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    /// Factors of warp groups; those of warps have a file of their own.
    S8,
    U8,
}

impl Element {
    /// Elements in a register.
    pub fn per_register(self) -> usize {
        match self {
            Element::F16 | Element::Bf16 => 2,
            Element::Tf32 => 1,
            _ => 4,
        }
    }

    #[inline(always)]
    pub fn unpack(self, register: u32, at: usize) -> f32 {
        match self {
            Element::F16 => f16_to_f32((register >> (16 * at)) as u16),
            Element::Bf16 => bf16_to_f32((register >> (16 * at)) as u16),
            // The hardware reads the upper 19 bits.
            Element::Tf32 => f32::from_bits(register & !0x1FFF),
            Element::E4m3 => from_e4m3((register >> (8 * at)) as u8),
            Element::E5m2 => from_e5m2((register >> (8 * at)) as u8),
            Element::S8 => f32::from((register >> (8 * at)) as u8 as i8),
            Element::U8 => f32::from((register >> (8 * at)) as u8),
        }
    }
}

/// The type of the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sum {
    F32,
    F16,
}

/// A decoded `mma`.
#[derive(Debug, Clone)]
pub(crate) struct Product {
    k: usize,
    a_element: Element,
    b_element: Element,
    sum_in: Sum,
    sum_out: Sum,
    d: Vec<u32>,
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "mma" {
        return Ok(false);
    }
    let in_order = op.take("sync") && op.take("aligned") && op.take("row") && op.take("col");
    let shape = op.take_map(|modifier| match modifier {
        "m16n8k4" => Some(4),
        "m16n8k8" => Some(8),
        "m16n8k16" => Some(16),
        "m16n8k32" => Some(32),
        _ => None,
    });
    let small = op.take_map(|modifier| match modifier {
        "e4m3" => Some(Element::E4m3),
        "e5m2" => Some(Element::E5m2),
        _ => None,
    });
    let second = op.take_map(|modifier| match modifier {
        "e4m3" => Some(Element::E4m3),
        "e5m2" => Some(Element::E5m2),
        _ => None,
    });
    let (Some(k), true) = (shape, in_order) else { return Err(op.unsupported()) };
    let types = op.types.clone();
    let (a_element, b_element, sum_out, sum_in) = match (small, second, types.as_slice()) {
        (Some(a), Some(b), [d, c]) => (a, b, sum(op, *d)?, sum(op, *c)?),
        (None, None, [d, a, b, c]) => (element(op, *a)?, element(op, *b)?, sum(op, *d)?, sum(op, *c)?),
        _ => return Err(op.unsupported()),
    };
    let per_register = a_element.per_register();
    let fits = matches!((per_register, k), (2, 8 | 16) | (1, 4 | 8) | (4, 16 | 32))
        && per_register == b_element.per_register();
    if !fits {
        return Err(op.unsupported());
    }
    let [d, a, b, c] = instruction.operands.as_slice() else {
        return Err(Error::parse(op.line, "`mma` takes four operands"));
    };
    // A register of a lane covers 4 lanes along k, and rows in two halves.
    let a_count = M / 8 * k / (4 * per_register);
    let b_count = k / (4 * per_register);
    let count = |sum: Sum| if sum == Sum::F16 { 2 } else { 4 };
    let product = Product {
        k,
        a_element,
        b_element,
        sum_in,
        sum_out,
        d: results(emitter, d, count(sum_out))?,
        a: sources(emitter, a, a_count)?,
        b: sources(emitter, b, b_count)?,
        c: sources(emitter, c, count(sum_in))?,
    };
    push(emitter, product);
    Ok(true)
}

fn push(emitter: &mut Emitter<'_>, product: Product) {
    emitter.traits.sums_products = true;
    let x = emitter.detail(product);
    emitter.push_action(
        tiers!(multiply: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        Tensor,
        [0, 0, 0, 0, x],
    );
}

/// Emits an m16n8k16 with fragments whose slots are known, in the order of the operands; the types are those of the
/// result, the factors and the addend.
pub(super) fn push_product(
    emitter: &mut Emitter<'_>,
    op: &Opcode<'_>,
    [to, factor, from]: [Type; 3],
    [d, a, b, c]: [Vec<u32>; 4],
) -> Result<()> {
    let (a_element, b_element) = (element(op, factor)?, element(op, factor)?);
    let (sum_out, sum_in) = (sum(op, to)?, sum(op, from)?);
    push(emitter, Product { k: 16, a_element, b_element, sum_in, sum_out, d, a, b, c });
    Ok(())
}

fn element(op: &Opcode<'_>, ty: Type) -> Result<Element> {
    Ok(match ty {
        Type::F16 => Element::F16,
        Type::Bf16 => Element::Bf16,
        Type::Tf32 => Element::Tf32,
        _ => return Err(op.unsupported()),
    })
}

fn sum(op: &Opcode<'_>, ty: Type) -> Result<Sum> {
    Ok(match ty {
        Type::F32 => Sum::F32,
        Type::F16 => Sum::F16,
        _ => return Err(op.unsupported()),
    })
}

/// The registers of a fragment, of which there must be so many.
pub(super) fn fragment<'a>(emitter: &Emitter<'_>, operand: &'a Operand, count: usize) -> Result<&'a [Operand]> {
    let items = match operand {
        Operand::Vector(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    if items.len() != count {
        return Err(Error::parse(
            emitter.line,
            format!("a fragment of {count} registers was expected, found {}", items.len()),
        ));
    }
    Ok(items)
}

/// The slots of a fragment that is read.
pub(super) fn sources(emitter: &mut Emitter<'_>, operand: &Operand, count: usize) -> Result<Vec<u32>> {
    fragment(emitter, operand, count)?.iter().map(|item| emitter.source(Class::Word, item)).collect()
}

/// The slots of a fragment that is written.
pub(super) fn results(emitter: &mut Emitter<'_>, operand: &Operand, count: usize) -> Result<Vec<u32>> {
    fragment(emitter, operand, count)?.iter().map(|item| emitter.result(Class::Word, item)).collect()
}

/// Operations of whole warps wait until all lanes are there; a warp that has lost lanes cannot take part.
pub(super) fn whole_warp(ctx: &mut Context<'_>, mask: u32) -> Option<Outcome> {
    if mask == u32::MAX {
        return None;
    }
    let alive = ctx.warp.alive();
    if mask != alive {
        return Some(Outcome::Wait(Wait::Lanes { members: alive, is_barrier: false }));
    }
    let message = format!("an operation of the whole warp with lanes {mask:#010x} only");
    ctx.report(Check::MemberMask, mask.trailing_zeros() as usize & 31, None, message);
    Some(Outcome::Next)
}

const IN_ORDER: [usize; 64] = {
    let mut order = [0; 64];
    let mut at = 0;
    while at < order.len() {
        order[at] = at;
        at += 1;
    }
    order
};

/// The order in which products are summed.
pub(super) fn order_of_k(ctx: &Context<'_>, k: usize) -> [usize; 64] {
    let mut order = IN_ORDER;
    if ctx.grid.options.accumulation == Accumulation::Shuffled {
        Rng::new(ctx.grid.options.seed ^ u64::from(ctx.pc)).shuffle(&mut order[..k]);
    }
    order
}

/// Calls a function with the type of the elements as a constant, so that its loops are ones of vector operations.
macro_rules! with_element {
    ($element:expr, $call:ident($($arg:expr),*)) => {
        match $element {
            Element::F16 => $call::<2>($($arg,)* |word, at| Element::F16.unpack(word, at)),
            Element::Bf16 => $call::<2>($($arg,)* |word, at| Element::Bf16.unpack(word, at)),
            Element::Tf32 => $call::<1>($($arg,)* |word, at| Element::Tf32.unpack(word, at)),
            other => $call::<4>($($arg,)* |word, at| other.unpack(word, at)),
        }
    };
}

pub(super) use with_element;

#[inline(always)]
fn multiply(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let product = program.detail::<Product>(instr.x);
    let order = order_of_k(ctx, product.k);
    let registers = &mut ctx.warp.registers;
    // Filled in place: as results of functions they would be copied.
    let (mut a, mut b) = ([[0.0; MAX_K]; M], [[0.0; N]; MAX_K]);
    with_element!(product.a_element, fill_a(registers, &product.a, &mut a));
    with_element!(product.b_element, fill_b(registers, &product.b, &mut b));
    let mut sums = [0.0; M * N];
    sum_fragment::read(registers, &product.c, product.sum_in == Sum::F16, N, &mut sums);
    accumulate(&a, b.as_flattened(), N, &order[..product.k], &mut sums);
    sum_fragment::write(registers, &product.d, product.sum_out == Sum::F16, N, &sums);
    ctx.meet();
    Outcome::Next
}

/// Four lanes hold a row. Registers go over the two halves of the rows first, then along k.
#[inline(always)]
fn fill_a<const W: usize>(
    registers: &Registers,
    slots: &[u32],
    a: &mut [[f32; MAX_K]; M],
    unpack: impl Fn(u32, usize) -> f32,
) {
    for (register, &slot) in slots.iter().enumerate() {
        let mut values = [[0.0; LANES]; W];
        for (lane, word) in registers.word(slot).iter().enumerate() {
            for (at, values) in values.iter_mut().enumerate() {
                values[lane] = unpack(*word, at);
            }
        }
        sum_fragment::put(&values, register, MAX_K, a.as_flattened_mut());
    }
}

/// Four lanes hold a column.
#[inline(always)]
fn fill_b<const W: usize>(
    registers: &Registers,
    slots: &[u32],
    b: &mut [[f32; N]; MAX_K],
    unpack: impl Fn(u32, usize) -> f32,
) {
    for (register, &slot) in slots.iter().enumerate() {
        let values = registers.word(slot);
        for (at, row) in b[register * 4 * W..(register + 1) * 4 * W].iter_mut().enumerate() {
            for (column, out) in row.iter_mut().enumerate() {
                *out = unpack(values[column * 4 + at / W], at % W);
            }
        }
    }
}
