//! Kernel arguments as they are written on the command line, and the buffers made of them.
//!
//! `i32:5` is a scalar; `f32:random:100`, `f32:fill=1:100`, `f32:iota:100` and `f32:file:PATH` are buffers with content;
//! `out:f32:100` is one without; `map:bf16:random:256x256:64x64:128` is a tensor map: content, extents, box, bytes of a
//! swizzled row; `tex:u8x4:random:64x64:linear,wrap` is a texture or surface object.

use super::array_file;
use super::image::{Image, texel};
use super::kind::Kind;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::seed::{below, derive, rng};
use crate::sim::{Arg, Element, Error, Memory, Pointer, Swizzle, TensorMap};
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;

/// Most bytes of one buffer.
const MOST_BYTES: u64 = 4 << 30;
/// Elements that the account of an output shows.
const SHOWN: usize = 8;
/// Bound of random integers.
const BOUND: usize = 100;

/// What a buffer holds before the launch.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Normal values, or integers below [`BOUND`].
    Random,
    /// 0, 1, 2, …
    Iota,
    /// One element, repeated.
    Fill(Vec<u8>),
    /// What a file holds.
    File(PathBuf),
    /// Nothing: reading it is a finding.
    Nothing,
}

/// Memory of an argument: files bring their own number of elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    kind: Kind,
    content: Content,
    elements: u64,
}

/// How a tensor map looks at its buffer; extents go from the outermost to the innermost.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    extents: Vec<u64>,
    box_extents: Vec<u32>,
    swizzle: Swizzle,
}

/// One argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// Passed by value.
    Scalar(Vec<u8>),
    /// The address of a buffer.
    Pointer(Buffer),
    /// A tensor map of a buffer of its own.
    Map(Buffer, View),
    /// The handle of a texture or surface of a buffer of its own.
    Texture(Buffer, Image),
}

impl FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["map", kind, content, extents, box_extents, row @ ..] if row.len() < 2 => {
                map(kind, content, extents, box_extents, row.first().unwrap_or(&"0"))
            }
            ["tex", texel, content, extents, options @ ..] if options.len() < 2 => {
                image(texel, content, extents, options.first().unwrap_or(&""))
            }
            ["out", kind, count] => Ok(Argument::Pointer(Buffer::parse(kind, "out", count)?)),
            [kind, "file", ..] => {
                let path = &text[kind.len() + ":file:".len()..];
                let (kind, content) = (Kind::parse(kind)?, Content::File(path.into()));
                Ok(Argument::Pointer(Buffer { kind, content, elements: 0 }))
            }
            [kind, content, count] => Ok(Argument::Pointer(Buffer::parse(kind, content, count)?)),
            [kind, value] => Ok(Argument::Scalar(Kind::parse(kind)?.encode(value)?)),
            _ => Err(
                "expected TYPE:VALUE, TYPE:CONTENT:COUNT, out:TYPE:COUNT, map:TYPE:CONTENT:EXTENTS:BOX[:ROW BYTES] or \
                      tex:TEXEL:CONTENT:EXTENTS[:OPTIONS]; \
                      CONTENT is random, iota, fill=VALUE or file:PATH (which needs no count)"
                    .into(),
            ),
        }
    }
}

impl Buffer {
    fn parse(kind: &str, content: &str, count: &str) -> Result<Self, String> {
        let kind = Kind::parse(kind)?;
        let content = match (content, content.strip_prefix("fill=")) {
            ("random", _) => Content::Random,
            ("iota", _) => Content::Iota,
            ("out", _) => Content::Nothing,
            (_, Some(value)) => Content::Fill(kind.encode(value)?),
            _ => return Err(format!("`{content}` is no content; use random, iota, fill=VALUE or file:PATH")),
        };
        let elements: u64 = count.parse().map_err(|_| format!("`{count}` is no number of elements"))?;
        if elements.checked_mul(kind.bytes()).is_none_or(|bytes| bytes > MOST_BYTES) {
            return Err(format!("{elements} elements are more than {} GiB", MOST_BYTES >> 30));
        }
        Ok(Buffer { kind, content, elements })
    }
}

