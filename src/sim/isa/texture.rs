//! `tex`, `tld4`, `txq`: reads of textures, by point or by weights of neighbours.
//!
//! A texture has one level: the level of detail and the gradients that `tex.level` and `tex.grad` name choose nothing.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::rounding::{f16_to_f32, f32_to_f16};
use crate::sim::machine::access::global;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::pattern::{Pattern, lanes};
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::machine::texture::{AddressMode, ChannelKind, Channels, Filter, Texture};
use crate::sim::metrics::InstructionClass::Global;
use crate::sim::ptx::ast::{Base, Instruction, Operand, Symbol};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::report::Check;

/// How the coordinates of an opcode go over the axes of a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Axes that a coordinate goes along.
    pub axes: usize,
    /// Whether the first coordinate is a layer, on the axis behind them.
    pub layered: bool,
}

impl Geometry {
    pub fn from_name(name: &str) -> Option<Geometry> {
        let (axes, layered) = match name {
            "1d" => (1, false),
            "2d" => (2, false),
            "3d" => (3, false),
            "a1d" => (1, true),
            "a2d" => (2, true),
            _ => return None,
        };
        Some(Geometry { axes, layered })
    }

    /// Coordinates that count; those behind them are only there to fill the vector.
    pub fn coordinates(self) -> usize {
        self.axes + usize::from(self.layered)
    }
}

/// Where the handle of a texture or surface comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle {
    slot: u32,
    /// The slot holds the address of a variable that holds the handle.
    in_variable: bool,
}

impl Handle {
    pub fn new(emitter: &mut Emitter<'_>, base: Base, offset: i64) -> Result<Handle> {
        let wrong = |emitter: &Emitter<'_>| {
            Err(Error::parse(emitter.line, "a texture or surface is a name or a register of 64 bits"))
        };
        if offset != 0 {
            return wrong(emitter);
        }
        match base {
            Base::Register(register) => {
                let slot = emitter.register(register)?;
                if slot.class != Class::Wide {
                    return wrong(emitter);
                }
                Ok(Handle { slot: slot.index, in_variable: false })
            }
            Base::Symbol(symbol @ Symbol::Module(_)) => {
                let slot = emitter.source(Class::Wide, &Operand::Symbol(symbol, 0))?;
                Ok(Handle { slot, in_variable: true })
            }
            Base::Symbol(symbol @ Symbol::Param(_)) => match emitter.layout.find(symbol) {
                crate::sim::ir::layout::Place::Param(at) => {
                    Ok(Handle { slot: emitter.param_row(Class::Wide, at, 8, false).index, in_variable: false })
                }
                _ => wrong(emitter),
            },
            _ => wrong(emitter),
        }
    }

    /// What stands behind it in a lane.
    pub fn texture<'a>(self, ctx: &mut Context<'a>, lane: usize) -> Option<&'a Texture> {
        let memory = ctx.grid.memory;
        let mut handle = ctx.warp.registers.wide(self.slot)[lane];
        if self.in_variable {
            let (_, allocation) = memory.find(handle)?;
            handle = u64::from(allocation.load(0)) | u64::from(allocation.load(1)) << 32;
        }
        let found = memory.texture_of(handle);
        if found.is_none() {
            let message = match handle {
                0 => "no texture or surface is bound: bind a handle of `Memory::texture`".to_owned(),
                _ => format!("{handle:#x} is no handle of a texture or surface"),
            };
            ctx.report(Check::Trap, lane, None, message);
        }
        found
    }
}

/// What an instruction reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// The texel or the sum of neighbours at a place.
    Sample,
    /// One number of each of the four neighbours.
    Gather { component: usize },
}

