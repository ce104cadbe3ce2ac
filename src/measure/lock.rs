//! Locks between processes: none is waited for without end, and who holds one for too long is named.
//!
//! The device lock is one: one process at a time measures on a device, however many a test runner starts.

use crate::core::environment::WITHIN_TURN;
use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the measurements of others may take before one gives up.
pub const LIMIT: Duration = Duration::from_secs(30 * 60);

/// How often a lock that others hold is tried again.
const GLANCE: Duration = Duration::from_millis(5);

/// Whether the process that waits for this one holds the locks for it: to wait for them would be to wait for ever.
pub fn is_held_for_us() -> bool {
    std::env::var_os(WITHIN_TURN).is_some()
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By nobody else.
    Exclusive,
    /// By others who share it too.
    Shared,
}

/// Locks a file until it is closed.
///
/// # Errors
/// If it cannot be locked, or others hold it for longer than `limit`: they are named.
pub fn wait(file: &File, kind: Kind, limit: Duration) -> io::Result<()> {
    let attempt = || match kind {
        Kind::Exclusive => file.try_lock(),
        Kind::Shared => file.try_lock_shared(),
    };
    until(limit, file, || match attempt() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    })
}

fn until(limit: Duration, file: &File, attempt: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let begun = Instant::now();
    while !attempt()? {
        if begun.elapsed() >= limit {
            let text = format!("locked for more than {} s by {}", limit.as_secs_f64(), holders(file));
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}

/// Who holds locks on a file, as far as the system tells.
pub fn holders(file: &File) -> String {
    let found = listed_holders(file);
    if found.is_empty() { "a process that the system does not name".into() } else { found.join(", ") }
}

#[cfg(target_os = "linux")]
fn listed_holders(file: &File) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(found) = file.metadata() else { return Vec::new() };
    let inode = format!(":{}", found.ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    // `1: FLOCK  ADVISORY  WRITE 4711 fe:01:2345 0 EOF`; a line with an arrow is of one that waits.
    let held = locks.lines().filter(|line| !line.contains("->"));
    let of_file = held.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(5)?.ends_with(&inode).then(|| words.get(4).map(|pid| (*pid).to_owned()))?
    });
    let pids: std::collections::BTreeSet<String> = of_file.collect();
    let name = |pid: &String| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        format!("process {pid} ({})", command.trim().escape_debug().take(120).collect::<String>())
    };
    pids.iter().map(name).collect()
}

#[cfg(not(target_os = "linux"))]
fn listed_holders(_file: &File) -> Vec<String> {
    Vec::new()
}

/// Held while measuring; released when dropped, also by a crash. A process that a candidate has forked does not hold it.
#[derive(Debug)]
pub struct DeviceLock {
    /// The operating system unlocks it when it is closed.
    _file: File,
    /// Threads of one process are told apart by this.
    _thread: ThreadLock,
}

impl DeviceLock {
    /// Waits for the lock of the device whose fingerprint has this key. Two devices of one model share a lock, which
    /// costs time and never accuracy.
    ///
    /// # Errors
    /// If the lock file can be neither made nor locked, or others hold it for half an hour.
    pub fn acquire(key: &str) -> io::Result<Self> {
        Self::acquire_in(&std::env::temp_dir(), key, LIMIT)
    }

    fn acquire_in(folder: &Path, key: &str, limit: Duration) -> io::Result<Self> {
        let path = folder.join(format!("kernelgate-{key}.lock"));
        let place = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let thread = ThreadLock::acquire(&path, limit).map_err(place)?;
        // Append, not create: another user may own the file, and nothing is written.
        let file = File::options().append(true).create(true).open(&path).map_err(place)?;
        if !is_held_for_us() {
            until(limit, &file, || own(&file)).map_err(place)?;
        }
        Ok(DeviceLock { _file: file, _thread: thread })
    }
}

/// Locks a file for this process alone: not for its children, as a lock of the open file would be.
#[cfg(unix)]
fn own(file: &File) -> io::Result<bool> {
    match rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(unix))]
fn own(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// The files that threads of this process have locked.
static LOCKED: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
static UNLOCKED: Condvar = Condvar::new();

/// A file locked among the threads of this process.
#[derive(Debug)]
struct ThreadLock(PathBuf);

impl ThreadLock {
    fn acquire(path: &Path, limit: Duration) -> io::Result<Self> {
        let locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |locked: &mut Option<HashSet<PathBuf>>| locked.get_or_insert_default().contains(path);
        let (mut locked, waited) =
            UNLOCKED.wait_timeout_while(locked, limit, is_taken).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let text = format!("locked for more than {} s by another thread of this process", limit.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        locked.get_or_insert_default().insert(path.to_owned());
        Ok(ThreadLock(path.to_owned()))
    }
}

impl Drop for ThreadLock {
    fn drop(&mut self) {
        LOCKED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().remove(&self.0);
        UNLOCKED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _lock = DeviceLock::acquire_in(folder.path(), "gpu-1", LIMIT).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = DeviceLock::acquire_in(&folder.path().join("absent"), "gpu-1", LIMIT).unwrap_err();
        assert!(error.to_string().contains("kernelgate-gpu-1.lock"), "{error}");
    }

    #[test]
    fn threads_do_not_wait_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let _held = DeviceLock::acquire_in(folder.path(), "gpu-1", LIMIT).unwrap();
        let error = DeviceLock::acquire_in(folder.path(), "gpu-1", Duration::from_millis(30)).unwrap_err();
        assert!(error.to_string().contains("by another thread"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn whoever_holds_a_lock_for_too_long_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = File::create(&path).unwrap();
        wait(&held, Kind::Exclusive, LIMIT).unwrap();
        let error = wait(&File::open(&path).unwrap(), Kind::Shared, Duration::from_millis(30)).unwrap_err();
        assert!(error.to_string().contains(&format!("process {} (", std::process::id())), "{error}");
        drop(held);
        let shared = [File::open(&path).unwrap(), File::open(&path).unwrap()];
        shared.iter().for_each(|file| wait(file, Kind::Shared, LIMIT).unwrap());
        assert!(wait(&File::open(&path).unwrap(), Kind::Exclusive, Duration::from_millis(30)).is_err());
    }
}
