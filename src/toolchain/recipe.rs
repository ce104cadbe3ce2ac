//! What goes into the compiler for a program and a dtype, and the hash of it all.

use super::{disk, standard};
use crate::core::candidate::Program;
use crate::core::dtype::DType;
use sha2::{Digest, Sha256};
use std::fmt;

/// What to compile for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Machine code for one architecture, `sm_90a`.
    Cubin(String),
    /// PTX for one architecture, `compute_90a`.
    Ptx(String),
    /// PTX for one architecture, `sm_90a`, that was assembled as well: the log has what `ptxas` said.
    Assembled(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cubin(arch) | Target::Ptx(arch) | Target::Assembled(arch) => f.write_str(arch),
        }
    }
}

/// The name of the header that every program can include: the element type and its conversions.
pub const HEADER: &str = "kernelgate.cuh";

/// The headers that a program in a dtype is given, names and texts: the crate's own, in place of the C library's, those of the
/// program.
pub fn headers(program: &Program, dtype: DType) -> Vec<(&str, &str)> {
    let text = if DType::FLOATS.contains(&dtype) {
        include_str!("../../kernels/kernelgate.cuh")
    } else {
        include_str!("../../kernels/kernelgate_narrow.cuh")
    };
    let own = program.headers.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    std::iter::once((HEADER, text)).chain(standard::headers(program)).chain(own).collect()
}

/// Options every program gets; the dtype and the architecture come on top.
const OPTIONS: [&str; 2] = ["--std=c++17", "-lineinfo"];

/// The options of a program in a dtype, but for the folders of the CUDA headers.
pub fn options(program: &Program, dtype: DType, target: &Target) -> Vec<String> {
    let mut options: Vec<String> = OPTIONS.map(String::from).to_vec();
    options.push(format!("--gpu-architecture={target}"));
    options.push(format!("-DKERNELGATE_{}", dtype.name().to_ascii_uppercase()));
    options.extend(standard::options(program));
    options.extend(program.options.iter().cloned());
    options
}

/// The hash of everything that makes the code but the compiler: a machine without one finds what another machine
/// compiled.
pub fn key(program: &Program, dtype: DType, target: &Target) -> String {
    let options = options(program, dtype, target).join("\n");
    let headers = headers(program, dtype);
    let mut parts: Vec<&[u8]> = vec![program.text.as_bytes(), headers[0].1.as_bytes(), options.as_bytes()];
    // The names too: each stands for one text.
    for (name, text) in &headers[1..] {
        parts.extend([name.as_bytes(), text.as_bytes()]);
    }
    let on_disk = disk::headers(program);
    for (file, text) in &on_disk {
        parts.extend([file.as_bytes(), text.as_bytes()]);
    }
    hash(&parts)
}

/// The hexadecimal SHA-256 of several parts, each preceded by its length.
pub fn hash(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_changes_the_code_changes_the_key() {
        let sm = Target::Cubin("sm_90a".into());
        let base = key(&Program::of_cuda("a"), DType::F32, &sm);
        assert_ne!(base, key(&Program::of_cuda("b"), DType::F32, &sm));
        assert_ne!(base, key(&Program::of_cuda("a"), DType::F16, &sm));
        assert_ne!(base, key(&Program::of_cuda("a"), DType::F32, &Target::Ptx("compute_90a".into())));
        assert_ne!(base, key(&Program { options: vec!["-DX".into()], ..Program::of_cuda("a") }, DType::F32, &sm));
        let headers = vec![("h".into(), "i".into())];
        assert_ne!(base, key(&Program { headers, ..Program::of_cuda("a") }, DType::F32, &sm));
    }

    #[test]
    fn parts_are_kept_apart() {
        assert_ne!(hash(&[b"ab", b"c"]), hash(&[b"a", b"bc"]));
    }
}
