//! `atom` and `red`: read, change, write, lane by lane, in any space.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::float32::{greater, lesser};
use crate::sim::isa::load_store::{addresses, by_space};
use crate::sim::isa::memory::vector_length;
use crate::sim::isa::rounding::{bf16_to_f32, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, flush};
use crate::sim::machine::access::{global, shared, wavefronts};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::allocation::Allocation;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::{Kind, define};
use crate::sim::machine::memory::shared_memory::SharedMemory;
use crate::sim::machine::race::message::Strong;
use crate::sim::machine::reduction::Change;
use crate::sim::machine::registers::{Class, LANES, Slot};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Scope, Space, Type};

/// Work of an atomic operation beyond that of any access, and of each of its lanes, which go one after the other: the
/// budget is to end a loop of them as soon as one of arithmetic.
const ATOMIC_WORK: u64 = 48;
const LANE_WORK: u64 = 12;

/// One atomic operation, on one element or on several neighbours.
#[derive(Debug, Clone)]
pub(crate) struct AtomicAccess {
    pub space: Space,
    pub address: AddressOperand,
    /// Bytes of an element.
    pub width: u32,
    /// A slot an element; empty if nobody wants the old values, `None` for `_`.
    pub d: Vec<Option<Slot>>,
    pub b: Vec<Slot>,
    pub c: Vec<Slot>,
    pub change: Change,
    /// The elements are compared and exchanged all together.
    pub as_one: bool,
    /// It leaves another value only where it finds the one that it compares with.
    pub compares: bool,
    pub scope: Scope,
    pub acquires: bool,
    pub releases: bool,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let returns = match op.name {
        "atom" => true,
        "red" => false,
        _ => return Ok(false),
    };
    let space = op.take_map(Space::from_name).unwrap_or(Space::Generic);
    let both = op.take("acq_rel");
    let (acquires, releases) = (op.take("acquire") || both, op.take("release") || both);
    let scope = op.take_map(Scope::from_name).unwrap_or(Scope::Device);
    op.ignore(|modifier| matches!(modifier, "relaxed" | "noftz"));
    let has_policy = op.take("L2::cache_hint");
    let vector = op.take_map(vector_length);
    // A register of 128 bits is two of 64.
    let (ty, count) = match (op.ty()?, vector) {
        (Type::B128, None) => (Type::B64, 2),
        (ty, vector) => (ty, vector.unwrap_or(1)),
    };
    const NAMES: [&str; 10] = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];
    let name =
        op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier)).ok_or_else(|| op.unsupported())?;
    let change = change(name, ty).ok_or_else(|| op.unsupported())?;
    let allowed = match (op.ty()?, vector) {
        (Type::B128, _) => matches!(name, "exch" | "cas"),
        (Type::F32, Some(2 | 4)) => name == "add",
        (Type::F16 | Type::Bf16, Some(2 | 4 | 8)) | (Type::F16x2 | Type::Bf16x2, Some(2 | 4)) => {
            matches!(name, "add" | "min" | "max")
        }
        (_, None) => true,
        _ => false,
    };
    if !allowed {
        return Err(op.unsupported());
    }
    // The policy comes last.
    let operands = &instruction.operands[..instruction.operands.len().saturating_sub(usize::from(has_policy))];
    let first = usize::from(returns);
    emitter.expect_operands(op, operands, first + 2 + usize::from(name == "cas"))?;
    let class = if ty.bytes() == 8 { Class::Wide } else { Class::Word };
    let address = emitter.address_operand(&operands[first])?;
    let b = elements(emitter, class, &operands[first + 1], count)?;
    let c = match operands.get(first + 2) {
        Some(operand) => elements(emitter, class, operand, count)?,
        None => b.clone(),
    };
    let d = match operands.first() {
        Some(Operand::Vector(items)) if returns && items.len() == count => {
            items.iter().map(|item| old_value(emitter, class, item)).collect::<Result<_>>()?
        }
        Some(operand) if returns && count == 1 && *operand != Operand::Sink => {
            vec![old_value(emitter, class, operand)?]
        }
        Some(Operand::Sink) | None => Vec::new(),
        Some(_) if !returns => Vec::new(),
        Some(_) => return Err(Error::parse(op.line, "the number of registers does not fit the vector")),
    };
    let commutes = matches!(name, "add" | "min" | "max" | "and" | "or" | "xor");
    let exact = !matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::F64);
    let is_shared = space == Space::Shared;
    emitter.traits.in_order |= !is_shared && (!d.is_empty() || !commutes || !exact || ty.bytes() != 4 || count > 1);
    let as_one = count > 1 && name == "cas";
    let width = ty.bytes();
    let compares = name == "cas";
    emitter.traits.has_strong_accesses |= !is_shared;
    let x = emitter.detail(AtomicAccess {
        space,
        address,
        width,
        d,
        b,
        c,
        change,
        as_one,
        compares,
        scope,
        acquires,
        releases,
    });
    let handler = match count {
        1 => carry_out::<1>,
        2 => carry_out::<2>,
        4 => carry_out::<4>,
        _ => carry_out::<8>,
    };
    emitter.push_plain(handler, InstructionClass::Atomic, [0, 0, 0, 0, x]);
    Ok(true)
}

