//! Text that is kept packed: compiled kernels are large and alike.

use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::io::{Read as _, Write as _};

/// Text as an XZ file. The same text makes the same bytes.
pub fn pack(text: &str) -> std::io::Result<Vec<u8>> {
    let mut options = XzOptions::with_preset(9);
    // Text: what a byte is follows from the one before it, wherever it stands.
    (options.lzma_options.lc, options.lzma_options.pb) = (4, 0);
    let mut writer = XzWriter::new(Vec::new(), options)?;
    writer.write_all(text.as_bytes())?;
    writer.finish()
}

/// The text of an XZ file.
pub fn unpack(file: &[u8]) -> std::io::Result<String> {
    let mut text = String::new();
    XzReader::new(file, false).read_to_string(&mut text)?;
    Ok(text)
}
