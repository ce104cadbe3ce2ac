//! A kernel after decoding: an array of instructions with handlers and register slots, and what a launch has to fill
//! in.

use crate::sim::ir::lanes::{AluFn, RunFn};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::grid::Origins;
use crate::sim::machine::log::Log;
use crate::sim::machine::memory::address::{FIRST_ALLOCATION, OFFSET_BITS};
use crate::sim::machine::memory::bundle::{Bundle, MAX_WORDS};
use crate::sim::machine::registers::{Guard, Slot};
use crate::sim::ptx::special::Special;
use crate::sim::ptx::types::{Scope, Space};
use std::any::Any;
use std::collections::HashMap;

/// A handler that may touch memory, other lanes or the schedule.
pub(crate) type ActionFn = fn(&mut Context<'_>, &Program, &Instr, u32) -> Outcome;

/// How an instruction is carried out.
#[derive(Clone, Copy)]
pub(crate) enum Exec {
    /// Registers only, skipped where no lane is active.
    Alu(AluFn),
    /// The same operation by this and the instructions that follow, `x` in all, none of them with a guard.
    Run(RunFn),
    /// Anything else.
    Action(ActionFn),
    /// To the instruction `x`.
    Branch,
    Exit,
}

/// One decoded instruction. The meaning of the fields depends on the handler.
#[derive(Clone, Copy)]
pub(crate) struct Instr {
    pub exec: Exec,
    pub guard: Guard,
    pub d: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// Branch target, or an index into a side table of the program.
    pub x: u32,
    /// From here on so many instructions are [`Exec::Alu`] without a guard; 0 where it is not worth the while.
    pub straight: u32,
}

/// The address operand of a memory instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressOperand {
    /// `None` is an absolute address.
    pub base: Option<Slot>,
    pub offset: i64,
}

/// A load or store: what moves, and between which slots and where.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub space: Space,
    pub address: AddressOperand,
    /// Bytes of one element.
    pub width: u32,
    pub signed: bool,
    /// A slot an element; `None` for `_`.
    pub slots: Vec<Option<Slot>>,
    /// `.volatile`, `.relaxed`, `.acquire` or `.release`: takes no part in data races within its scope.
    pub strong: Option<Scope>,
    /// `.acquire` or `.release`: orders other accesses too.
    pub ordering: bool,
}

impl Access {
    /// Bytes that one lane moves.
    pub fn bytes(&self) -> u32 {
        self.width * self.slots.len() as u32
    }
}

/// What a load knows of its bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bundled {
    pub bundle: u32,
    pub ahead: i32,
    /// Whether it is the first one.
    pub leads: bool,
}

/// A load that is part of a bundle: all that it needs where the bundle is known.
pub(crate) struct BundledLoad {
    pub place: Bundled,
    /// The register of each word.
    pub slots: [Option<u32>; MAX_WORDS],
    /// What carries it out elsewhere.
    pub otherwise: ActionFn,
}

/// A load of words of global memory that takes part in no order: all that it needs where its lanes lie as before.
pub(crate) struct PlainLoad {
    /// The wide register of the addresses, and what is added to them.
    pub base: u32,
    pub offset: i64,
    /// The register of each word.
    pub slots: [Option<u32>; MAX_WORDS],
    /// What carries it out elsewhere.
    pub otherwise: ActionFn,
}

/// A row that is filled when a launch, a block or a warp starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpecialRow {
    pub special: Special,
    pub slot: u32,
}

/// A row that holds a kernel argument for the whole launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParamRow {
    pub slot: Slot,
    /// Offset and bytes in the parameter block.
    pub offset: u32,
    pub bytes: u32,
    pub signed: bool,
}

/// A parameter in the parameter block of a kernel.
#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
}

/// A variable in global or constant memory, created when its module is first launched in a memory.
#[derive(Debug, Clone)]
pub(crate) struct GlobalVariable {
    /// Unique in its module.
    pub name: String,
    pub bytes: u64,
    pub init: Vec<u8>,
    /// (offset, variable, addend)
    pub relocations: Vec<(u64, usize, i64)>,
    pub is_const: bool,
}

/// A row that holds the address of a module variable plus an offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SymbolRow {
    pub slot: u32,
    pub variable: usize,
    pub offset: i64,
}

/// Which allocations addresses of a kind may point into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    Anything,
    /// Those that pointers in these parameters name.
    Params(Vec<usize>),
}

