//! What the families of operations emit instructions with: slots for operands, code, and what handlers keep beside.

use crate::sim::error::{Error, Result};
use crate::sim::ir::assignment::Assignment;
use crate::sim::ir::bundles::{Bundles, Candidate};
use crate::sim::ir::constants::Constants;
use crate::sim::ir::functions::Functions;
use crate::sim::ir::lanes::{Alu, RunFn};
use crate::sim::ir::layout::Layout;
use crate::sim::ir::program::{
    Access, ActionFn, Bundled, BundledLoad, Detail, Exec, Instr, PlainLoad, Program, Reach, Steering, Traits,
};
use crate::sim::machine::grid::{Origin, Origins};
use crate::sim::machine::registers::{Guard, Slot};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::ast::{Body, Function, Module, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::tier::Tiers;
use std::any::Any;

/// What the families of operations use to emit instructions.
pub(crate) struct Emitter<'a> {
    pub module: &'a Module,
    pub functions: Functions<'a>,
    pub function: &'a Function,
    pub body: &'a Body,
    pub layout: Layout,
    pub constants: Constants,
    pub slots: Vec<Option<Slot>>,
    pub zeroed: Vec<Slot>,
    pub code: Vec<Instr>,
    pub origins: Vec<Origin>,
    pub accesses: Vec<Access>,
    pub bundles: Bundles,
    /// Operations that also come in rows.
    pub in_rows: Vec<(usize, RunFn)>,
    pub bundled_loads: Vec<BundledLoad>,
    pub plain_loads: Vec<PlainLoad>,
    pub details: Vec<Detail>,
    /// In the order of the products: whether something may use its registers between the product before and it.
    pub exposed_products: std::vec::IntoIter<bool>,
    pub lists: Vec<Vec<Slot>>,
    pub callees: Vec<Vec<u64>>,
    /// Set by operations.
    pub traits: Traits,
    pub adversarial: bool,
    /// The carry flag, which is a hidden register.
    pub carry: Option<u32>,
    pub guard: Guard,
    /// PTX line of the running instruction.
    pub line: u32,
}

/// A program whose code is complete, with what the passes behind need.
pub(crate) struct Emitted {
    pub program: Program,
    /// Of each register.
    pub slots: Vec<Option<Slot>>,
    /// Operations that also come in rows.
    pub in_rows: Vec<(usize, RunFn)>,
}

/// What is known of an entry before its first instruction is emitted.
pub(crate) struct Start<'a> {
    pub module: &'a Module,
    pub functions: Functions<'a>,
    pub function: &'a Function,
    pub body: &'a Body,
    pub layout: Layout,
    pub assignment: Assignment,
    /// In the order of the products: whether something may use its registers between the product before and it.
    pub exposed_products: Vec<bool>,
    pub adversarial: bool,
}

impl<'a> Emitter<'a> {
    pub fn new(start: Start<'a>) -> Self {
        Emitter {
            module: start.module,
            functions: start.functions,
            function: start.function,
            body: start.body,
            layout: start.layout,
            constants: Constants::new(&start.assignment),
            slots: start.assignment.slots,
            zeroed: start.assignment.zeroed,
            code: Vec::new(),
            origins: Vec::new(),
            accesses: Vec::new(),
            bundles: Bundles::default(),
            in_rows: Vec::new(),
            bundled_loads: Vec::new(),
            plain_loads: Vec::new(),
            details: Vec::new(),
            exposed_products: start.exposed_products.into_iter(),
            lists: Vec::new(),
            callees: Vec::new(),
            traits: Traits::default(),
            adversarial: start.adversarial,
            carry: None,
            guard: Guard::ALWAYS,
            line: 0,
        }
    }
}

