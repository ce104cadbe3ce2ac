//! Where variables lie: parameters, shared and local memory of a kernel, module variables.

use crate::sim::error::{Error, Result};
use crate::sim::ir::functions::Functions;
use crate::sim::ir::program::{GlobalVariable, Param};
use crate::sim::ptx::ast::{Base, Body, Function, Module, Operand, Symbol, Variable};
use crate::sim::ptx::types::Space;
use std::collections::{HashMap, HashSet};

/// Where a symbol lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Param(u32),
    Shared(u32),
    /// At the start of dynamic shared memory, which a launch decides.
    Dynamic,
    Local(u32),
    /// Index in the list of module variables.
    Global(usize),
    /// A variable of the module that this kernel does not use.
    Unused,
}

#[derive(Debug)]
pub(crate) struct Layout {
    pub params: Vec<Param>,
    pub param_bytes: u32,
    pub shared_bytes: u32,
    pub dynamic_shared_align: u32,
    pub local_bytes: u32,
    pub globals: Vec<GlobalVariable>,
    module_places: Vec<Place>,
    body_places: Vec<Place>,
}

const MAX_LOCAL_BYTES: u64 = 512 * 1024;
/// What an assembler lets a kernel declare; more has to come from the launch.
const MAX_STATIC_SHARED_BYTES: u64 = 48 * 1024;
const MAX_PARAM_BYTES: u64 = 32_764;

impl Layout {
    pub fn new(module: &Module, function: &Function, body: &Body, functions: &Functions<'_>) -> Result<Self> {
        let mut layout = Layout {
            params: Vec::new(),
            param_bytes: 0,
            shared_bytes: 0,
            dynamic_shared_align: 16,
            local_bytes: 0,
            globals: Vec::new(),
            module_places: Vec::new(),
            body_places: Vec::new(),
        };
        for param in &function.params {
            let offset = reserve(&mut layout.param_bytes, param, MAX_PARAM_BYTES, "parameters")?;
            layout.params.push(Param { name: param.name.clone(), offset, bytes: param.bytes as u32 });
        }
        let used = used_variables(module, body);
        for (at, variable) in module.variables.iter().enumerate() {
            let place = if used.contains(&at) { layout.place(variable, "")? } else { Place::Unused };
            layout.module_places.push(place);
        }
        for variable in &body.variables {
            let place = layout.place(variable, &function.name)?;
            layout.body_places.push(place);
        }
        layout.link(module, body, functions)?;
        Ok(layout)
    }

    pub fn find(&self, symbol: Symbol) -> Place {
        match symbol {
            Symbol::Module(at) => self.module_places[at],
            Symbol::Body(at) => self.body_places[at],
            Symbol::Param(at) => Place::Param(self.params[at].offset),
        }
    }

    /// A variable of a function is told apart from those of the module by `owner`.
    fn place(&mut self, variable: &Variable, owner: &str) -> Result<Place> {
        Ok(match variable.space {
            Space::Shared if variable.bytes == 0 => {
                self.dynamic_shared_align = self.dynamic_shared_align.max(variable.align_bytes);
                Place::Dynamic
            }
            Space::Shared => Place::Shared(reserve(
                &mut self.shared_bytes,
                variable,
                MAX_STATIC_SHARED_BYTES,
                "declared shared memory",
            )?),
            // Parameters of a call made inside the kernel live in the thread's own memory.
            Space::Local | Space::Param => {
                Place::Local(reserve(&mut self.local_bytes, variable, MAX_LOCAL_BYTES, "local memory")?)
            }
            _ => {
                self.globals.push(GlobalVariable {
                    name: format!("{owner}/{}", variable.name),
                    bytes: variable.bytes,
                    init: variable.init.clone(),
                    relocations: Vec::new(),
                    is_const: variable.space == Space::Const,
                });
                Place::Global(self.globals.len() - 1)
            }
        })
    }

    /// Resolves the addresses inside initial values.
    fn link(&mut self, module: &Module, body: &Body, functions: &Functions<'_>) -> Result<()> {
        let variables =
            module.variables.iter().zip(&self.module_places).chain(body.variables.iter().zip(&self.body_places));
        let by_name: HashMap<&str, Place> =
            variables.clone().map(|(variable, place)| (variable.name.as_str(), *place)).collect();
        let mut links = Vec::new();
        for (variable, place) in variables {
            let Place::Global(at) = *place else { continue };
            for (offset, target, addend) in &variable.relocations {
                let start = *offset as usize;
                let room = self.globals[at].init.get_mut(start..start.saturating_add(8));
                match (by_name.get(target.as_str()), functions.address(target), room) {
                    (Some(Place::Global(target)), ..) => links.push((at, (*offset, *target, *addend))),
                    (None, Some(address), Some(room)) if *addend == 0 => room.copy_from_slice(&address.to_le_bytes()),
                    _ => {
                        return Err(Error::unsupported(
                            1,
                            format!("the address of `{target}` in the initial value of `{}`", variable.name),
                        ));
                    }
                }
            }
        }
        for (at, link) in links {
            self.globals[at].relocations.push(link);
        }
        Ok(())
    }
}

/// The variables of the module that a body names, and those whose addresses these hold.
fn used_variables(module: &Module, body: &Body) -> HashSet<usize> {
    let by_name: HashMap<&str, usize> =
        module.variables.iter().enumerate().map(|(at, variable)| (variable.name.as_str(), at)).collect();
    let named = |variable: &Variable| -> Vec<usize> {
        variable.relocations.iter().filter_map(|(_, name, _)| by_name.get(name.as_str()).copied()).collect()
    };
    let mut open: Vec<usize> = body.variables.iter().flat_map(named).collect();
    body.instructions.iter().flat_map(|instruction| &instruction.operands).for_each(|one| named_by(one, &mut open));
    let mut used = HashSet::new();
    while let Some(at) = open.pop() {
        if used.insert(at) {
            open.extend(named(&module.variables[at]));
        }
    }
    used
}

/// The variables of the module that an operand names.
fn named_by(operand: &Operand, found: &mut Vec<usize>) {
    match operand {
        Operand::Symbol(Symbol::Module(at), _) | Operand::Address(Base::Symbol(Symbol::Module(at)), _) => {
            found.push(*at);
        }
        Operand::Tensor(base, _, inner) => {
            if let Base::Symbol(Symbol::Module(at)) = base {
                found.push(*at);
            }
            inner.iter().for_each(|one| named_by(one, found));
        }
        Operand::Vector(inner) | Operand::Tuple(inner) => inner.iter().for_each(|one| named_by(one, found)),
        _ => {}
    }
}

fn reserve(used: &mut u32, variable: &Variable, limit: u64, what: &str) -> Result<u32> {
    let start = u64::from(*used).next_multiple_of(u64::from(variable.align_bytes.max(1)));
    let end = start.saturating_add(variable.bytes);
    if end > limit {
        return Err(Error::Launch(format!(
            "`{}` ends at byte {end} of the {what}; the limit is {limit}",
            variable.name
        )));
    }
    *used = end as u32;
    Ok(start as u32)
}
