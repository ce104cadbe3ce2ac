//! References on disk, for the processes that come after: nextest runs one a trial. An entry is written whole or not at
//! all, carries its own hash, and is computed again when it is damaged; the entries that were read longest ago go first.

use super::Key;
use crate::check::compare::Expected;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// First bytes of an entry; a change of the format changes them.
const MAGIC: &[u8; 8] = b"kgref  1";

/// Entries may take this much room together.
pub const MOST_BYTES: u64 = 512 << 20;

/// A folder of references.
pub struct Store {
    folder: PathBuf,
    most_bytes: u64,
    /// Bytes of all entries, as far as this process knows; unknown before its first write.
    bytes: Mutex<Option<u64>>,
}

impl Store {
    /// References in `folder`, which is made when there is something to keep.
    pub fn new(folder: PathBuf, most_bytes: u64) -> Self {
        Store { folder, most_bytes, bytes: Mutex::default() }
    }

    /// The entry of `key`; `None` when it is absent or damaged.
    pub fn read(&self, key: &Key) -> Option<Vec<Expected>> {
        let path = self.path(key);
        let found = decode(&fs::read(&path).ok()?)?;
        // The time of a file is that of its last use. Where it cannot be set, the oldest entries go first.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(found)
    }

    /// Keeps an entry. What cannot be written only costs time, so errors are ignored.
    pub fn write(&self, key: &Key, expected: &[Expected]) {
        let entry = encode(expected);
        let size = entry.len() as u64;
        if size > self.most_bytes / 4 {
            return;
        }
        // Another process may write the same entry: each writes its own file and renames it.
        let part = self.folder.join(format!("{}.{}.part", hex(key), std::process::id()));
        let stored = fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&part, entry))
            .and_then(|()| fs::rename(&part, self.path(key)));
        if stored.is_err() {
            let _ = fs::remove_file(&part);
            return;
        }
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = bytes.map_or_else(|| self.entries().iter().map(|entry| entry.bytes).sum(), |bytes| bytes + size);
        *bytes = Some(if now > self.most_bytes { self.make_room() } else { now });
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(hex(key))
    }

    /// Removes the entries that were used longest ago, until a quarter is free; returns what is left.
    fn make_room(&self) -> u64 {
        let mut entries = self.entries();
        entries.sort_by_key(|entry| entry.used);
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        for entry in entries {
            if bytes <= self.most_bytes / 4 * 3 {
                break;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(entry.path);
            bytes -= entry.bytes;
        }
        bytes
    }

    fn entries(&self) -> Vec<Entry> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let entry = |file: fs::DirEntry| {
            let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some(Entry { path: file.path(), bytes: metadata.len(), used })
        };
        files.filter_map(entry).collect()
    }
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// What tells this build of the gate from every other one: an operator is code, and code has no content but that of its
/// executable. The file system knows when that was last changed; reading it all would cost each of nextest's processes
/// more than many a trial. `None` where the executable cannot be found.
pub fn executable() -> Option<Key> {
    static EXECUTABLE: OnceLock<Option<Key>> = OnceLock::new();
    *EXECUTABLE.get_or_init(|| identity(&std::env::current_exe().ok()?).ok())
}

/// The file with the time of its last change, which no program can set.
#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Key> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path)?;
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    let hash = Sha256::new().chain_update(path.as_os_str().as_encoded_bytes());
    let hash = [file.dev(), file.ino(), file.len()].iter().fold(hash, |hash, n| hash.chain_update(n.to_le_bytes()));
    Ok(times.iter().fold(hash, |hash, n| hash.chain_update(n.to_le_bytes())).finalize().into())
}

/// The content of the file.
#[cfg(not(unix))]
fn identity(path: &Path) -> std::io::Result<Key> {
    Ok(Sha256::digest(fs::read(path)?).into())
}

