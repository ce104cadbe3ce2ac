//! Textures and surfaces in writing: `u8x4` is a texel, `linear,wrap,normalized` how it is read.

use super::kind::Kind;
use crate::sim::{AddressMode, ChannelKind, Channels, Filter, Pointer, Texture};

/// A texture but for its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    channels: Channels,
    /// Along x, y, z.
    extents: [u32; 3],
    mode: AddressMode,
    filter: Filter,
    normalized_coordinates: bool,
    normalized_reads: bool,
}

/// A texel by its name, `f32` or `u8x4`: the type of its numbers and how many there are.
///
/// # Errors
/// What is expected.
pub fn texel(name: &str) -> Result<(Kind, u32), String> {
    let (kind, count) = match name.rsplit_once('x') {
        Some((kind, count)) => (kind, count.parse().map_err(|_| format!("`{count}` is no number of channels"))?),
        None => (name, 1),
    };
    Ok((Kind::parse(kind)?, count))
}

impl Image {
    /// From the name of a texel, extents from the innermost on, and options with commas between.
    ///
    /// # Errors
    /// What is expected in place of what does not fit.
    pub fn parse(texel_name: &str, extents: &[u64], options: &str) -> Result<Image, String> {
        let (kind, count) = texel(texel_name)?;
        let numbers = match kind {
            Kind::F16 | Kind::F32 => ChannelKind::Float,
            Kind::U8 | Kind::U16 | Kind::U32 => ChannelKind::Unsigned,
            Kind::I8 | Kind::I16 | Kind::I32 => ChannelKind::Signed,
            _ => {
                return Err(format!(
                    "`{texel_name}`: texels are of f16, f32, or integers of 8, 16 or 32 bits, as in u8x4"
                ));
            }
        };
        let channels = Channels { count, bits: 8 * kind.bytes() as u32, kind: numbers };
        let mut along = [1u32; 3];
        if extents.is_empty() || extents.len() > 3 {
            return Err(format!("{} extents; a texture has one to three", extents.len()));
        }
        for (to, extent) in along.iter_mut().zip(extents) {
            *to = u32::try_from(*extent).map_err(|_| format!("an extent of {extent} texels"))?;
        }
        let mut image = Image {
            channels,
            extents: along,
            mode: if extents.len() == 1 { AddressMode::Border } else { AddressMode::Clamp },
            filter: Filter::Point,
            normalized_coordinates: false,
            normalized_reads: false,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option {
                "point" => image.filter = Filter::Point,
                "linear" => image.filter = Filter::Linear,
                "border" => image.mode = AddressMode::Border,
                "clamp" => image.mode = AddressMode::Clamp,
                "wrap" => image.mode = AddressMode::Wrap,
                "mirror" => image.mode = AddressMode::Mirror,
                "normalized" => image.normalized_coordinates = true,
                "unit" => image.normalized_reads = true,
                _ => {
                    return Err(format!(
                        "`{option}`: expected point or linear; border, clamp, wrap or mirror; normalized (coordinates from 0 to 1); \
                         unit (integers as numbers up to 1)"
                    ));
                }
            }
        }
        Ok(image)
    }

    /// Numbers of all texels, where rows follow each other.
    pub fn elements(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(*extent)).fold(u64::from(self.channels.count), u64::saturating_mul)
    }

    /// The texture in memory; rows follow each other unless `row_bytes` says otherwise.
    pub fn at(&self, data: Pointer, row_bytes: Option<u64>) -> Texture {
        let rows = Texture::array(data, self.channels, self.extents);
        Texture {
            row_bytes: row_bytes.unwrap_or(rows.row_bytes),
            address_modes: [self.mode; 3],
            filter: self.filter,
            normalized_coordinates: self.normalized_coordinates,
            normalized_reads: self.normalized_reads,
            ..rows
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn an_image_in_writing() {
        let image = Image::parse("u8x4", &[6, 5], "linear,wrap,normalized,unit").unwrap();
        assert_eq!(image.elements(), 120);
        let texture = image.at(Pointer::NULL, None);
        assert_eq!((texture.row_bytes, texture.extents, texture.channels.bits), (24, [6, 5, 1], 8));
        assert_eq!((texture.filter, texture.address_modes[1]), (Filter::Linear, AddressMode::Wrap));
        assert!(texture.normalized_coordinates && texture.normalized_reads);
        let row = Image::parse("f32", &[6], "").unwrap().at(Pointer::NULL, Some(64));
        assert_eq!((row.row_bytes, row.address_modes[0]), (64, AddressMode::Border));
    }

    #[rstest]
    #[case("f64", &[4], "", "texels are of f16")]
    #[case("u8xtwo", &[4], "", "no number of channels")]
    #[case("u8", &[4, 4, 4, 4], "", "one to three")]
    #[case("u8", &[4], "nearest", "expected point or linear")]
    fn what_does_not_fit_is_said(
        #[case] name: &str,
        #[case] extents: &[u64],
        #[case] options: &str,
        #[case] part: &str,
    ) {
        let why = Image::parse(name, extents, options).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
}
