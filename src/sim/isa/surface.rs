//! `suld`, `sust`: reads and writes of surfaces without a conversion. Coordinates along x are in bytes.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::texture::{Geometry, Handle};
use crate::sim::machine::access::global;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::pattern::{Pattern, lanes};
use crate::sim::machine::registers::{Class, LANES, Slot};
use crate::sim::machine::texture::Texture;
use crate::sim::metrics::InstructionClass::Global;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::report::Check;

/// What an access outside of the surface does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    /// Stops the launch.
    Trap,
    /// Goes to the nearest place inside.
    Clamp,
    /// Reads zeros, writes nothing.
    Zero,
}

#[derive(Debug, Clone)]
struct SurfaceAccess {
    handle: Handle,
    geometry: Geometry,
    outside: Outside,
    /// Bytes of one element.
    width: u32,
    coordinates: Vec<u32>,
    elements: Vec<Slot>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let loads = match op.name {
        "suld" => true,
        "sust" => false,
        _ => return Ok(false),
    };
    // Stores with a conversion, `.p`, are not modelled.
    if !op.take("b") {
        return Err(op.unsupported());
    }
    let geometry = op.take_map(Geometry::from_name).ok_or_else(|| op.unsupported())?;
    op.ignore(|modifier| matches!(modifier, "ca" | "cg" | "cs" | "cv" | "wb" | "wt"));
    let count = op.take_map(|modifier| match modifier {
        "v2" => Some(2),
        "v4" => Some(4),
        _ => None,
    });
    let outside = op.take_map(|modifier| match modifier {
        "trap" => Some(Outside::Trap),
        "clamp" => Some(Outside::Clamp),
        "zero" => Some(Outside::Zero),
        _ => None,
    });
    let ty = op.ty()?;
    let fits = matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64) && (ty != Type::B64 || count != Some(4));
    let (Some(outside), true) = (outside.or(Some(Outside::Trap)), fits) else { return Err(op.unsupported()) };
    let (place, data) = if loads { (1, 0) } else { (0, 1) };
    emitter.expect_operands(op, &instruction.operands, 2)?;
    let Operand::Tensor(base, offset, coordinates) = &instruction.operands[place] else {
        return Err(Error::parse(op.line, "expected `[surface, {coordinates}]`"));
    };
    let items = match &instruction.operands[data] {
        Operand::Vector(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    if items.len() != count.unwrap_or(1) || coordinates.len() < geometry.coordinates() {
        return Err(Error::parse(op.line, "the number of registers or coordinates does not fit the opcode"));
    }
    let handle = Handle::new(emitter, *base, *offset)?;
    let coordinates = coordinates[..geometry.coordinates()]
        .iter()
        .map(|item| emitter.source(Class::Word, item))
        .collect::<Result<Vec<u32>>>()?;
    let class = if ty == Type::B64 { Class::Wide } else { Class::Word };
    let elements = items
        .iter()
        .map(|item| {
            let index = if loads { emitter.result(class, item)? } else { emitter.source(class, item)? };
            Ok(Slot { class, index })
        })
        .collect::<Result<Vec<Slot>>>()?;
    let access = SurfaceAccess { handle, geometry, outside, width: ty.bytes(), coordinates, elements };
    let x = emitter.detail(access);
    emitter.push_plain(if loads { load } else { store }, Global, [0, 0, 0, 0, x]);
    Ok(true)
}

impl SurfaceAccess {
    fn bytes(&self) -> u32 {
        self.width * self.elements.len() as u32
    }

    /// Where a lane's access begins; `None` where it has none. The error says what is wrong.
    fn address(&self, texture: &Texture, coordinates: &[u32]) -> std::result::Result<Option<u64>, String> {
        let bytes = i64::from(self.bytes());
        let layers = usize::from(self.geometry.layered);
        let mut at = [0i64; 3];
        let mut limits = [0i64; 3];
        if self.geometry.layered {
            at[self.geometry.axes] = i64::from(coordinates[0]);
            limits[self.geometry.axes] = i64::from(texture.extents[self.geometry.axes]) - 1;
        }
        for axis in 0..self.geometry.axes {
            at[axis] = i64::from(coordinates[layers + axis] as i32);
            limits[axis] = i64::from(texture.extents[axis]) - 1;
        }
        let row = i64::from(texture.extents[0]) * i64::from(texture.channels.bytes());
        limits[0] = row - bytes;
        if at[0] % bytes != 0 {
            return Err(format!(
                "a surface access of {bytes} bytes at byte {} of a row, no multiple of {bytes}",
                at[0]
            ));
        }
        let is_inside = (0..3).all(|axis| (0..=limits[axis]).contains(&at[axis]));
        match self.outside {
            _ if is_inside => {}
            Outside::Trap => {
                return Err(format!(
                    "a surface access of {bytes} bytes at byte {}, row {}, slice {} of a surface of {row} bytes, {} rows, {} slices",
                    at[0], at[1], at[2], texture.extents[1], texture.extents[2]
                ));
            }
            Outside::Zero => return Ok(None),
            Outside::Clamp => (0..3).for_each(|axis| at[axis] = at[axis].clamp(0, limits[axis].max(0))),
        }
        Ok(Some(texture.texel([0, at[1] as u64, at[2] as u64]) + at[0] as u64))
    }

    /// The places of all lanes; `None` where the launch cannot go on.
    fn pattern(&self, ctx: &mut Context<'_>, mask: u32) -> Option<Pattern> {
        let mut addresses = [0; LANES];
        let mut inside = 0;
        for lane in lanes(mask) {
            let texture = self.handle.texture(ctx, lane)?;
            let own: Vec<u32> = self.coordinates.iter().map(|slot| ctx.warp.registers.word(*slot)[lane]).collect();
            match self.address(texture, &own) {
                Ok(Some(address)) => {
                    addresses[lane] = address;
                    inside |= 1 << lane;
                }
                Ok(None) => {}
                Err(why) => {
                    ctx.report(Check::Trap, lane, None, why);
                    return None;
                }
            }
        }
        Some(Pattern::new(addresses, inside, self.bytes()))
    }
}

fn load(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let access = program.detail::<SurfaceAccess>(instr.x);
    let Some(pattern) = access.pattern(ctx, mask) else { return Outcome::Abort };
    let mut data = [[0; LANES]; 4];
    if pattern.mask != 0 {
        data = match access.bytes() {
            1..=4 => widened(&global::read::<1>(ctx, &pattern, None)),
            8 => widened(&global::read::<2>(ctx, &pattern, None)),
            _ => global::read::<4>(ctx, &pattern, None),
        };
    }
    let value = |element: usize, lane: usize| {
        if pattern.mask >> lane & 1 == 0 {
            return 0;
        }
        let byte = element * access.width as usize;
        let low = u64::from(data[byte / 4][lane]) >> (byte % 4 * 8);
        match access.width {
            8 => low | u64::from(data[byte / 4 + 1][lane]) << 32,
            width => low & ((1u64 << (8 * width)) - 1),
        }
    };
    for (element, slot) in access.elements.iter().enumerate() {
        let registers = &mut ctx.warp.registers;
        match slot.class {
            Class::Wide => registers.set_wide(slot.index, &std::array::from_fn(|lane| value(element, lane)), mask),
            _ => registers.set_word(slot.index, &std::array::from_fn(|lane| value(element, lane) as u32), mask),
        }
    }
    Outcome::Next
}

fn widened<const W: usize>(data: &[[u32; LANES]; W]) -> [[u32; LANES]; 4] {
    std::array::from_fn(|word| data.get(word).copied().unwrap_or([0; LANES]))
}

fn store(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let access = program.detail::<SurfaceAccess>(instr.x);
    let Some(pattern) = access.pattern(ctx, mask) else { return Outcome::Abort };
    if pattern.mask == 0 {
        return Outcome::Next;
    }
    let mut data = [[0u32; LANES]; 4];
    for (element, slot) in access.elements.iter().enumerate() {
        let byte = element * access.width as usize;
        for lane in 0..LANES {
            match slot.class {
                Class::Wide => {
                    let value = ctx.warp.registers.wide(slot.index)[lane];
                    data[byte / 4][lane] = value as u32;
                    data[byte / 4 + 1][lane] = (value >> 32) as u32;
                }
                _ => {
                    let full = (1u64 << (8 * access.width)) - 1;
                    let value = u64::from(ctx.warp.registers.word(slot.index)[lane]) & full;
                    data[byte / 4][lane] |= (value << (byte % 4 * 8)) as u32;
                }
            }
        }
    }
    match access.bytes() {
        1..=4 => global::write::<1>(ctx, &pattern, &[data[0]], None),
        8 => global::write::<2>(ctx, &pattern, &[data[0], data[1]], None),
        _ => global::write::<4>(ctx, &pattern, &data, None),
    }
    Outcome::Next
}
