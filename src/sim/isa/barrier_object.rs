//! `mbarrier`: barrier objects in shared memory that count arrivals of threads and bytes of asynchronous copies.
//!
//! The state is kept beside the memory, by the address of the object: its 8 bytes are opaque to a kernel anyway.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::alu;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::copy_async;
use crate::sim::isa::load_store::addresses;
use crate::sim::machine::barrier_objects::{Object, PENDING_SHIFT, PHASE, token};
use crate::sim::machine::block::Block;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::{OFFSET_MASK, SHARED_RANK_SHIFT};
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::machine::race::clock::Clock;
use crate::sim::machine::race::flight::Range;
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::machine::warp::Wait;
use crate::sim::metrics::InstructionClass::Async;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::report::Check;

/// A decoded operation on an object.
#[derive(Debug, Clone)]
pub(crate) struct ObjectAccess {
    address: AddressOperand,
    /// Count, bytes, token or parity; a slot of words, or of wides for a token.
    value: Option<u32>,
    /// Bytes announced together with an arrival.
    bytes: Option<u32>,
    /// Register for the token or the answer.
    result: Option<u32>,
    by_parity: bool,
    drops: bool,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    let copies_arrive = op.name == "cp" && op.has("mbarrier");
    if op.name != "mbarrier" && !copies_arrive {
        return Ok(false);
    }
    op.ignore(|modifier| {
        matches!(
            modifier,
            "shared"
                | "shared::cta"
                | "shared::cluster"
                | "release"
                | "acquire"
                | "relaxed"
                | "cta"
                | "cluster"
                | "noComplete"
        )
    });
    let mut access = ObjectAccess {
        address: AddressOperand { base: None, offset: 0 },
        value: None,
        bytes: None,
        result: None,
        by_parity: false,
        drops: false,
    };
    type Handler = fn(&mut Context<'_>, &Program, &Instr, u32) -> Outcome;
    let handler: Handler;
    let mut is_wait = false;
    // Operands before the address: the result of those that have one.
    let at = operands.iter().position(|operand| matches!(operand, Operand::Address(..))).unwrap_or(0);
    if copies_arrive {
        op.ignore(|modifier| matches!(modifier, "async" | "mbarrier" | "arrive"));
        handler = if op.take("noinc") { copies_arrive_counted } else { copies_arrive_uncounted };
    } else if op.take("init") {
        handler = init;
    } else if op.take("inval") {
        handler = invalidate;
    } else if op.take("test_wait") || op.take("try_wait") {
        access.by_parity = op.take("parity");
        handler = wait;
        is_wait = true;
    } else if op.take("arrive") || op.has("arrive_drop") {
        access.drops = op.take("arrive_drop");
        if op.take("expect_tx") {
            access.bytes = operands.get(at + 1).map(|operand| emitter.source(Class::Word, operand)).transpose()?;
        }
        handler = arrive;
    } else if op.take("expect_tx") {
        handler = expect;
    } else if op.take("complete_tx") {
        handler = complete;
    } else if op.take("pending_count") {
        let pending = alu!(|token: u64| -> u32 { (token >> PENDING_SHIFT) as u32 });
        emitter.bind(pending, Async, op, operands)?;
        return Ok(true);
    } else {
        return Err(op.unsupported());
    }
    access.address = emitter.address_operand(operands.get(at).ok_or_else(|| op.unsupported())?)?;
    if at > 0 {
        let class = if is_wait { Class::Pred } else { Class::Wide };
        access.result = match &operands[0] {
            Operand::Sink => None,
            operand => Some(emitter.result(class, operand)?),
        };
    }
    if access.bytes.is_none()
        && let Some(operand) = operands.get(at + 1)
    {
        let class = if is_wait && !access.by_parity { Class::Wide } else { Class::Word };
        access.value = Some(emitter.source(class, operand)?);
    }
    let x = emitter.detail(access);
    emitter.push_plain(handler, Async, [0, 0, 0, 0, x]);
    Ok(true)
}

/// The block and offset that an address of shared memory means, generic or not.
pub(super) fn locate(ctx: &Context<'_>, address: u64) -> Option<(usize, u32)> {
    let address = address & OFFSET_MASK;
    let offset = (address & ((1 << SHARED_RANK_SHIFT) - 1)) as u32;
    match address >> SHARED_RANK_SHIFT {
        0 => Some((ctx.me, offset)),
        rank => usize::try_from(rank - 1).ok().filter(|rank| *rank < ctx.blocks.len()).map(|rank| (rank, offset)),
    }
}

/// Runs `act` for each active lane on the object that it names; `false` when one of them names none.
fn each_object(
    ctx: &mut Context<'_>,
    program: &Program,
    instr: &Instr,
    mask: u32,
    mut act: impl FnMut(&mut Context<'_>, &ObjectAccess, usize, usize, u32),
) -> bool {
    let access = program.detail::<ObjectAccess>(instr.x);
    let addresses = addresses(&ctx.warp.registers, &access.address);
    for lane in lanes(mask) {
        let place = locate(ctx, addresses[lane]);
        match place.filter(|(block, offset)| ctx.blocks[*block].objects.objects.contains_key(offset)) {
            Some((block, offset)) => act(ctx, access, lane, block, offset),
            None => {
                let message = "no barrier object was made at this address".to_owned();
                ctx.report(Check::BarrierObject, lane, Some(addresses[lane]), message);
                return false;
            }
        }
    }
    true
}

/// Reports an object that asynchronous operations may not see yet.
pub(super) fn must_be_shown(ctx: &mut Context<'_>, lane: usize, block: usize, object: u32) {
    if ctx.grid.options.checks.races && ctx.blocks[block].objects.is_hidden_from_async(object) {
        let message = "a copy is to arrive at a barrier object that no fence.mbarrier_init or \
                       fence.proxy.async has shown to asynchronous copies";
        ctx.report(Check::BarrierObject, lane, Some(u64::from(object)), message.to_owned());
    }
}

fn outcome(good: bool) -> Outcome {
    if good { Outcome::Next } else { Outcome::Abort }
}

fn word(ctx: &Context<'_>, slot: Option<u32>, lane: usize, default: u32) -> u32 {
    slot.map_or(default, |slot| ctx.warp.registers.word(slot)[lane])
}

fn init(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let access = program.detail::<ObjectAccess>(instr.x);
    let addresses = addresses(&ctx.warp.registers, &access.address);
    for lane in lanes(mask) {
        let count = word(ctx, access.value, lane, 1);
        let size = ctx.block().shared.bytes();
        let place =
            locate(ctx, addresses[lane]).filter(|(_, offset)| offset % 8 == 0 && offset.saturating_add(8) <= size);
        let Some((block, offset)) = place.filter(|_| (1..1 << 20).contains(&count)) else {
            let message = format!(
                "a barrier object for {count} arrivals; it needs 8 aligned bytes of shared memory and 1 to 1048575 arrivals"
            );
            ctx.report(Check::BarrierObject, lane, Some(addresses[lane]), message);
            return Outcome::Abort;
        };
        let object = Object { count, pending: count, ..Object::default() };
        if ctx.blocks[block].objects.objects.insert(offset, object).is_some() {
            let message = "a barrier object is made where one stands already; `mbarrier.inval` has to come first";
            ctx.report(Check::BarrierObject, lane, Some(addresses[lane]), message.to_owned());
        }
        ctx.blocks[block].shared.define(u64::from(offset), 8);
    }
    Outcome::Next
}

fn invalidate(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    outcome(each_object(ctx, program, instr, mask, |ctx, _, _, block, offset| {
        ctx.blocks[block].objects.objects.remove(&offset);
    }))
}

/// Wakes whoever waits on an object of the block.
pub(super) fn notify(ctx: &mut Context<'_>, block: usize) {
    ctx.blocks[block].events += 1;
}

fn arrive(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let clock = ctx.passed_on_by(mask);
    let mut tokens = [0u64; LANES];
    let good = each_object(ctx, program, instr, mask, |ctx, access, lane, block, offset| {
        let arrivals = word(ctx, access.value, lane, 1);
        let bytes = word(ctx, access.bytes, lane, 0);
        let (pc, thread) = (ctx.pc, ctx.warp.index * 32 + lane as u32);
        let object = ctx.blocks[block].objects.objects.entry(offset).or_default();
        tokens[lane] = token(object);
        if bytes > 0 {
            object.bytes += i64::from(bytes);
            object.announced = Some((pc, thread));
        }
        let enough = object.pending >= arrivals;
        object.pending = object.pending.saturating_sub(arrivals);
        if access.drops {
            object.count = object.count.saturating_sub(arrivals);
        }
        object.clock.join(&clock);
        if object.settle() {
            notify(ctx, block);
        }
        if !enough {
            let message = "more arrivals than the barrier object was made for".to_owned();
            ctx.report(Check::BarrierObject, lane, Some(u64::from(offset)), message);
        }
    });
    let access = program.detail::<ObjectAccess>(instr.x);
    if let Some(slot) = access.result {
        ctx.warp.registers.set_wide(slot, &tokens, mask);
    }
    ctx.meet();
    outcome(good)
}

fn expect(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    outcome(each_object(ctx, program, instr, mask, |ctx, access, lane, block, offset| {
        let bytes = word(ctx, access.value, lane, 0);
        let (pc, thread) = (ctx.pc, ctx.warp.index * 32 + lane as u32);
        let object = ctx.blocks[block].objects.objects.entry(offset).or_default();
        object.bytes += i64::from(bytes);
        object.announced = Some((pc, thread));
        if object.settle() {
            notify(ctx, block);
        }
    }))
}

fn complete(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let clock = ctx.passed_on_by(mask);
    outcome(each_object(ctx, program, instr, mask, |ctx, access, lane, block, offset| {
        let bytes = word(ctx, access.value, lane, 0);
        ctx.blocks[block].objects.complete_bytes(offset, bytes, &clock);
        notify(ctx, block);
    }))
}

/// The copies of completed phases become known to those who wait.
fn see_arrivals(ctx: &mut Context<'_>, block: usize, offset: u32) {
    let object = ctx.blocks[block].objects.objects.entry(offset).or_default();
    if object.arrived.iter().all(|(phase, _, _)| *phase >= object.phase) {
        return;
    }
    let (seen, rest) = std::mem::take(&mut object.arrived).into_iter().partition(|(phase, _, _)| *phase < object.phase);
    object.arrived = rest;
    let seen: Vec<(u64, Range, u32)> = seen;
    for (_, range, pc) in seen {
        let learnt = ctx.observe_writing(range, offset, pc);
        ctx.blocks[block].objects.objects.entry(offset).or_default().released.join(&learnt);
    }
}

/// `test_wait` and `try_wait`.
fn wait(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let mut done = 0u32;
    let mut learnt = Clock::default();
    // Lanes mostly wait for one object.
    let mut seen = None;
    let good = each_object(ctx, program, instr, mask, |ctx, access, lane, block, offset| {
        let object = &ctx.blocks[block].objects.objects[&offset];
        let complete = if access.by_parity {
            object.phase & 1 != u64::from(word(ctx, access.value, lane, 0) & 1)
        } else {
            let token = access.value.map_or(0, |slot| ctx.warp.registers.wide(slot)[lane]);
            object.phase & PHASE != token & PHASE
        };
        if complete {
            done |= 1 << lane;
        }
        if complete && seen.replace((block, offset)) != Some((block, offset)) {
            see_arrivals(ctx, block, offset);
            let object = &ctx.blocks[block].objects.objects[&offset];
            learnt.join(&object.released);
        }
    });
    if !good {
        return Outcome::Abort;
    }
    // The first answer may be no, as on a device: a kernel that does not look at it must not be right by luck. If
    // nothing has happened since, the warp stands still, so that a wait for ever shows at once.
    let now = (ctx.pc, ctx.block().events);
    if done == 0 && ctx.warp.polled == Some(now) {
        return Outcome::Wait(Wait::Event { seen: now.1 });
    }
    ctx.warp.polled = (done == 0).then_some(now);
    if done != 0 {
        ctx.warp.race.join(&learnt);
        ctx.note_clock();
    }
    let access = program.detail::<ObjectAccess>(instr.x);
    if let Some(slot) = access.result {
        ctx.warp.registers.set_pred(slot, done, mask);
    }
    if done == mask { Outcome::Next } else { Outcome::Yield }
}

/// `cp.async.mbarrier.arrive.noinc`: the copies of the thread so far, once done, are one of the arrivals that were
/// counted.
fn copies_arrive_counted(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    copy_async::finish_all(ctx, mask);
    arrive(ctx, program, instr, mask)
}

/// Without `.noinc` the arrival is added to what the phase needs first, so that nothing changes but the order.
fn copies_arrive_uncounted(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    copy_async::finish_all(ctx, mask);
    each_object(ctx, program, instr, mask, |ctx, _, _, block, offset| {
        ctx.blocks[block].objects.objects.entry(offset).or_default().pending += 1;
    });
    arrive(ctx, program, instr, mask)
}

/// Reports what the end of a block leaves undone: bytes that were announced and never came, copies that nobody waited
/// for, which may land when the shared memory is another block's.
pub(crate) fn report_unfinished(block: &Block, mut report: impl FnMut(Check, u32, u32, String)) {
    for (pc, thread, bytes) in block.objects.unfinished() {
        let message = format!("{bytes} of the announced bytes never came, and the block ended");
        report(Check::BarrierObject, pc, thread, message);
    }
    for pc in block.objects.unseen() {
        let message = "the block ended before anyone waited for this copy into its shared memory".to_owned();
        report(Check::AsyncCopy, pc, 0, message);
    }
}
