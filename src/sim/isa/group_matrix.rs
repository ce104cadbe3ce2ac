//! `wgmma`: matrix products of four warps that read their factors from shared memory while the warps go on.
//!
//! Letters: the product is 64 x n, k is the summed dimension. Each warp of the group computes its own 16 rows, so that
//! no warp has to wait for another one. In early mode a product is computed when it is issued, in late mode when its
//! group is waited for; the shared memory that it reads counts as in use until then.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::group_factors::{Side, load_left, load_right};
use crate::sim::isa::matrix::{Element, order_of_k, results, sources, whole_warp};
use crate::sim::isa::sum_fragment;
use crate::sim::isa::tile_product::accumulate;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::product_queue::{Fence, MAX_K, PendingProduct, ROWS, Start};
use crate::sim::machine::race::flight::Range;
use crate::sim::machine::registers::{Class, Registers};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::options::Completion;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::report::Check;
use crate::sim::tier::tiers;

const MAX_N: usize = 256;

/// What the sums are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    Single,
    /// Two in a register.
    Half,
    Integer {
        saturates: bool,
    },
}

/// Where the left factor is.
#[derive(Debug, Clone)]
enum Left {
    Registers(Vec<u32>),
    /// Slot of a descriptor.
    Shared(u32),
}

/// A decoded product.
#[derive(Debug, Clone)]
pub(crate) struct GroupProduct {
    n: usize,
    k: usize,
    sum: Sum,
    d: Vec<u32>,
    a: Left,
    b: u32,
    /// What the factors are.
    left: Side,
    right: Side,
    /// Predicate: whether the old sums count.
    accumulates: u32,
    negate_a: bool,
    negate_b: bool,
    /// Whether something may use its registers between the product before and it.
    is_exposed: bool,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "wgmma" {
        return Ok(false);
    }
    if !(op.take("sync") && op.take("aligned")) {
        return Err(op.unsupported());
    }
    if op.take("fence") {
        emitter.push_plain(fence, Tensor, [0; 5]);
    } else if op.take("commit_group") {
        emitter.push_plain(close_group, Tensor, [0; 5]);
    } else if op.take("wait_group") {
        let Some(Operand::Integer(count)) = instruction.operands.first() else {
            return Err(Error::parse(op.line, "`wgmma.wait_group` takes a number of groups"));
        };
        emitter.push_action(
            tiers!(wait_group: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
            Tensor,
            [0, 0, 0, 0, (*count).min(1 << 20) as u32],
        );
    } else if op.take("mma_async") {
        product(emitter, op, &instruction.operands)?;
    } else {
        return Err(op.unsupported());
    }
    Ok(true)
}

fn eight_bit(modifier: &str) -> Option<Element> {
    match modifier {
        "e4m3" => Some(Element::E4m3),
        "e5m2" => Some(Element::E5m2),
        _ => None,
    }
}

fn product(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let shape = op.take_map(|modifier| {
        let (n, k) = modifier.strip_prefix("m64n")?.split_once('k')?;
        Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?))
    });
    let Some((n, k)) = shape.filter(|(n, _)| n % 8 == 0 && (8..=MAX_N).contains(n)) else {
        return Err(op.unsupported());
    };
    let small = [op.take_map(eight_bit), op.take_map(eight_bit)];
    let (sum, a_element, b_element, wanted_k) = match (op.types.as_slice(), small) {
        ([sum, Type::F16, Type::F16], [None, None]) => (*sum, Element::F16, Element::F16, 16),
        ([sum, Type::Bf16, Type::Bf16], [None, None]) => (*sum, Element::Bf16, Element::Bf16, 16),
        ([sum, Type::Tf32, Type::Tf32], [None, None]) => (*sum, Element::Tf32, Element::Tf32, 8),
        ([sum], [Some(a), Some(b)]) => (*sum, a, b, 32),
        ([Type::S32, a @ (Type::S8 | Type::U8), b @ (Type::S8 | Type::U8)], [None, None]) => {
            let element = |ty: Type| if ty == Type::S8 { Element::S8 } else { Element::U8 };
            (Type::S32, element(*a), element(*b), 32)
        }
        _ => return Err(op.unsupported()),
    };
    let sum = match sum {
        Type::F32 => Sum::Single,
        Type::F16 if a_element != Element::Bf16 && a_element != Element::Tf32 => Sum::Half,
        Type::S32 => Sum::Integer { saturates: op.take("satfinite") },
        _ => return Err(op.unsupported()),
    };
    // Integers have no signs to choose.
    let fewest = if matches!(sum, Sum::Integer { .. }) { 4 } else { 6 };
    if k != wanted_k || operands.len() < fewest {
        return Err(op.unsupported());
    }
    let d = results(emitter, &operands[0], if sum == Sum::Half { n / 4 } else { n / 2 })?;
    let from_registers = matches!(operands[1], Operand::Vector(_));
    let a = if from_registers {
        Left::Registers(sources(emitter, &operands[1], 4)?)
    } else {
        Left::Shared(emitter.source(Class::Wide, &operands[1])?)
    };
    let b = emitter.source(Class::Wide, &operands[2])?;
    if let Operand::Integer(flag @ 2..) = operands[3] {
        return Err(Error::parse(op.line, format!("`wgmma` takes no {flag} as operand 4, but 0 or 1")));
    }
    let accumulates = emitter.source(Class::Pred, &operands[3])?;
    let flag = |at: usize| {
        // Scales are 1 or -1, orders 0 or 1.
        let is_scale = matches!(at, 4 | 5);
        match operands.get(at) {
            None => Ok(0),
            Some(Operand::Integer(value)) => match *value as i64 {
                value @ (1 | -1) if is_scale => Ok(value),
                value @ (0 | 1) if !is_scale => Ok(value),
                value => Err(Error::parse(op.line, format!("`wgmma` takes no {value} as operand {}", at + 1))),
            },
            Some(_) => Err(Error::parse(op.line, "scales and orders of `wgmma` are constants")),
        }
    };
    let (a_across, b_across) = if from_registers { (0, flag(6)?) } else { (flag(6)?, flag(7)?) };
    let halves = |element: Element| matches!(element, Element::F16 | Element::Bf16);
    if (a_across != 0 && !halves(a_element)) || (b_across != 0 && !halves(b_element)) {
        return Err(op.unsupported());
    }
    let product = GroupProduct {
        n,
        k,
        sum,
        d,
        a,
        b,
        left: Side { element: a_element, is_across: a_across != 0 },
        right: Side { element: b_element, is_across: b_across != 0 },
        accumulates,
        negate_a: flag(4)? == -1,
        negate_b: flag(5)? == -1,
        is_exposed: emitter.next_product_is_exposed(),
    };
    emitter.traits.sums_products = true;
    emitter.traits.has_async_readers = true;
    let x = emitter.detail(product);
    emitter.push_action(
        tiers!(issue: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        Tensor,
        [0, 0, 0, 0, x],
    );
    Ok(())
}

