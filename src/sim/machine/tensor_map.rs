//! Tensor maps: what the bulk tensor copies know of a tensor in global memory.
//!
//! The driver's encoding is opaque, so the simulator has its own, made from the arguments of `cuTensorMapEncodeTiled`.

use crate::sim::error::{Error, Result};
use crate::sim::machine::memory::Pointer;
use crate::sim::ptx::types::Type;

/// What a tensor consists of: the types that `cuTensorMapEncodeTiled` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Bytes, of whatever meaning.
    U8,
    /// Half words, of whatever meaning.
    U16,
    /// Unsigned integers of 32 bits.
    U32,
    /// Signed integers of 32 bits.
    S32,
    /// Unsigned integers of 64 bits.
    U64,
    /// Signed integers of 64 bits.
    S64,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

impl Element {
    /// In the order of their codes.
    const ALL: [(Element, Type); 10] = [
        (Element::U8, Type::U8),
        (Element::U16, Type::U16),
        (Element::U32, Type::U32),
        (Element::S32, Type::S32),
        (Element::U64, Type::U64),
        (Element::S64, Type::S64),
        (Element::F16, Type::F16),
        (Element::Bf16, Type::Bf16),
        (Element::F32, Type::F32),
        (Element::F64, Type::F64),
    ];

    /// As instructions call it.
    pub(crate) fn ty(self) -> Type {
        Element::ALL[self as usize].1
    }

    /// Bytes in memory.
    pub fn bytes(self) -> u32 {
        self.ty().bytes()
    }

    fn from_code(code: u64) -> Option<Self> {
        Element::ALL.get(code as usize).map(|(element, _)| *element)
    }
}

/// How a box is laid out in shared memory: the bits of an address above the 128-byte (or shorter) row are mixed into
/// its 16-byte units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swizzle {
    /// As it is.
    None,
    /// Rows of 32 bytes.
    Bytes32,
    /// Rows of 64 bytes.
    Bytes64,
    /// Rows of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// The address that a byte goes to.
    #[inline(always)]
    pub(crate) fn apply(self, address: u64) -> u64 {
        let mask = match self {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 1,
            Swizzle::Bytes64 => 3,
            Swizzle::Bytes128 => 7,
        };
        address ^ ((address >> 7 & mask) << 4)
    }

    /// The one whose rows have so many bytes; 0 for none.
    ///
    /// # Errors
    /// When there is none of that size.
    pub fn of_row(bytes: u32) -> std::result::Result<Self, String> {
        Ok(match bytes {
            0 => Swizzle::None,
            32 => Swizzle::Bytes32,
            64 => Swizzle::Bytes64,
            128 => Swizzle::Bytes128,
            other => return Err(format!("swizzled rows have 32, 64 or 128 bytes (or 0: not swizzled), not {other}")),
        })
    }

    /// Longest inner extent of a box.
    fn row_bytes(self) -> u64 {
        match self {
            Swizzle::None => u64::MAX,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }

    fn from_code(code: u64) -> Option<Self> {
        [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128].get(code as usize).copied()
    }
}

/// The im2col mode of a copy over the pixels of a tensor of images: columns first, then rows, then images. Pairs are
/// (columns, rows).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Im2col {
    /// The first pixel, counted from the first column and row.
    pub lower_corner: [i8; 2],
    /// No pixel lies past this one, counted from the last column and row.
    pub upper_corner: [i8; 2],
    /// Columns and rows from a pixel to the next.
    pub stride: [u8; 2],
}

impl Im2col {
    /// The last byte, a step, is never zero.
    fn to_word(self) -> u64 {
        let [a, b] = self.lower_corner.map(|at| at as u8);
        let [c, d] = self.upper_corner.map(|at| at as u8);
        u64::from_le_bytes([a, b, c, d, 0, 0, self.stride[0], self.stride[1]])
    }

