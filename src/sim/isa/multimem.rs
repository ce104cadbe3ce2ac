//! `multimem`: accesses to all replicas behind an address of a multicast object.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::atomic::{change, elements, old_value};
use crate::sim::isa::bulk::reduce;
use crate::sim::isa::load_store::addresses;
use crate::sim::isa::memory::vector_length;
use crate::sim::isa::rounding::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::sim::machine::access::global;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::pattern::{Pattern, lanes};
use crate::sim::machine::reduction::{Change, Reduction};
use crate::sim::machine::registers::{Class, LANES, Slot};
use crate::sim::metrics::InstructionClass::Atomic;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Scope, Space, Type};
use crate::sim::report::Check;

/// What is done to the replicas.
#[derive(Debug, Clone)]
enum Access {
    /// Their values joined; a slot an element, `None` for `_`. The type is that of halves whose sums are in single precision.
    Load {
        d: Vec<Option<Slot>>,
        change: Change,
        in_single: Option<Type>,
    },
    Store {
        values: Vec<Slot>,
    },
    Reduce {
        values: Vec<Slot>,
        change: Change,
    },
}

#[derive(Debug, Clone)]
struct Multicast {
    access: Access,
    address: AddressOperand,
    /// Bytes of an element.
    width: u32,
    /// Elements.
    count: u32,
    /// `None` for weak accesses.
    scope: Option<Scope>,
    acquires: bool,
    releases: bool,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "multimem" {
        return Ok(false);
    }
    let kind = op.take_map(|modifier| ["ld_reduce", "st", "red"].into_iter().find(|name| *name == modifier));
    let kind = kind.ok_or_else(|| op.unsupported())?;
    op.take("weak");
    let (acquires, releases) = (op.take("acquire"), op.take("release"));
    // Reductions are never weak, the others unless they say so.
    let is_strong = op.take("relaxed") || acquires || releases || kind == "red";
    let scope = op.take_map(Scope::from_name);
    if op.take_map(Space::from_name).is_some_and(|space| space != Space::Global) {
        return Err(op.unsupported());
    }
    let count = op.take_map(vector_length).unwrap_or(1);
    let in_single = op.take("acc::f32");
    let ty = op.ty()?;
    let name =
        op.take_map(|modifier| ["add", "min", "max", "and", "or", "xor"].into_iter().find(|name| *name == modifier));
    let typed = |name: &str| change(name, bits_of(name, ty)).ok_or_else(|| op.unsupported());
    let class = if ty.bytes() == 8 { Class::Wide } else { Class::Word };
    let operands = &instruction.operands;
    emitter.expect_operands(op, operands, 2)?;
    let (access, place) = match (kind, name) {
        ("ld_reduce", Some(name)) => {
            let change = typed(name)?;
            let items = match &operands[0] {
                crate::sim::ptx::ast::Operand::Vector(items) => items.as_slice(),
                single => std::slice::from_ref(single),
            };
            if items.len() != count {
                return Err(crate::sim::error::Error::parse(
                    op.line,
                    "the number of registers does not fit the vector",
                ));
            }
            let d = items.iter().map(|item| old_value(emitter, class, item)).collect::<Result<Vec<_>>>()?;
            (Access::Load { d, change, in_single: in_single.then_some(ty) }, 1)
        }
        ("st", None) => (Access::Store { values: elements(emitter, class, &operands[1], count)? }, 0),
        ("red", Some(name)) => {
            let change = typed(name)?;
            (Access::Reduce { values: elements(emitter, class, &operands[1], count)?, change }, 0)
        }
        _ => return Err(op.unsupported()),
    };
    let (width, count) = (ty.bytes(), count as u32);
    let is_half = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
    if !matches!(width * count, 2 | 4 | 8 | 16) || (in_single && (name != Some("add") || !is_half)) {
        return Err(op.unsupported());
    }
    let address = emitter.address_operand(&operands[place])?;
    emitter.traits.in_order = true;
    emitter.traits.has_strong_accesses = true;
    let scope = is_strong.then(|| scope.unwrap_or(Scope::Device));
    let x = emitter.detail(Multicast { access, address, width, count, scope, acquires, releases });
    emitter.push_plain(carry_out, Atomic, [0, 0, 0, 0, x]);
    Ok(true)
}

/// Bitwise operations know integers by their size alone.
fn bits_of(name: &str, ty: Type) -> Type {
    match (name, ty) {
        ("and" | "or" | "xor", Type::U32 | Type::S32) => Type::B32,
        ("and" | "or" | "xor", Type::U64 | Type::S64) => Type::B64,
        _ => ty,
    }
}

/// The words of all lanes, of which the first few count.
type Words = [[u32; LANES]; 4];

/// Sums of up to eight halves of each lane.
type Singles = [[f32; LANES]; 8];

/// What loads have joined so far.
struct Joined {
    words: Words,
    singles: Singles,
}

