//! A file in memory, read where it lies.
//!
//! Bytes are only ever read as plain numbers: if somebody changes the file meanwhile, the weights are others. Who shortens it
//! ends the process with a signal.

use super::error::Error;
use mmap_io::MemoryMappedFile;
use std::path::{Path, PathBuf};

/// A file whose bytes are read where they lie.
#[derive(Debug)]
pub struct Mapped {
    /// The file.
    pub path: PathBuf,
    map: MemoryMappedFile,
}

impl Mapped {
    /// Maps a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let refused = |why: String| Error::in_file(path, "", "a file that can be read", why);
        let map = MemoryMappedFile::open_ro(path).map_err(|why| refused(why.to_string()))?;
        map.as_slice_bytes(0, map.len()).map_err(|why| refused(why.to_string()))?;
        Ok(Mapped { path: path.into(), map })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // Was asked for before, when the file was mapped.
        self.map.as_slice_bytes(0, self.map.len()).unwrap_or_default()
    }
}