/// The slots of an operand with so many elements.
pub(super) fn elements(emitter: &mut Emitter<'_>, class: Class, operand: &Operand, count: usize) -> Result<Vec<Slot>> {
    let items = match operand {
        Operand::Vector(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    if items.len() != count {
        return Err(Error::parse(emitter.line, "the number of registers does not fit the vector"));
    }
    items.iter().map(|item| Ok(Slot { class, index: emitter.source(class, item)? })).collect()
}

pub(super) fn old_value(emitter: &mut Emitter<'_>, class: Class, operand: &Operand) -> Result<Option<Slot>> {
    match operand {
        Operand::Sink => Ok(None),
        operand => Ok(Some(Slot { class, index: emitter.result(class, operand)? })),
    }
}

/// The new value of an element; `None` for what no hardware does.
pub(super) fn change(name: &str, ty: Type) -> Option<Change> {
    use Type::*;
    Some(match (name, ty) {
        ("add", U32 | S32) => |old, b, _| u64::from((old as u32).wrapping_add(b as u32)),
        ("add", U64 | S64) => |old, b, _| old.wrapping_add(b),
        // Single-precision atomics on global memory flush subnormal numbers; those on shared memory do not differ here.
        ("add", F32) => |old, b, _| u64::from(flush(canonical(flush(single(old)) + flush(single(b)))).to_bits()),
        ("add", F64) => |old, b, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        ("add", F16) => |old, b, _| u64::from(f32_to_f16(f16_to_f32(old as u16) + f16_to_f32(b as u16))),
        ("add", Bf16) => |old, b, _| u64::from(f32_to_bf16(bf16_to_f32(old as u16) + bf16_to_f32(b as u16))),
        ("add", F16x2) => |old, b, _| halves(old, b, |old, b| f32_to_f16(f16_to_f32(old) + f16_to_f32(b))),
        ("add", Bf16x2) => |old, b, _| halves(old, b, |old, b| f32_to_bf16(bf16_to_f32(old) + bf16_to_f32(b))),
        ("min", F16) => |old, b, _| u64::from(f32_to_f16(lesser(f16_to_f32(old as u16), f16_to_f32(b as u16)))),
        ("max", F16) => |old, b, _| u64::from(f32_to_f16(greater(f16_to_f32(old as u16), f16_to_f32(b as u16)))),
        ("min", Bf16) => |old, b, _| u64::from(f32_to_bf16(lesser(bf16_to_f32(old as u16), bf16_to_f32(b as u16)))),
        ("max", Bf16) => |old, b, _| u64::from(f32_to_bf16(greater(bf16_to_f32(old as u16), bf16_to_f32(b as u16)))),
        ("min", F16x2) => |old, b, _| halves(old, b, |old, b| f32_to_f16(lesser(f16_to_f32(old), f16_to_f32(b)))),
        ("max", F16x2) => |old, b, _| halves(old, b, |old, b| f32_to_f16(greater(f16_to_f32(old), f16_to_f32(b)))),
        ("min", Bf16x2) => |old, b, _| halves(old, b, |old, b| f32_to_bf16(lesser(bf16_to_f32(old), bf16_to_f32(b)))),
        ("max", Bf16x2) => |old, b, _| halves(old, b, |old, b| f32_to_bf16(greater(bf16_to_f32(old), bf16_to_f32(b)))),
        ("min", U32 | U64) => |old, b, _| old.min(b),
        ("max", U32 | U64) => |old, b, _| old.max(b),
        ("min", S32) => |old, b, _| (old as i32).min(b as i32) as u32 as u64,
        ("max", S32) => |old, b, _| (old as i32).max(b as i32) as u32 as u64,
        ("min", S64) => |old, b, _| (old as i64).min(b as i64) as u64,
        ("max", S64) => |old, b, _| (old as i64).max(b as i64) as u64,
        ("and", B32 | B64) => |old, b, _| old & b,
        ("or", B32 | B64) => |old, b, _| old | b,
        ("xor", B32 | B64) => |old, b, _| old ^ b,
        ("exch", B32 | B64 | U32 | U64 | S32 | F32) => |_, b, _| b,
        ("cas", B16 | B32 | B64 | U32 | U64 | S32) => |old, b, c| if old == b { c } else { old },
        ("inc", U32) => |old, b, _| if old >= b { 0 } else { old + 1 },
        ("dec", U32) => |old, b, _| if old == 0 || old > b { b } else { old - 1 },
        _ => return None,
    })
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn halves(old: u64, b: u64, add: impl Fn(u16, u16) -> u16) -> u64 {
    u64::from(add(old as u16, b as u16)) | u64::from(add((old >> 16) as u16, (b >> 16) as u16)) << 16
}

fn operand(ctx: &Context<'_>, slot: Slot, width: u32) -> [u64; LANES] {
    match slot.class {
        Class::Wide => *ctx.warp.registers.wide(slot.index),
        _ => {
            let full = if width == 2 { 0xFFFF } else { u32::MAX };
            ctx.warp.registers.word(slot.index).map(|value| u64::from(value & full))
        }
    }
}

/// Puts in place of the element at an offset what a function makes of it, and returns what was there.
type Update<'a> = dyn FnMut(u64, &mut dyn FnMut(u64) -> u64) -> u64 + 'a;

fn carry_out<const N: usize>(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let access = program.detail::<AtomicAccess>(instr.x);
    let width = access.width;
    let b: [[u64; LANES]; N] = std::array::from_fn(|at| operand(ctx, access.b[at], width));
    let c: [[u64; LANES]; N] = std::array::from_fn(|at| operand(ctx, access.c[at], width));
    let pattern = Pattern::new(addresses(&ctx.warp.registers, &access.address), mask, width * N as u32);
    let mut old = [[0u64; LANES]; N];
    let mut changes = 0;
    let sees = access.d.iter().any(Option::is_some);
    // Changes the elements of one lane, each reached by its offset from the first; what it passes on.
    let mut change = |lane: usize, update: &mut Update<'_>| {
        let offset = |at: usize| at as u64 * u64::from(width);
        if access.as_one {
            (0..N).for_each(|at| old[at][lane] = update(offset(at), &mut |old| old));
            if (0..N).all(|at| old[at][lane] == b[at][lane]) {
                changes += u64::from((0..N).any(|at| c[at][lane] != b[at][lane]));
                (0..N).for_each(|at| {
                    update(offset(at), &mut |_| c[at][lane]);
                });
                return Strong::Change { sees };
            }
            return Strong::Read;
        }
        for at in 0..N {
            old[at][lane] = update(offset(at), &mut |old| {
                let new = (access.change)(old, b[at][lane], c[at][lane]);
                changes += u64::from(new != old);
                new
            });
        }
        if access.compares && old[0][lane] != b[0][lane] { Strong::Read } else { Strong::Change { sees } }
    };
    if access.releases {
        ctx.release(access.scope, mask);
    }
    by_space(pattern, access.space, |space, pattern| match space {
        Space::Shared => {
            shared::for_each_block(ctx, pattern, Kind::Atomic, |ctx, block, pattern| {
                ctx.track_shared(block, pattern, Kind::Atomic, Some(access.scope), None);
                for lane in pattern.lanes() {
                    let start = pattern.address[lane];
                    let memory = &mut ctx.blocks[block].shared;
                    let done =
                        change(lane, &mut |offset, new| change_shared(memory, (start + offset) as usize, width, new));
                    memory.define(start, u64::from(pattern.bytes));
                    ctx.pass_on_shared(block, start, access.scope, done);
                }
            });
            wavefronts::count(ctx, pattern, true);
        }
        Space::Local | Space::Param => {
            for lane in pattern.lanes() {
                let message = "atomic operation on local memory".to_owned();
                ctx.report(crate::sim::report::Check::OutOfBounds, lane, Some(pattern.address[lane]), message);
            }
        }
        _ => {
            global::for_each_allocation(ctx, pattern, Kind::Atomic, |ctx, allocation, number, pattern| {
                ctx.track_global::<1>(number, pattern, Kind::Atomic, Some(access.scope), None);
                for lane in pattern.lanes() {
                    let start = pattern.address[lane] & OFFSET_MASK;
                    let done = change(lane, &mut |offset, new| change_global(allocation, start + offset, width, new));
                    ctx.pass_on_global(pattern.address[lane], pattern.bytes, access.scope, done);
                }
                define(allocation, pattern);
            });
            global::count(ctx, pattern, |counters| &mut counters.global_writes);
        }
    });
    ctx.log.changes += changes;
    ctx.log.work += ATOMIC_WORK + LANE_WORK * u64::from(mask.count_ones());
    if access.acquires {
        ctx.acquire(access.scope);
    }
    for (slot, old) in access.d.iter().zip(&old) {
        match slot {
            Some(Slot { class: Class::Wide, index }) => ctx.warp.registers.set_wide(*index, old, mask),
            Some(slot) => ctx.warp.registers.set_word(slot.index, &old.map(|value| value as u32), mask),
            None => {}
        }
    }
    Outcome::Next
}

/// Changes an element of shared memory and gives what was there.
pub(super) fn change_shared(
    memory: &mut SharedMemory,
    offset: usize,
    width: u32,
    mut change: impl FnMut(u64) -> u64,
) -> u64 {
    let at = offset / 4;
    match width {
        8 => {
            let old = u64::from(memory.words[at]) | u64::from(memory.words[at + 1]) << 32;
            let new = change(old);
            memory.words[at] = new as u32;
            memory.words[at + 1] = (new >> 32) as u32;
            old
        }
        4 => {
            let old = memory.words[at];
            memory.words[at] = change(u64::from(old)) as u32;
            u64::from(old)
        }
        _ => {
            let shift = offset % 4 * 8;
            let old = u64::from(memory.words[at] >> shift & 0xFFFF);
            memory.words[at] = (memory.words[at] & !(0xFFFF << shift)) | (change(old) as u32 & 0xFFFF) << shift;
            old
        }
    }
}

/// The same in global memory. Kernels with 8-byte atomics run their blocks in order: the two words need no common lock.
pub(super) fn change_global(
    allocation: &Allocation,
    offset: u64,
    width: u32,
    mut change: impl FnMut(u64) -> u64,
) -> u64 {
    let at = (offset / 4) as usize;
    match width {
        8 => {
            let old = u64::from(allocation.load(at)) | u64::from(allocation.load(at + 1)) << 32;
            let new = change(old);
            allocation.store_bits(at, new as u32, u32::MAX);
            allocation.store_bits(at + 1, (new >> 32) as u32, u32::MAX);
            old
        }
        4 => u64::from(allocation.update(at, |old| change(u64::from(old)) as u32)),
        _ => {
            let shift = offset % 4 * 8;
            let word = allocation.update(at, |word| {
                let new = change(u64::from(word >> shift & 0xFFFF)) as u32 & 0xFFFF;
                (word & !(0xFFFF << shift)) | new << shift
            });
            u64::from(word >> shift & 0xFFFF)
        }
    }
}
