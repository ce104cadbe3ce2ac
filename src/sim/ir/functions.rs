//! The device functions of a module, and the addresses that pointers to them hold.

use crate::sim::machine::memory::address::FUNCTION_WINDOW;
use crate::sim::ptx::ast::{Function, Module, Operand, Variable};
use std::collections::{HashMap, HashSet};

/// Bytes from one function's address to the next.
const DISTANCE: u64 = 16;

/// What a branch to the functions of a call through a pointer has behind `brx.`: no text can say it.
pub(crate) const THROUGH_A_POINTER: &str = "through a pointer";

/// Bytes of each parameter and of each result.
pub(crate) type Signature = (Vec<u64>, Vec<u64>);

/// Everything with a body.
pub(crate) struct Functions<'a> {
    module: &'a Module,
    /// With the number in the module, which the address comes from: it is the same for every entry.
    by_name: HashMap<&'a str, (usize, &'a Function)>,
}

impl<'a> Functions<'a> {
    pub fn new(module: &'a Module) -> Self {
        let bodies = module.functions.iter().enumerate().filter(|(_, function)| function.body.is_some());
        Functions { module, by_name: bodies.map(|at| (at.1.name.as_str(), at)).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&'a Function> {
        self.by_name.get(name).map(|(_, function)| *function)
    }

    /// Entries have none.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.by_name
            .get(name)
            .filter(|(_, function)| !function.is_entry)
            .map(|(number, _)| FUNCTION_WINDOW + DISTANCE * *number as u64)
    }

    /// Names by address.
    pub fn names(&self) -> HashMap<u64, String> {
        self.by_name.keys().filter_map(|name| Some((self.address(name)?, (*name).to_owned()))).collect()
    }

    /// Those that a pointer may lead to, in the order of the text: the module takes their addresses.
    pub fn by_signature(&self) -> HashMap<Signature, Vec<&'a Function>> {
        let taken = self.taken();
        let mut all: HashMap<Signature, Vec<&Function>> = HashMap::new();
        for function in &self.module.functions {
            if function.body.is_some() && !function.is_entry && taken.contains(function.name.as_str()) {
                all.entry(signature(&function.params, &function.results)).or_default().push(function);
            }
        }
        all
    }

    /// Names of which an instruction or an initial value takes the address.
    fn taken(&self) -> HashSet<&'a str> {
        let bodies = || self.module.functions.iter().filter_map(|function| function.body.as_ref());
        let instructions = bodies().flat_map(|body| &body.instructions).filter(|one| one.name() != "call");
        let operands = instructions.flat_map(|instruction| &instruction.operands).filter_map(|operand| match operand {
            Operand::Function(name) => Some(name.as_str()),
            _ => None,
        });
        let variables = self.module.variables.iter().chain(bodies().flat_map(|body| &body.variables));
        let values = variables.flat_map(|variable| &variable.relocations).map(|(_, name, _)| name.as_str());
        operands.chain(values).collect()
    }
}

pub(crate) fn signature(params: &[Variable], results: &[Variable]) -> Signature {
    let bytes = |variables: &[Variable]| variables.iter().map(|variable| variable.bytes).collect();
    (bytes(params), bytes(results))
}
