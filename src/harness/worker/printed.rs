//! What a worker prints: read at once, so that it never waits, and kept within bounds, to be shown with a failure.

use crate::report::text::plain;
use std::collections::VecDeque;
use std::io::{PipeReader, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much is kept of the beginning, and of the end.
const KEPT: usize = 2 << 10;

/// How much of a trial's output is passed on where nothing is captured.
const PASSED_ON: u64 = 1 << 20;

/// How long to wait for what is still in the pipe.
const SETTLING: Duration = Duration::from_millis(300);

/// The output of a worker since its trial began.
pub struct Printed {
    pipe: PipeReader,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(&rest[rest.len().saturating_sub(KEPT)..]);
        self.tail.drain(..self.tail.len().saturating_sub(KEPT));
    }

    fn describe(&self) -> Option<String> {
        let missing = self.total - (self.head.len() + self.tail.len()) as u64;
        let mut bytes = self.head.clone();
        if missing > 0 {
            bytes.extend(format!("\n[{missing} bytes more]\n").into_bytes());
        }
        bytes.extend(&self.tail);
        let text = plain(String::from_utf8_lossy(&bytes).trim_end());
        (!text.is_empty()).then(|| format!("it printed {} bytes:\n{text}", self.total))
    }
}

impl Printed {
    /// Reads a pipe until its end; passes on to the standard error what it reads, if that is wanted.
    ///
    /// # Errors
    /// If the pipe cannot be shared.
    pub fn of(mut pipe: PipeReader, pass_on: bool) -> std::io::Result<Self> {
        let printed = Printed { pipe: pipe.try_clone()?, kept: Arc::default() };
        let kept = Arc::clone(&printed.kept);
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(read) = pipe.read(&mut bytes) {
                if read == 0 {
                    break;
                }
                let before = locked(&kept).total;
                if pass_on && before < PASSED_ON {
                    let _ = std::io::stderr().write_all(&bytes[..read]);
                }
                locked(&kept).add(&bytes[..read]);
            }
        });
        Ok(printed)
    }

    /// Forgets what came before: a trial begins.
    pub fn clear(&self) {
        *locked(&self.kept) = Kept::default();
    }

    /// The beginning and the end of what was printed; nothing if that is nothing.
    pub fn describe(&self) -> Option<String> {
        let begun = Instant::now();
        while begun.elapsed() < SETTLING && rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // What has left the pipe has not been kept yet, perhaps.
        std::thread::sleep(Duration::from_millis(2));
        locked(&self.kept).describe()
    }
}

fn locked(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_kept_and_nothing_more() {
        let mut kept = Kept::default();
        assert_eq!(kept.describe(), None);
        kept.add(b"first");
        assert_eq!(kept.describe().unwrap(), "it printed 5 bytes:\nfirst");
        for _ in 0..1000 {
            kept.add(&[b'x'; 1 << 12]);
        }
        kept.add(b"last");
        let text = kept.describe().unwrap();
        assert!(text.starts_with("it printed 4096009 bytes:\nfirstx") && text.ends_with("xlast"), "{text}");
        assert!(text.contains("bytes more]") && text.len() < 2 * KEPT + 100, "{}", text.len());
        assert!(kept.tail.capacity() < 8 * KEPT, "memory is bounded");
    }

    #[test]
    fn what_it_prints_cannot_steer_a_terminal() {
        let mut kept = Kept::default();
        kept.add(b"\x1b[2Jgone");
        assert!(!kept.describe().unwrap().contains('\x1b'));
    }
}
