//! Lines over a private socket, each of bounded length, each waited for no longer than the caller says.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The longest line: a reply about many shapes takes some 100 KiB.
const LONGEST_LINE: usize = 16 << 20;

/// How long the other side may take to make room for a line.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// One end of the channel. It may be read in one thread and written in another.
pub struct Channel {
    stream: UnixStream,
}

/// What came over the channel.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// A whole line.
    Line(Vec<u8>),
    /// No whole line yet.
    Nothing,
    /// The other end is closed.
    Closed,
    /// A line without end.
    TooLong,
}

/// The beginning of a line that is not complete.
#[derive(Default)]
pub struct Part(Vec<u8>);

impl Channel {
    /// Both ends.
    ///
    /// # Errors
    /// If the system has no more of them.
    pub fn pair() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Channel::over(ours)?, theirs))
    }

    fn over(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_LIMIT))?;
        Ok(Channel { stream })
    }

    /// The end that the parent has put in place of the standard input, which is empty from now on. The descriptor gets a
    /// number that nobody can guess, and processes that this one starts do not have it.
    ///
    /// # Errors
    /// If the standard input is no socket.
    pub fn from_stdin() -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        use std::os::unix::fs::FileTypeExt as _;
        let stdin = io::stdin();
        let number = 64 + (super::random() % 900) as i32;
        let moved = rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), number);
        // A system that allows fewer open files.
        let moved = moved.or_else(|_| rustix::io::fcntl_dupfd_cloexec(stdin.as_fd(), 3))?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        let file = std::fs::File::from(moved);
        if !file.metadata()?.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the standard input is not a gate's socket"));
        }
        Channel::over(std::os::fd::OwnedFd::from(file).into())
    }

    /// Waits for a line, for `patience` at the most; for ever where there is none.
    pub fn hear(&self, part: &mut Part, patience: Option<Duration>) -> Heard {
        if self.stream.set_read_timeout(patience).is_err() {
            return Heard::Closed;
        }
        let mut bytes = [0; 1 << 14];
        loop {
            if let Some(end) = part.0.iter().position(|&byte| byte == b'\n') {
                let rest = part.0.split_off(end + 1);
                let mut line = std::mem::replace(&mut part.0, rest);
                line.pop();
                return Heard::Line(line);
            }
            if part.0.len() > LONGEST_LINE {
                return Heard::TooLong;
            }
            match (&self.stream).read(&mut bytes) {
                Ok(0) => return Heard::Closed,
                Ok(read) => part.0.extend_from_slice(&bytes[..read]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Heard::Nothing;
                }
                Err(_) => return Heard::Closed,
            }
        }
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the other end is closed or makes no room.
    pub fn say(&self, message: &impl serde::Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        (&self.stream).write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_in_order_and_in_time() {
        let (ours, mut theirs) = Channel::pair().unwrap();
        let mut part = Part::default();
        let mut hear = |ms: u64| ours.hear(&mut part, Some(Duration::from_millis(ms)));
        assert_eq!(hear(1), Heard::Nothing);
        theirs.write_all(b"one\ntw").unwrap();
        assert_eq!(hear(100), Heard::Line(b"one".to_vec()));
        assert_eq!(hear(1), Heard::Nothing);
        theirs.write_all(b"o\n").unwrap();
        assert_eq!(hear(100), Heard::Line(b"two".to_vec()));
        drop(theirs);
        assert_eq!(hear(100), Heard::Closed);
    }

    #[test]
    fn a_line_without_end_is_cut_off() {
        let (ours, mut theirs) = Channel::pair().unwrap();
        let writer = std::thread::spawn(move || while theirs.write_all(&[b'x'; 1 << 16]).is_ok() {});
        let mut part = Part::default();
        assert_eq!(ours.hear(&mut part, Some(Duration::from_secs(60))), Heard::TooLong);
        assert!(part.0.len() < LONGEST_LINE + (1 << 15));
        drop(ours);
        writer.join().unwrap();
    }

    #[test]
    fn nobody_waits_for_a_side_that_does_not_read() {
        let (ours, _theirs) = Channel::pair().unwrap();
        ours.stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        assert!(ours.say(&"x".repeat(8 << 20)).is_err());
    }
}
