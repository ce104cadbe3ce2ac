//! The PTX to run: a file as it is, or what NVRTC makes of a CUDA source.

use super::super::Failure;
use crate::core::dtype::DType;
use std::path::Path;

/// The PTX text of a `.ptx` file, or of a CUDA source compiled with line information.
///
/// # Errors
/// [`Failure::Input`] for a file that cannot be read or compiled, [`Failure::Missing`] without NVRTC.
pub fn ptx(file: &Path, entry: Option<&str>, arch: &str, dtype: DType, options: &[String]) -> Result<String, Failure> {
    let text =
        std::fs::read(file).map_err(|e| Failure::Input(format!("{}: {e}", file.display()))).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| Failure::Input(format!("{}: no UTF-8 text", file.display())))
        })?;
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("ptx") => Ok(text),
        Some("cu") => compile(file, &text, entry, arch, dtype, options),
        _ => Err(Failure::Input(format!("{}: a file that ends in .ptx or .cu is expected", file.display()))),
    }
}

#[cfg(feature = "cuda")]
fn compile(
    file: &Path,
    text: &str,
    entry: Option<&str>,
    arch: &str,
    dtype: DType,
    options: &[String],
) -> Result<String, Failure> {
    use super::host_code::device_code;
    use crate::core::candidate::{Language, Program};
    use crate::harness::terminal::note;
    use crate::toolchain::{Error, Target, can_include, compile_instances};
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Functions without a word of where they run may be called by kernels: `constexpr int div_up(int, int)`.
    let mut all = vec![format!("--include-path={}", folder.display()), "--device-as-default-execution-space".into()];
    all.extend(options.iter().cloned());
    let named = all.iter().filter_map(|option| option.strip_prefix("--include-path=").or(option.strip_prefix("-I")));
    let folders: Vec<&Path> = named.map(Path::new).collect();
    let code = device_code(text, |name| can_include(name) || folders.iter().any(|folder| folder.join(name).is_file()));
    for (what, names) in [("host code is left out", &code.host), ("files to include that are not there", &code.missing)]
    {
        if !names.is_empty() {
            note(format_args!("{}: {what}: {}", file.display(), names.join(", ")));
        }
    }
    let program = Program {
        text: code.text.as_str().into(),
        language: Language::Cuda,
        file: file.display().to_string(),
        headers: Vec::new(),
        options: all,
        needs: None,
    };
    // Not through the cache: what the source includes may have changed.
    let target = Target::Ptx(arch.replacen("sm_", "compute_", 1));
    let asked: Vec<String> =
        entry.filter(|entry| entry.contains('<')).map(|entry| code.instance(entry)).into_iter().collect();
    let instances = if asked.is_empty() { &code.instances } else { &asked };
    let mut made = compile_instances(&program, dtype, &target, &[], instances);
    if asked.is_empty() && !instances.is_empty() && matches!(made, Err(Error::Compile { .. })) {
        // An instance may depend on what only the host knows.
        made = compile_instances(&program, dtype, &target, &[], &[]);
    }
    match made {
        Ok(artifact) => {
            let ptx = String::from_utf8(artifact.code)
                .map_err(|_| Failure::Input(format!("{}: no PTX came out", program.file)))?;
            match code.templates.first().filter(|_| !ptx.contains(".entry")) {
                None => Ok(ptx),
                Some(first) => Err(Failure::Input(format!(
                    "{}: its kernels are templates: name an instance, as --entry '{first}<float>'; there are {}",
                    program.file,
                    code.templates.join(", ")
                ))),
            }
        }
        Err(Error::NoCompiler(why)) => Err(Failure::Missing(why)),
        Err(Error::Compile { log }) => Err(Failure::Input(format!("{}: {log}", program.file))),
    }
}

#[cfg(not(feature = "cuda"))]
fn compile(file: &Path, _: &str, _: Option<&str>, _: &str, _: DType, _: &[String]) -> Result<String, Failure> {
    let file = file.display();
    Err(Failure::Missing(format!("{file}: this build cannot call NVRTC; enable the feature `cuda-13`, or pass PTX")))
}
