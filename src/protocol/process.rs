//! A process that is talked to in lines: started in a process group of its own, heard with a deadline, and killed with
//! its children.

use super::misconduct::Misconduct;
use serde::Deserialize;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The longest line that is read: a gate's list of candidates takes some 100 KiB.
const LONGEST_LINE: u64 = 4 << 20;

/// How long a process may take to end after its last word.
const GRACE: Duration = Duration::from_secs(2);

/// A program, its arguments, and variables to set for it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLine {
    /// The program, then the arguments.
    pub words: Vec<OsString>,
    /// Variables besides those of this process.
    pub environment: Vec<(OsString, OsString)>,
}

impl CommandLine {
    /// From one line, split like a shell would; nothing is expanded.
    ///
    /// # Errors
    /// If a quote is not closed or the line is empty.
    pub fn parse(line: &str) -> Result<Self, String> {
        let words = super::words::split(line)?.into_iter().map(OsString::from).collect();
        Ok(CommandLine { words, environment: Vec::new() })
    }
}

/// A running process.
pub struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Heard>,
}

/// What came over the standard output.
enum Heard {
    Line(Vec<u8>),
    TooLong(Vec<u8>),
}

impl Process {
    /// Starts it. Its standard error is ours.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(command: &CommandLine) -> Result<Self, Misconduct> {
        let program = &command.words[0];
        let absent = |e: std::io::Error| Misconduct::Absent(format!("{}: {e}", program.to_string_lossy()));
        let mut started = Command::new(program);
        started.args(&command.words[1..]).envs(command.environment.iter().cloned());
        started.stdin(Stdio::piped()).stdout(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut started, 0);
        let mut child = started.spawn().map_err(absent)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Misconduct::Absent("no pipes".into()));
        };
        Ok(Process { child, stdin, lines: listen(stdout) })
    }

    /// Sends a line. Lines are short and each is answered before the next, so the pipe takes them at once, even if
    /// nobody reads.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn say(&mut self, line: &str, asked: &'static str) -> Result<(), Misconduct> {
        match writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.death(asked)),
        }
    }

    /// The next line.
    ///
    /// # Errors
    /// If none comes in time, the process ends, or the line has no end.
    pub fn hear(&mut self, asked: &'static str, within: Duration) -> Result<Vec<u8>, Misconduct> {
        match self.lines.recv_timeout(within) {
            Ok(Heard::Line(line)) => Ok(line),
            Ok(Heard::TooLong(line)) => {
                Err(Misconduct::Garbage { asked, line: excerpt(&line), why: "it does not end".into() })
            }
            Err(RecvTimeoutError::Timeout) => Err(Misconduct::Silent { asked, within }),
            Err(RecvTimeoutError::Disconnected) => Err(self.death(asked)),
        }
    }

    /// How it ended; one that closed its output and lives on is not waited for.
    fn death(&mut self, asked: &'static str) -> Misconduct {
        let how = match self.wait(GRACE) {
            Some(status) => describe_exit(status),
            None => "it closed its standard streams and went on".into(),
        };
        Misconduct::Died { asked, how }
    }

    /// Waits for the end, but no longer than `patience`.
    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begun.elapsed() < patience => std::thread::sleep(Duration::from_millis(2)),
                _ => return None,
            }
        }
    }

    /// Lets it end by itself for a moment.
    pub fn let_end(&mut self) {
        let _ = self.wait(GRACE);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill_group(&mut self.child);
    }
}

/// Kills the whole group that a process leads: children that it left behind too. A group is named by the process that leads
/// it, so its number is not another's before the leader has been waited for, which must not have been done.
pub fn kill_group(leader: &mut Child) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
    }
    let _ = leader.kill();
    let _ = leader.wait();
}

/// Reads lines in a thread of its own, which ends with the stream.
fn listen(stdout: ChildStdout) -> Receiver<Heard> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
            let heard = match read {
                Ok(read) if read > 0 && line.ends_with(b"\n") => Heard::Line(line),
                Ok(read) if read > 0 => Heard::TooLong(line),
                _ => return,
            };
            if sender.send(heard).is_err() {
                return;
            }
        }
    });
    lines
}

/// The message of a line. All are read as text, so that the code for each kind of message is there once.
pub fn from_line<'a, T: Deserialize<'a>>(line: &'a [u8]) -> serde_json::Result<T> {
    serde_json::from_str(std::str::from_utf8(line).map_err(serde::de::Error::custom)?)
}

/// The beginning of a line, for messages.
pub fn excerpt(line: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    let text = text.trim_end();
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN {
        shown.push('…');
    }
    shown
}

/// `signal 6 (SIGABRT …)` or `exit code 3`.
pub fn describe_exit(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (SIGILL: an instruction that this processor does not have)",
            6 => " (SIGABRT: an abort, a stack overflow or a panic inside a panic)",
            7 => " (SIGBUS)",
            8 => " (SIGFPE)",
            9 => " (SIGKILL: killed from outside, perhaps for want of memory)",
            11 => " (SIGSEGV: memory that is not its own)",
            _ => "",
        };
        return format!("signal {signal}{name}");
    }
    status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"))
}
