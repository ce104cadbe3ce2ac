//! Barriers of a block and of a cluster, and fences.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::warp::warp_barrier;
use crate::sim::machine::block::BARRIERS;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::machine::warp::Wait;
use crate::sim::metrics::InstructionClass::Barrier;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Scope, Type};
use crate::sim::report::Check;

/// Bits of the field `x` of a barrier.
const WAITS: u32 = 1;
const ALIGNED: u32 = 2;
const COUNTED: u32 = 4;
const VOTES: u32 = 8;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    let name = op.name;
    match name {
        "bar" if op.take("warp") => {
            op.take("sync");
            warp_barrier(emitter, op, operands)?;
        }
        "barrier" if op.take("cluster") => cluster(emitter, op)?,
        "bar" | "barrier" => block(emitter, op, operands)?,
        "membar" | "fence" => fence(emitter, op),
        _ => return Ok(false),
    }
    Ok(true)
}

fn fence(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>) {
    // Without a scope it is one between proxies, which orders the own accesses only.
    let scope = op.take_map(Scope::from_name).unwrap_or(Scope::Block);
    // A proxy fence for global memory alone does nothing for shared memory.
    let orders_proxies = op.take("proxy") && !op.take("global");
    let shows_objects = op.take("mbarrier_init");
    op.ignore(|modifier| {
        matches!(
            modifier,
            "sc" | "acq_rel" | "acquire" | "release" | "async" | "alias" | "shared::cta" | "shared::cluster"
        ) || modifier.starts_with("async::")
            || modifier.starts_with("tensormap")
            || modifier.starts_with("sync_restrict")
    });
    let handler: fn(&mut Context<'_>, &Program, &Instr, u32) -> Outcome = if orders_proxies {
        |ctx, _, _, mask| {
            ctx.fence_proxy(mask);
            Outcome::Next
        }
    } else if shows_objects {
        |ctx, _, _, mask| {
            ctx.block().objects.show_async();
            ctx.fence(Scope::Cluster, mask);
            Outcome::Next
        }
    } else {
        match scope {
            Scope::Block => |ctx, _, _, mask| fence_of(ctx, Scope::Block, mask),
            Scope::Cluster => |ctx, _, _, mask| fence_of(ctx, Scope::Cluster, mask),
            Scope::Device => |ctx, _, _, mask| fence_of(ctx, Scope::Device, mask),
        }
    };
    emitter.push_plain(handler, Barrier, [0; 5]);
}

fn fence_of(ctx: &mut Context<'_>, scope: Scope, mask: u32) -> Outcome {
    ctx.fence(scope, mask);
    Outcome::Next
}

fn block(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    op.take("cta");
    let mut flags = if op.take("aligned") || op.name == "bar" { ALIGNED } else { 0 };
    if op.take("red") {
        return reduction(emitter, op, operands, flags | WAITS | VOTES);
    }
    if op.take("sync") {
        flags |= WAITS;
    } else if !op.take("arrive") {
        return Err(op.unsupported());
    }
    if operands.is_empty() || operands.len() > 2 {
        return Err(Error::parse(op.line, "a barrier takes its number and maybe a number of threads"));
    }
    if let Operand::Integer(id @ 16..) = operands[0] {
        return Err(Error::parse(op.line, format!("barrier {id}; a block has {BARRIERS}")));
    }
    let id = emitter.source(Class::Word, &operands[0])?;
    let mut count = 0;
    if let Some(operand) = operands.get(1) {
        flags |= COUNTED;
        count = emitter.source(Class::Word, operand)?;
    }
    emitter.push_plain(arrive, Barrier, [0, id, count, 0, flags]);
    Ok(())
}

/// `bar.red.{popc,and,or}`: arrives with a predicate, then reads what all of them gave.
fn reduction(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand], mut flags: u32) -> Result<()> {
    let (count, pred) = match operands.len() {
        3 => (None, &operands[2]),
        4 => (Some(&operands[2]), &operands[3]),
        _ => return Err(Error::parse(op.line, "a barrier with a reduction takes 3 or 4 operands")),
    };
    let id = emitter.source(Class::Word, &operands[1])?;
    let vote = emitter.source(Class::Pred, pred)?;
    let mut threads = 0;
    if let Some(count) = count {
        flags |= COUNTED;
        threads = emitter.source(Class::Word, count)?;
    }
    let read: fn(&mut Context<'_>, &Program, &Instr, u32) -> Outcome = if op.take("popc") {
        read_count
    } else if op.take("and") {
        read_all
    } else if op.take("or") {
        read_any
    } else {
        return Err(op.unsupported());
    };
    let class = if op.ty()? == Type::Pred { Class::Pred } else { Class::Word };
    let d = emitter.result(class, &operands[0])?;
    emitter.push_plain(arrive, Barrier, [0, id, threads, vote, flags]);
    emitter.push_plain(read, Barrier, [d, id, 0, 0, 0]);
    Ok(())
}

