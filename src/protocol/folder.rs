//! A private folder for the tensors of a case.

use super::message::TensorFile;
use super::misconduct::Misconduct;
use crate::core::tensor::Tensor;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Removed with all it holds when dropped.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new folder that only this user can enter.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> io::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("kernelgate-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // What a killed process of the same number left behind.
        let _ = fs::remove_dir_all(&path);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Fails where somebody else was faster: the folder is never another's.
        builder.create(&path).map_err(|e| place(&path, &e))?;
        Ok(Folder { path })
    }

    /// The place of a tensor in this folder.
    pub fn file(&self, name: &str, like: &Tensor) -> TensorFile {
        let path = self.path.join(format!("{name}.bin"));
        TensorFile { name: name.into(), dtype: like.dtype(), dims: like.dims().to_vec(), path }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn place(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Writes a tensor.
///
/// # Errors
/// If the file cannot be written.
pub fn write(file: &TensorFile, tensor: &Tensor) -> io::Result<()> {
    fs::write(&file.path, tensor.bytes()).map_err(|e| place(&file.path, &e))
}

/// Reads a tensor of the extents that the file is to have.
///
/// # Errors
/// If the file is not there or of another length.
pub fn read(file: &TensorFile) -> io::Result<Tensor> {
    let expected = file.dims.iter().product::<usize>() * file.dtype.size();
    let length = fs::metadata(&file.path).map_err(|e| place(&file.path, &e))?.len();
    if length != expected as u64 {
        let what = format!("{}: {length} bytes, {expected} are expected", file.path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let bytes = fs::read(&file.path).map_err(|e| place(&file.path, &e))?;
    Ok(Tensor::from_bytes(file.dtype, &file.dims, &bytes))
}

/// The outputs that a peer has written.
///
/// # Errors
/// If one is missing or of another length.
pub fn outputs(files: &[TensorFile]) -> Result<Vec<Tensor>, Misconduct> {
    let read = |file| read(file).map_err(|e| Misconduct::Impossible(format!("output `{}`: {e}", file.name)));
    files.iter().map(read).collect()
}

/// Takes away what was written before: an old output must not pass for a new one.
pub fn clear(files: &[TensorFile]) {
    for file in files {
        let _ = fs::remove_file(&file.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;

    #[test]
    fn tensors_come_back_and_old_outputs_do_not() {
        let folder = Folder::new().unwrap();
        let tensor = Tensor::from_f64(DType::BF16, &[2, 3], &[1.0, -2.0, 0.5, 0.0, 8.0, 3.0]);
        let file = folder.file("y", &tensor);
        write(&file, &tensor).unwrap();
        assert_eq!(outputs(std::slice::from_ref(&file)), Ok(vec![tensor]));
        fs::write(&file.path, [0; 5]).unwrap();
        let short = outputs(std::slice::from_ref(&file)).unwrap_err().to_string();
        assert!(short.contains("5 bytes, 12 are expected"), "{short}");
        clear(std::slice::from_ref(&file));
        assert!(outputs(&[file]).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_is_private_and_goes() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new().unwrap();
        let path = folder.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