    fn from_word(word: u64) -> Option<Self> {
        let bytes = word.to_le_bytes();
        let at = |first: usize| [bytes[first] as i8, bytes[first + 1] as i8];
        (bytes[7] != 0).then_some(Im2col { lower_corner: at(0), upper_corner: at(2), stride: [bytes[6], bytes[7]] })
    }
}

/// A tensor of up to five dimensions, the innermost first, and the box that one copy moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// The first element.
    pub base: Pointer,
    /// What an element is.
    pub element: Element,
    /// Elements along each dimension.
    pub extents: Vec<u64>,
    /// Bytes between neighbours along each dimension but the innermost.
    pub strides_bytes: Vec<u64>,
    /// Elements of a box along each dimension.
    pub box_extents: Vec<u32>,
    /// Layout in shared memory.
    pub swizzle: Swizzle,
    /// For copies in im2col mode: the box is then the channels and, as its last extent, the pixels.
    pub im2col: Option<Im2col>,
}

const MAGIC: u64 = 0x6B67_746D_6170_3031;
const BYTES: usize = 128;

impl TensorMap {
    /// The 128 bytes that a kernel takes as its `CUtensorMap` parameter.
    ///
    /// # Errors
    /// When the driver's call would refuse the arguments: ranks, alignments, extents of the box.
    pub fn to_bytes(&self) -> Result<[u8; BYTES]> {
        let refuse = |what: &str| Err(Error::Launch(format!("tensor map: {what}")));
        let rank = self.extents.len();
        if !(1..=5).contains(&rank) || self.box_extents.len() != rank || self.strides_bytes.len() + 1 != rank {
            return refuse("1 to 5 extents are needed, as many of the box, and a stride less");
        }
        if !self.base.address().is_multiple_of(16)
            || self.strides_bytes.iter().any(|stride| stride % 16 != 0 || *stride >= 1 << 40)
        {
            return refuse("the base and all strides must be multiples of 16 bytes, strides below 2^40");
        }
        if self.extents.iter().any(|extent| *extent == 0 || *extent > 1 << 32)
            || self.box_extents.iter().any(|extent| !(1..=256).contains(extent))
        {
            return refuse("extents go from 1 to 2^32, those of the box from 1 to 256");
        }
        let row = u64::from(self.box_extents[0]) * u64::from(self.element.bytes());
        if row % 16 != 0 || row > self.swizzle.row_bytes() {
            return refuse(
                "the inner extent of the box must be a multiple of 16 bytes and no longer than the swizzled row",
            );
        }
        if let Some(im2col) = self.im2col {
            let last = |at: usize| self.extents[1 + at] as i64 - 1 + i64::from(im2col.upper_corner[at]);
            if rank != 4 || self.box_extents[1..3] != [1, 1] || im2col.stride.iter().any(|step| !(1..=8).contains(step))
            {
                return refuse("im2col mode takes channels, columns, rows and images, and strides from 1 to 8");
            }
            if (0..2).any(|at| last(at) < i64::from(im2col.lower_corner[at])) {
                return refuse("im2col mode needs at least one pixel in an image");
            }
        }
        let mut words = [0u64; BYTES / 8];
        words[0] = MAGIC;
        words[1] = self.base.address();
        words[2] = rank as u64 | (self.element as u64) << 8 | (self.swizzle as u64) << 16;
        words[3..3 + rank].copy_from_slice(&self.extents);
        for at in 0..rank {
            words[8 + at / 2] |= u64::from(self.box_extents[at]) << (32 * (at % 2));
        }
        words[11..11 + self.strides_bytes.len()].copy_from_slice(&self.strides_bytes);
        words[15] = self.im2col.map_or(0, Im2col::to_word);
        let mut bytes = [0; BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Reads what [`TensorMap::to_bytes`] made.
    pub(crate) fn from_words(words: &[u64; BYTES / 8]) -> Option<TensorMap> {
        let rank = (words[2] & 0xFF) as usize;
        if words[0] != MAGIC || !(1..=5).contains(&rank) {
            return None;
        }
        let map = TensorMap {
            base: Pointer::NULL.offset(words[1]),
            element: Element::from_code(words[2] >> 8 & 0xFF)?,
            extents: words[3..3 + rank].to_vec(),
            strides_bytes: words[11..11 + rank - 1].to_vec(),
            box_extents: (0..rank).map(|at| (words[8 + at / 2] >> (32 * (at % 2))) as u32).collect(),
            swizzle: Swizzle::from_code(words[2] >> 16 & 0xFF)?,
            im2col: Im2col::from_word(words[15]),
        };
        // A kernel may have written over it.
        map.to_bytes().is_ok().then_some(map)
    }

    /// Bytes of a box in shared memory.
    pub(crate) fn box_bytes(&self) -> u32 {
        self.box_extents.iter().fold(self.element.bytes(), |bytes, extent| bytes.saturating_mul(*extent))
    }

    /// The 16-byte units of the box at these coordinates, in the order of shared memory.
    pub(crate) fn units(&self, coordinates: &[i32]) -> Vec<Unit> {
        let mut out = Vec::with_capacity((self.box_bytes() / 16) as usize);
        let mut at = [0; 4];
        for row in 0..self.box_extents[1..].iter().product() {
            let mut rest: u32 = row;
            for dimension in 1..self.extents.len() {
                let within = rest % self.box_extents[dimension];
                rest /= self.box_extents[dimension];
                at[dimension - 1] = i64::from(coordinates[dimension]) + i64::from(within);
            }
            self.push_row(&mut out, coordinates[0], &at[..self.extents.len() - 1]);
        }
        out
    }

    /// The units at the pixels of an im2col copy from these coordinates on, each `offsets` columns and rows away.
    pub(crate) fn units_of_im2col(&self, im2col: Im2col, coordinates: &[i32], offsets: [u16; 2]) -> Vec<Unit> {
        let mut out = Vec::with_capacity((self.box_bytes() / 16) as usize);
        let mut place = [1, 2, 3].map(|at| i64::from(coordinates[at]));
        for _ in 0..self.box_extents[3] {
            let at = [place[0] + i64::from(offsets[0]), place[1] + i64::from(offsets[1]), place[2]];
            self.push_row(&mut out, coordinates[0], &at);
            for axis in 0..2 {
                place[axis] += i64::from(im2col.stride[axis]);
                if place[axis] < self.extents[1 + axis] as i64 + i64::from(im2col.upper_corner[axis]) {
                    break;
                }
                place[axis] = i64::from(im2col.lower_corner[axis]);
                if axis == 1 {
                    place[2] += 1;
                }
            }
        }
        out
    }

    /// A row of the box, from element `first` on, `at` the other dimensions.
    fn push_row(&self, out: &mut Vec<Unit>, first: i32, at: &[i64]) {
        let per_unit = 16 / self.element.bytes();
        let outside = at.iter().zip(&self.extents[1..]).any(|(&at, &extent)| at < 0 || at as u64 >= extent);
        let row = at.iter().zip(&self.strides_bytes).fold(self.base.address(), |address, (&at, &stride)| {
            address.wrapping_add((at as u64).wrapping_mul(stride))
        });
        for unit in 0..self.box_extents[0] / per_unit {
            let first = i64::from(first) + i64::from(unit * per_unit);
            let before = |edge: i64| (edge - first).clamp(0, i64::from(per_unit));
            let inside = (1u32 << before(self.extents[0] as i64)) - (1 << before(0));
            let valid = if outside { 0 } else { inside as u16 };
            let address = row.wrapping_add((first as u64).wrapping_mul(u64::from(self.element.bytes())));
            out.push(Unit { address, valid });
        }
    }
}

/// 16 bytes of a box: where they come from, and which of their elements lie inside the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub address: u64,
    pub valid: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap {
            base: Pointer::NULL.offset(1 << 38),
            element: Element::Bf16,
            extents: vec![20, 3],
            strides_bytes: vec![48],
            box_extents: vec![16, 2],
            swizzle: Swizzle::Bytes32,
            im2col: None,
        }
    }

