//! Bulk asynchronous copies, plain and by tensor map: into shared memory with an announcement to a barrier object, out
//! of it in groups.
//!
//! In early mode the data moves when a copy is issued, in late mode when nothing else can run (into shared memory) or
//! when the group is waited for (out of it).

mod moving;

mod reduction;

pub(crate) use moving::land;
pub(super) use moving::reduce;

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::barrier_object::{locate, must_be_shown};
use crate::sim::isa::bulk::moving::store;
use crate::sim::isa::bulk::reduction::Operation;
use crate::sim::isa::load_store::addresses;
use crate::sim::machine::bulk_queue::Flight;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::{OFFSET_MASK, Window, window};
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::machine::race::flight::Range;
use crate::sim::machine::registers::Class;
use crate::sim::machine::tensor_map::{Element, Swizzle, TensorMap, Unit};
use crate::sim::metrics::InstructionClass::Async;
use crate::sim::options::Completion;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::report::Check;

/// Dimensions of a tensor, as opcodes name them.
const RANKS: [&str; 5] = ["1d", "2d", "3d", "4d", "5d"];

/// One decoded copy.
#[derive(Debug, Clone)]
pub(crate) struct BulkCopy {
    into_shared: bool,
    shared: AddressOperand,
    /// The other side: global memory, shared memory of another block, or a tensor map.
    far: AddressOperand,
    far_is_shared: bool,
    coordinates: Option<Vec<u32>>,
    /// Columns and rows from the pixels of an im2col copy to what is copied.
    offsets: Option<[u32; 2]>,
    /// Bytes of a plain copy.
    bytes: Option<u32>,
    object: Option<AddressOperand>,
    /// Blocks of the cluster that receive a multicast.
    receivers: Option<u32>,
    /// What `cp.reduce` joins elements by.
    operation: Option<Operation>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "cp" || !op.has("bulk") {
        return Ok(false);
    }
    op.ignore(|modifier| matches!(modifier, "async" | "bulk" | "tile" | "L2::cache_hint"));
    let operands = &instruction.operands;
    if op.take("prefetch") {
        op.ignore(|_| true);
        return Ok(true);
    }
    if op.take("commit_group") {
        emitter.push_plain(close_group, Async, [0; 5]);
        return Ok(true);
    }
    if op.take("wait_group") {
        op.take("read");
        let Some(Operand::Integer(count)) = operands.first() else {
            return Err(Error::parse(op.line, "`cp.async.bulk.wait_group` takes a number of groups"));
        };
        emitter.push_plain(wait_group, Async, [0, 0, 0, 0, (*count).min(1 << 30) as u32]);
        return Ok(true);
    }
    let tensor = op.take("tensor");
    let operation = if op.take("reduce") { Some(Operation::emit(emitter, op, tensor)?) } else { None };
    let rank = op.take_map(|modifier| RANKS.iter().position(|rank| *rank == modifier).map(|at| at + 1));
    let is_im2col = op.take("im2col");
    let announces = op.take("mbarrier::complete_tx::bytes");
    let in_group = op.take("bulk_group");
    let multicast = op.take("multicast::cluster");
    let cluster = op.take("shared::cluster");
    let (own, global) = (op.take("shared::cta"), op.take("global"));
    let into_shared = announces;
    if announces == in_group
        || (in_group && (!own || !global))
        || (announces && !global && !(cluster && own))
        || tensor != rank.is_some()
        || (operation.is_some() && !in_group)
        || (is_im2col && (rank != Some(4) || !into_shared))
    {
        return Err(op.unsupported());
    }
    let (shared_at, far_at) = if into_shared { (0, 1) } else { (1, 0) };
    let missing = || Error::parse(op.line, "an operand of the bulk copy is missing");
    let (far, coordinates) = match operands.get(far_at).ok_or_else(missing)? {
        Operand::Tensor(base, offset, coordinates) if tensor && Some(coordinates.len()) == rank => {
            let slots =
                coordinates.iter().map(|item| emitter.source(Class::Word, item)).collect::<Result<Vec<u32>>>()?;
            (emitter.address(*base, *offset)?, Some(slots))
        }
        operand if !tensor => (emitter.address_operand(operand)?, None),
        _ => return Err(Error::parse(op.line, "expected `[map, {coordinates}]`")),
    };
    let shared = emitter.address_operand(operands.get(shared_at).ok_or_else(missing)?)?;
    let mut next = 2;
    let mut take = || {
        next += 1;
        operands.get(next - 1).ok_or_else(missing)
    };
    let bytes = if tensor { None } else { Some(emitter.source(Class::Word, take()?)?) };
    let object = if announces { Some(emitter.address_operand(take()?)?) } else { None };
    let offsets = if is_im2col {
        match take()? {
            Operand::Vector(items) if items.len() == 2 => {
                Some([emitter.source(Class::Word, &items[0])?, emitter.source(Class::Word, &items[1])?])
            }
            _ => return Err(Error::parse(op.line, "expected the two offsets of an im2col copy")),
        }
    } else {
        None
    };
    let receivers = if multicast { Some(emitter.source(Class::Word, take()?)?) } else { None };
    emitter.traits.has_async_readers = true;
    emitter.traits.has_strong_accesses |= operation.is_some();
    let x = emitter.detail(BulkCopy {
        into_shared,
        shared,
        far,
        far_is_shared: announces && !global,
        coordinates,
        offsets,
        bytes,
        object,
        receivers,
        operation,
    });
    emitter.push_plain(issue, Async, [0, 0, 0, 0, x]);
    Ok(true)
}