fn map(kind: &str, content: &str, extents: &str, box_extents: &str, row_bytes: &str) -> Result<Argument, String> {
    let (extents, box_extents) = (numbers(extents)?, numbers(box_extents)?);
    let row: u32 = row_bytes.parse().map_err(|_| format!("`{row_bytes}` is no number of bytes of a swizzled row"))?;
    let swizzle = Swizzle::of_row(row)?;
    let elements = extents.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent));
    let elements = elements.ok_or("the extents are too large")?.to_string();
    let view = View { extents, box_extents: box_extents.into_iter().map(|extent| extent as u32).collect(), swizzle };
    Ok(Argument::Map(Buffer::parse(kind, content, &elements)?, view))
}

fn image(name: &str, content: &str, extents: &str, options: &str) -> Result<Argument, String> {
    let inner_first: Vec<u64> = numbers(extents)?.into_iter().rev().collect();
    let image = Image::parse(name, &inner_first, options)?;
    let kind = texel(name)?.0;
    Ok(Argument::Texture(Buffer::parse(kind.name(), content, &image.elements().to_string())?, image))
}

/// `256x64`, each below 2^32.
fn numbers(text: &str) -> Result<Vec<u64>, String> {
    let parse = |part: &str| part.parse::<u32>().map(u64::from);
    let all: Result<Vec<u64>, _> = text.split('x').map(parse).collect();
    all.map_err(|_| format!("`{text}`: numbers with x between are expected, the outermost first: 256x64"))
}

impl Argument {
    fn buffer(&self) -> Option<&Buffer> {
        match self {
            Argument::Scalar(_) => None,
            Argument::Pointer(buffer) | Argument::Map(buffer, _) | Argument::Texture(buffer, _) => Some(buffer),
        }
    }

    /// The buffer, if it has no content before the launch.
    fn output(&self) -> Option<&Buffer> {
        self.buffer().filter(|buffer| buffer.content == Content::Nothing)
    }
}

/// An argument with its memory.
pub struct Bound {
    /// What the launch gets.
    pub value: Arg,
    /// Of a texture or surface.
    pub handle: Option<u64>,
    memory: Option<(Pointer, usize)>,
}

impl Bound {
    /// Gives an argument its memory and value; random content depends on the seed.
    ///
    /// # Errors
    /// A file that does not fit, a tensor map that the driver would refuse.
    pub fn new(argument: &Argument, seed: u64, memory: &mut Memory) -> Result<Bound, String> {
        let Some(buffer) = argument.buffer() else {
            let Argument::Scalar(bytes) = argument else { return Err("an argument without a value".into()) };
            return Ok(Bound { value: Arg::bytes(bytes), handle: None, memory: None });
        };
        let data = buffer.content.bytes(buffer.kind, buffer.elements, seed)?;
        let length = data.as_ref().map_or(buffer.elements * buffer.kind.bytes(), |data| data.len() as u64);
        let pointer = memory.alloc(length, data.as_deref()).map_err(|e| e.to_string())?;
        let mut handle = None;
        let value = match argument {
            Argument::Texture(_, image) => {
                let made = memory.texture(image.at(pointer, None)).map_err(|e| e.to_string())?;
                handle = Some(made);
                Arg::from(made)
            }
            Argument::Map(buffer, view) => {
                let map = tensor_map(buffer.kind.element(), view, pointer);
                Arg::bytes(&map.to_bytes().map_err(|e| e.to_string())?)
            }
            _ => Arg::from(pointer),
        };
        Ok(Bound { value, handle, memory: Some((pointer, length as usize)) })
    }

    /// All arguments of a launch, each with a seed of its own.
    ///
    /// # Errors
    /// As [`Bound::new`], with the number of the argument.
    pub fn all(arguments: &[Argument], seed: u64, memory: &mut Memory) -> Result<Vec<Bound>, String> {
        let bind = |(at, argument): (usize, &Argument)| {
            let seed = derive(seed, &[&at.to_string()]);
            Bound::new(argument, seed, memory).map_err(|why| format!("argument {at}: {why}"))
        };
        arguments.iter().enumerate().map(bind).collect()
    }

    /// The buffer as it is now; nothing for a scalar.
    ///
    /// # Errors
    /// Never for memory that this argument was given.
    pub fn read(&self, memory: &Memory) -> Result<Vec<u8>, Error> {
        let Some((pointer, length)) = self.memory else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length];
        memory.read(pointer, &mut bytes).map(|()| bytes)
    }
}