#[derive(Debug, Clone)]
struct TextureRead {
    handle: Handle,
    geometry: Geometry,
    reads: Reads,
    /// Of the results.
    ty: Type,
    integer_coordinates: bool,
    coordinates: Vec<u32>,
    d: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    match op.name {
        "tex" | "tld4" => read(emitter, op, &instruction.operands)?,
        "txq" | "suq" => query(emitter, op, &instruction.operands)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn read(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let is_gather = op.name == "tld4";
    let component = op.take_map(|modifier| ["r", "g", "b", "a"].iter().position(|name| *name == modifier));
    let (level, gradient) = (op.take("level"), op.take("grad"));
    op.take("base");
    let geometry = op.take_map(Geometry::from_name).ok_or_else(|| op.unsupported())?;
    let count = if op.take("v4") {
        4
    } else if op.take("v2") {
        2
    } else {
        return Err(op.unsupported());
    };
    let [ty, coordinate] = *op.types.as_slice() else { return Err(op.unsupported()) };
    let reads = match (is_gather, component) {
        (true, Some(component)) if geometry.axes == 2 => Reads::Gather { component },
        (false, None) => Reads::Sample,
        _ => return Err(op.unsupported()),
    };
    let fits = match ty {
        Type::F32 | Type::U32 | Type::S32 => count == 4,
        Type::F16x2 => count == 2,
        _ => false,
    };
    let integer_coordinates = coordinate == Type::S32;
    if !fits || !(coordinate == Type::F32 || (integer_coordinates && !is_gather)) {
        return Err(op.unsupported());
    }
    let further = usize::from(level) + 2 * usize::from(gradient);
    // A vector of offsets, or a depth to compare with, may follow.
    if operands.len() != 2 + further {
        return Err(op.unsupported());
    }
    let [Operand::Vector(d), Operand::Tensor(base, offset, coordinates), ..] = operands else {
        return Err(Error::parse(op.line, "expected `{results}, [texture, {coordinates}]`"));
    };
    if d.len() != count || coordinates.len() < geometry.coordinates() {
        return Err(Error::parse(op.line, "the number of results or coordinates does not fit the opcode"));
    }
    let handle = Handle::new(emitter, *base, *offset)?;
    let coordinates = coordinates[..geometry.coordinates()]
        .iter()
        .map(|item| emitter.source(Class::Word, item))
        .collect::<Result<Vec<u32>>>()?;
    let d = d.iter().map(|item| emitter.result(Class::Word, item)).collect::<Result<Vec<u32>>>()?;
    let x = emitter.detail(TextureRead { handle, geometry, reads, ty, integer_coordinates, coordinates, d });
    emitter.push_plain(sample, Global, [0, 0, 0, 0, x]);
    Ok(())
}

/// A texel that counts for a result: where it is, `None` for the border, and how much.
type Tap = (Option<u64>, f32);

impl TextureRead {
    /// The texels of a lane: one, or the neighbours along each axis.
    fn taps(&self, texture: &Texture, coordinates: &[u32]) -> Vec<Tap> {
        let layers = usize::from(self.geometry.layered);
        let linear = self.reads != Reads::Sample
            || (texture.filter == Filter::Linear && !self.integer_coordinates && self.gives_floats());
        let mut taps: Vec<([u64; 3], bool, f32)> = vec![([0; 3], true, 1.0)];
        if self.geometry.layered {
            taps[0].0[self.geometry.axes] = texture.layer(self.geometry.axes, coordinates[0]);
        }
        for axis in 0..self.geometry.axes {
            let bits = coordinates[layers + axis];
            let places: Vec<(Option<u64>, f32)> = if self.integer_coordinates {
                vec![(texture.place(axis, i64::from(bits as i32)), 1.0)]
            } else if linear {
                texture.neighbours(axis, f32::from_bits(bits)).to_vec()
            } else {
                vec![(texture.point(axis, f32::from_bits(bits)), 1.0)]
            };
            taps = places
                .iter()
                .flat_map(|(place, weight)| {
                    taps.iter().map(move |(at, inside, so_far)| {
                        let mut at = *at;
                        at[axis] = place.unwrap_or(0);
                        (at, *inside && place.is_some(), so_far * weight)
                    })
                })
                .collect();
        }
        taps.into_iter().map(|(at, inside, weight)| (inside.then(|| texture.texel(at)), weight)).collect()
    }

    fn gives_floats(&self) -> bool {
        matches!(self.ty, Type::F32 | Type::F16x2)
    }
}

/// The words of texels of several lanes; zeros for the border.
fn fetch(ctx: &mut Context<'_>, bytes: u32, addresses: &[Option<u64>; LANES]) -> [[u32; 4]; LANES] {
    fn words<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern, out: &mut [[u32; 4]; LANES]) {
        let data = global::read::<W>(ctx, pattern, None);
        for lane in pattern.lanes() {
            (0..W).for_each(|word| out[lane][word] = data[word][lane]);
        }
    }
    let mut out = [[0; 4]; LANES];
    let mask = (0..LANES).filter(|lane| addresses[*lane].is_some()).fold(0u32, |mask, lane| mask | 1 << lane);
    if mask != 0 {
        let pattern = Pattern::new(addresses.map(Option::unwrap_or_default), mask, bytes);
        match bytes {
            1..=4 => words::<1>(ctx, &pattern, &mut out),
            8 => words::<2>(ctx, &pattern, &mut out),
            _ => words::<4>(ctx, &pattern, &mut out),
        }
    }
    out
}

/// The bits of one number of a texel, sign or zero extended.
fn channel(channels: Channels, words: &[u32; 4], at: u32) -> u32 {
    let bit = at * channels.bits;
    let spare = 32 - channels.bits;
    let top = (words[(bit / 32) as usize] >> (bit % 32)) << spare;
    if channels.kind == ChannelKind::Signed { (top as i32 >> spare) as u32 } else { top >> spare }
}

/// One number of a texel as the read gives it, in single precision; numbers that a texel lacks are 0, the fourth 1.
fn float(texture: &Texture, words: &[u32; 4], at: u32) -> f32 {
    let channels = texture.channels;
    if at >= channels.count {
        return if at == 3 { 1.0 } else { 0.0 };
    }
    let bits = channel(channels, words, at);
    let full = |bits: u32| ((1u64 << bits) - 1) as f32;
    match channels.kind {
        ChannelKind::Float if channels.bits == 16 => f16_to_f32(bits as u16),
        ChannelKind::Float => f32::from_bits(bits),
        ChannelKind::Unsigned => bits as f32 / full(channels.bits),
        ChannelKind::Signed => (bits as i32 as f32 / full(channels.bits - 1)).max(-1.0),
    }
}

fn sample(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let read = program.detail::<TextureRead>(instr.x);
    let mut results = [[0u32; LANES]; 4];
    // Lanes of one texture go together: mostly all of them.
    let mut rest = mask;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let Some(texture) = read.handle.texture(ctx, first) else { return Outcome::Abort };
        let handles = *ctx.warp.registers.wide(read.handle.slot);
        let group = lanes(rest).filter(|lane| handles[*lane] == handles[first]).fold(0u32, |set, lane| set | 1 << lane);
        rest &= !group;
        let reads_integers = texture.channels.kind != ChannelKind::Float && !texture.normalized_reads;
        if reads_integers == read.gives_floats() {
            let (is, gives) = if reads_integers { ("integers", "") } else { ("numbers in floating point", "no ") };
            let message =
                format!("{} results of a texture that is read as {is}: the opcode says {gives}floats", read.ty);
            ctx.report(Check::Trap, first, None, message);
            return Outcome::Abort;
        }
        one_texture(ctx, read, texture, group, &mut results);
    }
    let registers = &mut ctx.warp.registers;
    for (at, &slot) in read.d.iter().enumerate() {
        let row = match read.ty {
            Type::F16x2 => std::array::from_fn(|lane| {
                let half = |at: usize| u32::from(f32_to_f16(f32::from_bits(results[at][lane])));
                half(2 * at) | half(2 * at + 1) << 16
            }),
            _ => results[at],
        };
        registers.set_word(slot, &row, mask);
    }
    Outcome::Next
}

