//! Where a result is written: a file is replaced at once and whole, a device or a pipe is written through, and whatever
//! else lies there is refused.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long the reader of a pipe may take to make room.
const PIPE_LIMIT: Duration = Duration::from_secs(20);

/// A part of this age whose process is gone was left behind by a crash.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Where a result goes.
#[derive(Debug)]
pub enum Place {
    /// A file, which may not exist yet. Links have been followed.
    File(PathBuf),
    /// Something that is written to and holds nothing: a device, a pipe with a reader.
    Stream(File),
}

/// Nothing can be written to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlace {
    path: PathBuf,
    why: String,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: give the path of a file", self.path.display(), self.why)
    }
}

impl std::error::Error for NoPlace {}

impl Place {
    /// The place at `path`.
    ///
    /// # Errors
    /// If nothing can be written there, with the reason.
    pub fn of(path: &Path) -> Result<Self, NoPlace> {
        let refuse = |why: &str| Err(NoPlace { path: path.to_owned(), why: why.to_owned() });
        let Ok(link) = fs::symlink_metadata(path) else { return Ok(Place::File(path.to_owned())) };
        let kind = match fs::metadata(path) {
            Ok(found) => found.file_type(),
            Err(_) if link.is_symlink() => return refuse("is a link to nothing"),
            Err(e) => return refuse(&e.to_string()),
        };
        // `/dev/stdout` and the like: what is open there would not see a new file.
        let is_open_file = path.starts_with("/dev") || path.starts_with("/proc");
        if kind.is_file() && !is_open_file {
            return fs::canonicalize(path).map(Place::File).or_else(|e| refuse(&e.to_string()));
        }
        if kind.is_dir() {
            return refuse("is a folder");
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::FileTypeExt as _;
            if kind.is_block_device() {
                return refuse("is a block device");
            }
            if kind.is_socket() {
                return refuse("is a socket");
            }
        }
        match open_stream(path) {
            Ok(stream) => Ok(Place::Stream(stream)),
            Err(e) if is_without_reader(&e) => refuse("is a pipe that nobody reads"),
            Err(e) => refuse(&e.to_string()),
        }
    }

    /// Writes `content`; a reader of a file sees the old one or the new one, never a part.
    ///
    /// # Errors
    /// If it cannot be written, without the place.
    pub fn write(&mut self, content: impl AsRef<[u8]>) -> io::Result<()> {
        match self {
            Place::File(path) => replace(path, content.as_ref()),
            Place::Stream(stream) => write_through(stream, content.as_ref()),
        }
    }
}

/// Replaces a file.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    sweep(path);
    let part = beside(path, &format!("{}.part", std::process::id()));
    let written = File::options().write(true).create_new(true).open(&part).and_then(|mut file| {
        file.write_all(content)?;
        fs::rename(&part, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Removes the parts that crashed processes have left beside a file.
fn sweep(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let part = entry.file_name().to_string_lossy().into_owned();
        let pid = part.strip_prefix(&format!(".{name}.")).and_then(|rest| rest.strip_suffix(".part"));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let age = entry.metadata().and_then(|found| found.modified()).map(|at| SystemTime::now().duration_since(at));
        let is_old = matches!(age, Ok(Ok(age)) if age > LEFT_BEHIND);
        if pid == std::process::id() || (is_old && !is_alive(pid)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(unix)]
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(not(unix))]
fn is_alive(_pid: u32) -> bool {
    false
}

/// `summary.json` and `lock` give `.summary.json.lock` in the same folder.
pub fn beside(path: &Path, extension: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{extension}"))
}

#[cfg(unix)]
fn open_stream(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // A pipe without a reader is then an error and no wait.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options().append(true).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
fn open_stream(path: &Path) -> io::Result<File> {
    File::options().append(true).open(path)
}

#[cfg(unix)]
fn is_without_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

#[cfg(not(unix))]
fn is_without_reader(_error: &io::Error) -> bool {
    false
}

fn write_through(stream: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    let mut last = Instant::now();
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => {
                bytes = &bytes[written..];
                last = Instant::now();
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && last.elapsed() < PIPE_LIMIT => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let limit = PIPE_LIMIT.as_secs();
                return Err(io::Error::new(e.kind(), format!("its reader has taken nothing for {limit} s")));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process::Command;

    fn write(path: &Path, text: &str) -> Result<(), String> {
        let mut place = Place::of(path).map_err(|e| e.to_string())?;
        place.write(text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        fs::remove_file(&file).unwrap();
        assert!(write(&link, "new").unwrap_err().contains("is a link to nothing"));
        assert!(write(folder.path(), "new").unwrap_err().contains("is a folder"));
    }

    #[test]
    fn a_device_is_written_through() {
        write(Path::new("/dev/null"), "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write(Path::new("/dev/full"), "text").unwrap_err().contains("space"));
    }

    #[test]
    fn a_pipe_needs_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(write(&pipe, "text").unwrap_err().contains("a pipe that nobody reads"));
        let reader = Command::new("cat").arg(&pipe).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let read = std::thread::spawn(|| reader.wait_with_output().unwrap().stdout);
        let text = "x".repeat(1 << 20);
        let begun = Instant::now();
        while write(&pipe, &text).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the reader does not come");
        }
        assert_eq!(read.join().unwrap().len(), text.len());
    }

    #[test]
    fn parts_that_nobody_writes_any_more_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let parts = [(ended.id(), 120), (ended.id() + 1_000_000_000, 120), (1, 120), (ended.id() + 1_000_000_001, 0)];
        for (pid, age) in parts {
            let file = File::create(beside(&path, &format!("{pid}.part"))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        write(&path, "text").unwrap();
        let there = |pid: u32| beside(&path, &format!("{pid}.part")).exists();
        assert_eq!(parts.map(|(pid, _)| there(pid)), [false, false, true, true], "the living and the new ones stay");
    }
}
