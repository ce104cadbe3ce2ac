//! The arguments of a launch as the bytes that its kernel takes.

use super::fault::Fault;
use crate::core::dtype::DType;
use crate::core::launch::{Argument, Launch};
use crate::core::tensor_map::{Fill, Im2col, Swizzle, TensorMap};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Bytes of a tensor map among the parameters of a kernel.
pub const MAP_BYTES: usize = 128;

const POINTER_BYTES: usize = 8;

/// Addresses of a buffer for which a tensor map is kept as it was encoded.
const MOST_ADDRESSES: usize = 512;

/// A buffer of the case in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address.
    pub address: u64,
    /// Its length.
    pub bytes: usize,
    /// The type of its elements.
    pub dtype: DType,
}

/// A tensor map with its place in memory, the innermost dimension first: what the driver's encoder takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiled {
    /// The first element.
    pub address: u64,
    /// The type of the elements.
    pub dtype: DType,
    /// Elements along each dimension.
    pub extents: Vec<u64>,
    /// Bytes between neighbours along each dimension but the innermost.
    pub strides_bytes: Vec<u64>,
    /// Elements of the box along each dimension.
    pub tile: Vec<u32>,
    /// Layout in shared memory.
    pub swizzle: Swizzle,
    /// What lies outside.
    pub fill: Fill,
    /// The im2col mode of a copy; its pairs are (columns, rows) here.
    pub im2col: Option<Im2col>,
}

/// Every argument of a launch on these buffers; `encode` turns tensor maps into what the device's kernels read.
///
/// # Errors
/// [`Fault::Signature`] for a tensor map that no device takes, and what `encode` said.
pub fn arguments(
    launch: &Launch,
    buffers: &[Buffer<'_>],
    encode: impl Fn(&Tiled) -> Result<[u8; MAP_BYTES], Fault>,
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut arguments = Arguments::of(launch, buffers)?;
    arguments.fill(|at| buffers[at].address, encode)?;
    Ok(arguments.each())
}

/// The arguments of a launch, one behind the other, with gaps for what depends on where a buffer is.
#[derive(Debug, Default)]
pub struct Arguments {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
    gaps: Vec<Gap>,
}

/// What depends on the address of a buffer: the address of a byte in it, or a tensor map of what begins there.
#[derive(Debug)]
struct Gap {
    /// Where it begins among the bytes of the arguments.
    at: usize,
    /// The number of the buffer.
    buffer: usize,
    /// How far behind the beginning of the buffer.
    offset_bytes: usize,
    map: Option<Map>,
}

/// A tensor map, as it was encoded for each address.
#[derive(Debug)]
struct Map {
    tiled: Tiled,
    encoded: HashMap<u64, [u8; MAP_BYTES]>,
}

impl Map {
    fn at(
        &mut self,
        address: u64,
        encode: impl Fn(&Tiled) -> Result<[u8; MAP_BYTES], Fault>,
    ) -> Result<&[u8; MAP_BYTES], Fault> {
        if self.encoded.len() == MOST_ADDRESSES && !self.encoded.contains_key(&address) {
            self.encoded.clear();
        }
        match self.encoded.entry(address) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                self.tiled.address = address;
                Ok(place.insert(encode(&self.tiled)?))
            }
        }
    }
}

