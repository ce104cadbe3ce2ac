//! Tells the crate how far it is optimised, since the simulator and the references are the slow parts of a gate, and which headers
//! its kernels can include.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=KERNELGATE_OPT_LEVEL={}", env::var("OPT_LEVEL").unwrap_or_default());
    // An operator that comes or goes is listed there; `kernels` as a whole would count what is compiled from it.
    println!("cargo::rerun-if-changed=src/ops/mod.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the package is"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where files are to go"));
    let headers: String = headers(&root.join("kernels"))
        .iter()
        .map(|(name, file)| format!("    ({name:?}, include_str!({:?})),\n", file.display().to_string()))
        .collect();
    fs::write(out.join("headers.rs"), format!("&[\n{headers}]\n")).expect("the folder of outputs can be written");
}

/// The headers in the folders of a folder, by file name, which is what `#include` has.
fn headers(kernels: &Path) -> BTreeMap<String, PathBuf> {
    let made = ["ptx", "triton"].map(|name| kernels.join(name));
    let mut all = BTreeMap::new();
    for folder in entries(kernels).into_iter().filter(|path| path.is_dir() && !made.contains(path)) {
        println!("cargo::rerun-if-changed={}", folder.display());
        for file in entries(&folder).into_iter().filter(|file| file.extension() == Some("cuh".as_ref())) {
            let name = file.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            if let Some(other) = all.insert(name, file.clone()) {
                panic!("{} and {}: two headers of one name", other.display(), file.display());
            }
        }
    }
    all
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    all.map(|entry| entry.expect("a folder can be read").path()).collect()
}
