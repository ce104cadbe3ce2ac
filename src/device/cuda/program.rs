//! Programs as loaded modules: compiled once, kept loaded, their entries held against the launches.

use super::compile::{Target, compile};
use super::driver::{Context, Function, Module};
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::fault::Fault;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Machine code of a program for one architecture, through the cache; PTX as it is.
fn cubin(program: &Program, dtype: DType, arch: &str) -> Result<Vec<u8>, Fault> {
    match program.language {
        Language::Cuda => Ok(compile(program, dtype, &Target::Cubin(arch.into()))?.code),
        Language::Ptx => Ok(program.text.clone().into_bytes()),
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
    /// `None` where the driver cannot tell.
    parameter_sizes: Option<Arc<[usize]>>,
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
        let Entry { function, parameter_sizes, max_threads } = self.look_up(name)?;
        if let Some(sizes) = parameter_sizes {
            fits(name, &sizes, arguments).map_err(Fault::Signature)?;
        }
        let threads: usize = launch.block.iter().product();
        if threads == 0 || threads > max_threads {
            let text = format!("a block of {threads} threads; `{name}` can run 1 to {max_threads}");
            return Err(Fault::Signature(text));
        }
        function.allow(launch.shared_bytes, launch.cluster).map_err(|e| {
            Fault::Signature(format!(
                "`{name}` cannot have {} bytes of dynamic shared memory: {e}",
                launch.shared_bytes
            ))
        })?;
        Ok(function)
    }
}

impl Loaded {
    fn look_up(&self, name: &str) -> Result<Entry, Fault> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(name) {
            return Ok(entry.clone());
        }
        let function = self.module.function(name).map_err(|_| {
            Fault::Signature(format!("{} has no entry `{name}`; is it `extern \"C\" __global__`?", self.file))
        })?;
        let entry = Entry {
            function,
            parameter_sizes: function.parameter_sizes().map(Into::into),
            max_threads: function.max_threads().unwrap_or(1024),
        };
        Ok(entries.entry(name.to_owned()).or_insert(entry).clone())
    }
}

/// Parameters against arguments.
fn fits(name: &str, parameters: &[usize], arguments: &[Vec<u8>]) -> Result<(), String> {
    let passed: Vec<usize> = arguments.iter().map(Vec::len).collect();
    if parameters == passed {
        return Ok(());
    }
    let first = parameters.iter().zip(&passed).position(|(a, b)| a != b).unwrap_or(parameters.len().min(passed.len()));
    Err(format!(
        "`{name}` takes {} parameters of {parameters:?} bytes, the launch passes {} of {passed:?} (inputs, outputs, \
         workspace, scalars, in order); they part at number {}",
        parameters.len(),
        passed.len(),
        first + 1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&[8, 8, 4], true)]
    #[case(&[8, 8, 8], false)]
    #[case(&[8, 8], false)]
    #[case(&[8, 8, 4, 4], false)]
    fn a_wrong_signature_is_told(#[case] parameters: &[usize], #[case] right: bool) {
        let arguments = [vec![0; 8], vec![0; 8], vec![0; 4]];
        assert_eq!(fits("k", parameters, &arguments).is_ok(), right);
    }
}
