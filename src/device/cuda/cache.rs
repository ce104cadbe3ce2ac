//! Compiled kernels on disk, by the hash of everything that went into them. A damaged entry is compiled again.

use super::compile::Artifact;
use crate::device::recipe::hash;
use std::path::PathBuf;

/// First line of an entry; a change of the format changes it.
const MAGIC: &str = "kernelgate kernel 1";

/// `KERNELGATE_CACHE`, or `kernels` in the user's cache folder; `None` if there is no home either.
pub fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("KERNELGATE_CACHE").map(PathBuf::from);
    named.or_else(|| user_folder().map(|cache| cache.join("kernels")))
}

/// `kernelgate` in the user's cache folder.
pub fn user_folder() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    cache.map(|cache| cache.join("kernelgate"))
}

/// Reads the entry of `key`; `None` when it is absent or damaged.
pub fn read(key: &str) -> Option<Artifact> {
    parse(&std::fs::read(folder()?.join(key)).ok()?)
}

fn parse(entry: &[u8]) -> Option<Artifact> {
    let mut lines = entry.splitn(4, |&byte| byte == b'\n');
    let text = |line: &[u8]| std::str::from_utf8(line).ok().map(str::to_owned);
    let magic = text(lines.next()?)?;
    let compiler = text(lines.next()?)?;
    let digest = text(lines.next()?)?;
    let code = lines.next()?.to_vec();
    (magic == MAGIC && digest == hash(&[&code])).then_some(Artifact { code, compiler, log: String::new() })
}

/// Stores an entry. A folder that cannot be written only costs time, so errors are ignored.
pub fn write(key: &str, artifact: &Artifact) {
    let Some(folder) = folder() else { return };
    let header = format!("{MAGIC}\n{}\n{}\n", artifact.compiler, hash(&[&artifact.code]));
    let entry = [header.as_bytes(), &artifact.code].concat();
    // Another process may write the same entry: each writes its own file and renames it.
    let temporary = folder.join(format!("{key}.{}", std::process::id()));
    let stored = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&temporary, entry))
        .and_then(|()| std::fs::rename(&temporary, folder.join(key)));
    if stored.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(code: &[u8]) -> Vec<u8> {
        [format!("{MAGIC}\n13.0\n{}\n", hash(&[code])).as_bytes(), code].concat()
    }

    #[test]
    fn an_entry_is_read_back() {
        let code = b"ELF\n\n\0binary";
        let artifact = parse(&entry(code)).unwrap();
        assert_eq!((artifact.code.as_slice(), artifact.compiler.as_str()), (code.as_slice(), "13.0"));
    }

    #[test]
    fn every_damage_is_noticed() {
        let whole = entry(b"some machine code");
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_none(), "cut at {cut}");
        }
        for at in (0..whole.len()).filter(|at| !(MAGIC.len() + 1..MAGIC.len() + 6).contains(at)) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_none(), "byte {at}");
        }
    }
}
