//! `mma.m8n8k4` in half precision: four products of 8 x 8 at once, each by a pair of quads of lanes, 16 lanes apart.
//!
//! Letters: A is 8 x 4, B is 4 x 8; either may lie by rows or by columns.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::matrix::{order_of_k, results, sources, whole_warp};
use crate::sim::isa::rounding::{f16_to_f32, f32_to_f16};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{LANES, Registers};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

const K: usize = 4;
/// Sums of a lane.
const SUMS: usize = 8;

#[derive(Debug, Clone)]
struct QuadPairProduct {
    a_by_rows: bool,
    b_by_rows: bool,
    /// Whether the addends, and the sums, are in half precision.
    halves_in: bool,
    halves_out: bool,
    d: Vec<u32>,
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "mma" || !op.all_of(&["sync", "aligned", "m8n8k4", "f16"]) {
        return Ok(false);
    }
    let layouts: Vec<bool> =
        op.parts().filter(|part| matches!(*part, "row" | "col")).map(|part| part == "row").collect();
    let ([a_by_rows, b_by_rows], [d_type, Type::F16, Type::F16, c_type]) = (layouts.as_slice(), op.types.as_slice())
    else {
        return Err(op.unsupported());
    };
    let halves = |ty: &Type| match ty {
        Type::F16 => Some(true),
        Type::F32 => Some(false),
        _ => None,
    };
    let (Some(halves_out), Some(halves_in)) = (halves(d_type), halves(c_type)) else { return Err(op.unsupported()) };
    let (a_by_rows, b_by_rows) = (*a_by_rows, *b_by_rows);
    op.ignore(|modifier| matches!(modifier, "sync" | "aligned" | "m8n8k4" | "row" | "col"));
    let [d, a, b, c] = instruction.operands.as_slice() else {
        return Err(Error::parse(op.line, "`mma` takes four operands"));
    };
    let registers = |halves: bool| if halves { SUMS / 2 } else { SUMS };
    let product = QuadPairProduct {
        a_by_rows,
        b_by_rows,
        halves_in,
        halves_out,
        d: results(emitter, d, registers(halves_out))?,
        a: sources(emitter, a, 2)?,
        b: sources(emitter, b, 2)?,
        c: sources(emitter, c, registers(halves_in))?,
    };
    emitter.traits.sums_products = true;
    let x = emitter.detail(product);
    emitter.push_plain(multiply, Tensor, [0, 0, 0, 0, x]);
    Ok(true)
}

/// The lane of a pair of quads that holds something: `at` of eight.
fn lane_of(pair: usize, at: usize) -> usize {
    4 * pair + at % 4 + at / 4 * 16
}

fn half(registers: &Registers, slots: &[u32], lane: usize, at: usize) -> f32 {
    f16_to_f32((registers.word(slots[at / 2])[lane] >> (16 * (at % 2))) as u16)
}

/// Row and column of the `at`-th sum of a lane in single precision; those in half precision are a row.
fn single_at(lane: usize, at: usize) -> (usize, usize) {
    let lower = if lane < 16 { 0 } else { 4 };
    (lower + (lane & 1) + (at & 2), (at & 4) + (lane & 2) + (at & 1))
}

fn half_at(lane: usize, at: usize) -> (usize, usize) {
    (lane % 4 + lane / 16 * 4, at)
}

impl QuadPairProduct {
    fn a(&self, registers: &Registers, pair: usize, row: usize, k: usize) -> f32 {
        let (lane, at) = if self.a_by_rows { (row, k) } else { (k + row / 4 * 4, row % 4) };
        half(registers, &self.a, lane_of(pair, lane), at)
    }

    fn b(&self, registers: &Registers, pair: usize, k: usize, column: usize) -> f32 {
        let (lane, at) = if self.b_by_rows { (k + column / 4 * 4, column % 4) } else { (column, k) };
        half(registers, &self.b, lane_of(pair, lane), at)
    }
}

fn multiply(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let product = program.detail::<QuadPairProduct>(instr.x);
    let order = order_of_k(ctx, K);
    let registers = &mut ctx.warp.registers;
    // By pair of quads, row and column.
    let mut sums = [[[0.0f32; 8]; 8]; 4];
    for lane in 0..LANES {
        for at in 0..SUMS {
            let ((row, column), start) = if product.halves_in {
                (half_at(lane, at), half(registers, &product.c, lane, at))
            } else {
                (single_at(lane, at), f32::from_bits(registers.word(product.c[at])[lane]))
            };
            sums[lane % 16 / 4][row][column] = start;
        }
    }
    for (pair, sums) in sums.iter_mut().enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                for &k in &order[..K] {
                    *sum = product.a(registers, pair, row, k).mul_add(product.b(registers, pair, k, column), *sum);
                }
            }
        }
    }
    let sum = |lane: usize, (row, column): (usize, usize)| sums[lane % 16 / 4][row][column];
    for (at, &slot) in product.d.iter().enumerate() {
        let row = std::array::from_fn(|lane| {
            if product.halves_out {
                let [low, high] = [2 * at, 2 * at + 1].map(|at| u32::from(f32_to_f16(sum(lane, half_at(lane, at)))));
                low | high << 16
            } else {
                sum(lane, single_at(lane, at)).to_bits()
            }
        });
        registers.set_word(slot, &row, u32::MAX);
    }
    ctx.meet();
    Outcome::Next
}
