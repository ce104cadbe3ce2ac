//! A file in memory: the only `unsafe` of the models.
#![expect(unsafe_code, reason = "a mapped file changes if somebody changes the file")]

use super::error::Error;
use memmap2::Mmap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file whose bytes are read where they lie.
#[derive(Debug)]
pub struct Mapped {
    /// The file.
    pub path: PathBuf,
    map: Mmap,
}

impl Mapped {
    /// Maps a file.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let refused = |why: std::io::Error| Error::in_file(path, "", "a file that can be read", why.to_string());
        let file = File::open(path).map_err(refused)?;
        // SAFETY: the bytes are only ever read as plain numbers, so other bytes are other weights and no undefined values.
        // A file that somebody shortens meanwhile ends the process with a signal, which is no memory error.
        let map = unsafe { Mmap::map(&file) }.map_err(refused)?;
        Ok(Mapped { path: path.into(), map })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }
}
