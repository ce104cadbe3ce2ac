//! How far long work is: a line on stderr where that is a terminal; elsewhere, of what is told, a line each.
//!
//! One line at a time: whatever else this process prints takes its place for a moment ([`without_line`]).

use crate::report::text::line;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Work that ends sooner shows nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the clock on the line moves.
const TICK: Duration = Duration::from_millis(500);

/// Step, steps, bar, time so far, time left, what is done now.
const LINE: &str = "{pos} of {len} {bar:24} {elapsed}, about {eta} left  {wide_msg}";

/// The line that is shown.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Whether progress is wanted.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Quiet {
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Work in steps, shown until it ends.
pub struct Progress(Way);

enum Way {
    Quiet,
    /// Where no line can move: steps that are done, of all.
    Lines([AtomicU64; 2]),
    Line(Shown),
}

struct Shown {
    bar: ProgressBar,
    /// What has the line appear later, and what ends its wait when it is dropped.
    wait: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Progress {
    /// Begins work of so many steps.
    pub fn of(steps: usize, quiet: Quiet) -> Self {
        if quiet.quiet {
            return Progress(Way::Quiet);
        }
        if !std::io::stderr().is_terminal() {
            return Progress(Way::Lines([AtomicU64::new(0), AtomicU64::new(steps as u64)]));
        }
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(LINE);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("##."));
        *shown() = Some(bar.clone());
        let (ended, end) = mpsc::channel();
        let late = bar.clone();
        let wait = std::thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                late.set_draw_target(ProgressDrawTarget::stderr());
                late.enable_steady_tick(TICK);
            }
        });
        Progress(Way::Line(Shown { bar, wait: Mutex::new(Some((ended, wait))) }))
    }

    /// Says what is done now.
    pub fn say(&self, what: &str) {
        if let Way::Line(shown) = &self.0 {
            shown.bar.set_message(line(what));
        }
    }

    /// The same where a step takes long and shows nothing else: a reader of a log sees it as well.
    pub fn tell(&self, what: &str) {
        self.say(what);
        if let Way::Lines([done, all]) = &self.0 {
            let (now, all) = (done.load(Ordering::Relaxed) + 1, all.load(Ordering::Relaxed));
            let _ = writeln!(std::io::stderr().lock(), "{} of {all}: {}", now.min(all), line(what));
        }
    }

    /// A step is done.
    pub fn step(&self) {
        match &self.0 {
            Way::Line(shown) => shown.bar.inc(1),
            Way::Lines([done, _]) => drop(done.fetch_add(1, Ordering::Relaxed)),
            Way::Quiet => {}
        }
    }

    /// So many steps are done.
    pub fn reach(&self, steps: usize) {
        match &self.0 {
            Way::Line(shown) => shown.bar.set_position(steps as u64),
            Way::Lines([done, _]) => done.store(steps as u64, Ordering::Relaxed),
            Way::Quiet => {}
        }
    }

    /// Takes the line away.
    pub fn end(&self) {
        let Way::Line(one) = &self.0 else { return };
        let wait = one.wait.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((ended, wait)) = wait {
            drop(ended);
            let _ = wait.join();
            one.bar.finish_and_clear();
            // Only now: what another thread writes meanwhile still takes its place.
            *shown() = None;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes to a terminal while no line of progress is on it.
pub fn without_line<R>(write: impl FnOnce() -> R) -> R {
    // Not while the lock is held: what is written may say something itself.
    let bar = shown().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

fn shown() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
