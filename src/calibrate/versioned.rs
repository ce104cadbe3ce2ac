//! Files with a version: readable JSON, refused where another version of the program wrote them.

use crate::core::packed;
use crate::core::place::Place;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Writes a file, packed if its name ends in `.xz`, and its folder where that is not there. A reader sees the old file or the new
/// one, never a part.
///
/// # Errors
/// With the path, what went wrong.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())? + "\n";
    let is_packed = path.extension().is_some_and(|extension| extension == "xz");
    let content = if is_packed { packed::pack(text.as_bytes()).map_err(said)? } else { text.into_bytes() };
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(said)?;
    Place::of(path).map_err(|error| error.to_string())?.write(content).map_err(said)
}

/// Reads a file, plain or packed with xz, by `parse`.
///
/// # Errors
/// With the path, what went wrong.
pub fn read<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    let text = std::fs::read(path).and_then(packed::text).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Its content, if it has this version; `what` it should be, and how to make it again.
///
/// # Errors
/// Another version, or text that is not of this form.
pub fn parse<T: DeserializeOwned>(text: &str, version: u32, [what, again]: [&str; 2]) -> Result<T, String> {
    /// What is read first: a later version may hold anything else.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let broken = |error: serde_json::Error| format!("no {what}: {error}");
    let found = serde_json::from_str::<Versioned>(text).map_err(broken)?.version;
    if found != version {
        return Err(format!("it has version {found}, this program reads {version}: {again}"));
    }
    serde_json::from_str(text).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_the_old_file_reads_all_of_it() {
        use std::io::Read as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("of/it.json");
        write(&path, &["old"]).unwrap();
        let (mut opened, mut text) = (std::fs::File::open(&path).unwrap(), String::new());
        write(&path, &["new"]).unwrap();
        opened.read_to_string(&mut text).unwrap();
        assert!(text.contains("old") && std::fs::read_to_string(&path).unwrap().contains("new"), "{text}");
    }
}