#[inline(always)]
fn issue(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let product = program.detail::<GroupProduct>(instr.x);
    let registers = &ctx.warp.registers;
    let (a, rows) = match &product.a {
        Left::Shared(slot) => (registers.wide(*slot)[0], None),
        Left::Registers(slots) => {
            let mut rows = Box::new([[0.0; MAX_K]; ROWS]);
            let width = product.left.element.per_register();
            for (register, slot) in slots.iter().enumerate() {
                for (lane, value) in registers.word(*slot).iter().enumerate() {
                    let k = lane % 4 * width + register / 2 * 4 * width;
                    for at in 0..width {
                        rows[lane / 4 + register % 2 * 8][k + at] = product.left.element.unpack(*value, at);
                    }
                }
            }
            (0, Some(rows))
        }
    };
    let start = Start {
        a,
        b: registers.wide(product.b)[0],
        rows,
        accumulates: registers.preds[product.accumulates as usize] & 1 != 0,
    };
    ask_for_a_fence(ctx, product);
    let Some(factors) = load(ctx, product, &start) else { return Outcome::Abort };
    for range in &factors.ranges {
        ctx.begin_reading(*range, 0);
    }
    if ctx.grid.options.completion == Completion::Early {
        multiply(ctx, product, &start, &factors);
    }
    let group = ctx.warp.products.closed;
    ctx.warp.products.pending.push(PendingProduct {
        pc: ctx.pc,
        product: instr.x,
        group,
        ranges: factors.ranges,
        start,
    });
    Outcome::Next
}

