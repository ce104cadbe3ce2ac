//! `ld`, `st` and prefetches: modifiers, vectors, and which parameters are constants of the launch.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::layout::Place;
use crate::sim::ir::program::{Access, ActionFn, BundledLoad, PlainLoad};
use crate::sim::isa::load_store::{load_handler, store_handler};
use crate::sim::isa::moves::push_copy;
use crate::sim::isa::{bundled_load, plain_load};
use crate::sim::machine::memory::bundle::MAX_WORDS;
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::ast::{Base, Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Scope, Space, Type};
use crate::sim::tier::Tiers;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    match op.name {
        "ld" | "ldu" => access(emitter, op, &instruction.operands, true)?,
        "st" => access(emitter, op, &instruction.operands, false)?,
        "prefetch" | "prefetchu" | "discard" | "applypriority" | "createpolicy" => {
            op.ignore(|_| true);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Cache and scope hints, which change no value.
fn is_hint(modifier: &str) -> bool {
    matches!(modifier, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc" | "weak" | "unified" | "L2::cache_hint")
        || modifier.starts_with("L1::")
        || modifier.starts_with("L2::")
}

/// How many elements `.v2`, `.v4`, `.v8` move.
pub(super) fn vector_length(modifier: &str) -> Option<usize> {
    match modifier {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    }
}

fn access(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand], load: bool) -> Result<()> {
    if op.types.len() != 1 {
        return Err(op.unsupported());
    }
    let space = op.take_map(Space::from_name).unwrap_or(Space::Generic);
    let (volatile, device) = (op.take("volatile"), op.take("mmio"));
    let ordering = op.take("acquire") || op.take("release");
    let is_strong = volatile || ordering || op.take("relaxed") || device;
    let scope = op.take_map(Scope::from_name).unwrap_or(Scope::Device);
    let strong = is_strong.then_some(scope);
    let count = op.take_map(vector_length);
    // A register of 128 bits is two of 64.
    let (ty, count) = match (op.ty()?, count) {
        (Type::B128, None) => (Type::B64, Some(2)),
        (Type::B128, _) => return Err(op.unsupported()),
        other => other,
    };
    op.ignore(is_hint);
    let (address, value) = if load { (1, 0) } else { (0, 1) };
    // A cache policy may follow as a third operand.
    if operands.len() < 2 || operands.len() > 3 {
        return emitter.expect_operands(op, operands, 2);
    }
    let items = match (&operands[value], count) {
        (Operand::Vector(items), Some(count)) if items.len() == count => items.as_slice(),
        (Operand::Vector(items), None) if items.len() == 1 => items.as_slice(),
        (item, None) => std::slice::from_ref(item),
        _ => return Err(Error::parse(op.line, "the number of registers does not fit the vector")),
    };
    if load && param_constants(emitter, space, ty, &operands[address], items)? {
        return Ok(());
    }
    let slots = items.iter().map(|item| slot(emitter, ty, item, load)).collect::<Result<Vec<_>>>()?;
    // Parameters of calls live in local memory.
    let found = emitter.space_of(&operands[address]);
    let space = if space == Space::Param && found == Some(Space::Local) { Space::Local } else { space };
    let mut operand = emitter.address_operand(&operands[address])?;
    if space == Space::Param && operand.base.is_none() {
        operand.offset = operand.offset.wrapping_add(crate::sim::machine::memory::address::PARAM_WINDOW as i64);
    }
    let class = match space {
        Space::Shared => InstructionClass::Shared,
        Space::Local => InstructionClass::Local,
        Space::Param => InstructionClass::Move,
        _ => InstructionClass::Global,
    };
    let is_word = |slot: &Option<Slot>| slot.is_some_and(|slot| slot.class == Class::Word);
    let is_plain = load && !is_strong && ty.bytes() == 4 && slots.iter().all(is_word);
    let (width, signed) = (ty.bytes(), ty.is_signed());
    let access = Access { space, address: operand, width, signed, slots, strong, ordering };
    let handler = if load { load_handler(access.bytes()) } else { store_handler(access.bytes()) };
    let handler = handler.ok_or_else(|| op.unsupported())?;
    // A block that looks at what another one writes while both run depends on their order.
    emitter.traits.in_order |= load && is_strong && matches!(space, Space::Global | Space::Generic);
    let x = emitter.accesses.len() as u32;
    let (handler, a) = match operand.base.filter(|_| is_plain).and_then(|base| plain(emitter, base, &access, handler)) {
        Some(repeated) => repeated,
        None => (handler, 0),
    };
    emitter.accesses.push(access);
    emitter.push_action(handler, class, [0, a, 0, 0, x]);
    Ok(())
}

/// The handler of a plain load of words, and its place in the table of such loads.
fn plain(
    emitter: &mut Emitter<'_>,
    base: Slot,
    access: &Access,
    handler: Tiers<ActionFn>,
) -> Option<(Tiers<ActionFn>, u32)> {
    let mut slots = [None; MAX_WORDS];
    slots.iter_mut().zip(&access.slots).for_each(|(out, slot)| *out = slot.map(|slot| slot.index));
    let (offset, otherwise) = (access.address.offset, handler.widest);
    match (access.space, base.class) {
        (Space::Shared, _) => {
            let of_bundle = bundled_load::handlers(access.bytes())?;
            let place = emitter.bundle(base, offset, access.bytes());
            emitter.bundled_loads.push(BundledLoad { place, slots, otherwise });
            let handler = if place.leads { of_bundle.leader } else { of_bundle.follower };
            Some((handler, emitter.bundled_loads.len() as u32 - 1))
        }
        (Space::Global, Class::Wide) => {
            let handler = plain_load::handler(access.bytes())?;
            emitter.plain_loads.push(PlainLoad { base: base.index, offset, slots, otherwise });
            Some((handler, emitter.plain_loads.len() as u32 - 1))
        }
        _ => None,
    }
}

fn slot(emitter: &mut Emitter<'_>, ty: Type, item: &Operand, load: bool) -> Result<Option<Slot>> {
    match item {
        Operand::Sink if load => Ok(None),
        Operand::Register(_) => {
            let slot = emitter.any_register(item)?;
            if slot.class == Class::Pred || (ty.bytes() == 8 && slot.class != Class::Wide) {
                return Err(Error::parse(emitter.line, format!("a register too small for {ty}")));
            }
            Ok(Some(slot))
        }
        _ if load => Err(Error::parse(emitter.line, "expected a register to load into")),
        _ => {
            let class = if ty.bytes() == 8 { Class::Wide } else { Class::Word };
            Ok(Some(Slot { class, index: emitter.source(class, item)? }))
        }
    }
}

/// A kernel parameter at a fixed offset is a row that the launch fills: the load becomes a move.
fn param_constants(
    emitter: &mut Emitter<'_>,
    space: Space,
    ty: Type,
    address: &Operand,
    items: &[Operand],
) -> Result<bool> {
    let Operand::Address(Base::Symbol(symbol), offset) = address else { return Ok(false) };
    let (Space::Param, Place::Param(start)) = (space, emitter.layout.find(*symbol)) else { return Ok(false) };
    let width = ty.bytes();
    for (at, item) in items.iter().enumerate() {
        if *item == Operand::Sink {
            continue;
        }
        let position = i64::from(start) + offset + at as i64 * i64::from(width);
        let end = position + i64::from(width);
        if position < 0 || end > i64::from(emitter.layout.param_bytes) || position % i64::from(width) != 0 {
            return Err(Error::parse(
                emitter.line,
                format!("{width} bytes at offset {position} are not a parameter of this kernel"),
            ));
        }
        let target = emitter.any_register(item)?;
        let source = emitter.param_row(target.class, position as u32, width, ty.is_signed());
        push_copy(emitter, target, source)?;
    }
    Ok(true)
}
