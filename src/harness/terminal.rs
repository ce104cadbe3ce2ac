//! The standard streams of a gate: a reader that goes away, a full disk or a closed stream never end a run.

use super::progress::without_line;
use std::fmt;
use std::io::Write as _;

/// Writes to the standard output, where it can be written to.
pub fn say(text: fmt::Arguments<'_>) {
    without_line(|| {
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_fmt(text).and_then(|()| stdout.flush());
    });
}

/// Writes a line to the standard error, where it can be written to.
pub fn note(text: fmt::Arguments<'_>) {
    without_line(|| {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    });
}

/// Stands between this process and its standard output, while it lives: whatever is written is taken, and passed on as
/// long as somebody reads it. On a terminal it passes on whole lines, in place of the line of progress, where one is shown.
pub struct Outlet {
    /// The standard output was a terminal, and is a pipe now.
    pub hides_terminal: bool,
    #[cfg(unix)]
    piped: Option<(std::os::fd::OwnedFd, std::thread::JoinHandle<()>)>,
}

impl Outlet {
    /// Puts a pipe in place of the standard output; of a terminal's only beside a line of progress. Where that fails, all
    /// stays as it was.
    #[cfg(unix)]
    pub fn open(beside_progress: bool) -> Self {
        use std::io::IsTerminal as _;
        let is_terminal = std::io::stdout().is_terminal();
        if is_terminal && !beside_progress {
            return Outlet { hides_terminal: false, piped: None };
        }
        let piped = piped(is_terminal).ok();
        Outlet { hides_terminal: is_terminal && piped.is_some(), piped }
    }

    /// Leaves the standard output as it is.
    #[cfg(not(unix))]
    pub fn open(_beside_progress: bool) -> Self {
        Outlet { hides_terminal: false }
    }
}

#[cfg(unix)]
impl Drop for Outlet {
    /// Puts the standard output back, once all has been passed on.
    fn drop(&mut self) {
        let Some((real, copier)) = self.piped.take() else { return };
        let _ = std::io::stdout().flush();
        // This closes the pipe, which ends the copier.
        if rustix::stdio::dup2_stdout(&real).is_ok() {
            let _ = copier.join();
        }
    }
}

#[cfg(unix)]
fn piped(by_lines: bool) -> std::io::Result<(std::os::fd::OwnedFd, std::thread::JoinHandle<()>)> {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    let real = std::io::stdout().as_fd().try_clone_to_owned()?;
    let (mut reader, writer) = std::io::pipe()?;
    rustix::stdio::dup2_stdout(&writer)?;
    let mut log = Some(std::fs::File::from(real.try_clone()?));
    let copier = std::thread::spawn(move || {
        let (mut bytes, mut waiting) = ([0; 1 << 14], Vec::new());
        while let Ok(read) = reader.read(&mut bytes) {
            waiting.extend_from_slice(&bytes[..read]);
            let whole = match waiting.iter().rposition(|byte| *byte == b'\n') {
                Some(last) if by_lines && read > 0 => last + 1,
                None if by_lines && read > 0 => 0,
                _ => waiting.len(),
            };
            let passed: Vec<u8> = waiting.drain(..whole).collect();
            let written = log.as_mut().map(|log| without_line(|| log.write_all(&passed)));
            if read == 0 {
                break;
            }
            if let Some(Err(error)) = written {
                log = None;
                // A reader that has seen enough is no error.
                if error.kind() != std::io::ErrorKind::BrokenPipe {
                    note(format_args!("the log is not complete: stdout: {error}"));
                }
            }
        }
    });
    Ok((real, copier))
}