    /// Two images of 3 x 4 places with 8 channels: places of a 3 x 3 filter with a border of 1, every second one.
    fn images() -> TensorMap {
        TensorMap {
            extents: vec![8, 4, 3, 2],
            strides_bytes: vec![16, 64, 192],
            box_extents: vec![8, 1, 1, 6],
            swizzle: Swizzle::None,
            im2col: Some(Im2col { lower_corner: [-1, -1], upper_corner: [-1, -1], stride: [2, 2] }),
            ..map()
        }
    }

    #[test]
    fn a_walk_goes_along_columns_rows_and_images() {
        let map = images();
        let im2col = map.im2col.unwrap();
        let place = |unit: &Unit| (unit.valid != 0).then(|| (unit.address - map.base.address()) / 16);
        // Places (-1, -1), (-1, 1), (1, -1), (1, 1) of the first image and the first two of the second, each a row and
        // a column further.
        let middle: Vec<_> = map.units_of_im2col(im2col, &[0, -1, -1, 0], [1, 1]).iter().map(place).collect();
        assert_eq!(middle, [Some(0), Some(2), Some(8), Some(10), Some(12), Some(14)]);
        let corner: Vec<_> = map.units_of_im2col(im2col, &[0, 1, -1, 0], [0, 0]).iter().map(place).collect();
        assert_eq!(corner, [None, None, Some(5), None, None, None]);
        // Behind the last image there is nothing.
        let end: Vec<_> = map.units_of_im2col(im2col, &[0, 1, 1, 1], [0, 0]).iter().map(place).collect();
        assert_eq!(end, [Some(17), None, None, None, None, None]);
    }