/// Rows follow each other without gaps.
fn tensor_map(element: Element, view: &View, base: Pointer) -> TensorMap {
    let extents: Vec<u64> = view.extents.iter().rev().copied().collect();
    let stride = |stride: &mut u64, extent: &u64| {
        *stride = stride.saturating_mul(*extent);
        Some(*stride)
    };
    TensorMap {
        base,
        element,
        strides_bytes: extents[..extents.len() - 1].iter().scan(u64::from(element.bytes()), stride).collect(),
        extents,
        box_extents: view.box_extents.iter().rev().copied().collect(),
        swizzle: view.swizzle,
        im2col: None,
    }
}

impl Content {
    /// The bytes before the launch; `None` for a buffer without content.
    fn bytes(&self, kind: Kind, elements: u64, seed: u64) -> Result<Option<Vec<u8>>, String> {
        let count = elements as usize;
        let mut rng = rng(seed);
        Ok(Some(match self {
            Content::Nothing => return Ok(None),
            Content::Fill(element) => element.repeat(count),
            Content::Iota if kind.is_float() => (0..count).flat_map(|at| kind.float(at as f64)).collect(),
            Content::Iota => {
                (0..elements).flat_map(|at| at.to_le_bytes().into_iter().take(kind.bytes() as usize)).collect()
            }
            Content::Random if kind.is_float() => {
                let values = Distribution::Normal.draw(&mut rng, 1, count, DType::F32, f64::from(f32::MAX));
                values.into_iter().flat_map(|value| kind.float(value)).collect()
            }
            Content::Random => (0..count)
                .flat_map(|_| below(&mut rng, BOUND).to_le_bytes().into_iter().take(kind.bytes() as usize))
                .collect(),
            Content::File(path) => {
                let data = array_file::read(path, kind.code())?;
                if !(data.len() as u64).is_multiple_of(kind.bytes()) {
                    return Err(format!(
                        "{}: {} bytes are no whole number of elements of {} bytes",
                        path.display(),
                        data.len(),
                        kind.bytes()
                    ));
                }
                data
            }
        }))
    }
}

/// A buffer that had no content before the launch, as it is told after it.
#[derive(Debug, Serialize)]
pub struct Output {
    /// Number of the argument.
    pub argument: usize,
    pub kind: Kind,
    pub elements: usize,
    /// The first elements.
    pub first: Vec<String>,
}

/// The outputs among the buffers.
pub fn outputs(arguments: &[Argument], buffers: &[Vec<u8>]) -> Vec<Output> {
    let output = |(argument, (of, bytes)): (usize, (&Argument, &Vec<u8>))| {
        let kind = of.output()?.kind;
        let elements = bytes.chunks_exact(kind.bytes() as usize);
        let count = elements.len();
        Some(Output {
            argument,
            kind,
            elements: count,
            first: elements.take(SHOWN).map(|one| kind.show(one)).collect(),
        })
    };
    arguments.iter().zip(buffers).enumerate().filter_map(output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Argument {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn bytes(text: &str, seed: u64) -> Vec<u8> {
        let mut memory = Memory::new();
        Bound::all(&[parse(text)], seed, &mut memory).unwrap()[0].read(&memory).unwrap()
    }

    #[test]
    fn contents() {
        assert_eq!(bytes("u16:iota:3", 1), [0, 0, 1, 0, 2, 0]);
        assert_eq!(bytes("f32:fill=1:2", 1), [0, 0, 128, 63, 0, 0, 128, 63]);
        assert_eq!(bytes("f32:random:64", 1), bytes("f32:random:64", 1));
        assert_ne!(bytes("f32:random:64", 1), bytes("f32:random:64", 2));
        assert_eq!(parse("i32:-1"), Argument::Scalar(vec![0xFF; 4]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in
            ["", "f32", "f32:random", "out:f32:-1", "out:f32:99999999999999", "f32:ramdom:4", "map:f32:out:8xq:4"]
        {
            assert!(text.parse::<Argument>().is_err(), "{text}");
        }
        let mut memory = Memory::new();
        let misfit = [parse("map:f32:out:8x7:8x4:128")];
        assert!(Bound::all(&misfit, 1, &mut memory).err().unwrap().contains("multiples of 16"));
        assert!("map:f32:out:8x8:8x4:100".parse::<Argument>().unwrap_err().contains("128"));
    }
}
