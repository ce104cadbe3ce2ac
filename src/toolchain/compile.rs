//! A program and a dtype to machine code or PTX, through the cache.

use super::artifact::Artifact;
use super::error::Error;
use super::recipe::{HEADER, Target, headers, key, options};
use super::standard;
use super::{cache, nvrtc, toolkit};
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;

/// Compiles through the cache.
///
/// # Errors
/// [`Error::Compile`] with the log; [`Error::NoCompiler`] when there is neither a cached kernel nor a compiler.
pub fn compile(program: &Program, dtype: DType, target: &Target) -> Result<Artifact, Error> {
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
        (None, Err(why)) => Err(Error::NoCompiler(format!(
            "{} is not in the kernel cache and there is no compiler: {why}; {}",
            program.file,
            toolkit::how_to_get()
        ))),
    }
}

/// Whether [`compile`] would find it in the cache.
pub fn is_cached(program: &Program, dtype: DType, target: &Target) -> bool {
    let version = nvrtc::version();
    let fits = |artifact: Artifact| version.is_err() || version.is_ok_and(|version| version == artifact.compiler);
    cache::read(&key(program, dtype, target)).is_some_and(fits)
}

/// Whether every source can include a file: the crate's own, or one of the toolkit.
pub fn can_include(name: &str) -> bool {
    let folders = toolkit::find().map(|toolkit| toolkit.includes).unwrap_or_default();
    name == HEADER || standard::has(name) || folders.iter().any(|folder| folder.join(name).is_file())
}

/// Compiles without the cache, with further options (`--ptxas-options=-v` prints registers and spills into the log).
///
/// # Errors
/// As [`compile`].
pub fn compile_afresh(program: &Program, dtype: DType, target: &Target, further: &[&str]) -> Result<Artifact, Error> {
    compile_instances(program, dtype, target, further, &[])
}

/// As [`compile_afresh`], with these instances of kernel templates: `scale<float, 4>`.
///
/// # Errors
/// As [`compile`].
pub fn compile_instances(
    program: &Program,
    dtype: DType,
    target: &Target,
    further: &[&str],
    instances: &[String],
) -> Result<Artifact, Error> {
    let mut options = options(program, dtype, target);
    options.extend(further.iter().map(|&option| option.to_owned()));
    let includes = toolkit::find().map(|toolkit| toolkit.includes).unwrap_or_default();
    options.extend(includes.iter().map(|folder| format!("--include-path={}", folder.display())));
    let headers = headers(program, dtype);
    nvrtc::compile(&program.text, &program.file, &headers, &options, instances, target).map_err(|error| match error {
        Error::Compile { mut log } => {
            log.extend(standard::hint(&log, can_include).map(|hint| format!("\n{hint}")));
            Error::Compile { log }
        }
        other => other,
    })
}