impl Emitter<'_> {
    /// Makes a load of shared memory a part of a bundle. A guarded one may be left out: nobody follows it.
    pub fn bundle(&mut self, base: Slot, offset: i64, bytes: u32) -> Bundled {
        let pc = self.code.len() as u32;
        let is_guarded = !self.guard.is_always();
        if is_guarded {
            self.bundles.forget(base);
        }
        let place = self.bundles.add(&Candidate { pc, base, offset, bytes });
        if is_guarded {
            self.bundles.forget(base);
        }
        place
    }

    /// Emits an instruction: result, three sources, side table.
    pub fn push(&mut self, exec: Exec, class: InstructionClass, [d, a, b, c, x]: [u32; 5], guard: Option<Guard>) {
        self.code.push(Instr { exec, guard: guard.unwrap_or(self.guard), d, a, b, c, x, straight: 0 });
        self.origins.push(Origin { ptx_line: self.line, source: None, class, is_step: false });
    }

    /// Emits an operation on registers whose slots are known.
    pub fn push_alu(&mut self, alu: Alu, class: InstructionClass, d: u32, sources: [u32; 3]) {
        let [a, b, c] = sources;
        if let Some(run) = alu.run
            && self.guard.is_always()
        {
            self.in_rows.push((self.code.len(), run.widest));
        }
        self.push(Exec::Alu(alu.handler.widest), class, [d, a, b, c, 0], None);
    }

    /// Emits an action in the build for this machine.
    pub fn push_action(&mut self, handler: Tiers<ActionFn>, class: InstructionClass, fields: [u32; 5]) {
        self.push_plain(handler.widest, class, fields);
    }

    /// Emits an action that gains nothing from wide registers.
    pub fn push_plain(&mut self, handler: ActionFn, class: InstructionClass, fields: [u32; 5]) {
        self.push(Exec::Action(handler), class, fields, None);
    }

    /// Emits a lane-wise operation on the operands of an instruction: result first, then sources.
    pub fn bind(&mut self, alu: Alu, class: InstructionClass, opcode: &Opcode<'_>, operands: &[Operand]) -> Result<()> {
        self.expect_operands(opcode, operands, 1 + alu.sources.len())?;
        let mut sources = [0; 3];
        for ((slot, class), operand) in sources.iter_mut().zip(alu.sources).zip(&operands[1..]) {
            *slot = self.source(*class, operand)?;
        }
        let d = self.result(alu.result, &operands[0])?;
        self.push_alu(alu, class, d, sources);
        Ok(())
    }

    pub fn expect_operands(&self, opcode: &Opcode<'_>, operands: &[Operand], count: usize) -> Result<()> {
        if operands.len() == count {
            return Ok(());
        }
        Err(Error::parse(opcode.line, format!("`{}` takes {count} operands, found {}", opcode.name, operands.len())))
    }

    /// Keeps what a handler needs beside registers; the handler asks for it by the number.
    pub fn detail<T: Any + Send + Sync>(&mut self, detail: T) -> u32 {
        self.details.push(Box::new(detail));
        self.details.len() as u32 - 1
    }

    /// Whether something may use the registers of the next product of warp groups between the product before and it.
    pub fn next_product_is_exposed(&mut self) -> bool {
        self.exposed_products.next().unwrap_or(false)
    }

    /// Stores a list of slots in the side table.
    pub fn list(&mut self, slots: Vec<Slot>) -> u32 {
        self.lists.push(slots);
        self.lists.len() as u32 - 1
    }

    /// The program so far: the passes behind add what they find. `starts` holds the first instruction of each statement.
    pub fn finish(self, starts: &[u32]) -> Result<Emitted> {
        let mut code = self.code;
        let target = |label: u32| self.body.labels.get(label as usize).map(|at| starts[*at]);
        for (instr, origin) in code.iter_mut().zip(&self.origins) {
            if matches!(instr.exec, Exec::Branch) {
                instr.x = target(instr.x)
                    .ok_or_else(|| Error::parse(origin.ptx_line, "branch to a label that does not exist"))?;
            }
        }
        let targets = self
            .body
            .target_lists
            .iter()
            .map(|list| list.iter().filter_map(|label| target(*label)).collect())
            .collect();
        let constants = self.constants;
        let program = Program {
            module: 0,
            name: self.function.name.clone(),
            code,
            origins: Origins { each: self.origins, files: self.module.files.clone() },
            accesses: self.accesses,
            bundles: self.bundles.finish(),
            bundled_loads: self.bundled_loads,
            plain_loads: self.plain_loads,
            details: self.details,
            lists: self.lists,
            targets,
            callees: self.callees,
            functions: self.functions.names(),
            params: self.layout.params,
            param_bytes: self.layout.param_bytes,
            shared_bytes: self.layout.shared_bytes,
            dynamic_shared_align: self.layout.dynamic_shared_align,
            local_bytes: self.layout.local_bytes,
            globals: self.layout.globals,
            required_threads: self.function.required_threads,
            word_rows: constants.words,
            wide_rows: constants.wides,
            pred_rows: constants.preds,
            word_constants: constants.word_values.into_iter().map(|(value, slot)| (slot, value)).collect(),
            wide_constants: constants.wide_values.into_iter().map(|(value, slot)| (slot, value)).collect(),
            specials: constants.specials,
            param_rows: constants.params,
            symbol_rows: constants.symbols,
            dynamic_rows: constants.dynamic,
            zeroed: self.zeroed,
            read: Reach::Anything,
            written: Reach::Anything,
            steering: Steering::default(),
            traits: self.traits,
        };
        Ok(Emitted { program, slots: self.slots, in_rows: self.in_rows })
    }
}
