//! `atom` and `red`: read, change, write, lane by lane, in any space.

use super::rounding::{bf16_to_f32, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, flush};
use crate::sim::decode::Decoder;
use crate::sim::error::Result;
use crate::sim::exec::{Context, Outcome};
use crate::sim::lanes::{Class, LANES, Slot};
use crate::sim::memory::access::{addresses, by_space};
use crate::sim::memory::address::OFFSET_MASK;
use crate::sim::memory::allocation::Allocation;
use crate::sim::memory::global::{self, Kind};
use crate::sim::memory::pattern::Pattern;
use crate::sim::memory::shared;
use crate::sim::metrics::InstructionClass;
use crate::sim::program::{AddressOperand, Instr};
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Space, Type};

/// New value from the old one and the operands.
type Change = fn(u64, u64, u64) -> u64;

/// One atomic operation.
#[derive(Debug, Clone)]
pub(crate) struct AtomicAccess {
    pub space: Space,
    pub address: AddressOperand,
    pub width: u32,
    pub d: Option<Slot>,
    pub b: Slot,
    pub c: Slot,
    pub change: Change,
    pub acquires: bool,
    pub releases: bool,
}

pub(super) fn decode(decoder: &mut Decoder<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let returns = match op.name {
        "atom" => true,
        "red" => false,
        _ => return Ok(false),
    };
    if op.has("async") {
        return Err(op.unsupported());
    }
    let space = op.take_map(Space::from_name).unwrap_or(Space::Generic);
    let both = op.take("acq_rel");
    let (acquires, releases) = (op.take("acquire") || both, op.take("release") || both);
    op.ignore(|modifier| {
        matches!(modifier, "relaxed" | "cta" | "cluster" | "gpu" | "sys" | "noftz" | "L2::cache_hint")
    });
    let ty = op.ty()?;
    const NAMES: [&str; 10] = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];
    let name =
        op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier)).ok_or_else(|| op.unsupported())?;
    let change = change(name, ty).ok_or_else(|| op.unsupported())?;
    let operands = &instruction.operands;
    let first = usize::from(returns);
    decoder.expect_operands(op, operands, first + 2 + usize::from(name == "cas"))?;
    let class = if ty.bytes() == 8 { Class::Wide } else { Class::Word };
    let address = decoder.address_operand(&operands[first])?;
    let b = Slot { class, index: decoder.source(class, &operands[first + 1])? };
    let c = match operands.get(first + 2) {
        Some(operand) => Slot { class, index: decoder.source(class, operand)? },
        None => b,
    };
    let d = match operands.first() {
        Some(operand) if returns && *operand != Operand::Sink => {
            Some(Slot { class, index: decoder.result(class, operand)? })
        }
        _ => None,
    };
    let commutes = matches!(name, "add" | "min" | "max" | "and" | "or" | "xor");
    let exact = !matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::F64);
    let is_shared = space == Space::Shared;
    decoder.in_order |= !is_shared && (d.is_some() || !commutes || !exact || ty.bytes() != 4);
    let x = decoder.atomics.len() as u32;
    decoder.atomics.push(AtomicAccess { space, address, width: ty.bytes(), d, b, c, change, acquires, releases });
    decoder.push_plain(carry_out, InstructionClass::Atomic, [0, 0, 0, 0, x]);
    Ok(true)
}

fn change(name: &str, ty: Type) -> Option<Change> {
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

fn carry_out(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let program = ctx.grid.program;
    let access = &program.atomics[instr.x as usize];
    let b = operand(ctx, access.b, access.width);
    let c = operand(ctx, access.c, access.width);
    let pattern = Pattern::new(addresses(&ctx.warp.registers, &access.address), mask, access.width);
    let mut old = [0u64; LANES];
    if access.releases {
        ctx.release();
    }
    by_space(pattern, access.space, |space, pattern| match space {
        Space::Shared => {
            shared::for_each_block(ctx, pattern, Kind::Atomic, |ctx, block, pattern| {
                ctx.track_shared(block, pattern, Kind::Atomic, true, None);
                for lane in pattern.lanes() {
                    let offset = pattern.address[lane];
                    ctx.pass_on_shared(block, offset);
                    let memory = &mut ctx.blocks[block].shared;
                    old[lane] = change_shared(memory, offset as usize, access.width, |old| {
                        (access.change)(old, b[lane], c[lane])
                    });
                    memory.define(offset, u64::from(access.width));
                }
            });
            shared::count(ctx, pattern, true);
        }
        Space::Local | Space::Param => {
            for lane in pattern.lanes() {
                let message = "atomic operation on local memory".to_owned();
                ctx.report(crate::sim::report::Check::OutOfBounds, lane, Some(pattern.address[lane]), message);
            }
        }
        _ => {
            global::for_each_allocation(ctx, pattern, Kind::Atomic, |ctx, allocation, number, pattern| {
                ctx.track_global(number, pattern, Kind::Atomic, true, None);
                for lane in pattern.lanes() {
                    let address = pattern.address[lane];
                    ctx.pass_on_global(address);
                    let offset = address & OFFSET_MASK;
                    old[lane] =
                        change_global(allocation, offset, access.width, |old| (access.change)(old, b[lane], c[lane]));
                }
                global::define(allocation, pattern);
            });
            global::count(ctx, pattern, |counters| &mut counters.global_writes);
        }
    });
    if access.acquires {
        ctx.acquire();
    }
    if let Some(slot) = access.d {
        match slot.class {
            Class::Wide => ctx.warp.registers.set_wide(slot.index, &old, mask),
            _ => ctx.warp.registers.set_word(slot.index, &old.map(|value| value as u32), mask),
        }
    }
    Outcome::Next
}

fn change_shared(memory: &mut shared::SharedMemory, offset: usize, width: u32, change: impl Fn(u64) -> u64) -> u64 {
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

/// Kernels with 8-byte atomics run their blocks in order: the two words need no common lock.
fn change_global(allocation: &Allocation, offset: u64, width: u32, change: impl Fn(u64) -> u64) -> u64 {
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