fn carry_out(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let multicast = program.detail::<Multicast>(instr.x);
    let address = addresses(&ctx.warp.registers, &multicast.address);
    if let Some(scope) = multicast.scope.filter(|_| multicast.releases) {
        ctx.release(scope, mask);
    }
    let mut joined = Joined { words: [[0; LANES]; 4], singles: [[0.0; LANES]; 8] };
    let mut rest = mask;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let object = address[first] & !OFFSET_MASK;
        let group =
            lanes(rest).filter(|lane| address[*lane] & !OFFSET_MASK == object).fold(0u32, |set, lane| set | 1 << lane);
        rest &= !group;
        let Some(replicas) = ctx.grid.memory.replicas(object) else {
            let message = "a multimem access at an address of no multicast object: it comes from `Memory::multicast`";
            ctx.report(Check::OutOfBounds, first, Some(address[first]), message.to_owned());
            continue;
        };
        for (number, replica) in replicas.iter().enumerate() {
            let there = address.map(|address| replica.address() + (address & OFFSET_MASK));
            let pattern = Pattern::new(there, group, multicast.width * multicast.count);
            one_replica(ctx, multicast, &pattern, number == 0, &mut joined);
        }
    }
    if let Some(scope) = multicast.scope.filter(|_| multicast.acquires) {
        ctx.acquire(scope);
    }
    if let Access::Load { d, in_single, .. } = &multicast.access {
        let out = in_single.map_or(joined.words, |ty| rounded(&joined.singles, ty));
        for (element, slot) in d.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let value = |lane: usize| multicast.element(&out, element, lane);
            match slot.class {
                Class::Wide => ctx.warp.registers.set_wide(slot.index, &std::array::from_fn(value), mask),
                _ => ctx.warp.registers.set_word(slot.index, &std::array::from_fn(|lane| value(lane) as u32), mask),
            }
        }
    }
    Outcome::Next
}

fn one_replica(ctx: &mut Context<'_>, multicast: &Multicast, pattern: &Pattern, is_first: bool, joined: &mut Joined) {
    let bytes = multicast.width * multicast.count;
    match &multicast.access {
        Access::Load { change, in_single, .. } => {
            let data = match bytes {
                ..=4 => widened(&global::read::<1>(ctx, pattern, multicast.scope)),
                8 => widened(&global::read::<2>(ctx, pattern, multicast.scope)),
                _ => global::read::<4>(ctx, pattern, multicast.scope),
            };
            if let Some(ty) = in_single {
                return add_halves(&mut joined.singles, *ty, bytes, pattern, &data);
            }
            let out = &mut joined.words;
            for lane in pattern.lanes() {
                for element in 0..multicast.count as usize {
                    let (so_far, next) =
                        (multicast.element(out, element, lane), multicast.element(&data, element, lane));
                    let new = if is_first { next } else { change(so_far, next, 0) };
                    multicast.set_element(out, element, lane, new);
                }
            }
        }
        Access::Store { values } => {
            let data = multicast.words(ctx, values);
            match bytes {
                ..=4 => global::write::<1>(ctx, pattern, &[data[0]], multicast.scope),
                8 => global::write::<2>(ctx, pattern, &[data[0], data[1]], multicast.scope),
                _ => global::write::<4>(ctx, pattern, &data, multicast.scope),
            }
        }
        Access::Reduce { values, change } => {
            let data = multicast.words(ctx, values);
            reduce::<4>(ctx, pattern, &data, Reduction { change: *change, element_bytes: multicast.width });
        }
    }
}

/// Adds the halves of all lanes to sums in single precision.
fn add_halves(singles: &mut Singles, ty: Type, bytes: u32, pattern: &Pattern, data: &Words) {
    let number = if matches!(ty, Type::F16 | Type::F16x2) { f16_to_f32 } else { bf16_to_f32 };
    for lane in pattern.lanes() {
        for at in 0..bytes as usize / 2 {
            singles[at][lane] += number((data[at / 2][lane] >> (at % 2 * 16)) as u16);
        }
    }
}

/// The sums rounded to halves, at last.
fn rounded(singles: &Singles, ty: Type) -> Words {
    let half = if matches!(ty, Type::F16 | Type::F16x2) { f32_to_f16 } else { f32_to_bf16 };
    std::array::from_fn(|word| {
        std::array::from_fn(|lane| {
            u32::from(half(singles[2 * word][lane])) | u32::from(half(singles[2 * word + 1][lane])) << 16
        })
    })
}

fn widened<const W: usize>(data: &[[u32; LANES]; W]) -> Words {
    std::array::from_fn(|word| data.get(word).copied().unwrap_or([0; LANES]))
}

impl Multicast {
    fn element(&self, words: &Words, at: usize, lane: usize) -> u64 {
        let byte = at * self.width as usize;
        let word = u64::from(words[byte / 4][lane]);
        match self.width {
            8 => word | u64::from(words[byte / 4 + 1][lane]) << 32,
            4 => word,
            _ => word >> (byte % 4 * 8) & 0xFFFF,
        }
    }

    fn set_element(&self, words: &mut Words, at: usize, lane: usize, value: u64) {
        let byte = at * self.width as usize;
        match self.width {
            8 => {
                words[byte / 4][lane] = value as u32;
                words[byte / 4 + 1][lane] = (value >> 32) as u32;
            }
            4 => words[byte / 4][lane] = value as u32,
            _ => {
                let shift = byte % 4 * 8;
                let word = &mut words[byte / 4][lane];
                *word = (*word & !(0xFFFF << shift)) | (value as u32 & 0xFFFF) << shift;
            }
        }
    }

    /// What all lanes store.
    fn words(&self, ctx: &Context<'_>, values: &[Slot]) -> Words {
        let mut words = [[0; LANES]; 4];
        for (at, slot) in values.iter().enumerate() {
            for lane in 0..LANES {
                let value = match slot.class {
                    Class::Wide => ctx.warp.registers.wide(slot.index)[lane],
                    _ => u64::from(ctx.warp.registers.word(slot.index)[lane]),
                };
                self.set_element(&mut words, at, lane, value);
            }
        }
        words
    }
}
