//! Who may run when: trials share the machine, a timed trial has it alone, and a GPU serves one trial at a time.
//! The simulator serves any number, and what it counts depends on nobody else.
//!
//! A file lock keeps this up across processes, since nextest runs one process a trial.

use super::terminal::note;
use crate::check::outcome::Check;
use crate::device::DeviceKind;
use crate::measure::lock::{self, Kind, holders};
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The right to run trials on this machine.
pub struct Lanes {
    path: PathBuf,
    /// How long other processes may keep the machine.
    limit: Duration,
    accelerator: Mutex<()>,
    process: RwLock<()>,
}

/// A trial's turn; it ends when this is dropped.
pub struct Turn<'a> {
    _file: Option<File>,
    _process: Share<'a>,
    _accelerator: Option<MutexGuard<'a, ()>>,
}

/// How much of the process a trial has.
enum Share<'a> {
    /// Other trials run as well.
    Part { _guard: RwLockReadGuard<'a, ()> },
    /// None does.
    All { _guard: RwLockWriteGuard<'a, ()> },
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
        Lanes { path, limit: lock::LIMIT, accelerator: Mutex::new(()), process: RwLock::new(()) }
    }

    /// Waits for the turn of a trial on a device of `kind`.
    ///
    /// # Errors
    /// If other processes keep the machine for too long: they are named.
    pub fn enter(&self, check: Check, kind: DeviceKind) -> Result<Turn<'_>, String> {
        // A trial that panicked has harmed none of the locks.
        let accelerator =
            (kind == DeviceKind::Cuda).then(|| self.accelerator.lock().unwrap_or_else(PoisonError::into_inner));
        let alone = check == Check::Perf && kind != DeviceKind::Sim;
        let process = if alone {
            Share::All { _guard: self.process.write().unwrap_or_else(PoisonError::into_inner) }
        } else {
            Share::Part { _guard: self.process.read().unwrap_or_else(PoisonError::into_inner) }
        };
        Ok(Turn { _file: self.lock(alone)?, _process: process, _accelerator: accelerator })
    }

    /// Without the file (a read-only machine, say) trials run unguarded: timings then show it in their spread.
    fn lock(&self, alone: bool) -> Result<Option<File>, String> {
        if lock::is_held_for_us() {
            return Ok(None);
        }
        // Another user may own the file; reading is enough to lock it.
        let file = File::options().create(true).append(true).open(&self.path).or_else(|_| File::open(&self.path));
        let Ok(file) = file else { return Ok(None) };
        if alone && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            note(format_args!(
                "waiting to be timed alone on this machine, until others have ended: {}",
                holders(&file)
            ));
        }
        let kind = if alone { Kind::Exclusive } else { Kind::Shared };
        match lock::wait(&file, kind, self.limit) {
            Ok(()) => Ok(Some(file)),
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => Err(format!("{}: {e}", self.path.display())),
            // A file system without locks.
            Err(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn counted_trials_run_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        let lanes = Lanes::at(folder.path().join("lock"));
        let _one = lanes.enter(Check::Perf, DeviceKind::Sim).unwrap();
        // Would wait for ever otherwise.
        let _other = lanes.enter(Check::Perf, DeviceKind::Sim).unwrap();
    }

    #[test]
    fn a_machine_that_is_kept_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let holder = Lanes::at(folder.path().join("lock"));
        let waiting = Lanes { limit: Duration::from_millis(30), ..Lanes::at(folder.path().join("lock")) };
        let _held = holder.enter(Check::Perf, DeviceKind::Cpu).unwrap();
        let why = waiting.enter(Check::Correctness, DeviceKind::Cpu).err().unwrap();
        assert!(why.contains("lock: locked for more than 0.03 s by process "), "{why}");
    }

    #[test]
    fn a_timed_trial_is_alone_in_its_process_and_beside_others() {
        let folder = tempfile::tempdir().unwrap();
        let one = Lanes::at(folder.path().join("lock"));
        // Lanes of their own for the same file are those of another process.
        let other = Lanes::at(folder.path().join("lock"));
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (lanes, running, most) = (if i < 4 { &one } else { &other }, &running, &most);
                scope.spawn(move || {
                    let check = if i % 2 == 0 { Check::Perf } else { Check::Correctness };
                    let _turn = lanes.enter(check, DeviceKind::Cpu).unwrap();
                    let before = running.fetch_add(1, Ordering::SeqCst) + 1;
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    if check == Check::Perf {
                        most.fetch_max(before.max(running.load(Ordering::SeqCst)), Ordering::SeqCst);
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), 1, "a timed trial ran beside another");
    }
}
