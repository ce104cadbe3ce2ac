//! PTX for the simulator: compiled here, through the cache.

use super::artifact::Artifact;
use super::compile::compile_afresh;
use super::error::Error;
use super::ptx::Ptx;
use super::recipe::{Target, key};
use super::resources::Resources;
use super::{cache, nvrtc, toolkit};
use crate::core::candidate::Program;
use crate::core::dtype::DType;

/// A program as PTX for `arch` (`compute_90a`), from the cache or from the compiler.
///
/// # Errors
/// [`Error::Compile`] with the log; [`Error::NoCompiler`] with the command that installs a compiler when it is neither
/// in the cache nor can be compiled.
pub fn compile_ptx(program: &Program, dtype: DType, arch: &str) -> Result<Ptx, Error> {
    let key = key(program, dtype, &Target::Ptx(arch.into()));
    let cached = cache::read(&key).and_then(|artifact| Ptx::parse(&String::from_utf8(artifact.code).ok()?));
    let version = nvrtc::version();
    match (cached, &version) {
        (Some(ptx), Err(_)) => Ok(ptx),
        (Some(ptx), Ok(version)) if ptx.compiler == named(version) => Ok(ptx),
        (_, Ok(version)) => {
            let ptx = compile_ptx_afresh(program, dtype, arch)?;
            let code = ptx.to_string().into_bytes();
            cache::write(&key, &Artifact { code, compiler: version.clone(), log: String::new() });
            Ok(ptx)
        }
        (None, Err(why)) => Err(Error::NoCompiler(format!(
            "{} is compiled neither in kernels/ptx nor in the kernel cache, and there is no compiler: {why}; {}",
            program.file,
            toolkit::how_to_get()
        ))),
    }
}

/// The same from the compiler alone.
///
/// # Errors
/// As [`compile_ptx`].
pub fn compile_ptx_afresh(program: &Program, dtype: DType, arch: &str) -> Result<Ptx, Error> {
    let target = Target::Ptx(arch.into());
    let assembled = Target::Assembled(arch.replace("compute_", "sm_"));
    let (made, resources) = match compile_afresh(program, dtype, &assembled, &["--ptxas-options=-v"]) {
        Ok(made) => {
            let resources = Resources::parse(&made.log);
            (made, resources)
        }
        // What cannot be assembled can still be simulated.
        Err(_) => (compile_afresh(program, dtype, &target, &[])?, Vec::new()),
    };
    let text = String::from_utf8(made.code)
        .map_err(|_| Error::Compile { log: format!("{}: the compiler's PTX is no text", program.file) })?;
    Ok(Ptx {
        source: key(program, dtype, &target),
        compiler: named(&made.compiler),
        arch: arch.into(),
        resources,
        text: Ptx::trim(&text, &program.file),
    })
}

fn named(version: &str) -> String {
    format!("NVRTC {version}")
}
