//! Syntax tree to program: finds a handler for each opcode and a slot for each operand.

mod bundles;
mod constants;
mod functions;
mod gather;
mod group_fences;
mod inline;
mod layout;
mod operands;
mod reach;
mod registers;
mod steering;
mod stretches;

use super::error::{Error, Result};
use super::lanes::{Alu, Class, Guard, RunFn, Slot};
use super::metrics::InstructionClass;
use super::ops::{
    self, async_store::AsyncStore, atomic::AtomicAccess, barrier_object::ObjectAccess, bulk::BulkCopy,
    copy_async::Copy, double_product::DoubleProduct, group_matrix::GroupProduct, integer_product::IntegerProduct,
    matrix::Product, matrix_memory::TileAccess, video::VideoOperation, warp_tile::MatrixAccess,
    warp_tile_shapes::ShapedMatrix,
};
use super::program::{ActionFn, Bundled, Exec, Instr, Origin, Program};
use super::ptx::ast::{Function, Instruction, Module, Operand};
use super::ptx::opcode::Opcode;
use super::tier::Tiers;
use bundles::{Bundles, Candidate};
use constants::Constants;
use functions::Functions;
pub(crate) use inline::THROUGH_A_POINTER;
use layout::Layout;
pub(crate) use layout::Place;

/// Decodes one entry of a module.
///
/// With `adversarial`, every approximate operation is followed by a seeded error within its documented bound.
pub(super) fn decode(module: &Module, function: &Function, adversarial: bool) -> Result<Program> {
    let Some(body) = &function.body else {
        return Err(Error::Launch(format!("`{}` is declared, but has no body", function.name)));
    };
    if let Some(error) = &function.broken {
        return Err(error.clone());
    }
    let functions = Functions::new(module);
    let body = &*gather::gathered(inline::inlined(&functions, function, body)?);
    let assignment = registers::assign(body);
    let layout = Layout::new(module, function, body, &functions)?;
    let mut decoder = Decoder {
        module,
        functions,
        function,
        body,
        layout,
        constants: Constants::new(&assignment),
        slots: assignment.slots,
        zeroed: assignment.zeroed,
        code: Vec::new(),
        origins: Vec::new(),
        accesses: Vec::new(),
        bundles: Bundles::default(),
        in_rows: Vec::new(),
        bundled_loads: Vec::new(),
        plain_loads: Vec::new(),
        atomics: Vec::new(),
        copies: Vec::new(),
        async_stores: Vec::new(),
        products: Vec::new(),
        integer_products: Vec::new(),
        double_products: Vec::new(),
        group_products: Vec::new(),
        exposed_products: group_fences::exposed(body),
        tiles: Vec::new(),
        matrices: Vec::new(),
        video: Vec::new(),
        shaped: Vec::new(),
        objects: Vec::new(),
        bulk_copies: Vec::new(),
        lists: Vec::new(),
        callees: Vec::new(),
        in_order: false,
        adversarial,
        carry: None,
        guard: Guard::ALWAYS,
        line: 0,
    };
    let mut starts = Vec::with_capacity(body.instructions.len() + 1);
    let mut labelled = vec![false; body.instructions.len() + 1];
    body.labels.iter().for_each(|at| labelled[*at] = true);
    for (instruction, labelled) in body.instructions.iter().zip(labelled) {
        if labelled {
            decoder.bundles.close();
        }
        starts.push(decoder.code.len() as u32);
        decoder.instruction(instruction)?;
    }
    starts.push(decoder.code.len() as u32);
    decoder.guard = Guard::ALWAYS;
    decoder.push(Exec::Exit, InstructionClass::Control, [0; 5], None);
    decoder.finish(&starts)
}

