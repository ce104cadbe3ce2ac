//! Buffers from files: raw bytes, or arrays that NumPy saved.

use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The elements of a `.npy` file of type `code` (`<f4`), or all bytes of any other file.
///
/// # Errors
/// A file that cannot be read, or an array of another type, byte order or memory order.
pub fn read(path: &Path, code: &str) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if !bytes.starts_with(MAGIC) {
        return Ok(bytes);
    }
    array(&bytes, code).map_err(|why| format!("{}: {why}", path.display()))
}

fn array(bytes: &[u8], code: &str) -> Result<Vec<u8>, String> {
    let cut = "the header of the array ends too soon";
    let major = *bytes.get(MAGIC.len()).ok_or(cut)?;
    let start = if major == 1 { 10 } else { 12 };
    let length_bytes = bytes.get(8..start).ok_or(cut)?;
    let length = length_bytes.iter().rev().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    let end = start.checked_add(length).ok_or(cut)?;
    let header = String::from_utf8_lossy(bytes.get(start..end).ok_or(cut)?).into_owned();
    let field = |name: &str| {
        let rest = header.split_once(&format!("'{name}':")).map(|(_, rest)| rest.trim_start()).unwrap_or_default();
        rest.split([',', '}']).next().unwrap_or_default().trim().trim_matches('\'').to_owned()
    };
    let (descr, order) = (field("descr"), field("fortran_order"));
    let is_same = descr == code || (code.starts_with('|') && descr.trim_start_matches('|') == &code[1..]);
    if !is_same {
        return Err(format!("an array of `{descr}` elements; this argument takes `{code}`"));
    }
    if order != "False" {
        return Err("the array is stored column by column; save it with order='C'".into());
    }
    Ok(bytes[end..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(descr: &str, order: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (2,), }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn the_elements_follow_the_header() {
        assert_eq!(array(&saved("<f4", "False", &[1, 2, 3, 4, 5, 6, 7, 8]), "<f4").unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn other_types_and_orders_are_refused() {
        assert!(array(&saved("<f8", "False", &[0; 16]), "<f4").unwrap_err().contains("<f8"));
        assert!(array(&saved("<f4", "True", &[0; 8]), "<f4").unwrap_err().contains("column"));
        for cut in 0..40 {
            assert!(array(&saved("<f4", "False", &[])[..cut.max(6)], "<f4").is_err(), "cut at {cut}");
        }
    }
}
