//! Who may run when: trials share the machine, a timed trial has it alone, and a GPU serves one trial at a time or as many
//! as was asked for, each in a process of its own.
//! The simulator serves any number, and what it counts depends on nobody else.
//!
//! A file lock keeps this up across processes, since nextest runs one process a trial.

use super::terminal::note;
use crate::check::outcome::Check;
use crate::device::DeviceKind;
use crate::measure::lock::{self, Kind, holders};
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// The right to run trials on this machine.
pub struct Lanes {
    path: PathBuf,
    /// How long other processes may keep the machine.
    limit: Duration,
    accelerator: Accelerator,
    process: RwLock<()>,
}

/// A trial's turn; it ends when this is dropped.
pub struct Turn<'a> {
    _file: Option<File>,
    _process: Share<'a>,
    _accelerator: Option<Served<'a>>,
}

/// A GPU that serves so many trials at a time.
struct Accelerator {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A trial that the GPU serves.
struct Served<'a>(&'a Accelerator);

impl Accelerator {
    fn serve(&self) -> Served<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Served(self)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
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
        let accelerator = Accelerator { free: Mutex::new(1), freed: Condvar::new() };
        Lanes { path, limit: lock::LIMIT, accelerator, process: RwLock::new(()) }
    }

    /// The same with a GPU that serves so many trials at a time, at least one.
    pub fn serving(mut self, trials: usize) -> Self {
        self.accelerator.free = Mutex::new(trials.max(1));
        self
    }

    /// Waits for the turn of a trial on a device of `kind`.
    ///
    /// # Errors
    /// If other processes keep the machine for too long: they are named.
    pub fn enter(&self, check: Check, kind: DeviceKind) -> Result<Turn<'_>, String> {
        // A trial that panicked has harmed none of the locks.
        let accelerator = (kind == DeviceKind::Cuda).then(|| self.accelerator.serve());
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
    use rstest::rstest;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn counted_trials_run_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        let lanes = Lanes::at(folder.path().join("lock"));
        let _one = lanes.enter(Check::Perf, DeviceKind::Sim).unwrap();
        // Would wait for ever otherwise.
        let _other = lanes.enter(Check::Perf, DeviceKind::Sim).unwrap();
    }

    #[rstest]
    #[case(1, 1)]
    #[case(3, 3)]
    fn a_gpu_serves_as_many_trials_as_were_asked_for(#[case] trials: usize, #[case] expected: usize) {
        let folder = tempfile::tempdir().unwrap();
        let lanes = Lanes::at(folder.path().join("lock")).serving(trials);
        let (running, most, beside_a_time) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for i in 0..9 {
                let (lanes, running, most, beside_a_time) = (&lanes, &running, &most, &beside_a_time);
                scope.spawn(move || {
                    let check = if i == 4 { Check::Perf } else { Check::Property };
                    let _turn = lanes.enter(check, DeviceKind::Cuda).unwrap();
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(100));
                    if check == Check::Perf {
                        beside_a_time.fetch_max(running.load(Ordering::SeqCst), Ordering::SeqCst);
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!((most.into_inner(), beside_a_time.into_inner()), (expected, 1));
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
