//! The device lock: one process at a time measures on a device, however many a test runner starts.

use std::fs::File;
use std::io;
use std::path::Path;

/// Held while measuring; released when dropped, also by a crash.
#[derive(Debug)]
pub struct DeviceLock {
    /// The operating system unlocks it when it is closed.
    _file: File,
}

impl DeviceLock {
    /// Waits for the lock of the device whose fingerprint has this key. Two devices of one model share a lock, which
    /// costs time and never accuracy.
    ///
    /// # Errors
    /// If the lock file can be neither made nor locked.
    pub fn acquire(key: &str) -> io::Result<Self> {
        Self::acquire_in(&std::env::temp_dir(), key)
    }

    fn acquire_in(folder: &Path, key: &str) -> io::Result<Self> {
        let path = folder.join(format!("kernelgate-{key}.lock"));
        let place = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        // Append, not create: another user may own the file, and nothing is written.
        let file = File::options().append(true).create(true).open(&path).map_err(place)?;
        file.lock().map_err(place)?;
        Ok(DeviceLock { _file: file })
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
                        let _lock = DeviceLock::acquire_in(folder.path(), "gpu-1").unwrap();
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
        let error = DeviceLock::acquire_in(Path::new("/nonexistent"), "gpu-1").unwrap_err();
        assert!(error.to_string().contains("kernelgate-gpu-1.lock"), "{error}");
    }
}
