//! Threads that are there when the next step needs them.
//!
//! Workers go to sleep some ten microseconds after their last work, so also while a small step runs on one thread. Waking one takes
//! as long as a small step does, on a virtual processor that was halted 50 µs and more.

use crate::device::trace;
use rayon::Yield;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Whether a run keeps the workers. One does at a time: two would wait for each other's end.
static KEPT: AtomicBool = AtomicBool::new(false);

/// The workers of a run. It ends when this is dropped.
struct Workers {
    ended: Arc<AtomicBool>,
}

impl Workers {
    /// Keeps all workers but this one awake, for anybody's work.
    fn keep() -> Option<Self> {
        if rayon::current_num_threads() == 1 || KEPT.swap(true, Ordering::Acquire) {
            return None;
        }
        let ended = Arc::new(AtomicBool::new(false));
        let (me, has_ended) = (rayon::current_thread_index(), Arc::clone(&ended));
        rayon::spawn_broadcast(move |worker| {
            while Some(worker.index()) != me && !has_ended.load(Ordering::Relaxed) {
                if rayon::yield_now() != Some(Yield::Executed) {
                    thread::yield_now();
                }
            }
        });
        Some(Workers { ended })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        KEPT.store(false, Ordering::Release);
    }
}

/// Runs that take less need nobody awake: no step of theirs is shared out, and asking costs some microseconds.
const SHORT: Duration = Duration::from_micros(100);

/// Runs steps that follow each other closely on a worker; with the others awake, unless the run before has taken so little
/// time that it is not worth it.
pub fn awake<R: Send>(before: Option<Duration>, run: impl FnOnce() -> R + Send) -> R {
    if before.is_some_and(|before| before < SHORT) {
        return run();
    }
    let recording = trace::handle();
    rayon::scope(|_| {
        let _workers = Workers::keep();
        match recording {
            Some(recording) => recording.carry(run),
            None => run(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    #[test]
    fn runs_on_all_threads_at_once_come_to_their_ends() {
        let together = Barrier::new(4);
        let ended: Vec<usize> = thread::scope(|scope| {
            let run = |_| {
                scope.spawn(|| {
                    together.wait();
                    (0..200).map(|_| awake(None, || rayon::join(|| 1, || awake(None, || 2))).1).sum()
                })
            };
            (0..4).map(run).collect::<Vec<_>>().into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert_eq!(ended, [400; 4]);
    }

    #[test]
    fn a_run_that_panics_lets_the_workers_go() {
        assert!(catch_unwind(AssertUnwindSafe(|| awake(None, || panic!("on purpose")))).is_err());
        // Others of this process may be at it for a moment.
        let is_free = || {
            (0..1000).any(|_| {
                !KEPT.load(Ordering::Relaxed) || {
                    thread::sleep(Duration::from_millis(1));
                    false
                }
            })
        };
        assert!(is_free());
    }
}
