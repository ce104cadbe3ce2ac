//! A program and a dtype to machine code or PTX: the options, the headers that the crate supplies, the cache.

use super::{cache, nvrtc, toolkit};
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;
use crate::device::fault::Fault;
use std::fmt;

/// What comes out of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// A cubin, or PTX text.
    pub code: Vec<u8>,
    /// The compiler's version, `13.0`.
    pub compiler: String,
    /// What it printed; empty when it came from the cache.
    pub log: String,
}

/// What to compile for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Machine code for one architecture, `sm_90a`.
    Cubin(String),
    /// PTX for one architecture, `compute_90a`.
    Ptx(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cubin(arch) | Target::Ptx(arch) => f.write_str(arch),
        }
    }
}

/// The header that every program can include: the element type and its conversions.
const HEADER: (&str, &str) = ("kernelgate.cuh", include_str!("../../../kernels/kernelgate.cuh"));

/// Options every program gets; the dtype and the architecture come on top.
const OPTIONS: [&str; 2] = ["--std=c++17", "-lineinfo"];

fn dtype_option(dtype: DType) -> String {
    format!("-DKERNELGATE_{}", dtype.name().to_ascii_uppercase())
}

fn options(program: &Program, dtype: DType, target: &Target) -> Vec<String> {
    let mut options: Vec<String> = OPTIONS.map(String::from).to_vec();
    options.push(format!("--gpu-architecture={target}"));
    options.push(dtype_option(dtype));
    options.extend(program.options.iter().cloned());
    options
}

/// The key of a program in the cache: the compiler is not part of it, so that a machine without one finds what another
/// machine compiled; an entry of another compiler version is replaced where there is a compiler.
pub fn key(program: &Program, dtype: DType, target: &Target) -> String {
    let options = options(program, dtype, target).join("\n");
    let mut parts: Vec<&[u8]> = vec![program.text.as_bytes(), HEADER.1.as_bytes(), options.as_bytes()];
    for (name, text) in &program.headers {
        parts.extend([name.as_bytes(), text.as_bytes()]);
    }
    cache::hash(&parts)
}

/// Compiles through the cache.
///
/// # Errors
/// [`Fault::Compile`] with the log; [`Fault::Unsupported`] when there is neither a cached kernel nor a compiler.
pub fn compile(program: &Program, dtype: DType, target: &Target) -> Result<Artifact, Fault> {
    debug_assert_eq!(program.language, Language::Cuda, "PTX is not compiled here");
    let key = key(program, dtype, target);
    let cached = cache::read(&key);
    let version = nvrtc::version();
    match (cached, &version) {
        (Some(artifact), Err(_)) => Ok(artifact),
        (Some(artifact), Ok(version)) if artifact.compiler == *version => Ok(artifact),
        (_, Ok(_)) => {
            let artifact = compile_afresh(program, dtype, target, &[])?;
            cache::write(&key, &artifact);
            Ok(artifact)
        }
        (None, Err(why)) => Err(Fault::Unsupported(format!(
            "{} is not in the kernel cache and there is no compiler: {why}; {}",
            program.file,
            toolkit::HOW_TO_GET
        ))),
    }
}

/// Compiles without the cache, with further options (`--ptxas-options=-v` prints registers and spills into the log).
///
/// # Errors
/// As [`compile`].
pub fn compile_afresh(program: &Program, dtype: DType, target: &Target, further: &[&str]) -> Result<Artifact, Fault> {
    let mut options = options(program, dtype, target);
    options.extend(further.iter().map(|&option| option.to_owned()));
    let includes = toolkit::find().map(|toolkit| toolkit.includes).unwrap_or_default();
    options.extend(includes.iter().map(|folder| format!("--include-path={}", folder.display())));
    let mut headers: Vec<(&str, &str)> = vec![HEADER];
    headers.extend(program.headers.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    nvrtc::compile(&program.text, &program.file, &headers, &options, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        Program {
            text: text.into(),
            language: Language::Cuda,
            file: "k.cu".into(),
            headers: Vec::new(),
            options: Vec::new(),
        }
    }

    #[test]
    fn everything_that_changes_the_code_changes_the_key() {
        let sm = Target::Cubin("sm_90a".into());
        let base = key(&program("a"), DType::F32, &sm);
        assert_ne!(base, key(&program("b"), DType::F32, &sm));
        assert_ne!(base, key(&program("a"), DType::F16, &sm));
        assert_ne!(base, key(&program("a"), DType::F32, &Target::Ptx("compute_90a".into())));
        assert_ne!(base, key(&Program { options: vec!["-DX".into()], ..program("a") }, DType::F32, &sm));
        let headers = vec![("h".into(), "i".into())];
        assert_ne!(base, key(&Program { headers, ..program("a") }, DType::F32, &sm));
    }
}
