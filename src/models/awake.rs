//! Threads that are there when the next step needs them.
//!
//! Workers go to sleep some ten microseconds after their last work, so also while a small step runs on one thread. Waking one takes
//! as long as a small step does, on a virtual processor that was halted 50 µs and more.

use crate::device::trace;
use rayon::Yield;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Whether a run keeps the workers. One does at a time: two would wait for each other's end.
static KEPT: AtomicBool = AtomicBool::new(false);

/// How long a run waits at most for workers that have to wake up.
const WAKING: Duration = Duration::from_micros(60);

/// A run and those that stay awake for it.
#[derive(Default)]
struct Watch {
    /// Workers that do.
    present: AtomicUsize,
    has_begun: AtomicBool,
    has_ended: AtomicBool,
}

/// The workers of a run. It ends when this is dropped.
struct Workers(Arc<Watch>);

impl Workers {
    /// Keeps the workers but this one awake, for anybody's work, as many as come in time.
    ///
    /// One that comes later may have come out of the wait within a part of this very run, which cannot end without it: it
    /// must not stay.
    fn keep() -> Option<Self> {
        let others = rayon::current_num_threads() - 1;
        if others == 0 || KEPT.swap(true, Ordering::Acquire) {
            return None;
        }
        let watch = Arc::new(Watch::default());
        let (me, its) = (rayon::current_thread_index(), Arc::clone(&watch));
        rayon::spawn_broadcast(move |worker| {
            if Some(worker.index()) != me && !its.has_begun.load(Ordering::Acquire) {
                its.present.fetch_add(1, Ordering::Relaxed);
                while !its.has_ended.load(Ordering::Relaxed) {
                    if rayon::yield_now() != Some(Yield::Executed) {
                        thread::yield_now();
                    }
                }
            }
        });
        let asked = Instant::now();
        while watch.present.load(Ordering::Relaxed) < others && asked.elapsed() < WAKING {
            hint::spin_loop();
        }
        watch.has_begun.store(true, Ordering::Release);
        Some(Workers(watch))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
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

    /// The leaves of a tree of joins.
    fn leaves(depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        let (left, right) = rayon::join(|| leaves(depth - 1), || leaves(depth - 1));
        left + right
    }

    #[test]
    fn runs_that_share_out_their_parts_again_come_to_their_ends() {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..3000).for_each(|_| assert_eq!(awake(None, || leaves(5)), 32)));
            }
        });
    }

    #[test]
    fn a_worker_that_comes_late_does_not_stay() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let (both, begun, left) = (Barrier::new(2), Barrier::new(2), AtomicBool::new(false));
        let run = || {
            begun.wait();
            while !left.load(Ordering::Acquire) {
                thread::yield_now();
            }
        };
        // The other worker is busy when it is asked to stay, and the run waits for what it does.
        let late = || {
            both.wait();
            begun.wait();
            rayon::yield_now();
            left.store(true, Ordering::Release);
        };
        let first = || {
            both.wait();
            awake(None, run);
        };
        pool.install(|| rayon::join(first, late));
    }

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
