//! A process that is run to its end, but for no longer than a limit, and what it said.

use crate::protocol::process::kill_group;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a process said on its two streams.
pub struct Said {
    /// On the standard output.
    pub out: String,
    /// On the standard error.
    pub errors: String,
}

/// Why a process was not heard to its end.
#[derive(Debug)]
pub enum Unheard {
    /// It did not start.
    Absent(std::io::Error),
    /// It took too long, and was ended with its children.
    TooLong,
}

/// The processes that run now.
static RUNNING: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Runs a command in a process group of its own.
///
/// # Errors
/// If it does not start, or was not done after `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Result<Said, Unheard> {
    let begun = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command.spawn().map_err(Unheard::Absent)?;
    let streams = [child.stdout.take().map(read), child.stderr.take().map(read)];
    let id = child.id();
    running().push(child);
    // A stream ends with the last process that has it, so this waits for children as well.
    let said =
        streams.map(|stream| stream.and_then(|text| text.recv_timeout(limit.saturating_sub(begun.elapsed())).ok()));
    end(|child| child.id() == id);
    let [Some(out), Some(errors)] = said else { return Err(Unheard::TooLong) };
    Ok(Said { out, errors })
}

/// Ends what runs now: for signals, which a process group of its own does not get from a terminal.
pub fn end_all() {
    end(|_| true);
}

fn end(which: impl FnMut(&mut Child) -> bool) {
    let ended: Vec<Child> = running().extract_if(.., which).collect();
    ended.into_iter().for_each(|mut child| kill_group(&mut child));
}

fn running() -> MutexGuard<'static, Vec<Child>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that comes over a stream, once it ends.
fn read(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, text) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}