impl Arguments {
    /// Those of a launch on buffers of these lengths, wherever they are.
    ///
    /// # Errors
    /// [`Fault::Signature`] for what does not fit a buffer, and for a tensor map that no device takes.
    pub fn of(launch: &Launch, buffers: &[Buffer<'_>]) -> Result<Self, Fault> {
        let mut all = Arguments::default();
        let pointers = if launch.pointers { buffers.len() } else { 0 };
        (0..pointers).for_each(|buffer| all.gap(buffer, 0, None));
        for argument in &launch.arguments {
            match argument {
                Argument::Scalar(scalar) => all.push(&scalar.bytes()),
                Argument::Map(map) => {
                    let refused = |why| Fault::Signature(format!("the tensor map of `{}`: {why}", map.buffer));
                    let (buffer, tiled) = place(map, buffers).map_err(refused)?;
                    all.gap(buffer, map.offset_bytes, Some(Map { tiled, encoded: HashMap::new() }));
                }
                Argument::Pointer { buffer, offset_bytes } => {
                    let refused = |why| Fault::Signature(format!("the pointer to `{buffer}`: {why}"));
                    let at = find(buffer, buffers).map_err(refused)?;
                    if *offset_bytes > buffers[at].bytes {
                        return Err(refused(format!("byte {offset_bytes} of the {} that it has", buffers[at].bytes)));
                    }
                    all.gap(at, *offset_bytes, None);
                }
            }
        }
        Ok(all)
    }

    fn push(&mut self, argument: &[u8]) {
        self.bytes.extend(argument);
        self.sizes.push(argument.len());
    }

    fn gap(&mut self, buffer: usize, offset_bytes: usize, map: Option<Map>) {
        let gap = Gap { at: self.bytes.len(), buffer, offset_bytes, map };
        self.push(if gap.map.is_some() { &[0; MAP_BYTES] } else { &[0; POINTER_BYTES] });
        self.gaps.push(gap);
    }

    /// The arguments where each buffer is at its `address`; `encode` turns tensor maps into what the device's kernels read, and is
    /// asked once for each address.
    ///
    /// # Errors
    /// What `encode` said.
    pub fn fill(
        &mut self,
        address: impl Fn(usize) -> u64,
        encode: impl Fn(&Tiled) -> Result<[u8; MAP_BYTES], Fault>,
    ) -> Result<&[u8], Fault> {
        for gap in &mut self.gaps {
            let address = address(gap.buffer) + gap.offset_bytes as u64;
            let to = &mut self.bytes[gap.at..];
            match &mut gap.map {
                None => to[..POINTER_BYTES].copy_from_slice(&address.to_le_bytes()),
                Some(map) => to[..MAP_BYTES].copy_from_slice(map.at(address, &encode)?),
            }
        }
        Ok(&self.bytes)
    }

    /// How long each is.
    #[cfg(any(feature = "cuda", test))]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Each for itself, as it was last filled.
    pub fn each(&self) -> Vec<Vec<u8>> {
        let mut rest = &self.bytes[..];
        let next = |&size: &usize| {
            let (argument, behind) = rest.split_at(size);
            rest = behind;
            argument.to_vec()
        };
        self.sizes.iter().map(next).collect()
    }
}

/// The number of the buffer of this name.
fn find(name: &str, buffers: &[Buffer<'_>]) -> Result<usize, String> {
    let names = || buffers.iter().map(|buffer| buffer.name).collect::<Vec<_>>().join(", ");
    let found = buffers.iter().position(|buffer| buffer.name == name);
    found.ok_or_else(|| format!("there is no such buffer; the case has {}", names()))
}

/// Finds the buffer of a map and holds the map against it and against the rules that all devices share.
fn place(map: &TensorMap, buffers: &[Buffer<'_>]) -> Result<(usize, Tiled), String> {
    let at = find(&map.buffer, buffers)?;
    let buffer = &buffers[at];
    let dtype = map.dtype.unwrap_or(buffer.dtype);
    let rank = map.extents.len();
    let packed =
        || (1..rank).map(|at| map.extents[at..].iter().fold(1, |all: usize, &one| all.saturating_mul(one))).collect();
    let strides: Vec<usize> = map.strides.clone().unwrap_or_else(packed);
    if !(1..=5).contains(&rank) || map.tile.len() != rank || strides.len() + 1 != rank {
        return Err(format!(
            "{rank} extents, {} of the box and {} strides; there are 1 to 5 extents, as many of the box, and a stride \
             less",
            map.tile.len(),
            strides.len()
        ));
    }
    if map.extents.iter().any(|&extent| extent == 0 || extent > 1 << 32) {
        return Err(format!("extents {:?}; each goes from 1 to 2^32", map.extents));
    }
    if map.tile.iter().any(|extent| !(1..=256).contains(extent)) {
        return Err(format!("a box of {:?}; each extent goes from 1 to 256", map.tile));
    }
    let bytes = |elements: usize| elements.saturating_mul(dtype.size());
    let strides_bytes: Vec<u64> = strides.iter().map(|&stride| bytes(stride) as u64).collect();
    if !map.offset_bytes.is_multiple_of(16) || strides_bytes.iter().any(|bytes| !bytes.is_multiple_of(16)) {
        return Err(format!(
            "strides of {strides_bytes:?} bytes, {} bytes into the buffer; all must be multiples of 16",
            map.offset_bytes
        ));
    }
    let row_bytes = map.tile[rank - 1] * dtype.size();
    if !row_bytes.is_multiple_of(16) || row_bytes > row_limit(map.swizzle) {
        return Err(format!(
            "rows of the box have {row_bytes} bytes; a multiple of 16 is needed, and with {:?} no more than {}",
            map.swizzle,
            row_limit(map.swizzle)
        ));
    }
    if let Some(im2col) = &map.im2col {
        im2col_fits(im2col, map)?;
    }
    let reach = map.extents.iter().rev().map(|&extent| extent - 1);
    let steps = std::iter::once(1).chain(strides.iter().rev().copied());
    let last = reach.zip(steps).fold(0usize, |all, (extent, step)| all.saturating_add(extent.saturating_mul(step)));
    let end = bytes(last.saturating_add(1)).saturating_add(map.offset_bytes);
    if end > buffer.bytes {
        return Err(format!("it ends at byte {end}, the buffer has {}", buffer.bytes));
    }
    let tiled = Tiled {
        address: buffer.address + map.offset_bytes as u64,
        dtype,
        extents: map.extents.iter().rev().map(|&extent| extent as u64).collect(),
        strides_bytes: strides_bytes.into_iter().rev().collect(),
        tile: map.tile.iter().rev().map(|&extent| extent as u32).collect(),
        swizzle: map.swizzle,
        fill: map.fill,
        im2col: map.im2col.map(|Im2col { lower_corner, upper_corner, stride }| Im2col {
            lower_corner: [lower_corner[1], lower_corner[0]],
            upper_corner: [upper_corner[1], upper_corner[0]],
            stride: [stride[1], stride[0]],
        }),
    };
    Ok((at, tiled))
}

/// Holds an im2col mode against what the driver takes.
fn im2col_fits(im2col: &Im2col, map: &TensorMap) -> Result<(), String> {
    let corners = || im2col.lower_corner.iter().chain(&im2col.upper_corner);
    if map.extents.len() != 4 || map.tile[1..3] != [1, 1] {
        return Err(format!(
            "im2col mode over {} dimensions; it takes images, rows, columns and channels",
            map.extents.len()
        ));
    }
    if corners().any(|corner| !(-128..=127).contains(corner))
        || im2col.stride.iter().any(|step| !(1..=8).contains(step))
    {
        return Err(format!("{im2col:?}; corners go from -128 to 127, strides from 1 to 8"));
    }
    let last = |at: usize| map.extents[1 + at] as i64 - 1 + i64::from(im2col.upper_corner[at]);
    if (0..2).any(|at| last(at) < i64::from(im2col.lower_corner[at])) {
        return Err(format!("{im2col:?} has no pixel in images of {} x {}", map.extents[1], map.extents[2]));
    }
    Ok(())
}

/// Longest row of a box in bytes.
fn row_limit(swizzle: Swizzle) -> usize {
    match swizzle {
        Swizzle::None => usize::MAX,
        Swizzle::Bytes32 => 32,
        Swizzle::Bytes64 => 64,
        Swizzle::Bytes128 => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::cell::Cell;

    const X: Buffer<'static> = Buffer { name: "x", address: 4096, bytes: 24 * 40 * 2, dtype: DType::BF16 };

    fn map() -> TensorMap {
        TensorMap::of("x", [24, 40]).tile([8, 16])
    }

    fn images() -> TensorMap {
        TensorMap::of("x", [4, 5, 6, 8])
    }

    #[test]
    fn a_walk_is_turned_around() {
        let im2col = Im2col { lower_corner: [-1, -2], upper_corner: [3, 4], stride: [1, 2] };
        let placed = place(&images().im2col(im2col, 16, 8), &[X]).unwrap().1;
        assert_eq!(placed.im2col, Some(Im2col { lower_corner: [-2, -1], upper_corner: [4, 3], stride: [2, 1] }));
        assert_eq!(placed.tile, [8, 1, 1, 16]);
    }

    #[test]
    fn a_map_is_turned_around_and_placed() {
        let view = TensorMap::of("x", [3, 8]).strides([40]).offset(32).tile([2, 8]).swizzle(Swizzle::Bytes32);
        let placed = place(&view, &[X]).unwrap().1;
        let expected = Tiled {
            address: 4128,
            dtype: DType::BF16,
            extents: vec![8, 3],
            strides_bytes: vec![80],
            tile: vec![8, 2],
            swizzle: Swizzle::Bytes32,
            fill: Fill::Zeros,
            im2col: None,
        };
        assert_eq!(placed, expected);
        assert_eq!(place(&map(), &[X]).unwrap().1.strides_bytes, [80]);
    }

    #[rstest]
    #[case(TensorMap { buffer: "z".into(), ..map() }, "the case has x")]
    #[case(map().tile([8]), "1 of the box")]
    #[case(TensorMap::of("x", [24, 0]).tile([8, 8]), "1 to 2^32")]
    #[case(map().tile([257, 8]), "1 to 256")]
    #[case(map().strides([20]), "[40] bytes")]
    #[case(map().offset(8), "8 bytes into")]
    #[case(map().tile([8, 12]), "24 bytes")]
    #[case(map().swizzle(Swizzle::Bytes32).tile([8, 32]), "no more than 32")]
    #[case(map().offset(16), "ends at byte 1936, the buffer has 1920")]
    #[case(map().im2col(Im2col { lower_corner: [0, 0], upper_corner: [0, 0], stride: [1, 1] }, 8, 8), "4 of the box")]
    #[case(images().im2col(Im2col { lower_corner: [0, -129], upper_corner: [0, 0], stride: [1, 1] }, 8, 8), "corners go from")]
    #[case(images().im2col(Im2col { lower_corner: [0, 0], upper_corner: [0, 0], stride: [1, 9] }, 8, 8), "strides from 1 to 8")]
    #[case(images().im2col(Im2col { lower_corner: [0, 0], upper_corner: [-5, 0], stride: [1, 1] }, 8, 8), "no pixel in images of 5 x 6")]
    fn a_map_that_cannot_be_is_refused(#[case] map: TensorMap, #[case] why: &str) {
        let said = place(&map, &[X]).unwrap_err();
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn arguments_stand_in_order() {
        let launch = Launch::blocks(1, 32).scalar(7i32).map(map()).pointer("x").scalar(9i32);
        let sizes = |launch: &Launch| -> Vec<usize> {
            arguments(launch, &[X], |_| Ok([0; MAP_BYTES])).unwrap().iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(&launch), [8, 4, 128, 8, 4]);
        assert_eq!(sizes(&launch.without_pointers()), [4, 128, 8, 4]);
    }

    #[test]
    fn filled_again_they_are_those_of_other_addresses() {
        let launch = Launch::blocks(1, 32).scalar(7i32).map(map().offset(16).tile([8, 8])).pointer_at("x", 32);
        let long = |address: u64| Buffer { address, bytes: 2 * X.bytes, ..X };
        let asked = Cell::new(0);
        let encode = |map: &Tiled| {
            asked.set(asked.get() + 1);
            let mut encoded = [0; MAP_BYTES];
            encoded[..8].copy_from_slice(&map.address.to_le_bytes());
            Ok(encoded)
        };
        let mut kept = Arguments::of(&launch, &[long(0)]).unwrap();
        for address in [4096, 8192, 4096, 1 << 40, 8192] {
            kept.fill(|_| address, encode).unwrap();
            assert_eq!(kept.each(), arguments(&launch, &[long(address)], encode).unwrap());
        }
        assert_eq!((asked.get(), kept.sizes()), (3 + 5, &[8, 4, 128, 8][..]));
    }

    #[test]
    fn a_pointer_reaches_into_its_buffer_and_not_past_it() {
        let at = |offset| {
            let launch = Launch::blocks(1, 32).without_pointers().pointer_at("x", offset);
            arguments(&launch, &[X], |_| Ok([0; MAP_BYTES]))
        };
        assert_eq!(at(1920).unwrap(), [6016u64.to_le_bytes()]);
        let expected = "the pointer to `x`: byte 1921 of the 1920 that it has";
        assert_eq!(at(1921).unwrap_err(), Fault::Signature(expected.into()));
    }
}
