//! A PTX module: parsed once, its entries decoded when they are first launched.

use crate::sim::error::{Error, Result};
use crate::sim::ir::program::Program;
use crate::sim::ptx::ast;
use crate::sim::run::shared::shared_memory;
use crate::sim::{passes, ptx};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// A parsed PTX text.
#[derive(Debug)]
pub struct Module {
    /// Tells modules apart in the memories that hold their variables.
    id: u64,
    tree: ast::Module,
    /// By entry, and whether approximations are adversarial.
    programs: Mutex<HashMap<(String, bool), Arc<Program>>>,
}

impl Module {
    /// Reads PTX, as NVRTC, `nvcc -ptx` or Triton write it.
    ///
    /// # Errors
    /// [`Error::Parse`] with the line for text that is no PTX, [`Error::Unsupported`] for directives that are not
    /// modelled. Opcodes are looked at when their entry is first launched, or by [`Module::check`].
    pub fn parse(text: &str) -> Result<Module> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let tree = ptx::parse(text)?;
        for (is_there, directive) in [(tree.has_version, ".version"), (tree.has_target, ".target")] {
            if !is_there {
                return Err(Error::parse(1, format!("no `{directive}`; PTX starts with `.version` and `.target`")));
            }
        }
        Ok(Module { id: NEXT.fetch_add(1, Relaxed), tree, programs: Mutex::default() })
    }

    /// Names of the entries, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.tree
            .functions
            .iter()
            .filter(|function| function.is_entry && function.body.is_some())
            .map(|function| function.name.as_str())
    }

    /// Whether the simulator models everything that an entry uses.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first opcode that is not modelled.
    pub fn check(&self, entry: &str) -> Result<()> {
        self.program(entry, false).map(drop)
    }

    /// Bytes of each parameter of an entry, in order.
    ///
    /// # Errors
    /// As [`Module::check`].
    pub fn parameter_bytes(&self, entry: &str) -> Result<Vec<usize>> {
        Ok(self.program(entry, false)?.params.iter().map(|param| param.bytes as usize).collect())
    }

    /// Whether a block of an entry can have so much dynamic shared memory beside its own.
    ///
    /// # Errors
    /// [`Error::Launch`] with the limit where it cannot, and as [`Module::check`].
    pub fn check_shared(&self, entry: &str, dynamic_bytes: u32) -> Result<()> {
        let program = self.program(entry, false)?;
        shared_memory(&program, dynamic_bytes).map(drop)
    }

    /// Whether results of an entry may lawfully differ from one device to another: it uses approximate operations, or
    /// sums whose order is open.
    ///
    /// # Errors
    /// As [`Module::check`].
    pub fn is_approximate(&self, entry: &str) -> Result<bool> {
        let (exact, moved) = (self.program(entry, false)?, self.program(entry, true)?);
        Ok(exact.traits.sums_products || exact.code.len() != moved.code.len())
    }

    pub(crate) fn program(&self, entry: &str, adversarial: bool) -> Result<Arc<Program>> {
        // A thread that panicked while it held the map left no half-made entry behind.
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(&(entry.to_owned(), adversarial)) {
            return Ok(Arc::clone(program));
        }
        let function =
            self.tree.functions.iter().find(|function| function.is_entry && function.name == entry).ok_or_else(
                || {
                    let names: Vec<_> = self.entries().collect();
                    Error::Launch(format!("no entry `{entry}`; this module has: {}", names.join(", ")))
                },
            )?;
        let program = Arc::new(Program { module: self.id, ..passes::lower(&self.tree, function, adversarial)? });
        programs.insert((entry.to_owned(), adversarial), Arc::clone(&program));
        Ok(program)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name)
            .field("instructions", &self.code.len())
            .finish_non_exhaustive()
    }
}
