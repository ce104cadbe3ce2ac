//! `st.async` and `red.async`: single values that go to the shared memory of another block of the cluster and are
//! announced to a barrier object there.
//!
//! The value moves at once in either mode; whoever reads it before the object's phase is over is reported. What the warp
//! did before is known to those who wait for the object: the announcement is a release at the scope of the cluster.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::atomic::{change, change_shared};
use crate::sim::isa::barrier_object::{locate, must_be_shown, notify};
use crate::sim::isa::load_store::addresses;
use crate::sim::isa::memory::vector_length;
use crate::sim::machine::access::wavefronts;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::pattern::{Pattern, lanes};
use crate::sim::machine::memory::payload::Kind;
use crate::sim::machine::race::clock::Clock;
use crate::sim::machine::race::flight::Range;
use crate::sim::machine::reduction::Change;
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::metrics::InstructionClass::Async;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;

/// One decoded store or reduction.
#[derive(Debug, Clone)]
pub(crate) struct AsyncStore {
    pub target: AddressOperand,
    pub object: AddressOperand,
    /// Bytes of an element.
    pub width: u32,
    pub values: Vec<Slot>,
    /// `None` for a store.
    pub change: Option<Change>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if !matches!(op.name, "st" | "red") || !op.take("async") {
        return Ok(false);
    }
    if !op.take("shared::cluster") || !op.take("mbarrier::complete_tx::bytes") {
        return Err(op.unsupported());
    }
    op.ignore(|modifier| matches!(modifier, "weak" | "relaxed" | "cluster"));
    let ty = op.ty()?;
    if !matches!(ty.bytes(), 4 | 8) || op.types.len() != 1 {
        return Err(op.unsupported());
    }
    let change = match op.name {
        "st" => None,
        _ => {
            const NAMES: [&str; 8] = ["add", "min", "max", "and", "or", "xor", "inc", "dec"];
            let name = op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier));
            Some(name.and_then(|name| change(name, ty)).ok_or_else(|| op.unsupported())?)
        }
    };
    let count = if change.is_none() { op.take_map(vector_length).unwrap_or(1) } else { 1 };
    let [target, value, object] = instruction.operands.as_slice() else {
        return Err(Error::parse(
            op.line,
            format!("`{}.async` takes an address, a value and a barrier object", op.name),
        ));
    };
    let items = match value {
        Operand::Vector(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    if items.len() != count {
        return Err(Error::parse(op.line, "the number of registers does not fit the vector"));
    }
    let class = if ty.bytes() == 8 { Class::Wide } else { Class::Word };
    let values =
        items.iter().map(|item| Ok(Slot { class, index: emitter.source(class, item)? })).collect::<Result<Vec<_>>>()?;
    let store = AsyncStore {
        target: emitter.address_operand(target)?,
        object: emitter.address_operand(object)?,
        width: ty.bytes(),
        values,
        change,
    };
    let x = emitter.detail(store);
    emitter.push_plain(issue_in_cluster, Async, [0, 0, 0, 0, x]);
    Ok(true)
}

/// Emits a store that takes no clusters.
pub(super) fn push(emitter: &mut Emitter<'_>, store: AsyncStore) {
    let x = emitter.detail(store);
    emitter.push_plain(issue, Async, [0, 0, 0, 0, x]);
}

/// An H200 ends the instruction as an illegal one where the launch has no clusters, to whichever block it stores.
fn issue_in_cluster(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if ctx.blocks.len() > 1 {
        return issue(ctx, program, instr, mask);
    }
    let lane = mask.trailing_zeros() as usize;
    let message = "an asynchronous store in a launch without clusters, which no GPU takes".to_owned();
    ctx.report(Check::Trap, lane, None, message);
    Outcome::Abort
}

fn issue(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let store = program.detail::<AsyncStore>(instr.x);
    let bytes = store.width * store.values.len() as u32;
    let targets = addresses(&ctx.warp.registers, &store.target);
    let objects = addresses(&ctx.warp.registers, &store.object);
    let clock = ctx.passed_on_by(mask);
    for lane in lanes(mask) {
        let place = locate(ctx, targets[lane]).filter(|(block, offset)| {
            offset.is_multiple_of(bytes) && offset.saturating_add(bytes) <= ctx.blocks[*block].shared.bytes()
        });
        let (Some((block, offset)), Some((object_block, object))) = (place, locate(ctx, objects[lane])) else {
            let message = format!("an asynchronous store of {bytes} bytes to where no block has them, aligned");
            ctx.report(Check::OutOfBounds, lane, Some(targets[lane]), message);
            return Outcome::Abort;
        };
        must_be_shown(ctx, lane, object_block, object);
        let range = Range { block, offset, bytes };
        let arrival = Arrival { lane, range, object: (object_block, object), clock: &clock };
        let known = match store.change {
            None => arrival.put(ctx, store),
            Some(change) => arrival.combine(ctx, store, change),
        };
        if !known {
            let message = "no barrier object was made at this address".to_owned();
            ctx.report(Check::BarrierObject, lane, Some(u64::from(object)), message);
            return Outcome::Abort;
        }
        notify(ctx, object_block);
    }
    // What the warp does from now on was not passed on.
    ctx.meet();
    let pattern = Pattern::new(targets.map(|address| address & OFFSET_MASK), mask, bytes);
    wavefronts::count(ctx, &pattern, true);
    Outcome::Next
}

fn value(ctx: &Context<'_>, slot: Slot, lane: usize) -> u64 {
    match slot.class {
        Class::Wide => ctx.warp.registers.wide(slot.index)[lane],
        _ => u64::from(ctx.warp.registers.word(slot.index)[lane]),
    }
}

/// Where the store of a lane goes.
struct Arrival<'a> {
    lane: usize,
    range: Range,
    /// Block and offset of the barrier object that is told.
    object: (usize, u32),
    clock: &'a Clock,
}

impl Arrival<'_> {
    /// Stores and tells the object; `false` if there is none.
    fn put(self, ctx: &mut Context<'_>, store: &AsyncStore) -> bool {
        let (range, (block, object)) = (self.range, self.object);
        ctx.begin_writing(range, self.lane as u32);
        for (at, slot) in store.values.iter().enumerate() {
            let value = value(ctx, *slot, self.lane);
            let place = (range.offset + at as u32 * store.width) as usize;
            change_shared(&mut ctx.blocks[range.block].shared, place, store.width, |_| value);
        }
        ctx.blocks[range.block].shared.define(u64::from(range.offset), u64::from(range.bytes));
        let pc = ctx.pc;
        ctx.blocks[block].objects.released_bytes_arrive(object, range, pc, self.clock)
    }

    /// Changes the value there as an atomic operation does, and tells the object.
    fn combine(self, ctx: &mut Context<'_>, store: &AsyncStore, change: Change) -> bool {
        let (Range { block, offset, .. }, (object_block, object)) = (self.range, self.object);
        let pattern = Pattern::new([u64::from(offset); 32], 1 << self.lane, store.width);
        ctx.track_shared(block, &pattern, Kind::Atomic, Some(Scope::Device), None);
        let value = value(ctx, store.values[0], self.lane);
        change_shared(&mut ctx.blocks[block].shared, offset as usize, store.width, |old| change(old, value, 0));
        ctx.blocks[block].shared.define(u64::from(offset), u64::from(store.width));
        ctx.blocks[object_block].objects.complete_bytes(object, store.width, self.clock)
    }
}
