//! The video instructions: sums, differences, extrema, averages and comparisons of the words, halves or bytes of registers.
//!
//! Parts of an operand that are chosen one by one (`%r1.b0`) and masks of a result are not modelled.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::metrics::InstructionClass::Integer;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Add,
    Subtract,
    AbsoluteDifference,
    Min,
    Max,
    /// Rounded away from zero.
    Average,
    ShiftLeft,
    ShiftRight,
    Compare(Comparison),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What is done with the result and the third source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    Add,
    Min,
    Max,
}

/// A decoded instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VideoOperation {
    kind: Kind,
    /// Of a part: 32, 16 or 8.
    bits: u32,
    a_signed: bool,
    b_signed: bool,
    d_signed: bool,
    saturates: bool,
    /// Shifts by more than the width count modulo it.
    wraps: bool,
    then: Then,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let stem = op.name.trim_end_matches(['2', '4']);
    let bits = match &op.name[stem.len()..] {
        "" => 32,
        "2" => 16,
        "4" => 8,
        _ => return Ok(false),
    };
    let kind = match (stem, bits) {
        ("vadd", _) => Kind::Add,
        ("vsub", _) => Kind::Subtract,
        ("vabsdiff", _) => Kind::AbsoluteDifference,
        ("vmin", _) => Kind::Min,
        ("vmax", _) => Kind::Max,
        ("vavrg", 8 | 16) => Kind::Average,
        ("vshl", 32) => Kind::ShiftLeft,
        ("vshr", 32) => Kind::ShiftRight,
        ("vset", _) => Kind::Compare(op.take_map(comparison).ok_or_else(|| op.unsupported())?),
        _ => return Ok(false),
    };
    let signed = |ty: &Type| match ty {
        Type::U32 => Some(false),
        Type::S32 => Some(true),
        _ => None,
    };
    let signs: Option<Vec<bool>> = op.types.iter().map(signed).collect();
    let (d_signed, a_signed, b_signed) = match (kind, signs.as_deref()) {
        (Kind::Compare(_), Some([a, b])) => (false, *a, *b),
        (_, Some([d, a, b])) => (*d, *a, *b),
        _ => return Err(op.unsupported()),
    };
    let is_shift = matches!(kind, Kind::ShiftLeft | Kind::ShiftRight);
    let wraps = is_shift && op.take("wrap");
    if is_shift && !wraps && !op.take("clamp") {
        return Err(op.unsupported());
    }
    let then = op.take_map(|modifier| match modifier {
        "add" => Some(Then::Add),
        "min" if bits == 32 => Some(Then::Min),
        "max" if bits == 32 => Some(Then::Max),
        _ => None,
    });
    let then = then.unwrap_or(Then::Nothing);
    let saturates = op.take("sat");
    let operands = &instruction.operands;
    // Several parts have a third source always: the result is merged into it, here without anything left of it.
    let has_third = bits < 32 || then != Then::Nothing;
    emitter.expect_operands(op, operands, if has_third { 4 } else { 3 })?;
    let a = emitter.source(Class::Word, &operands[1])?;
    let b = emitter.source(Class::Word, &operands[2])?;
    let c = if has_third { emitter.source(Class::Word, &operands[3])? } else { a };
    let d = emitter.result(Class::Word, &operands[0])?;
    let x = emitter.detail(VideoOperation { kind, bits, a_signed, b_signed, d_signed, saturates, wraps, then });
    emitter.push_plain(run, Integer, [d, a, b, c, x]);
    Ok(true)
}

fn comparison(modifier: &str) -> Option<Comparison> {
    Some(match modifier {
        "eq" => Comparison::Equal,
        "ne" => Comparison::NotEqual,
        "lt" => Comparison::Less,
        "le" => Comparison::LessOrEqual,
        "gt" => Comparison::Greater,
        "ge" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn run(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let operation = *program.detail::<VideoOperation>(instr.x);
    let registers = &mut ctx.warp.registers;
    let [a, b, c] = [instr.a, instr.b, instr.c].map(|slot| *registers.word(slot));
    let result: [u32; LANES] = std::array::from_fn(|lane| operation.apply(a[lane], b[lane], c[lane]));
    registers.set_word(instr.d, &result, mask);
    Outcome::Next
}

/// The number in the lowest bits of a word.
fn number(word: u32, bits: u32, signed: bool) -> i64 {
    let spare = 64 - bits;
    let top = u64::from(word) << spare;
    if signed { top as i64 >> spare } else { (top >> spare) as i64 }
}

impl VideoOperation {
    fn apply(&self, a: u32, b: u32, c: u32) -> u32 {
        let mut merged = 0u32;
        let mut sum = 0i64;
        for part in 0..32 / self.bits {
            let by = part * self.bits;
            let value = self.part(number(a >> by, self.bits, self.a_signed), number(b >> by, self.bits, self.b_signed));
            let kept = value as u32 & (u32::MAX >> (32 - self.bits));
            merged |= kept << by;
            sum += number(kept, self.bits, self.d_signed);
        }
        let third = number(c, 32, self.d_signed);
        match self.then {
            Then::Nothing => merged,
            Then::Add => (sum + third) as u32,
            Then::Min => sum.min(third) as u32,
            Then::Max => sum.max(third) as u32,
        }
    }

    /// Before it is cut to its bits.
    fn part(&self, a: i64, b: i64) -> i64 {
        let by = if self.wraps { b & 31 } else { b.clamp(0, 32) };
        let value = match self.kind {
            Kind::Add => a + b,
            Kind::Subtract => a - b,
            Kind::AbsoluteDifference => (a - b).abs(),
            Kind::Min => a.min(b),
            Kind::Max => a.max(b),
            Kind::Average => (a + b + i64::from(a + b >= 0)) >> 1,
            Kind::ShiftLeft => a << by,
            Kind::ShiftRight => a >> by,
            Kind::Compare(comparison) => i64::from(match comparison {
                Comparison::Equal => a == b,
                Comparison::NotEqual => a != b,
                Comparison::Less => a < b,
                Comparison::LessOrEqual => a <= b,
                Comparison::Greater => a > b,
                Comparison::GreaterOrEqual => a >= b,
            }),
        };
        if !self.saturates {
            return value;
        }
        let (low, high) = if self.d_signed {
            (-(1i64 << (self.bits - 1)), (1i64 << (self.bits - 1)) - 1)
        } else {
            (0, (1i64 << self.bits) - 1)
        };
        value.clamp(low, high)
    }
}
