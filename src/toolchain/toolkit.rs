//! Where NVRTC, the CUDA headers and the vendor's libraries are: none is needed to build, and a GPU machine may have none.
#![expect(unsafe_code, reason = "loading a library runs its initialisers")]

use std::path::{Path, PathBuf};

/// A folder that holds NVRTC and the headers of CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolkit {
    /// The shared library.
    pub nvrtc: PathBuf,
    /// Folders for `--include-path`.
    pub includes: Vec<PathBuf>,
}

/// What to do when none is found: one command.
pub fn how_to_get() -> String {
    let folder = super::cache::user_folder().map_or_else(|| "FOLDER".into(), |cache| cache.display().to_string());
    format!(
        "install it with `python3 -m pip install --target {folder}/cuda-13.0 nvidia-cuda-nvrtc==13.0.88 \
         nvidia-cuda-runtime==13.0.96`, or set KERNELGATE_CUDA_HOME to a CUDA toolkit"
    )
}

/// Looks in `KERNELGATE_CUDA_HOME`, `CUDA_HOME`, `CUDA_PATH`, what `ci/setup-cuda.sh` installs, and `/usr/local/cuda`.
pub fn find() -> Option<Toolkit> {
    candidates().iter().find_map(|root| look_in(root))
}

fn candidates() -> Vec<PathBuf> {
    let named = ["KERNELGATE_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"];
    let mut roots: Vec<PathBuf> = named.iter().filter_map(std::env::var_os).map(PathBuf::from).collect();
    roots.extend(super::cache::user_folder().map(|cache| cache.join("cuda-13.0/nvidia/cu13")));
    roots.push("/usr/local/cuda".into());
    roots
}

/// A library of a toolkit by its file name. cuDNN has a folder of its own beside that of its wheel's CUDA.
pub fn library(name: &str) -> Option<PathBuf> {
    let roots = candidates();
    let beside = roots.iter().map(|root| root.join("../cudnn/lib"));
    let all = roots.iter().flat_map(|root| folders(root)).chain(beside);
    all.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Loads libraries from a toolkit outside the loader's path, for good: later lookups by their bare names then find them.
pub fn bring_in(files: &[&str]) {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    for file in files.iter().filter_map(|name| library(name)) {
        // SAFETY: the vendor's libraries have no load-time requirements; their initialisers only register tables.
        if let Ok(library) = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) } {
            std::mem::forget(library);
        }
    }
}

fn folders(root: &Path) -> [PathBuf; 3] {
    [root.join("lib"), root.join("lib64"), root.join("targets/x86_64-linux/lib")]
}

fn look_in(root: &Path) -> Option<Toolkit> {
    let platform = "targets/x86_64-linux";
    let nvrtc = folders(root).iter().find_map(|folder| {
        ["libnvrtc.so.13", "libnvrtc.so.12"].iter().map(|name| folder.join(name)).find(|file| file.is_file())
    })?;
    let includes: Vec<PathBuf> = [root.join("include"), root.join(platform).join("include")]
        .into_iter()
        .filter(|folder| folder.join("cuda_fp16.h").is_file())
        .flat_map(|folder| [folder.join("cccl"), folder])
        .filter(|folder| folder.is_dir())
        .collect();
    Some(Toolkit { nvrtc, includes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_the_wheels_is_known() {
        let root = tempfile::tempdir().unwrap();
        let (lib, include) = (root.path().join("lib"), root.path().join("include"));
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::create_dir_all(&include).unwrap();
        assert_eq!(look_in(root.path()), None);
        std::fs::write(lib.join("libnvrtc.so.13"), "").unwrap();
        std::fs::write(include.join("cuda_fp16.h"), "").unwrap();
        let found = look_in(root.path()).unwrap();
        assert_eq!(found, Toolkit { nvrtc: lib.join("libnvrtc.so.13"), includes: vec![include] });
    }
}
