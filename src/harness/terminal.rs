//! The standard streams of a gate: a reader that goes away, a full disk or a closed stream never end a run.

use std::fmt;
use std::io::Write as _;

/// Writes to the standard output, where it can be written to.
pub fn say(text: fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_fmt(text).and_then(|()| stdout.flush());
}

/// Writes a line to the standard error, where it can be written to.
pub fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Stands between this process and its standard output, while it lives: whatever is written is taken, and passed on as
/// long as somebody reads it. A terminal needs none.
pub struct Outlet {
    #[cfg(unix)]
    piped: Option<(std::os::fd::OwnedFd, std::thread::JoinHandle<()>)>,
}

impl Outlet {
    /// Puts a pipe in place of the standard output. Where that fails, all stays as it was.
    #[cfg(unix)]
    pub fn open() -> Self {
        use std::io::IsTerminal as _;
        if std::io::stdout().is_terminal() {
            return Outlet { piped: None };
        }
        Outlet { piped: piped().ok() }
    }

    /// Leaves the standard output as it is.
    #[cfg(not(unix))]
    pub fn open() -> Self {
        Outlet {}
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
fn piped() -> std::io::Result<(std::os::fd::OwnedFd, std::thread::JoinHandle<()>)> {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    let real = std::io::stdout().as_fd().try_clone_to_owned()?;
    let (mut reader, writer) = std::io::pipe()?;
    rustix::stdio::dup2_stdout(&writer)?;
    let mut log = Some(std::fs::File::from(real.try_clone()?));
    let copier = std::thread::spawn(move || {
        let mut bytes = [0; 1 << 14];
        while let Ok(read) = reader.read(&mut bytes) {
            if read == 0 {
                break;
            }
            if let Some(Err(error)) = log.as_mut().map(|log| log.write_all(&bytes[..read])) {
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
