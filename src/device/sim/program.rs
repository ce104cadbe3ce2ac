//! Programs as parsed modules: PTX as it is given, or compiled from CUDA C++.

use super::explain::fault;
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::dependent;
use crate::device::fault::Fault;
use crate::device::signature;
use crate::sim::{Memory, Module};
use crate::toolchain::committed::Committed;
use crate::toolchain::ptx::Ptx;
use crate::toolchain::resources::Resources;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that a block can have.
const MAX_THREADS: usize = 1024;

/// Programs that were parsed already. They stay for the life of the device, with their variables: a kernel that keeps
/// an answer from one launch to the next is then caught by the next case.
pub struct Programs {
    committed: Option<Committed>,
    loaded: Mutex<HashMap<(Program, DType), Arc<Loaded>>>,
}

/// A parsed program with the memory that its launches share.
pub struct Loaded {
    /// Its name in messages.
    pub file: String,
    /// Its code.
    pub module: Module,
    /// What made the code, `NVRTC 13.0`; empty for PTX that was given.
    pub compiler: String,
    /// What `ptxas` makes of the entries, where it is known.
    pub resources: Vec<Resources>,
    /// The entries that may not begin before the launch ahead has ended, and why.
    undependable: HashMap<String, &'static str>,
    memory: Mutex<Memory>,
}

impl Programs {
    /// No program yet.
    pub fn new(ptx_folder: Option<PathBuf>) -> Self {
        Programs { committed: ptx_folder.map(Committed::new), loaded: Mutex::default() }
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
        let Ptx { text, compiler, resources, .. } = self.ptx(program, dtype)?;
        let module = Module::parse(&text).map_err(|error| fault(&program.file, error))?;
        let file = program.file.clone();
        let undependable =
            dependent::objections(&text).into_iter().map(|(entry, why)| (entry.to_owned(), why)).collect();
        let new = Arc::new(Loaded { file, module, compiler, resources, undependable, memory: Mutex::default() });
        loaded.insert(key, Arc::clone(&new));
        Ok(new)
    }

    /// PTX as it is given, as it was committed, or compiled.
    fn ptx(&self, program: &Program, dtype: DType) -> Result<Ptx, Fault> {
        if program.language == Language::Ptx {
            return Ok(Ptx { text: program.text.to_string(), ..Ptx::default() });
        }
        let committed = self.committed.as_ref().and_then(|committed| committed.find(program, dtype));
        committed.map_or_else(|| compiled(program, dtype), Ok)
    }
}

/// Compiled PTX from the cache or the compiler.
#[cfg(feature = "cuda")]
fn compiled(program: &Program, dtype: DType) -> Result<Ptx, Fault> {
    Ok(crate::toolchain::compile_ptx(program, dtype, crate::toolchain::committed::ARCH)?)
}

#[cfg(not(feature = "cuda"))]
fn compiled(program: &Program, _dtype: DType) -> Result<Ptx, Fault> {
    Err(Fault::Unsupported(format!(
        "{} is not compiled in kernels/ptx, and this build cannot: enable the feature `cuda-13` or `cuda-12`",
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
        if let Some(why) = self.undependable.get(entry).filter(|_| launch.dependent) {
            return Err(Fault::Signature(format!("`{entry}` {why}")));
        }
        let threads: usize = launch.block.iter().product();
        if threads == 0 || threads > MAX_THREADS {
            return Err(signature::wrong_block(entry, threads, MAX_THREADS));
        }
        let dynamic = launch.shared_bytes;
        let shared = self.module.check_shared(entry, u32::try_from(dynamic).unwrap_or(u32::MAX));
        shared.map_err(|why| signature::too_much_shared(entry, dynamic, why))
    }

    /// The memory; whoever has it has the program to itself.
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        // A launch that panicked left no allocation half-made.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