    #[test]
    fn the_encoding_comes_back() {
        let bytes = map().to_bytes().unwrap();
        let words = std::array::from_fn(|at| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap()));
        assert_eq!(TensorMap::from_words(&words), Some(map()));
        let bytes = images().to_bytes().unwrap();
        let words = std::array::from_fn(|at| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap()));
        assert_eq!(TensorMap::from_words(&words), Some(images()));
        assert_eq!(TensorMap::from_words(&[0; 16]), None);
    }

    #[test]
    fn elements_outside_the_tensor_are_left_out() {
        let units = map().units(&[8, 2]);
        let valid: Vec<u16> = units.iter().map(|unit| unit.valid).collect();
        assert_eq!(valid, [0xFF, 0x0F, 0, 0]);
        assert_eq!(units[1].address - (1 << 38), 2 * 48 + 32);
        assert_eq!(map().units(&[-4, 0])[0].valid, 0xF0);
    }

    #[test]
    fn a_swizzle_moves_16_byte_units_within_their_row() {
        assert_eq!(Swizzle::Bytes128.apply(0x80), 0x90);
        assert_eq!(Swizzle::Bytes128.apply(0x3F0), 0x380);
        assert_eq!(Swizzle::Bytes64.apply(0x200), 0x200);
        assert_eq!(Swizzle::Bytes64.apply(0x80), 0x90);
    }

    #[test]
    fn what_the_driver_refuses_is_refused() {
        for broken in [
            TensorMap { strides_bytes: vec![50], ..map() },
            TensorMap { box_extents: vec![32, 2], ..map() },
            TensorMap { box_extents: vec![16, 257], ..map() },
            TensorMap { extents: vec![], ..map() },
            TensorMap { im2col: images().im2col, ..map() },
            TensorMap {
                im2col: Some(Im2col { lower_corner: [-1, -1], upper_corner: [-1, -5], stride: [2, 2] }),
                ..images()
            },
        ] {
            assert!(broken.to_bytes().is_err(), "{broken:?}");
        }
    }
}
