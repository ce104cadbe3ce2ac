//! Text that is kept packed: compiled kernels are large and alike.

use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::io::{Read as _, Write as _};

/// Text as an XZ file. The same text makes the same bytes.
pub fn pack(text: &str) -> std::io::Result<Vec<u8>> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(9))?;
    writer.write_all(text.as_bytes())?;
    writer.finish()
}

/// The text of an XZ file.
pub fn unpack(file: &[u8]) -> std::io::Result<String> {
    let mut text = String::new();
    XzReader::new(file, false).read_to_string(&mut text)?;
    Ok(text)
}