fn close_group(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    for lane in lanes(mask) {
        ctx.warp.bulk.closed[lane] += 1;
    }
    Outcome::Next
}

fn wait_group(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let closed = ctx.warp.bulk.closed;
    finish_stores(ctx, |flight| {
        mask >> flight.lane & 1 != 0 && flight.group.saturating_add(instr.x) < closed[flight.lane]
    });
    Outcome::Next
}

/// When a block has ended: copies that nobody waited for are reported, and still move.
pub(crate) fn end_stores(ctx: &mut Context<'_>) {
    let left = ctx.warp.bulk.pending.first().map(|flight| (flight.pc, flight.lane));
    if let (Some((pc, lane)), true) = (left, ctx.grid.options.checks.races) {
        ctx.pc = pc;
        let message = "the block ended before anyone waited for this copy out of its shared memory, which may be \
                       another block's by then: end with `cp.async.bulk.commit_group` and `cp.async.bulk.wait_group 0`";
        ctx.report(Check::AsyncCopy, lane, None, message.to_owned());
    }
    finish_stores(ctx, |_| true);
}

/// Ends the copies out of shared memory that are due.
fn finish_stores(ctx: &mut Context<'_>, due: impl Fn(&Flight) -> bool) {
    let here = ctx.pc;
    for flight in std::mem::take(&mut ctx.warp.bulk.pending) {
        if !due(&flight) {
            ctx.warp.bulk.pending.push(flight);
            continue;
        }
        ctx.pc = flight.pc;
        let (block, offset) = flight.targets[0];
        ctx.end_reading(Range { block, offset, bytes: flight.bytes }, flight.lane as u32);
        if ctx.grid.options.completion == Completion::Late {
            store(ctx, &flight);
        }
    }
    ctx.pc = here;
}

fn issue(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let copy = program.detail::<BulkCopy>(instr.x);
    for lane in lanes(mask) {
        let Some(flight) = prepare(ctx, copy, lane) else { return Outcome::Abort };
        let early = ctx.grid.options.completion == Completion::Early;
        if copy.into_shared {
            for &(block, object) in &flight.objects {
                must_be_shown(ctx, lane, block, object);
            }
            for &(block, offset) in &flight.targets {
                ctx.begin_writing(Range { block, offset, bytes: flight.bytes }, lane as u32);
            }
            if early {
                land(ctx, &flight);
            } else {
                ctx.block().in_flight.push(flight);
            }
        } else {
            let (block, offset) = flight.targets[0];
            ctx.begin_reading(Range { block, offset, bytes: flight.bytes }, lane as u32);
            if early {
                store(ctx, &flight);
            }
            ctx.warp.bulk.pending.push(flight);
        }
    }
    Outcome::Next
}

fn one_address(ctx: &Context<'_>, operand: &AddressOperand, lane: usize) -> u64 {
    addresses(&ctx.warp.registers, operand)[lane]
}