impl Reach {
    /// Whether an allocation can be reached, given the parameter block of a launch.
    pub fn may_reach(&self, program: &Program, params: &[u8], allocation: usize) -> bool {
        let Reach::Params(indices) = self else { return true };
        indices.iter().filter_map(|index| program.params.get(*index)).any(|param| {
            let bytes = &params[param.offset as usize..(param.offset + param.bytes) as usize];
            bytes.chunks_exact(8).any(|word| {
                let address = word.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
                (address >> OFFSET_BITS).checked_sub(FIRST_ALLOCATION) == Some(allocation as u64)
            })
        })
    }
}

/// What decides where lanes go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steering {
    /// Rows that feed the guards of branches and the operands of barriers; others may share them at other times.
    pub words: Vec<u32>,
    pub wides: Vec<u32>,
    pub preds: Vec<u32>,
    /// Instructions that load such a row, and whether from memory that other blocks reach.
    pub loads: Vec<(u32, bool)>,
    /// Instructions, other than atomics, that may change memory.
    pub stores: Vec<u32>,
    /// Something else decides too: a clock, the carry flag.
    pub hidden: bool,
}

/// Operands that do not fit into an instruction; only the handler knows the type.
pub(crate) type Detail = Box<dyn Any + Send + Sync>;

/// What is known of a whole entry from its instructions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    /// Blocks have to run one after the other: the result depends on the order, or they wait for each other.
    pub in_order: bool,
    /// Atomic operations on memory that other blocks reach.
    pub has_strong_accesses: bool,
    /// Asynchronous operations that read shared memory.
    pub has_async_readers: bool,
    /// `malloc` or `free`.
    pub has_heap: bool,
    /// Sums whose order hardware leaves open.
    pub sums_products: bool,
}

/// One decoded entry.
pub(crate) struct Program {
    /// The module that it belongs to.
    pub module: u64,
    pub name: String,
    pub code: Vec<Instr>,
    pub origins: Origins,
    pub accesses: Vec<Access>,
    pub bundles: Vec<Bundle>,
    pub bundled_loads: Vec<BundledLoad>,
    pub plain_loads: Vec<PlainLoad>,
    /// What handlers keep beside the registers of an instruction, each of a type of its own.
    pub details: Vec<Detail>,
    /// Slots of operands that do not fit into an instruction: fragments, lists.
    pub lists: Vec<Vec<Slot>>,
    pub targets: Vec<Vec<u32>>,
    /// Addresses of the functions that a call through a pointer may lead to, as many as it has targets.
    pub callees: Vec<Vec<u64>>,
    /// Names of device functions by their addresses.
    pub functions: HashMap<u64, String>,
    pub params: Vec<Param>,
    pub param_bytes: u32,
    pub shared_bytes: u32,
    /// Alignment of the dynamic part, which starts there after `shared_bytes`.
    pub dynamic_shared_align: u32,
    pub local_bytes: u32,
    pub globals: Vec<GlobalVariable>,
    pub required_threads: Option<[u32; 3]>,
    pub word_rows: u32,
    pub wide_rows: u32,
    pub pred_rows: u32,
    pub word_constants: Vec<(u32, u32)>,
    pub wide_constants: Vec<(u32, u64)>,
    pub specials: Vec<SpecialRow>,
    pub param_rows: Vec<ParamRow>,
    pub symbol_rows: Vec<SymbolRow>,
    /// Rows of the start of dynamic shared memory plus an offset.
    pub dynamic_rows: Vec<(Slot, i64)>,
    /// Registers that may be read before they are written: zeroed when a warp starts.
    pub zeroed: Vec<Slot>,
    /// What it may read and write through addresses in global memory.
    pub read: Reach,
    pub written: Reach,
    pub steering: Steering,
    pub traits: Traits,
}

impl Program {
    /// What a handler keeps of an instruction.
    ///
    /// # Panics
    /// Where the handler was given another type than it asks for, which is a defect of the simulator.
    #[inline(always)]
    pub fn detail<T: Any>(&self, at: u32) -> &T {
        self.details[at as usize].downcast_ref().expect("a handler reads what was decoded for it")
    }

    /// Whether it has atomic or other strong accesses to memory that other blocks reach.
    pub fn has_strong_accesses(&self) -> bool {
        self.traits.has_strong_accesses
            || self.accesses.iter().any(|access| access.strong.is_some() && access.space != Space::Shared)
    }

    /// An empty log for a worker that runs it.
    pub fn log(&self) -> Log {
        Log::new(&self.name, self.code.len(), self.bundles.len(), self.plain_loads.len())
    }
}