fn arrive(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let first = mask.trailing_zeros() as usize & 31;
    let alive = ctx.warp.alive();
    if instr.x & ALIGNED != 0 && mask != alive {
        return Outcome::Wait(Wait::Lanes { members: alive, is_barrier: true });
    }
    let id = ctx.warp.registers.word(instr.a)[first];
    if id as usize >= BARRIERS {
        ctx.report(Check::Trap, first, None, format!("barrier {id}; a block has {BARRIERS}"));
        return Outcome::Abort;
    }
    let expected = (instr.x & COUNTED != 0).then(|| ctx.warp.registers.word(instr.b)[first]);
    if let Some(count) = expected
        && (count == 0 || count % LANES as u32 != 0)
    {
        ctx.report(
            Check::Trap,
            first,
            None,
            format!("a barrier for {count} threads; a positive multiple of 32 is needed"),
        );
        return Outcome::Abort;
    }
    let votes = ctx.warp.registers.preds[instr.c as usize];
    ctx.log.counters.barriers += 1;
    let barrier = &ctx.blocks[ctx.me].barriers[id as usize];
    if barrier.arrived > 0 && barrier.expected != expected {
        let name = |count: Option<u32>| count.map_or("all".to_owned(), |count| count.to_string());
        let known = name(barrier.expected);
        let message = format!("barrier {id} for {} threads, while others wait there for {known}", name(expected));
        ctx.report(Check::BarrierDivergence, first, None, message);
    }
    ctx.arrive(id);
    // With a count, a warp stands for 32 threads even where it has fewer.
    let threads = if expected.is_some() && instr.x & ALIGNED != 0 { LANES as u32 } else { mask.count_ones() };
    let barrier = ctx.block().arrive(id, threads);
    barrier.expected = expected;
    if instr.x & VOTES != 0 {
        barrier.gathered.count += (votes & mask).count_ones();
        barrier.gathered.all &= votes & mask == mask;
        barrier.gathered.any |= votes & mask != 0;
    }
    let generation = barrier.generation;
    if instr.x & WAITS != 0 { Outcome::Wait(Wait::Barrier { id, generation }) } else { Outcome::Next }
}

fn result(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> crate::sim::machine::block::Reduction {
    let id = ctx.warp.registers.word(instr.a)[mask.trailing_zeros() as usize & 31];
    ctx.block().barriers[id as usize % BARRIERS].result
}

fn read_count(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let count = result(ctx, instr, mask).count;
    ctx.warp.registers.set_word(instr.d, &[count; LANES], mask);
    Outcome::Next
}

fn read_all(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let all = result(ctx, instr, mask).all;
    ctx.warp.registers.set_pred(instr.d, if all { u32::MAX } else { 0 }, mask);
    Outcome::Next
}

fn read_any(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let any = result(ctx, instr, mask).any;
    ctx.warp.registers.set_pred(instr.d, if any { u32::MAX } else { 0 }, mask);
    Outcome::Next
}

fn cluster(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>) -> Result<()> {
    let arrives = op.take("arrive");
    if !arrives && !op.take("wait") {
        return Err(op.unsupported());
    }
    op.ignore(|modifier| matches!(modifier, "aligned" | "release" | "acquire" | "relaxed"));
    emitter.push_plain(if arrives { cluster_arrive } else { cluster_wait }, Barrier, [0; 5]);
    Ok(())
}

fn cluster_arrive(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    ctx.log.counters.barriers += 1;
    let generation = ctx.blocks[0].cluster_barrier.generation;
    let barrier = &mut ctx.blocks[0].cluster_barrier;
    ctx.warp.race.publish_to(&mut barrier.clock);
    barrier.shown.join(&ctx.warp.race.shown);
    barrier.arrived += mask.count_ones();
    ctx.warp.cluster_generation = generation;
    ctx.meet();
    Outcome::Next
}

fn cluster_wait(ctx: &mut Context<'_>, _: &Program, _: &Instr, _: u32) -> Outcome {
    Outcome::Wait(Wait::Cluster { generation: ctx.warp.cluster_generation })
}
