//! Programs as parsed modules: PTX as it is given, or compiled from CUDA C++.

use super::device::ARCH;
use super::explain::fault;
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::fault::Fault;
use crate::device::recipe::Target;
use crate::device::signature;
use crate::sim::{Memory, Module};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that a block can have.
const MAX_THREADS: usize = 1024;

/// Programs that were parsed already. They stay for the life of the device, with their variables: a kernel that keeps
/// an answer from one launch to the next is then caught by the next case.
pub struct Programs {
    _ptx_folder: Option<PathBuf>,
    loaded: Mutex<HashMap<(Program, DType), Arc<Loaded>>>,
}

/// A parsed program with the memory that its launches share.
pub struct Loaded {
    /// Its name in messages.
    pub file: String,
    /// Its code.
    pub module: Module,
    memory: Mutex<Memory>,
}

impl Programs {
    /// No program yet.
    pub fn new(ptx_folder: Option<PathBuf>) -> Self {
        Programs { _ptx_folder: ptx_folder, loaded: Mutex::default() }
    }

    /// Compiles and parses, or finds what is parsed already.
    ///
    /// # Errors
    /// What the compiler or the parser said; [`Fault::Unsupported`] when there is no compiler.
    pub fn get(&self, program: &Program, dtype: DType) -> Result<Arc<Loaded>, Fault> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (program.clone(), dtype);
        if let Some(found) = loaded.get(&key) {
            return Ok(Arc::clone(found));
        }
        let text = ptx(program, dtype)?;
        let module = Module::parse(&text).map_err(|error| fault(&program.file, error))?;
        let new = Arc::new(Loaded { file: program.file.clone(), module, memory: Mutex::default() });
        loaded.insert(key, Arc::clone(&new));
        Ok(new)
    }
}

fn ptx(program: &Program, dtype: DType) -> Result<String, Fault> {
    match program.language {
        Language::Ptx => Ok(program.text.clone()),
        Language::Cuda => compiled(program, dtype),
    }
}

#[cfg(feature = "cuda")]
fn compiled(program: &Program, dtype: DType) -> Result<String, Fault> {
    let made = crate::device::cuda::compile(program, dtype, &Target::Ptx(ARCH.into()))?;
    String::from_utf8(made.code).map_err(|_| Fault::Compile { log: format!("{}: the PTX is no text", program.file) })
}

#[cfg(not(feature = "cuda"))]
fn compiled(program: &Program, _dtype: DType) -> Result<String, Fault> {
    Err(Fault::Unsupported(format!(
        "{} has to be compiled, and this build cannot: enable the feature `cuda-13` or `cuda-12`",
        program.file
    )))
}

impl Loaded {
    /// Holds a launch against the entry that it names.
    ///
    /// # Errors
    /// [`Fault::Signature`] where they do not fit, [`Fault::Unsupported`] where the entry cannot be simulated.
    pub fn check(&self, entry: &str, launch: &Launch, arguments: &[Vec<u8>]) -> Result<(), Fault> {
        if !self.module.entries().any(|name| name == entry) {
            return Err(signature::no_entry(&self.file, entry));
        }
        let parameters = self.module.parameter_bytes(entry).map_err(|error| fault(&self.file, error))?;
        signature::fits(entry, &parameters, arguments)?;
        let threads: usize = launch.block.iter().product();
        if threads == 0 || threads > MAX_THREADS {
            return Err(signature::wrong_block(entry, threads, MAX_THREADS));
        }
        Ok(())
    }

    /// The memory; whoever has it has the program to itself.
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        // A launch that panicked left no allocation half-made.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
