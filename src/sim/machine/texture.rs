//! Textures and surfaces: what a handle stands for, and which texels a coordinate touches.

use crate::sim::error::{Error, Result};
use crate::sim::machine::memory::address::{OFFSET_MASK, TEXTURE_WINDOW};
use crate::sim::machine::memory::{Memory, Pointer};

/// What the numbers of a texel are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// Without a sign.
    Unsigned,
    /// Of two's complement.
    Signed,
    /// Of 16 or 32 bits.
    Float,
}

/// The numbers of a texel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// 1, 2 or 4.
    pub count: u32,
    /// Of each: 8, 16 or 32.
    pub bits: u32,
    /// What they are.
    pub kind: ChannelKind,
}

impl Channels {
    /// Bytes of a texel.
    pub fn bytes(self) -> u32 {
        self.count * self.bits / 8
    }
}

/// What a coordinate outside of the texture reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// The texture again, from its other end; with normalised coordinates only, else as [`AddressMode::Clamp`].
    Wrap,
    /// The texture backwards; with normalised coordinates only, else as [`AddressMode::Clamp`].
    Mirror,
    /// The texel at the edge.
    Clamp,
    /// Zeros.
    Border,
}

/// Which texels make a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The one that the coordinate lies in.
    Point,
    /// The neighbours of the coordinate along each axis, by weights of 8 bits. For results in floating point.
    Linear,
}

/// A texture or surface object: memory, and how it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Texture {
    /// The first texel.
    pub data: Pointer,
    /// What a texel is.
    pub channels: Channels,
    /// Texels along x, y and z; 1 beyond the dimensions. Layers are the last dimension.
    pub extents: [u32; 3],
    /// From one row to the next.
    pub row_bytes: u64,
    /// Outside of the texture, along each axis.
    pub address_modes: [AddressMode; 3],
    /// Between texels.
    pub filter: Filter,
    /// Coordinates go from 0 to 1 over the texture, in place of from 0 to its extent.
    pub normalized_coordinates: bool,
    /// Integers of 8 and 16 bits are read as numbers from 0, or -1, to 1.
    pub normalized_reads: bool,
}

impl Texture {
    /// Linear memory as one row, as `cudaResourceTypeLinear` has it: texels outside are zeros.
    pub fn linear(data: Pointer, channels: Channels, texels: u32) -> Self {
        Texture { address_modes: [AddressMode::Border; 3], ..Texture::array(data, channels, [texels, 1, 1]) }
    }

    /// Rows one behind the other, read by point at coordinates that are clamped.
    pub fn array(data: Pointer, channels: Channels, extents: [u32; 3]) -> Self {
        Texture {
            data,
            channels,
            extents,
            row_bytes: u64::from(extents[0]) * u64::from(channels.bytes()),
            address_modes: [AddressMode::Clamp; 3],
            filter: Filter::Point,
            normalized_coordinates: false,
            normalized_reads: false,
        }
    }

    /// Bytes from the first texel to the end of the last one.
    fn span(&self) -> u64 {
        let [x, y, z] = self.extents.map(u64::from);
        (y * z).saturating_sub(1).saturating_mul(self.row_bytes) + x * u64::from(self.channels.bytes())
    }

    /// Where a texel lies.
    pub(crate) fn texel(&self, [x, y, z]: [u64; 3]) -> u64 {
        let row = z * u64::from(self.extents[1]) + y;
        self.data.address() + row * self.row_bytes + x * u64::from(self.channels.bytes())
    }

    /// What is wrong with it, if anything.
    fn problem(&self) -> Option<String> {
        let Channels { count, bits, kind } = self.channels;
        let bytes = u64::from(self.channels.bytes());
        if !matches!(count, 1 | 2 | 4) || !matches!(bits, 8 | 16 | 32) || (kind == ChannelKind::Float && bits == 8) {
            return Some(format!(
                "texels of {count} numbers of {bits} bits: 1, 2 or 4 of 8, 16 or 32 bits are possible, floats of 16 or 32"
            ));
        }
        if self.extents.contains(&0) {
            return Some(format!("extents {:?}: a dimension that is not there has extent 1", self.extents));
        }
        if !self.data.address().is_multiple_of(bytes) || !self.row_bytes.is_multiple_of(bytes) {
            return Some(format!(
                "its address and the {} bytes of a row have to be multiples of a texel, {bytes}",
                self.row_bytes
            ));
        }
        if self.row_bytes < u64::from(self.extents[0]) * bytes {
            return Some(format!("rows of {} bytes do not hold {} texels of {bytes}", self.row_bytes, self.extents[0]));
        }
        if self.normalized_reads && (kind == ChannelKind::Float || bits == 32) {
            return Some("only integers of 8 and 16 bits are read as numbers up to 1".to_owned());
        }
        None
    }

    /// The texel along an axis that a coordinate lies in; `None` for the border.
    pub(crate) fn point(&self, axis: usize, at: f32) -> Option<u64> {
        self.place(axis, (at * self.scale(axis)).floor() as i64)
    }

