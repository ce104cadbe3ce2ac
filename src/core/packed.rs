//! Content that is kept packed as XZ: compiled kernels, results and what hardware gave are large and alike.

use lzma_rust2::{LzmaOptions, XzOptions, XzReader, XzWriter};
use std::io::{self, Read as _, Write as _};

/// What an XZ file begins with.
const MAGIC: &[u8] = b"\xFD7zXZ\0";

/// The most that a file may unpack to: a few kilobytes can hold gigabytes of zeros.
const MOST_BYTES: u64 = 256 << 20;

/// The most KiB of memory that unpacking may take beside the content; `xz -9` asks for half of it.
const MOST_KIB: u32 = 128 << 10;

/// Content as an XZ file. The same content makes the same bytes.
pub fn pack(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = XzOptions::with_preset(9);
    // Text: what a byte is follows from the one before it, wherever it stands.
    (options.lzma_options.lc, options.lzma_options.pb) = (4, 0);
    // As `xz --extreme`: the longest matches are looked for.
    options.lzma_options.nice_len = LzmaOptions::NICE_LEN_MAX;
    let mut writer = XzWriter::new(Vec::new(), options)?;
    writer.write_all(content)?;
    writer.finish()
}

/// The content of an XZ file.
pub fn unpack(file: &[u8]) -> io::Result<Vec<u8>> {
    unpack_within(file, MOST_BYTES)
}

/// The content of a file, be it packed or plain: what it begins with says which, not its name.
pub fn content(file: Vec<u8>) -> io::Result<Vec<u8>> {
    if file.starts_with(MAGIC) { unpack(&file) } else { Ok(file) }
}

/// The same as text.
pub fn text(file: impl Into<Vec<u8>>) -> io::Result<String> {
    String::from_utf8(content(file.into())?).map_err(|_| invalid("it is no text in UTF-8"))
}

fn unpack_within(file: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    XzReader::new_mem_limit(file, false, MOST_KIB)
        .take(most + 1)
        .read_to_end(&mut content)
        .map_err(|e| io::Error::new(e.kind(), format!("it is packed with xz, and cut or damaged: {e}")))?;
    if content.len() as u64 > most {
        return Err(invalid(&format!("it is packed with xz, and holds more than {most} bytes")));
    }
    Ok(content)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_packed_or_plain() {
        let packed = pack("µs\n".as_bytes()).unwrap();
        assert!(packed.starts_with(MAGIC));
        assert_eq!(packed, pack("µs\n".as_bytes()).unwrap());
        for file in [packed, "µs\n".into(), Vec::new()] {
            assert_eq!(text(&*file).unwrap(), if file.is_empty() { "" } else { "µs\n" });
        }
        for file in [pack(b"\xFF").unwrap(), b"\xFF".to_vec()] {
            assert!(text(file).unwrap_err().to_string().contains("UTF-8"));
        }
    }

    #[test]
    fn a_cut_file_is_an_error_wherever_it_is_cut() {
        let content: Vec<u8> = (0..5000u32).flat_map(|i| (i * i).to_le_bytes()).collect();
        let whole = pack(&content).unwrap();
        assert_eq!(unpack(&whole).unwrap(), content);
        for at in (MAGIC.len()..whole.len()).step_by(97).chain([whole.len() - 1]) {
            let why = text(&whole[..at]).unwrap_err().to_string();
            assert!(why.contains("cut or damaged"), "{at} of {}: {why}", whole.len());
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        assert!(unpack(&damaged).unwrap_err().to_string().contains("cut or damaged"));
    }

    #[test]
    fn a_small_file_does_not_expand_without_limit() {
        let bomb = pack(&vec![0; 1 << 20]).unwrap();
        assert!(bomb.len() < 1000);
        assert_eq!(unpack_within(&bomb, 1 << 20).unwrap().len(), 1 << 20);
        let why = unpack_within(&bomb, (1 << 20) - 1).unwrap_err().to_string();
        assert!(why.contains("more than 1048575 bytes"), "{why}");
        let mut greedy = pack(b"x").unwrap();
        // A dictionary of 4 GiB, and the checksum of the header that says so.
        greedy[16] = 40;
        greedy[20..24].copy_from_slice(&[0xE6, 0xA0, 0x11, 0xB3]);
        let why = unpack(&greedy).unwrap_err().to_string();
        assert!(why.contains("memory"), "{why}");
    }
}