/// What the families of operations use to emit instructions.
pub(crate) struct Decoder<'a> {
    pub module: &'a Module,
    functions: Functions<'a>,
    pub function: &'a Function,
    pub body: &'a super::ptx::ast::Body,
    pub(crate) layout: Layout,
    constants: Constants,
    slots: Vec<Option<Slot>>,
    zeroed: Vec<Slot>,
    code: Vec<Instr>,
    origins: Vec<Origin>,
    pub accesses: Vec<super::program::Access>,
    bundles: Bundles,
    /// Operations that also come in rows.
    in_rows: Vec<(usize, RunFn)>,
    pub bundled_loads: Vec<super::program::BundledLoad>,
    pub plain_loads: Vec<super::program::PlainLoad>,
    pub atomics: Vec<AtomicAccess>,
    pub copies: Vec<Copy>,
    pub async_stores: Vec<AsyncStore>,
    pub products: Vec<Product>,
    pub integer_products: Vec<IntegerProduct>,
    pub double_products: Vec<DoubleProduct>,
    pub group_products: Vec<GroupProduct>,
    /// In the order of the products: whether something may use its registers between the product before and it.
    pub exposed_products: Vec<bool>,
    pub tiles: Vec<TileAccess>,
    pub matrices: Vec<MatrixAccess>,
    pub video: Vec<VideoOperation>,
    pub shaped: Vec<ShapedMatrix>,
    pub objects: Vec<ObjectAccess>,
    pub bulk_copies: Vec<BulkCopy>,
    pub lists: Vec<Vec<Slot>>,
    pub callees: Vec<Vec<u64>>,
    /// Set by operations whose result depends on the order of blocks.
    pub in_order: bool,
    pub adversarial: bool,
    /// The carry flag, which is a hidden register.
    pub carry: Option<u32>,
    guard: Guard,
    /// PTX line of the running instruction.
    pub line: u32,
}

impl Decoder<'_> {
    fn instruction(&mut self, instruction: &Instruction) -> Result<()> {
        self.line = instruction.line;
        self.guard = match instruction.guard {
            None => Guard::ALWAYS,
            Some((register, negated)) => {
                let slot = self.register(register)?;
                if slot.class != Class::Pred {
                    return Err(Error::parse(self.line, "a guard must be a predicate"));
                }
                Guard::new(slot.index, negated)
            }
        };
        let mut opcode = Opcode::new(&instruction.opcode, instruction.line);
        let (before, accesses) = (self.code.len(), self.accesses.len());
        ops::decode(self, &mut opcode, instruction)?;
        opcode.finish()?;
        let is_load = instruction.name() == "ld" && self.accesses[accesses..].iter().all(|access| !access.ordering);
        self.keep_bundles(instruction, before, is_load);
        for (at, origin) in self.origins[before..].iter_mut().enumerate() {
            origin.source = instruction.source;
            origin.is_step = at > 0;
        }
        Ok(())
    }

    /// Bundles stay open behind operations on registers and loads, as long as those leave the base alone.
    fn keep_bundles(&mut self, instruction: &Instruction, before: usize, is_load: bool) {
        if !is_load && self.code[before..].iter().any(|instr| !matches!(instr.exec, Exec::Alu(_))) {
            return self.bundles.close();
        }
        registers::for_each_register(instruction, |register, write| {
            if write && let Some(Some(slot)) = self.slots.get(register) {
                self.bundles.forget(*slot);
            }
        });
    }

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

    /// Stores a list of slots in the side table.
    pub fn list(&mut self, slots: Vec<Slot>) -> u32 {
        self.lists.push(slots);
        self.lists.len() as u32 - 1
    }

    fn finish(self, starts: &[u32]) -> Result<Program> {
        let mut code = self.code;
        let target = |label: u32| self.body.labels.get(label as usize).map(|at| starts[*at]);
        for (instr, origin) in code.iter_mut().zip(&self.origins) {
            if matches!(instr.exec, Exec::Branch) {
                instr.x = target(instr.x)
                    .ok_or_else(|| Error::parse(origin.ptx_line, "branch to a label that does not exist"))?;
            }
        }
        stretches::mark(&mut code, &self.in_rows, self.body.labels.iter().map(|at| starts[*at] as usize));
        let targets = self
            .body
            .target_lists
            .iter()
            .map(|list| list.iter().filter_map(|label| target(*label)).collect())
            .collect();
        let constants = self.constants;
        let (read, written) = reach::reach(self.body);
        let steering = steering::steering(self.body, &self.slots, starts);
        Ok(Program {
            module: 0,
            name: self.function.name.clone(),
            code,
            origins: self.origins,
            accesses: self.accesses,
            bundles: self.bundles.finish(),
            bundled_loads: self.bundled_loads,
            plain_loads: self.plain_loads,
            atomics: self.atomics,
            copies: self.copies,
            async_stores: self.async_stores,
            products: self.products,
            integer_products: self.integer_products,
            double_products: self.double_products,
            group_products: self.group_products,
            tiles: self.tiles,
            matrices: self.matrices,
            video: self.video,
            shaped: self.shaped,
            objects: self.objects,
            bulk_copies: self.bulk_copies,
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
            read,
            written,
            steering,
            in_order: self.in_order,
            files: self.module.files.clone(),
        })
    }
}
