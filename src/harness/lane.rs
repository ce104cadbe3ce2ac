//! Who may run when: trials share the machine, a timed trial has it alone, and a GPU serves one trial at a time.
//!
//! A file lock keeps this up across processes, since nextest runs one process a trial.

use crate::check::outcome::Check;
use crate::device::DeviceKind;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to run trials on this machine.
pub struct Lanes {
    path: PathBuf,
    accelerator: Mutex<()>,
}

/// A trial's turn; it ends when this is dropped.
pub struct Turn<'a> {
    _accelerator: Option<MutexGuard<'a, ()>>,
    _file: Option<File>,
}

impl Default for Lanes {
    /// Lanes that every gate of this machine respects.
    fn default() -> Self {
        Lanes::at(std::env::temp_dir().join("kernelgate.lock"))
    }
}

impl Lanes {
    /// Lanes that hold for all processes that use the same file.
    pub fn at(path: PathBuf) -> Self {
        Lanes { path, accelerator: Mutex::new(()) }
    }

    /// Waits for the turn of a trial.
    pub fn enter(&self, check: Check, kind: DeviceKind) -> Turn<'_> {
        let accelerator = (kind != DeviceKind::Cpu).then(|| {
            // A trial that panicked has not harmed the lane.
            self.accelerator.lock().unwrap_or_else(PoisonError::into_inner)
        });
        Turn { _accelerator: accelerator, _file: self.lock(check == Check::Perf) }
    }

    /// Without the file (a read-only machine, say) trials run unguarded: timings then show it in their spread.
    fn lock(&self, alone: bool) -> Option<File> {
        // Another user may own the file; reading is enough to lock it.
        let file =
            File::options().create(true).append(true).open(&self.path).or_else(|_| File::open(&self.path)).ok()?;
        if alone {
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                eprintln!("waiting until other trials on this machine end, to be timed alone");
                file.lock().ok()?;
            }
        } else {
            file.lock_shared().ok()?;
        }
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_timed_trial_is_alone_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (running, most, shared) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (path, running, most, shared) = (path.clone(), &running, &most, &shared);
                scope.spawn(move || {
                    let check = if i % 2 == 0 { Check::Perf } else { Check::Correctness };
                    // Lanes of its own, as in another process.
                    let lanes = Lanes::at(path);
                    let _turn = lanes.enter(check, DeviceKind::Cpu);
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    let now = now.max(running.load(Ordering::SeqCst));
                    if check == Check::Perf { most } else { shared }.fetch_max(now, Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), 1, "a timed trial had company");
        assert!(shared.into_inner() >= 1);
    }
}
