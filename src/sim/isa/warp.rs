//! Operations of a warp: shuffles, votes, matches, reductions, and the meeting of lanes that they begin with.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::machine::warp::{Split, Wait};
use crate::sim::metrics::InstructionClass::Warp;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::report::Check;
use crate::sim::tier::tiers;

/// What a lane reads from one that takes no part, or has exited: no number in any format, and the largest integer, so
/// that it shows wherever it is used.
const UNDEFINED: u32 = 0x7FFF_FFFF;
/// The field `x` of an instruction without a second result.
const NO_SLOT: u32 = u32::MAX;

type Handler = fn(&mut Context<'_>, &Program, &Instr, u32) -> Outcome;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    match op.name {
        "shfl" => shuffle(emitter, op, operands)?,
        "vote" => vote(emitter, op, operands)?,
        "match" => matching(emitter, op, operands)?,
        "redux" => reduction(emitter, op, operands)?,
        "elect" => {
            op.take("sync");
            emitter.expect_operands(op, operands, 2)?;
            let (d, p) = results(emitter, Class::Word, &operands[0])?;
            let members = emitter.source(Class::Word, &operands[1])?;
            emitter.push_plain(elect, Warp, [d, 0, 0, members, p]);
        }
        "activemask" => {
            emitter.expect_operands(op, operands, 1)?;
            let d = emitter.result(Class::Word, &operands[0])?;
            emitter.push_plain(active_mask, Warp, [d, 0, 0, 0, 0]);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A result and its optional predicate: `d` or `d|p`.
fn results(emitter: &mut Emitter<'_>, class: Class, operand: &Operand) -> Result<(u32, u32)> {
    match operand {
        Operand::Pair(first, second) => {
            let d = emitter.result(class, &Operand::Register(*first))?;
            let p = match second {
                Some(second) => emitter.result(Class::Pred, &Operand::Register(*second))?,
                None => NO_SLOT,
            };
            Ok((d, p))
        }
        _ => Ok((emitter.result(class, operand)?, NO_SLOT)),
    }
}

/// Lets lanes with one member mask act together once all of them are here; the others wait.
#[inline(always)]
pub(super) fn together(
    ctx: &mut Context<'_>,
    members: u32,
    mask: u32,
    mut act: impl FnMut(&mut Context<'_>, u32),
) -> Outcome {
    let row = *ctx.warp.registers.word(members);
    let first = row[mask.trailing_zeros() as usize & 31];
    if first == mask && lanes(mask).all(|lane| row[lane] == first) {
        act(ctx, mask);
        ctx.meet_of(mask);
        return Outcome::Next;
    }
    apart(ctx, &row, mask, act)
}

#[cold]
fn apart(
    ctx: &mut Context<'_>,
    members: &[u32; LANES],
    mask: u32,
    mut act: impl FnMut(&mut Context<'_>, u32),
) -> Outcome {
    let mut rest = mask;
    let mut done = 0;
    while rest != 0 {
        let wanted = members[rest.trailing_zeros() as usize];
        let group = lanes(rest).filter(|&lane| members[lane] == wanted).fold(0, |group, lane| group | 1 << lane);
        rest &= !group;
        if group & !wanted != 0 {
            let lane = (group & !wanted).trailing_zeros() as usize;
            ctx.report(
                Check::MemberMask,
                lane,
                None,
                format!("lane {lane} takes part, but the member mask {wanted:#010x} leaves it out"),
            );
        }
        // Lanes that have exited are not waited for: the operation is one of the others.
        let missing = wanted & ctx.warp.alive() & !group;
        if missing == 0 {
            act(ctx, group);
            ctx.meet_of(group);
            done |= group;
        } else {
            let wait = Some(Wait::Lanes { members: wanted & ctx.warp.alive(), is_barrier: false });
            ctx.warp.scattered.push(Split { pc: ctx.pc, mask: group, wait });
        }
    }
    if done == mask {
        return Outcome::Next;
    }
    if done != 0 {
        ctx.warp.scattered.push(Split { pc: ctx.pc + 1, mask: done, wait: None });
    }
    Outcome::Scatter
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
    Butterfly,
    Index,
}

fn shuffle(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if !op.take("sync") || op.ty()? != Type::B32 {
        return Err(op.unsupported());
    }
    emitter.expect_operands(op, operands, 5)?;
    let (d, p) = results(emitter, Class::Word, &operands[0])?;
    let fields = [1, 2, 3, 4].map(|at| emitter.source(Class::Word, &operands[at]));
    let [a, b, c, members] = fields;
    let (a, b) = (a?, b?);
    let extra = [c?, members?, p].map(|index| crate::sim::machine::registers::Slot { class: Class::Word, index });
    let list = emitter.list(extra.to_vec());
    let handlers = if op.take("up") {
        tiers!(shuffle_up: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome)
    } else if op.take("down") {
        tiers!(shuffle_down: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome)
    } else if op.take("bfly") {
        tiers!(shuffle_butterfly: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome)
    } else if op.take("idx") {
        tiers!(shuffle_index: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome)
    } else {
        return Err(op.unsupported());
    };
    emitter.push_action(handlers, Warp, [d, a, b, 0, list]);
    Ok(())
}

#[inline(always)]
fn shuffle_up(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    exchange(ctx, program, instr, mask, Direction::Up)
}
#[inline(always)]
fn shuffle_down(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    exchange(ctx, program, instr, mask, Direction::Down)
}
#[inline(always)]
fn shuffle_butterfly(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    exchange(ctx, program, instr, mask, Direction::Butterfly)
}
#[inline(always)]
fn shuffle_index(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    exchange(ctx, program, instr, mask, Direction::Index)
}

#[inline(always)]
fn exchange(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32, direction: Direction) -> Outcome {
    let [c, members, p] = [0, 1, 2].map(|at| program.lists[instr.x as usize][at].index);
    together(
        ctx,
        members,
        mask,
        // Inlined it is built for the vectors that the handler is built for.
        #[inline(always)]
        |ctx, group| {
            let registers = &mut ctx.warp.registers;
            let (value, shift, control) = (*registers.word(instr.a), *registers.word(instr.b), *registers.word(c));
            let mut result = [0; LANES];
            let mut inside = 0;
            for lane in 0..LANES as u32 {
                let at = lane as usize;
                let segment = control[at] >> 8 & 31;
                let clamp = control[at] & 31;
                let shift = shift[at] & 31;
                let last = (lane & segment) | (clamp & !segment);
                let source = match direction {
                    Direction::Up => lane.wrapping_sub(shift),
                    Direction::Down => lane + shift,
                    Direction::Butterfly => lane ^ shift,
                    Direction::Index => (lane & segment) | (shift & !segment),
                };
                let valid = match direction {
                    Direction::Up => source as i32 >= last as i32,
                    _ => source <= last,
                };
                let source = if valid { source & 31 } else { lane };
                inside |= u32::from(valid) << lane;
                result[at] = if group >> source & 1 != 0 { value[source as usize] } else { UNDEFINED };
            }
            registers.set_word(instr.d, &result, group);
            if p != NO_SLOT {
                registers.set_pred(p, inside, group);
            }
        },
    )
}

fn vote(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if !op.take("sync") {
        return Err(op.unsupported());
    }
    emitter.expect_operands(op, operands, 3)?;
    let a = emitter.source(Class::Pred, &operands[1])?;
    let members = emitter.source(Class::Word, &operands[2])?;
    let (class, handler): (Class, Handler) = if op.take("ballot") {
        (Class::Word, ballot)
    } else if op.take("all") {
        (Class::Pred, vote_all)
    } else if op.take("any") {
        (Class::Pred, vote_any)
    } else if op.take("uni") {
        (Class::Pred, vote_uniform)
    } else {
        return Err(op.unsupported());
    };
    let d = emitter.result(class, &operands[0])?;
    emitter.push_plain(handler, Warp, [d, a, 0, members, NO_SLOT]);
    Ok(())
}

fn ballot(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    together(ctx, instr.c, mask, |ctx, group| {
        let votes = ctx.warp.registers.preds[instr.a as usize] & group;
        ctx.warp.registers.set_word(instr.d, &[votes; LANES], group);
    })
}

fn decide(ctx: &mut Context<'_>, instr: &Instr, mask: u32, decision: impl Fn(u32, u32) -> bool) -> Outcome {
    together(ctx, instr.c, mask, |ctx, group| {
        let votes = ctx.warp.registers.preds[instr.a as usize] & group;
        let result = if decision(votes, group) { u32::MAX } else { 0 };
        ctx.warp.registers.set_pred(instr.d, result, group);
    })
}

fn vote_all(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    decide(ctx, instr, mask, |votes, group| votes == group)
}

fn vote_any(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    decide(ctx, instr, mask, |votes, _| votes != 0)
}

fn vote_uniform(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    decide(ctx, instr, mask, |votes, group| votes == 0 || votes == group)
}

fn matching(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if !op.take("sync") {
        return Err(op.unsupported());
    }
    emitter.expect_operands(op, operands, 3)?;
    let class = match op.ty()? {
        Type::B32 => Class::Word,
        Type::B64 => Class::Wide,
        _ => return Err(op.unsupported()),
    };
    let all = op.take("all");
    if !all && !op.take("any") {
        return Err(op.unsupported());
    }
    let (d, p) = results(emitter, Class::Word, &operands[0])?;
    let a = emitter.source(class, &operands[1])?;
    let members = emitter.source(Class::Word, &operands[2])?;
    let handler: Handler = if all { match_all } else { match_any };
    emitter.push_plain(handler, Warp, [d, a, u32::from(class == Class::Wide), members, p]);
    Ok(())
}

fn values(ctx: &Context<'_>, instr: &Instr) -> [u64; LANES] {
    if instr.b != 0 { *ctx.warp.registers.wide(instr.a) } else { ctx.warp.registers.word(instr.a).map(u64::from) }
}

fn match_any(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    together(ctx, instr.c, mask, |ctx, group| {
        let values = values(ctx, instr);
        let same = |lane: usize| {
            lanes(group).filter(|&other| values[other] == values[lane]).fold(0, |set, other| set | 1 << other)
        };
        ctx.warp.registers.set_word(instr.d, &std::array::from_fn(same), group);
    })
}

fn match_all(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    together(ctx, instr.c, mask, |ctx, group| {
        let values = values(ctx, instr);
        let first = values[group.trailing_zeros() as usize];
        let all = lanes(group).all(|lane| values[lane] == first);
        ctx.warp.registers.set_word(instr.d, &[if all { group } else { 0 }; LANES], group);
        if instr.x != NO_SLOT {
            ctx.warp.registers.set_pred(instr.x, if all { u32::MAX } else { 0 }, group);
        }
    })
}

fn reduction(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if !op.take("sync") {
        return Err(op.unsupported());
    }
    emitter.expect_operands(op, operands, 3)?;
    const NAMES: [&str; 6] = ["add", "min", "max", "and", "or", "xor"];
    let name =
        op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier)).ok_or_else(|| op.unsupported())?;
    let handler: Handler = match (name, op.ty()?) {
        ("add", Type::U32 | Type::S32) => |ctx, _, instr, mask| fold(ctx, instr, mask, u32::wrapping_add),
        ("min", Type::U32) => |ctx, _, instr, mask| fold(ctx, instr, mask, u32::min),
        ("max", Type::U32) => |ctx, _, instr, mask| fold(ctx, instr, mask, u32::max),
        ("min", Type::S32) => |ctx, _, instr, mask| fold(ctx, instr, mask, |a, b| (a as i32).min(b as i32) as u32),
        ("max", Type::S32) => |ctx, _, instr, mask| fold(ctx, instr, mask, |a, b| (a as i32).max(b as i32) as u32),
        ("and", Type::B32) => |ctx, _, instr, mask| fold(ctx, instr, mask, |a, b| a & b),
        ("or", Type::B32) => |ctx, _, instr, mask| fold(ctx, instr, mask, |a, b| a | b),
        ("xor", Type::B32) => |ctx, _, instr, mask| fold(ctx, instr, mask, |a, b| a ^ b),
        _ => return Err(op.unsupported()),
    };
    let d = emitter.result(Class::Word, &operands[0])?;
    let a = emitter.source(Class::Word, &operands[1])?;
    let members = emitter.source(Class::Word, &operands[2])?;
    emitter.push_plain(handler, Warp, [d, a, 0, members, NO_SLOT]);
    Ok(())
}

fn fold(ctx: &mut Context<'_>, instr: &Instr, mask: u32, combine: impl Fn(u32, u32) -> u32) -> Outcome {
    together(ctx, instr.c, mask, |ctx, group| {
        let values = *ctx.warp.registers.word(instr.a);
        if let Some(total) = lanes(group).map(|lane| values[lane]).reduce(&combine) {
            ctx.warp.registers.set_word(instr.d, &[total; LANES], group);
        }
    })
}

fn elect(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    together(ctx, instr.c, mask, |ctx, group| {
        let leader = group.trailing_zeros();
        ctx.warp.registers.set_word(instr.d, &[leader; LANES], group);
        if instr.x != NO_SLOT {
            ctx.warp.registers.set_pred(instr.x, 1 << leader, group);
        }
    })
}

fn active_mask(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    ctx.warp.registers.set_word(instr.d, &[mask; LANES], mask);
    Outcome::Next
}

/// `bar.warp.sync`: lanes meet, nothing else. Meeting at different instructions is allowed by the hardware, not by the
/// compiler's use.
pub(super) fn warp_barrier(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    emitter
        .expect_operands(op, operands, 1)
        .map_err(|_| Error::parse(op.line, "`bar.warp.sync` takes a member mask"))?;
    let members = emitter.source(Class::Word, &operands[0])?;
    emitter.push_plain(
        |ctx, _, instr, mask| together(ctx, instr.c, mask, |_, _| {}),
        Warp,
        [0, 0, 0, members, NO_SLOT],
    );
    Ok(())
}