/// Reads by the lanes of `group`, all from one texture.
fn one_texture(
    ctx: &mut Context<'_>,
    read: &TextureRead,
    texture: &Texture,
    group: u32,
    results: &mut [[u32; LANES]; 4],
) {
    let coordinates: Vec<[u32; LANES]> = read.coordinates.iter().map(|slot| *ctx.warp.registers.word(*slot)).collect();
    let taps: Vec<Vec<Tap>> = (0..LANES)
        .map(|lane| {
            let own: Vec<u32> = coordinates.iter().map(|row| row[lane]).collect();
            if group >> lane & 1 == 0 { Vec::new() } else { read.taps(texture, &own) }
        })
        .collect();
    let count = taps.iter().map(Vec::len).max().unwrap_or(0);
    let bytes = texture.channels.bytes();
    let texels: Vec<[[u32; 4]; LANES]> = (0..count)
        .map(|at| fetch(ctx, bytes, &std::array::from_fn(|lane| taps[lane].get(at).and_then(|tap| tap.0))))
        .collect();
    for lane in lanes(group) {
        let texel = |at: usize| (taps[lane][at].0.is_some(), &texels[at][lane]);
        for number in 0..4 {
            results[number][lane] = match read.reads {
                Reads::Gather { component } => {
                    // Counter-clockwise from the lower left: the taps have x first.
                    let (inside, words) = texel([2, 3, 1, 0][number]);
                    gathered(read, texture, inside, words, component as u32)
                }
                Reads::Sample if read.gives_floats() => {
                    let value = |at: usize| match texel(at) {
                        (true, words) => float(texture, words, number as u32),
                        (false, _) => 0.0,
                    };
                    (0..count).map(|at| value(at) * taps[lane][at].1).sum::<f32>().to_bits()
                }
                Reads::Sample => gathered(read, texture, texel(0).0, texel(0).1, number as u32),
            };
        }
    }
}

