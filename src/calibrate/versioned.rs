//! Files with a version: readable JSON, refused where another version of the program wrote them.

use crate::core::packed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Writes a file, packed if its name ends in `.xz`, and its folder where that is not there.
///
/// # Errors
/// With the path, what went wrong.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())? + "\n";
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let is_packed = path.extension().is_some_and(|extension| extension == "xz");
    let content = if is_packed { packed::pack(text.as_bytes()) } else { Ok(text.into_bytes()) };
    folder
        .and(content)
        .and_then(|content| std::fs::write(path, content))
        .map_err(|error| format!("{}: {error}", path.display()))
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
