//! Programs as loaded modules: compiled once, kept loaded, their entries held against the launches.

use super::driver::{Context, Function, Module};
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::fault::Fault;
use crate::device::signature;
use crate::toolchain::{Target, compile};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Machine code of a program for one architecture, through the cache; PTX as it is.
fn cubin(program: &Program, dtype: DType, arch: &str) -> Result<Vec<u8>, Fault> {
    match program.language {
        Language::Cuda => Ok(compile(program, dtype, &Target::Cubin(arch.into()))?.code),
        Language::Ptx => Ok(program.text.as_bytes().to_vec()),
    }
}

/// Modules stay loaded for the life of the device: a kernel that keeps an answer from one launch to the next is then
/// caught by the next case.
#[derive(Default)]
pub struct Programs {
    loaded: Mutex<HashMap<(Program, DType), Arc<Loaded>>>,
}

/// A loaded program.
pub struct Loaded {
    file: String,
    module: Module,
    entries: Mutex<HashMap<String, Entry>>,
}

/// An entry that was looked up, with what its launches are held against.
#[derive(Clone)]
struct Entry {
    function: Function,
    max_threads: usize,
}

impl Programs {
    /// Compiles and loads, or finds what is loaded already.
    pub fn get(&self, context: &Context, arch: &str, program: &Program, dtype: DType) -> Result<Arc<Loaded>, Fault> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (program.clone(), dtype);
        if let Some(found) = loaded.get(&key) {
            return Ok(Arc::clone(found));
        }
        let code = cubin(program, dtype, arch)?;
        let module = context
            .load(&code)
            .map_err(|e| Fault::Compile { log: format!("{}: the driver does not load it: {e}", program.file) })?;
        let entries = Mutex::default();
        let new = Arc::new(Loaded { file: program.file.clone(), module, entries });
        loaded.insert(key, Arc::clone(&new));
        Ok(new)
    }
}

impl Loaded {
    /// The entry for a launch whose arguments have the given sizes.
    ///
    /// # Errors
    /// [`Fault::Signature`] when there is no such entry, or the launch does not fit it.
    pub fn entry(&self, name: &str, launch: &Launch, arguments: &[Vec<u8>]) -> Result<Function, Fault> {
        let Entry { function, max_threads } = self.look_up(name)?;
        if let Some(sizes) = function.parameter_sizes() {
            signature::fits(name, sizes, arguments)?;
        }
        let threads: usize = launch.block.iter().product();
        if threads == 0 || threads > max_threads {
            return Err(signature::wrong_block(name, threads, max_threads));
        }
        let allowed = function.allow(launch.shared_bytes, launch.cluster);
        allowed.map_err(|why| signature::too_much_shared(name, launch.shared_bytes, why))?;
        Ok(function)
    }
}

impl Loaded {
    fn look_up(&self, name: &str) -> Result<Entry, Fault> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(name) {
            return Ok(entry.clone());
        }
        let function = self.module.function(name).map_err(|_| signature::no_entry(&self.file, name))?;
        let max_threads = function.max_threads().unwrap_or(1024);
        let entry = Entry { function, max_threads };
        Ok(entries.entry(name.to_owned()).or_insert(entry).clone())
    }
}