/// One number of one texel, as bits of the result.
fn gathered(read: &TextureRead, texture: &Texture, inside: bool, words: &[u32; 4], at: u32) -> u32 {
    if !inside {
        0
    } else if read.gives_floats() {
        float(texture, words, at).to_bits()
    } else if at < texture.channels.count {
        channel(texture.channels, words, at)
    } else {
        u32::from(at == 3)
    }
}

/// What `txq` and `suq` ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    Extent(usize),
    DataType,
    Order,
    IsNormalized,
    AddressMode(usize),
    IsLinear,
}

#[derive(Debug, Clone, Copy)]
struct Query {
    handle: Handle,
    property: Property,
}

fn query(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let property = op.take_map(|modifier| {
        Some(match modifier {
            "width" => Property::Extent(0),
            "height" => Property::Extent(1),
            "depth" => Property::Extent(2),
            "channel_data_type" => Property::DataType,
            "channel_order" => Property::Order,
            "normalized_coords" => Property::IsNormalized,
            "addr_mode_0" => Property::AddressMode(0),
            "addr_mode_1" => Property::AddressMode(1),
            "addr_mode_2" => Property::AddressMode(2),
            "filter_mode" => Property::IsLinear,
            _ => return None,
        })
    });
    let property = property.ok_or_else(|| op.unsupported())?;
    emitter.expect_operands(op, operands, 2)?;
    let Operand::Address(base, offset) = &operands[1] else {
        return Err(Error::parse(op.line, "expected `[texture]`"));
    };
    let handle = Handle::new(emitter, *base, *offset)?;
    let d = emitter.result(Class::Word, &operands[0])?;
    let x = emitter.detail(Query { handle, property });
    emitter.push_plain(answer, Global, [d, 0, 0, 0, x]);
    Ok(())
}

fn answer(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let query = *program.detail::<Query>(instr.x);
    let mut out = [0; LANES];
    for lane in lanes(mask) {
        let Some(texture) = query.handle.texture(ctx, lane) else { return Outcome::Abort };
        out[lane] = property(texture, query.property);
    }
    ctx.warp.registers.set_word(instr.d, &out, mask);
    Outcome::Next
}

/// The numbers are those of OpenCL's channel types and orders, which the manual refers to.
fn property(texture: &Texture, property: Property) -> u32 {
    let Channels { count, bits, kind } = texture.channels;
    match property {
        Property::Extent(axis) => texture.extents[axis],
        Property::DataType => match (kind, bits, texture.normalized_reads) {
            (ChannelKind::Signed, 8, true) => 0x10D0,
            (ChannelKind::Signed, 16, true) => 0x10D1,
            (ChannelKind::Unsigned, 8, true) => 0x10D2,
            (ChannelKind::Unsigned, 16, true) => 0x10D3,
            (ChannelKind::Signed, 8, _) => 0x10D7,
            (ChannelKind::Signed, 16, _) => 0x10D8,
            (ChannelKind::Signed, ..) => 0x10D9,
            (ChannelKind::Unsigned, 8, _) => 0x10DA,
            (ChannelKind::Unsigned, 16, _) => 0x10DB,
            (ChannelKind::Unsigned, ..) => 0x10DC,
            (ChannelKind::Float, 16, _) => 0x10DD,
            (ChannelKind::Float, ..) => 0x10DE,
        },
        Property::Order => match count {
            1 => 0x10B0,
            2 => 0x10B2,
            _ => 0x10B5,
        },
        Property::IsNormalized => u32::from(texture.normalized_coordinates),
        Property::AddressMode(axis) => match texture.address_modes[axis] {
            AddressMode::Wrap => 0,
            AddressMode::Mirror => 1,
            AddressMode::Clamp => 2,
            AddressMode::Border => 3,
        },
        Property::IsLinear => u32::from(texture.filter == Filter::Linear),
    }
}
