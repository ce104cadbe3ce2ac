//! Compiled kernels on disk, by the hash of everything that went into them. A damaged entry is compiled again.

use super::artifact::Artifact;
use super::recipe::hash;
use std::io::Write as _;
use std::path::{Path, PathBuf};

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

/// Reads the entry of `key`; `None` when it is absent or damaged, or others could have written it.
pub fn read(key: &str) -> Option<Artifact> {
    let folder = folder()?;
    if !folder.exists() {
        return None;
    }
    if let Err(why) = trusted(&folder) {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| drop(writeln!(std::io::stderr(), "the kernel cache is not used: {why}")));
        return None;
    }
    parse(&std::fs::read(folder.join(key)).ok()?)
}

/// Whether what lies in a folder was put there by this user: machine code from it is run.
///
/// # Errors
/// Who else could write there.
pub fn trusted(folder: &Path) -> Result<(), String> {
    let found = std::fs::metadata(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    if !found.is_dir() {
        return Err(format!("{} is not a folder", folder.display()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let (owner, we) = (found.uid(), rustix::process::geteuid().as_raw());
        if owner != we {
            return Err(format!(
                "{} belongs to the user {owner} and not to {we}: make it your own (chown), or set KERNELGATE_CACHE",
                folder.display()
            ));
        }
        if found.mode() & 0o022 != 0 {
            return Err(format!("others may write to {}: take that from them (chmod go-w)", folder.display()));
        }
    }
    Ok(())
}

/// Makes a folder that others may not write to, whatever the user's mask says.
fn create(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o755);
    builder.create(folder)
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
    if create(&folder).is_err() || trusted(&folder).is_err() {
        return;
    }
    let header = format!("{MAGIC}\n{}\n{}\n", artifact.compiler, hash(&[&artifact.code]));
    let entry = [header.as_bytes(), &artifact.code].concat();
    // Another process may write the same entry: each writes its own file and renames it.
    let temporary = folder.join(format!("{key}.{}", std::process::id()));
    let stored = std::fs::write(&temporary, entry).and_then(|()| std::fs::rename(&temporary, folder.join(key)));
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

    #[test]
    #[cfg(unix)]
    fn a_folder_that_others_may_write_to_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cache");
        create(&folder).unwrap();
        assert_eq!(trusted(&folder), Ok(()));
        for mode in [0o775, 0o757, 0o777, 0o1777] {
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(trusted(&folder).unwrap_err().contains("chmod go-w"), "{mode:o}");
        }
        assert!(trusted(&root.path().join("absent")).is_err());
        // The folder of another user: one of the two is.
        let others = if rustix::process::geteuid().is_root() { None } else { Some(Path::new("/")) };
        assert!(others.is_none_or(|others| trusted(others).unwrap_err().contains("belongs to the user")));
    }
}
