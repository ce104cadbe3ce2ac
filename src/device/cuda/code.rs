//! What a kernel is to the processor: a hash of its machine code and of its launches. Two builds that agree in it differ
//! in nothing that the device could be slower for.

use crate::core::launch::Launch;
use crate::device::recipe::hash;
use object::{Object, ObjectSection};

/// Digits that are kept of a hash.
const DIGITS: usize = 12;

/// The hash of some launches of entries of a loaded image.
pub fn hash_of<'a>(image: &[u8], launches: impl Iterator<Item = (&'a str, &'a Launch)>) -> String {
    let parts: Vec<Vec<u8>> =
        launches.flat_map(|(entry, launch)| [code_of(image, entry), format!("{launch:?}").into_bytes()]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    hash(&parts)[..DIGITS].to_owned()
}

/// The instructions of an entry and the constants that it reads; all of an image that is text.
fn code_of(image: &[u8], entry: &str) -> Vec<u8> {
    let Ok(file) = object::File::parse(image) else { return image.to_vec() };
    let is_read = |name: &str| match name.strip_prefix(".nv.constant") {
        // A bank of the entry, or one of the whole module.
        Some(bank) => bank.split_once('.').is_none_or(|(_, of)| of == entry),
        None => name.strip_prefix(".text.") == Some(entry) || name == ".nv.global.init",
    };
    let sections = file.sections().filter(|section| section.name().is_ok_and(is_read));
    sections.flat_map(|section| section.data().unwrap_or_default().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_text_counts_whole_and_so_does_the_launch() {
        let (one, two) = (Launch::blocks(1, 32), Launch::blocks(2, 32));
        let of = |image: &str, launch: &Launch| hash_of(image.as_bytes(), [("k", launch)].into_iter());
        let base = of("ptx", &one);
        assert_eq!((base.len(), base == of("ptx", &one)), (DIGITS, true));
        assert!(base != of("ptx2", &one) && base != of("ptx", &two));
    }

    /// A file with a text section an entry and a module's constants.
    fn image(first: u8, constant: u8) -> Vec<u8> {
        use object::write::Object;
        use object::{Architecture, BinaryFormat, Endianness, SectionKind};
        let mut file = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        for (name, byte) in
            [(".text.first", first), (".text.second", 2), (".nv.constant3", constant), (".debug_line", first)]
        {
            let section = file.add_section(Vec::new(), name.into(), SectionKind::ReadOnlyData);
            file.append_section_data(section, &[byte; 16], 4);
        }
        file.write().unwrap()
    }

    #[test]
    fn an_entry_is_its_own_code_and_the_constants() {
        let launch = Launch::blocks(1, 32);
        let of = |image: &[u8], entry: &str| hash_of(image, [(entry, &launch)].into_iter());
        assert_ne!(of(&image(1, 9), "first"), of(&image(7, 9), "first"));
        assert_eq!(of(&image(1, 9), "second"), of(&image(7, 9), "second"), "another entry has changed");
        assert_ne!(of(&image(1, 9), "second"), of(&image(1, 8), "second"));
    }
}