/// Works out what one lane copies. Rules that the hardware would fault on are findings.
fn prepare(ctx: &mut Context<'_>, copy: &BulkCopy, lane: usize) -> Option<Flight> {
    let near = one_address(ctx, &copy.shared, lane);
    let far = one_address(ctx, &copy.far, lane);
    let target = locate(ctx, near);
    let (units, element, swizzle, bytes) = match &copy.coordinates {
        Some(slots) => {
            let Some(map) = tensor_map(ctx, far) else {
                ctx.report(
                    Check::Trap,
                    lane,
                    Some(far),
                    "no tensor map of the simulator lies at this address".to_owned(),
                );
                return None;
            };
            if map.extents.len() != slots.len() {
                let message =
                    format!("a copy of {} dimensions with a tensor map of {}", slots.len(), map.extents.len());
                ctx.report(Check::Trap, lane, Some(far), message);
                return None;
            }
            let coordinates: Vec<i32> = slots.iter().map(|slot| ctx.warp.registers.word(*slot)[lane] as i32).collect();
            if i64::from(coordinates[0]) * i64::from(map.element.bytes()) % 16 != 0 {
                let message = format!(
                    "a box that starts at element {} of {} bytes; along the innermost dimension it has to start at a multiple of 16 bytes",
                    coordinates[0],
                    map.element.bytes()
                );
                ctx.report(Check::Misaligned, lane, Some(far), message);
                return None;
            }
            let bytes = map.box_bytes();
            if !holds(ctx, target, bytes, 128) {
                return cannot_hold(ctx, lane, near, bytes);
            }
            let units = match (map.im2col, copy.offsets) {
                (None, None) => map.units(&coordinates),
                (Some(im2col), Some(slots)) => {
                    let offsets = slots.map(|slot| ctx.warp.registers.word(slot)[lane] as u16);
                    map.units_of_im2col(im2col, &coordinates, offsets)
                }
                (im2col, _) => {
                    let (map_is, copy_is) = if im2col.is_some() { ("im2col", "tile") } else { ("tile", "im2col") };
                    let message = format!("a copy of mode {copy_is} with a tensor map of mode {map_is}");
                    ctx.report(Check::Trap, lane, Some(far), message);
                    return None;
                }
            };
            (units, Some(map.element), map.swizzle, bytes)
        }
        None => {
            let bytes = copy.bytes.map_or(0, |slot| ctx.warp.registers.word(slot)[lane]);
            if !bytes.is_multiple_of(16) || !far.is_multiple_of(16) || !near.is_multiple_of(16) {
                let message = format!("a bulk copy of {bytes} bytes; sizes and addresses must be multiples of 16");
                ctx.report(Check::Misaligned, lane, Some(far), message);
                return None;
            }
            // Before its pieces are listed: a hostile size names gigabytes.
            if !holds(ctx, target, bytes, 16) {
                return cannot_hold(ctx, lane, near, bytes);
            }
            let units =
                (0..u64::from(bytes / 16)).map(|at| Unit { address: far.wrapping_add(at * 16), valid: u16::MAX });
            (units.collect(), None, Swizzle::None, bytes)
        }
    };
    let reduction = match copy.operation.map(|operation| operation.on(element)).transpose() {
        Ok(reduction) => reduction,
        Err(message) => {
            ctx.report(Check::Trap, lane, Some(far), message);
            return None;
        }
    };
    let (block, offset) = target?;
    let object = match &copy.object {
        Some(operand) => Some(locate(ctx, one_address(ctx, operand, lane))?),
        None => None,
    };
    let (mut targets, mut objects) = (vec![(block, offset)], object.into_iter().collect::<Vec<_>>());
    if let (Some(slot), Some((_, object))) = (copy.receivers, object) {
        let receivers = ctx.warp.registers.word(slot)[lane];
        let ranks: Vec<usize> = (0..ctx.blocks.len()).filter(|rank| receivers >> rank & 1 != 0).collect();
        targets = ranks.iter().map(|rank| (*rank, offset)).collect();
        objects = ranks.iter().map(|rank| (*rank, object)).collect();
    }
    let group = ctx.warp.bulk.closed[lane];
    let (pc, warp) = (ctx.pc, ctx.warp.index);
    Some(Flight {
        pc,
        warp,
        lane,
        units,
        element_bytes: element.map_or(1, Element::bytes),
        swizzle,
        far_is_shared: copy.far_is_shared,
        targets,
        objects,
        bytes,
        group,
        reduction,
    })
}

/// Whether shared memory has so many bytes there, aligned.
fn holds(ctx: &Context<'_>, target: Option<(usize, u32)>, bytes: u32, align: u32) -> bool {
    target.is_some_and(|(block, offset)| {
        u64::from(offset) + u64::from(bytes) <= u64::from(ctx.blocks[block].shared.bytes())
            && offset.is_multiple_of(align)
    })
}

fn cannot_hold(ctx: &mut Context<'_>, lane: usize, near: u64, bytes: u32) -> Option<Flight> {
    let message =
        format!("a bulk copy of {bytes} bytes at shared address {near:#x}, which does not hold them or is not aligned");
    ctx.report(Check::OutOfBounds, lane, Some(near), message);
    None
}

/// The map at a generic address: a parameter, or global memory.
fn tensor_map(ctx: &Context<'_>, address: u64) -> Option<TensorMap> {
    let offset = (address & OFFSET_MASK) as usize;
    let byte = |at: usize| -> Option<u8> {
        match window(address) {
            Window::Param => ctx.grid.params.get(offset + at).copied(),
            Window::Global => {
                let (_, allocation) = ctx.grid.memory.find(address)?;
                let inside = allocation.is_live() && ((offset + at) as u64) < allocation.bytes();
                inside.then(|| (allocation.load((offset + at) / 4) >> ((offset + at) % 4 * 8)) as u8)
            }
            _ => None,
        }
    };
    let mut words = [0u64; 16];
    for at in 0..128 {
        words[at / 8] |= u64::from(byte(at)?) << (8 * (at % 8));
    }
    TensorMap::from_words(&words)
}