/// Both factors in single precision, and the shared memory that they came from.
struct Factors {
    a: [[f32; MAX_K]; ROWS],
    /// By k, then by n.
    b: Vec<f32>,
    ranges: Vec<Range>,
}

#[inline(always)]
fn load(ctx: &mut Context<'_>, product: &GroupProduct, start: &Start) -> Option<Factors> {
    let (n, k) = (product.n, product.k);
    let mut factors = Factors { a: [[0.0; MAX_K]; ROWS], b: vec![0.0; n * k], ranges: Vec::new() };
    match &start.rows {
        Some(rows) => factors.a = **rows,
        None => factors.ranges.push(load_left(ctx, start.a, product.left, k, &mut factors.a)?),
    }
    factors.ranges.push(load_right(ctx, start.b, product.right, n, &mut factors.b)?);
    Some(factors)
}

#[inline(always)]
fn multiply(ctx: &mut Context<'_>, product: &GroupProduct, start: &Start, factors: &Factors) {
    let (n, k) = (product.n, product.k);
    let order = order_of_k(ctx, k);
    let sign = if product.negate_a != product.negate_b { -1.0 } else { 1.0 };
    let registers = &mut ctx.warp.registers;
    let are_halves = product.sum == Sum::Half;
    let mut sums = vec![0.0f32; ROWS * n];
    // Sums of 32 products of 8 bits are exact; the old ones are added as integers.
    if start.accumulates && !matches!(product.sum, Sum::Integer { .. }) {
        sum_fragment::read(registers, &product.d, are_halves, n, &mut sums);
    }
    let mut a = factors.a;
    for value in a.as_flattened_mut() {
        *value *= sign;
    }
    accumulate(&a, &factors.b, n, &order[..k], &mut sums);
    if let Sum::Integer { saturates } = product.sum {
        add_integers(registers, product, start.accumulates, saturates, &sums);
    } else {
        sum_fragment::write(registers, &product.d, are_halves, n, &sums);
    }
}

fn add_integers(registers: &mut Registers, product: &GroupProduct, accumulates: bool, saturates: bool, sums: &[f32]) {
    for (pair, slots) in product.d.chunks_exact(2).enumerate() {
        let values = sum_fragment::take(pair, product.n, sums);
        for (values, &slot) in values.iter().zip(slots) {
            let mut words = *registers.word(slot);
            for (word, value) in words.iter_mut().zip(values) {
                let (start, sum) = (if accumulates { *word as i32 } else { 0 }, *value as i32);
                *word = (if saturates { start.saturating_add(sum) } else { start.wrapping_add(sum) }) as u32;
            }
            registers.set_word(slot, &words, u32::MAX);
        }
    }
}

fn fence(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    ctx.warp.products.fence = Fence::SinceTheLastProduct;
    Outcome::Next
}

/// Without a fence the product may meet registers before what was done to them.
fn ask_for_a_fence(ctx: &mut Context<'_>, product: &GroupProduct) {
    let since = match std::mem::replace(&mut ctx.warp.products.fence, Fence::BeforeTheLastProduct) {
        Fence::SinceTheLastProduct => return,
        Fence::BeforeTheLastProduct if !product.is_exposed => return,
        Fence::BeforeTheLastProduct => "registers of this product were used since the product before",
        Fence::Never => "this warp has issued none",
    };
    if ctx.grid.options.checks.races {
        ctx.report(Check::MissingFence, 0, None, format!("a product without `wgmma.fence`: {since}"));
    }
}

fn close_group(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    ctx.warp.products.closed += 1;
    Outcome::Next
}

#[inline(always)]
fn wait_group(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let closed = ctx.warp.products.closed;
    let here = ctx.pc;
    for pending in std::mem::take(&mut ctx.warp.products.pending) {
        if pending.group.saturating_add(instr.x) >= closed {
            ctx.warp.products.pending.push(pending);
            continue;
        }
        ctx.pc = pending.pc;
        if ctx.grid.options.completion == Completion::Late {
            let product = program.detail::<GroupProduct>(pending.product);
            let Some(factors) = load(ctx, product, &pending.start) else { return Outcome::Abort };
            multiply(ctx, product, &pending.start, &factors);
        }
        for range in pending.ranges {
            ctx.end_reading(range, 0);
        }
    }
    ctx.pc = here;
    ctx.meet();
    Outcome::Next
}