    /// The neighbours of a coordinate along an axis, each with its weight.
    pub(crate) fn neighbours(&self, axis: usize, at: f32) -> [(Option<u64>, f32); 2] {
        let at = at * self.scale(axis) - 0.5;
        let first = at.floor();
        // The weight has 8 bits behind the point.
        let second = ((at - first) * 256.0).round_ties_even() / 256.0;
        let first = first as i64;
        [(self.place(axis, first), 1.0 - second), (self.place(axis, first.saturating_add(1)), second)]
    }

    fn scale(&self, axis: usize) -> f32 {
        if self.normalized_coordinates { self.extents[axis] as f32 } else { 1.0 }
    }

    /// A texel's number inside the texture, by the mode of the axis; `None` for the border.
    pub(crate) fn place(&self, axis: usize, at: i64) -> Option<u64> {
        let extent = i64::from(self.extents[axis]);
        let clamped = at.clamp(0, extent - 1) as u64;
        match self.address_modes[axis] {
            AddressMode::Border => (clamped as i64 == at).then_some(clamped),
            AddressMode::Wrap if self.normalized_coordinates => Some(at.rem_euclid(extent) as u64),
            AddressMode::Mirror if self.normalized_coordinates => {
                let there_and_back = at.rem_euclid(2 * extent);
                Some(there_and_back.min(2 * extent - 1 - there_and_back) as u64)
            }
            _ => Some(clamped),
        }
    }

    /// A layer; those outside are the first and the last.
    pub(crate) fn layer(&self, axis: usize, at: u32) -> u64 {
        u64::from(at.min(self.extents[axis] - 1))
    }
}

impl Memory {
    /// Makes a texture or surface object; a kernel takes the handle as a 64-bit argument, or
    /// [`Launch::texture`](crate::sim::Launch::texture) binds it to a name.
    ///
    /// # Errors
    /// When the texture does not lie in one live allocation, or its form is none that a device has.
    pub fn texture(&mut self, texture: Texture) -> Result<u64> {
        let refuse = |why: String| Err(Error::Launch(format!("a texture at {:#x}: {why}", texture.data.address())));
        if let Some(why) = texture.problem() {
            return refuse(why);
        }
        let address = texture.data.address();
        let size = match self.find(address) {
            Some((_, allocation)) if allocation.is_live() => allocation.bytes(),
            _ => return refuse("no live allocation is there".to_owned()),
        };
        let end = (address & OFFSET_MASK).saturating_add(texture.span());
        if end > size {
            return refuse(format!("it ends {} bytes past its allocation of {size}", end - size));
        }
        self.textures.push(texture);
        Ok(TEXTURE_WINDOW + self.textures.len() as u64 - 1)
    }

    /// What a handle stands for.
    pub(crate) fn texture_of(&self, handle: u64) -> Option<&Texture> {
        self.textures.get(handle.checked_sub(TEXTURE_WINDOW)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const BYTES: Channels = Channels { count: 1, bits: 8, kind: ChannelKind::Unsigned };

    #[rstest]
    #[case(AddressMode::Clamp, [0, 0, 3, 3, 3])]
    #[case(AddressMode::Wrap, [3, 0, 3, 0, 1])]
    #[case(AddressMode::Mirror, [0, 0, 3, 3, 2])]
    fn modes_of_normalised_coordinates(#[case] mode: AddressMode, #[case] expected: [u64; 5]) {
        let texture = Texture {
            address_modes: [mode; 3],
            normalized_coordinates: true,
            ..Texture::array(Pointer::NULL, BYTES, [4, 1, 1])
        };
        let found = [-0.1, 0.1, 0.9, 1.1, 1.3].map(|at| texture.point(0, at));
        assert_eq!(found, expected.map(Some));
    }

    #[test]
    fn weights_have_eight_bits() {
        let texture = Texture::linear(Pointer::NULL, BYTES, 4);
        assert_eq!(texture.neighbours(0, 1.0), [(Some(0), 0.5), (Some(1), 0.5)]);
        assert_eq!(texture.neighbours(0, 1.5 + 1.0 / 1024.0), [(Some(1), 1.0), (Some(2), 0.0)]);
        assert_eq!(texture.neighbours(0, 0.25), [(None, 0.25), (Some(0), 0.75)]);
    }

    #[test]
    fn a_texture_lies_in_its_allocation() {
        let mut memory = Memory::new();
        let data = memory.alloc(64, Some(&[0; 64])).unwrap();
        let rows = |x, y| Texture::array(data, BYTES, [x, y, 1]);
        assert!(memory.texture(rows(8, 8)).is_ok());
        let error = memory.texture(rows(8, 9)).unwrap_err().to_string();
        assert!(error.contains("8 bytes past its allocation of 64"), "{error}");
        let short = Texture { row_bytes: 7, ..rows(8, 8) };
        assert!(memory.texture(short).unwrap_err().to_string().contains("do not hold 8 texels"));
        assert!(memory.texture(Texture { channels: Channels { bits: 24, ..BYTES }, ..rows(1, 1) }).is_err());
    }
}
