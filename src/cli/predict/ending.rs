//! A sweep that somebody ends by a signal: what it has measured is fitted before the process goes.

use crate::harness::interrupt::keep_results;
use crate::harness::terminal::note;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

/// Whether a signal has come. The process ends once what there is has been kept, or by a second signal.
pub(super) struct Ending {
    asked: Arc<AtomicBool>,
    kept: Sender<()>,
}

impl Ending {
    pub(super) fn watched() -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let (kept, is_kept) = channel();
        let at_signal = Arc::clone(&asked);
        keep_results(move |signal| {
            at_signal.store(true, Ordering::Relaxed);
            note(format_args!("ended by {signal}: what was measured is fitted and kept"));
            let _ = is_kept.recv();
        });
        Ending { asked, kept }
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Lets a process end that was told to.
    pub(super) fn end_if_asked(&self) {
        while self.is_asked_for() {
            let _ = self.kept.send(());
            std::thread::park();
        }
    }
}
