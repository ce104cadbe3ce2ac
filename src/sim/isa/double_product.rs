//! `mma.sync` in double precision: fused multiply-adds in the order of k, or in the shuffled one.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::matrix::{fragment, order_of_k, whole_warp};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type::F64;

const N: usize = 8;

/// A decoded product of m x 8 sums over k.
#[derive(Debug, Clone)]
pub(crate) struct DoubleProduct {
    m: usize,
    k: usize,
    d: Vec<u32>,
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "mma" || op.types.as_slice() != [F64; 4] || !op.all_of(&["sync", "aligned", "row", "col"]) {
        return Ok(false);
    }
    let shape = op.take_map(|modifier| match modifier {
        "m8n8k4" => Some((8, 4)),
        "m16n8k4" => Some((16, 4)),
        "m16n8k8" => Some((16, 8)),
        "m16n8k16" => Some((16, 16)),
        _ => None,
    });
    let Some((m, k)) = shape else { return Err(op.unsupported()) };
    op.ignore(|modifier| matches!(modifier, "sync" | "aligned" | "row" | "col" | "rn"));
    let [d, a, b, c] = instruction.operands.as_slice() else {
        return Err(Error::parse(op.line, "`mma` takes four operands"));
    };
    let mut read = |operand, count| -> Result<Vec<u32>> {
        let items = fragment(emitter, operand, count)?;
        items.iter().map(|item| emitter.source(Class::Wide, item)).collect()
    };
    let (a, b, c) = (read(a, m / 8 * k / 4)?, read(b, k / 4)?, read(c, m / 4)?);
    let d = fragment(emitter, d, m / 4)?.iter().map(|item| emitter.result(Class::Wide, item)).collect::<Result<_>>()?;
    emitter.traits.sums_products = true;
    let x = emitter.detail(DoubleProduct { m, k, d, a, b, c });
    emitter.push_plain(multiply, Tensor, [0, 0, 0, 0, x]);
    Ok(true)
}

fn multiply(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let product = program.detail::<DoubleProduct>(instr.x);
    let order = order_of_k(ctx, product.k);
    let registers = &mut ctx.warp.registers;
    // A register holds one number: row (or column) lane / 4, and lane % 4 along k; the halves of the rows go first.
    let halves = product.m / 8;
    let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 16]; N]);
    for (register, &slot) in product.a.iter().enumerate() {
        for (lane, bits) in registers.wide(slot).iter().enumerate() {
            a[lane / 4 + register % halves * 8][register / halves * 4 + lane % 4] = f64::from_bits(*bits);
        }
    }
    for (register, &slot) in product.b.iter().enumerate() {
        for (lane, bits) in registers.wide(slot).iter().enumerate() {
            b[lane / 4][register * 4 + lane % 4] = f64::from_bits(*bits);
        }
    }
    let sums: Vec<[u64; LANES]> = (0..product.d.len())
        .map(|at| {
            let start = registers.wide(product.c[at]);
            std::array::from_fn(|lane| {
                let (row, column) = (lane / 4 + at / 2 * 8, lane % 4 * 2 + at % 2);
                let add = |sum: f64, k: &usize| f64::mul_add(a[row][*k], b[column][*k], sum);
                order[..product.k].iter().fold(f64::from_bits(start[lane]), add).to_bits()
            })
        })
        .collect();
    for (row, &slot) in sums.iter().zip(&product.d) {
        registers.set_wide(slot, row, u32::MAX);
    }
    ctx.meet();
    Outcome::Next
}
