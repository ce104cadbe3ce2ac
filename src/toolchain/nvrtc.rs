//! The calls into NVRTC. Nothing here panics when the library is absent.
#![expect(unsafe_code, reason = "the C interface of NVRTC")]

use super::artifact::Artifact;
use super::error::Error;
use super::recipe::Target;
use super::toolkit;
use cudarc::nvrtc::sys;
use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

/// NVRTC compiles no faster on two threads than on one.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The version, `13.0`, or why there is no NVRTC.
pub fn version() -> Result<String, String> {
    static VERSION: OnceLock<Result<String, String>> = OnceLock::new();
    VERSION.get_or_init(load).clone()
}

fn load() -> Result<String, String> {
    if let Some(toolkit) = toolkit::find() {
        bring_in(&toolkit.nvrtc);
    }
    // SAFETY: only tries to open the library.
    if !unsafe { sys::is_culib_present() } {
        return Err("NVRTC was not found".into());
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is present, and both pointers are valid for the call.
    let result = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    result.result().map_err(|e| format!("NVRTC does not answer: {e:?}"))?;
    Ok(format!("{major}.{minor}"))
}

/// Loads a library that lies outside the search path, for good: later lookups by its bare name then find it. NVRTC
/// itself looks for its `builtins` by bare name, so that comes first.
fn bring_in(nvrtc: &std::path::Path) {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    let folder = nvrtc.parent().map(std::fs::read_dir);
    let files = folder.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    let is_builtins = |path: &std::path::PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|n| n.starts_with("libnvrtc-builtins.so."))
    };
    for library in files.filter(is_builtins).chain([nvrtc.to_owned()]) {
        // SAFETY: NVRTC has no load-time requirements; its initialisers only register tables.
        if let Ok(library) = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) } {
            std::mem::forget(library);
        }
    }
}

/// An NVRTC program, destroyed on drop.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the handle came from nvrtcCreateProgram and is destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// Compiles `source`; `headers` are names and texts for `#include`, `instances` the instances of templates that nothing in
/// the source asks for.
///
/// # Errors
/// [`Error::Compile`] with the log, [`Error::NoCompiler`] without NVRTC.
pub fn compile(
    source: &str,
    file: &str,
    headers: &[(&str, &str)],
    options: &[String],
    instances: &[String],
    target: &Target,
) -> Result<Artifact, Error> {
    let compiler = version().map_err(|why| Error::NoCompiler(format!("{why}; {}", toolkit::how_to_get())))?;
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let c = |text: &str| {
        CString::new(text).map_err(|_| Error::Compile { log: format!("{file}: a NUL byte in the source or an option") })
    };
    let (source, file) = (c(source)?, c(file)?);
    let names = headers.iter().map(|(name, _)| c(name)).collect::<Result<Vec<_>, _>>()?;
    let texts = headers.iter().map(|(_, text)| c(text)).collect::<Result<Vec<_>, _>>()?;
    let options = options.iter().map(|option| c(option)).collect::<Result<Vec<_>, _>>()?;
    let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).collect::<Vec<*const c_char>>();
    let (names, texts, options) = (pointers(&names), pointers(&texts), pointers(&options));
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: every pointer is to a C string that lives until the end of this function, and the counts match.
    let created = unsafe {
        sys::nvrtcCreateProgram(
            &mut program.0,
            source.as_ptr(),
            file.as_ptr(),
            headers.len() as c_int,
            texts.as_ptr(),
            names.as_ptr(),
        )
    };
    created.result().map_err(|e| Error::Compile { log: format!("NVRTC refused the program: {e:?}") })?;
    for instance in instances {
        let name = c(instance)?;
        // SAFETY: the program is alive and not compiled yet; the name is a C string that is copied.
        let added = unsafe { sys::nvrtcAddNameExpression(program.0, name.as_ptr()) };
        added
            .result()
            .map_err(|e| Error::Compile { log: format!("NVRTC refused the instance `{instance}`: {e:?}") })?;
    }
    // SAFETY: as above.
    let compiled = unsafe { sys::nvrtcCompileProgram(program.0, options.len() as c_int, options.as_ptr()) };
    let log = String::from_utf8_lossy(&read(&program, sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?)
        .trim_matches(['\0', '\n'])
        .to_owned();
    if let Err(error) = compiled.result() {
        return Err(Error::Compile { log: if log.is_empty() { format!("{error:?}") } else { log } });
    }
    let mut code = match target {
        Target::Cubin(_) => read(&program, sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)?,
        Target::Ptx(_) | Target::Assembled(_) => read(&program, sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)?,
    };
    if !matches!(target, Target::Cubin(_)) {
        while code.last() == Some(&0) {
            code.pop();
        }
    }
    Ok(Artifact { code, compiler, log })
}

/// Reads one of a program's results: its size, then its bytes.
fn read(
    program: &Program,
    size: unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult,
    get: unsafe fn(sys::nvrtcProgram, *mut c_char) -> sys::nvrtcResult,
) -> Result<Vec<u8>, Error> {
    let lost = |e| Error::Compile { log: format!("NVRTC lost its result: {e:?}") };
    let mut bytes = 0;
    // SAFETY: the program is alive and the pointer valid.
    unsafe { size(program.0, &mut bytes) }.result().map_err(lost)?;
    let mut result = vec![0u8; bytes];
    // SAFETY: the buffer has the size that NVRTC asked for.
    unsafe { get(program.0, result.as_mut_ptr().cast()) }.result().map_err(lost)?;
    Ok(result)
}
