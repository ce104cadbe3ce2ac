//! `mma.sync` of integers of 8, 4 and 1 bits: exact sums of 32 bits, which wrap or saturate.
//!
//! Letters: the product is m x n, k is the summed dimension; `group` is lane / 4, `quad` is lane % 4.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::matrix::{results, sources, whole_warp};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{LANES, Registers};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;

const N: usize = 8;
const MAX_K: usize = 256;

/// The integers of a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Element {
    bits: u32,
    signed: bool,
}

impl Element {
    fn from_name(name: &str) -> Option<Element> {
        let (bits, signed) = match name {
            "s8" => (8, true),
            "u8" => (8, false),
            "s4" => (4, true),
            "u4" => (4, false),
            "b1" => (1, false),
            _ => return None,
        };
        Some(Element { bits, signed })
    }

    fn per_register(self) -> usize {
        32 / self.bits as usize
    }

    fn unpack(self, register: u32, at: usize) -> i32 {
        let spare = 32 - self.bits;
        let top = register >> (self.bits * at as u32) << spare;
        if self.signed { top as i32 >> spare } else { (top >> spare) as i32 }
    }
}

/// A decoded product.
#[derive(Debug, Clone)]
pub(crate) struct IntegerProduct {
    m: usize,
    k: usize,
    a_element: Element,
    b_element: Element,
    /// Single bits are joined by exclusive or instead of and.
    xors: bool,
    saturates: bool,
    d: Vec<u32>,
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "mma" || !op.all_of(&["s32", "sync", "aligned", "row", "col"]) {
        return Ok(false);
    }
    let parts: Vec<&str> = op.parts().collect();
    let shape = parts.iter().find_map(|part| {
        let (m, k) = part.strip_prefix('m')?.split_once("n8k")?;
        Some((m.parse::<usize>().ok()?, k.parse::<usize>().ok()?))
    });
    let elements: Vec<Element> = parts.iter().filter_map(|part| Element::from_name(part)).collect();
    let (Some((m, k)), [a_element, b_element]) = (shape, elements.as_slice()) else { return Err(op.unsupported()) };
    let fits = match a_element.bits {
        8 => matches!((m, k), (16, 16 | 32) | (8, 16)),
        4 => matches!((m, k), (16, 32 | 64) | (8, 32)),
        _ => matches!((m, k), (16, 128 | 256) | (8, 128)),
    };
    let (xors, saturates) = (op.has("xor"), op.has("satfinite"));
    let of_bits = a_element.bits == 1;
    if !fits || a_element.bits != b_element.bits || of_bits != op.has("popc") || of_bits != (xors || op.has("and")) {
        return Err(op.unsupported());
    }
    op.ignore(|_| true);
    let [d, a, b, c] = instruction.operands.as_slice() else {
        return Err(Error::parse(op.line, "`mma` takes four operands"));
    };
    let per_row = k / (4 * a_element.per_register());
    let product = IntegerProduct {
        m,
        k,
        a_element: *a_element,
        b_element: *b_element,
        xors,
        saturates,
        d: results(emitter, d, m / 4)?,
        a: sources(emitter, a, m / 8 * per_row)?,
        b: sources(emitter, b, per_row)?,
        c: sources(emitter, c, m / 4)?,
    };
    let x = emitter.detail(product);
    emitter.push_plain(multiply, Tensor, [0, 0, 0, 0, x]);
    Ok(true)
}

fn multiply(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let product = program.detail::<IntegerProduct>(instr.x);
    let registers = &mut ctx.warp.registers;
    let a = rows_of_a(registers, product);
    let b = columns_of_b(registers, product);
    let sums: Vec<[u32; LANES]> = (0..product.d.len())
        .map(|at| {
            let start = registers.word(product.c[at]);
            std::array::from_fn(|lane| {
                let (row, column) = (lane / 4 + at / 2 * 8, lane % 4 * 2 + at % 2);
                product.sum(start[lane] as i32, &a[row], &b[column])
            })
        })
        .collect();
    for (row, &slot) in sums.iter().zip(&product.d) {
        registers.set_word(slot, row, u32::MAX);
    }
    ctx.meet();
    Outcome::Next
}

impl IntegerProduct {
    fn sum(&self, start: i32, a: &[i32; MAX_K], b: &[i32; MAX_K]) -> u32 {
        let pairs = a[..self.k].iter().zip(&b[..self.k]);
        // At most 64 products of 16 bits, or 256 bits.
        let sum: i32 = pairs.map(|(a, b)| if self.xors { a ^ b } else { a * b }).sum();
        (if self.saturates { start.saturating_add(sum) } else { start.wrapping_add(sum) }) as u32
    }
}

/// Four lanes hold a row. Registers go over the halves of the rows first, then along k.
fn rows_of_a(registers: &Registers, product: &IntegerProduct) -> Vec<[i32; MAX_K]> {
    let mut rows = vec![[0; MAX_K]; product.m];
    let (width, halves) = (product.a_element.per_register(), product.m / 8);
    for (register, &slot) in product.a.iter().enumerate() {
        for (lane, word) in registers.word(slot).iter().enumerate() {
            let first = register / halves * 4 * width + lane % 4 * width;
            let row = &mut rows[lane / 4 + register % halves * 8];
            (0..width).for_each(|at| row[first + at] = product.a_element.unpack(*word, at));
        }
    }
    rows
}

/// Four lanes hold a column.
fn columns_of_b(registers: &Registers, product: &IntegerProduct) -> [[i32; MAX_K]; N] {
    let mut columns = [[0; MAX_K]; N];
    let width = product.b_element.per_register();
    for (register, &slot) in product.b.iter().enumerate() {
        for (lane, word) in registers.word(slot).iter().enumerate() {
            let first = register * 4 * width + lane % 4 * width;
            (0..width).for_each(|at| columns[lane / 4][first + at] = product.b_element.unpack(*word, at));
        }
    }
    columns
}