fn hex(key: &Key) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Magic, hash of the rest, then for each output its length, its values and its magnitudes, little-endian.
fn encode(expected: &[Expected]) -> Vec<u8> {
    let mut payload = Vec::new();
    for output in expected {
        payload.extend((output.values.len() as u64).to_le_bytes());
        let numbers = output.values.iter().chain(&output.magnitudes);
        payload.extend(numbers.flat_map(|number| number.to_le_bytes()));
    }
    [&MAGIC[..], &Sha256::digest(&payload), &payload].concat()
}

fn decode(entry: &[u8]) -> Option<Vec<Expected>> {
    let (digest, mut payload) = entry.strip_prefix(MAGIC)?.split_at_checked(size_of::<Key>())?;
    if digest != Sha256::digest(payload).as_slice() {
        return None;
    }
    let mut expected = Vec::new();
    while let Some((length, rest)) = payload.split_first_chunk::<8>() {
        let bytes = usize::try_from(u64::from_le_bytes(*length)).ok()?.checked_mul(8)?;
        let (values, rest) = rest.split_at_checked(bytes)?;
        let (magnitudes, rest) = rest.split_at_checked(bytes)?;
        expected.push(Expected::new(numbers(values), numbers(magnitudes)));
        payload = rest;
    }
    payload.is_empty().then_some(expected)
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    let number = |bytes: &[u8]| bytes.try_into().map(f64::from_le_bytes).unwrap_or_default();
    bytes.chunks_exact(8).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn reference(seed: u8, elements: usize) -> Vec<Expected> {
        let values: Vec<f64> = (0..elements).map(|i| f64::from(seed) + i as f64 / 8.0).collect();
        let magnitudes = values.iter().map(|v| 2.0 * v).collect();
        vec![Expected::new(values, magnitudes), Expected::new(vec![f64::INFINITY], vec![0.0])]
    }

    #[test]
    fn another_process_finds_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("references");
        Store::new(at.clone(), MOST_BYTES).write(&[1; 32], &reference(1, 5));
        let other = Store::new(at, MOST_BYTES);
        assert_eq!(other.read(&[1; 32]), Some(reference(1, 5)));
        assert_eq!(other.read(&[2; 32]), None);
    }

    #[test]
    fn every_damage_is_noticed() {
        let whole = encode(&reference(1, 3));
        assert_eq!(decode(&whole), Some(reference(1, 3)));
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut]), None, "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
        assert_eq!(decode(&[&whole[..], &[0]].concat()), None, "a byte too many");
    }

    #[test]
    fn what_was_read_longest_ago_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let size = encode(&reference(0, 64)).len() as u64;
        let store = Store::new(folder.path().to_owned(), 8 * size);
        let past = SystemTime::now() - Duration::from_secs(3600);
        for seed in 0..8 {
            store.write(&[seed; 32], &reference(seed, 64));
            let file = fs::File::open(store.path(&[seed; 32])).unwrap();
            file.set_modified(past + Duration::from_secs(u64::from(seed))).unwrap();
        }
        assert_eq!(store.read(&[0; 32]), Some(reference(0, 64)), "used again");
        store.write(&[8; 32], &reference(8, 64));
        let left: Vec<u8> = (0..9).filter(|&seed| store.read(&[seed; 32]).is_some()).collect();
        assert_eq!(left, [0, 4, 5, 6, 7, 8], "down to three quarters, the oldest first");
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a file");
        fs::write(&file, "").unwrap();
        let store = Store::new(file.join("below"), MOST_BYTES);
        store.write(&[1; 32], &reference(1, 5));
        assert_eq!(store.read(&[1; 32]), None);
    }

    #[test]
    fn an_executable_that_was_built_again_is_another() {
        assert!(executable().is_some());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gate");
        fs::write(&path, "one").unwrap();
        let one = identity(&path).unwrap();
        assert_eq!(identity(&path).unwrap(), one);
        // The clock of file systems ticks slowly.
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::write(&path, "two").unwrap();
        assert_ne!(identity(&path).unwrap(), one);
    }
}
