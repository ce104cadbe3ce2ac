//! From an operand in the text to the slot that holds it.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::alu;
use crate::sim::ir::layout::Place;
use crate::sim::ir::program::AddressOperand;
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::ast::{Base, Operand, Symbol};
use crate::sim::ptx::special::Special;
use crate::sim::ptx::types::Space;

impl Emitter<'_> {
    /// The slot of a PTX register.
    pub fn register(&self, register: u32) -> Result<Slot> {
        self.slots
            .get(register as usize)
            .copied()
            .flatten()
            .ok_or_else(|| Error::parse(self.line, "a register that nothing uses"))
    }

    /// A row for an intermediate result.
    pub fn temporary(&mut self, class: Class) -> Slot {
        self.constants.fresh(class)
    }

    pub fn special(&mut self, special: Special) -> Slot {
        self.constants.special(special)
    }

    pub fn word_constant(&mut self, value: u32) -> u32 {
        self.constants.word(value)
    }

    pub fn wide_constant(&mut self, value: u64) -> u32 {
        self.constants.wide(value)
    }

    pub fn param_row(&mut self, class: Class, offset: u32, bytes: u32, signed: bool) -> Slot {
        self.constants.param(class, offset, bytes, signed)
    }

    fn mismatch(&self, wanted: Class, operand: &Operand) -> Error {
        let wanted = match wanted {
            Class::Word => "a register or constant of up to 32 bits",
            Class::Wide => "a register or constant of 64 bits",
            Class::Pred => "a predicate",
        };
        let name = match operand {
            Operand::Register(register) => {
                let register = &self.body.registers[*register as usize];
                format!("`{}` of type {}", register.name, register.ty)
            }
            other => format!("{other:?}"),
        };
        Error::parse(self.line, format!("expected {wanted}, found {name}"))
    }

    /// The slot of a source. A 64-bit register where 32 bits or fewer are read gives its low half.
    pub fn source(&mut self, class: Class, operand: &Operand) -> Result<u32> {
        match (operand, class) {
            (Operand::Register(register), _) => {
                let slot = self.register(*register)?;
                if slot.class == class {
                    return Ok(slot.index);
                }
                if (slot.class, class) == (Class::Wide, Class::Word) {
                    let low = self.temporary(Class::Word);
                    let cut = alu!(|a: u64| -> u32 { a as u32 });
                    self.push_alu(cut, InstructionClass::Move, low.index, [slot.index, 0, 0]);
                    return Ok(low.index);
                }
                Err(self.mismatch(class, operand))
            }
            (Operand::Not(register), Class::Pred) => {
                let slot = self.register(*register)?;
                if slot.class != Class::Pred {
                    return Err(self.mismatch(class, operand));
                }
                let inverse = self.temporary(Class::Pred);
                let not = alu!(|a: bool| -> bool { !a });
                self.push_alu(not, InstructionClass::Compare, inverse.index, [slot.index, 0, 0]);
                Ok(inverse.index)
            }
            (Operand::Integer(value), Class::Word) => {
                let signed = *value as i64;
                if *value > u64::from(u32::MAX) && !(i64::from(i32::MIN)..0).contains(&signed) {
                    return Err(Error::parse(self.line, format!("the constant {value} does not fit into 32 bits")));
                }
                Ok(self.constants.word(*value as u32))
            }
            (Operand::Integer(value), Class::Wide) => Ok(self.constants.wide(*value)),
            (Operand::Integer(value), Class::Pred) => {
                let row = self.constants.word(u32::from(*value != 0));
                let pred = self.temporary(Class::Pred);
                let test = alu!(|a: u32| -> bool { a != 0 });
                self.push_alu(test, InstructionClass::Compare, pred.index, [row, 0, 0]);
                Ok(pred.index)
            }
            (Operand::Float32(bits), Class::Word) => Ok(self.constants.word(*bits)),
            (Operand::Float64(bits), Class::Wide) => Ok(self.constants.wide(*bits)),
            (Operand::Float64(bits), Class::Word) => Ok(self.constants.word((f64::from_bits(*bits) as f32).to_bits())),
            (Operand::Special(special), Class::Pred) => {
                let row = self.constants.special(*special).index;
                let pred = self.temporary(Class::Pred);
                let test = alu!(|a: u32| -> bool { a != 0 });
                self.push_alu(test, InstructionClass::Compare, pred.index, [row, 0, 0]);
                Ok(pred.index)
            }
            (Operand::Special(special), _) => {
                let slot = self.constants.special(*special);
                if slot.class == class { Ok(slot.index) } else { Err(self.mismatch(class, operand)) }
            }
            (Operand::Function(name), Class::Wide) => {
                let address = self.functions.address(name).ok_or_else(|| {
                    Error::unsupported(self.line, format!("the address of {name}, which has no body in this text"))
                })?;
                Ok(self.constants.wide(address))
            }
            (Operand::Symbol(symbol, offset), Class::Word | Class::Wide) => {
                self.symbol_address(*symbol, *offset, class)
            }
            _ => Err(self.mismatch(class, operand)),
        }
    }

    /// The slot that a result goes to; `_` is a row that nobody reads.
    pub fn result(&mut self, class: Class, operand: &Operand) -> Result<u32> {
        match operand {
            Operand::Register(register) => {
                let slot = self.register(*register)?;
                if slot.class == class { Ok(slot.index) } else { Err(self.mismatch(class, operand)) }
            }
            Operand::Sink => Ok(self.temporary(class).index),
            _ => Err(self.mismatch(class, operand)),
        }
    }

    /// The slot of a register operand of whatever class.
    pub fn any_register(&self, operand: &Operand) -> Result<Slot> {
        match operand {
            Operand::Register(register) => self.register(*register),
            _ => Err(Error::parse(self.line, format!("expected a register, found {operand:?}"))),
        }
    }

    /// The address of a variable within its space, as `mov` gives it.
    fn symbol_address(&mut self, symbol: Symbol, offset: i64, class: Class) -> Result<u32> {
        let fixed = match self.layout.find(symbol) {
            Place::Param(at) | Place::Shared(at) | Place::Local(at) => i64::from(at).wrapping_add(offset),
            Place::Dynamic => return Ok(self.constants.dynamic(class, offset).index),
            Place::Global(variable) if class == Class::Wide => return Ok(self.constants.symbol(variable, offset)),
            Place::Global(_) => return Err(Error::parse(self.line, "a global address does not fit into 32 bits")),
            Place::Unused => return Err(self.unused()),
        };
        Ok(match class {
            Class::Wide => self.constants.wide(fixed as u64),
            _ => self.constants.word(fixed as u32),
        })
    }

    /// An address operand. The space that the instruction names decides what a bare symbol means.
    pub fn address(&mut self, base: Base, offset: i64) -> Result<AddressOperand> {
        Ok(match base {
            Base::Absolute => AddressOperand { base: None, offset },
            Base::Register(register) => {
                let slot = self.register(register)?;
                if slot.class == Class::Pred {
                    return Err(Error::parse(self.line, "a predicate is no address"));
                }
                AddressOperand { base: Some(slot), offset }
            }
            Base::Symbol(symbol) => match self.layout.find(symbol) {
                Place::Param(at) | Place::Shared(at) | Place::Local(at) => {
                    AddressOperand { base: None, offset: i64::from(at).wrapping_add(offset) }
                }
                Place::Unused => return Err(self.unused()),
                Place::Dynamic => AddressOperand { base: Some(self.constants.dynamic(Class::Wide, 0)), offset },
                Place::Global(variable) => {
                    let slot = Slot { class: Class::Wide, index: self.constants.symbol(variable, 0) };
                    AddressOperand { base: Some(slot), offset }
                }
            },
        })
    }

    /// The address in the brackets of an operand.
    pub fn address_operand(&mut self, operand: &Operand) -> Result<AddressOperand> {
        match operand {
            Operand::Address(base, offset) => self.address(*base, *offset),
            _ => Err(Error::parse(self.line, format!("expected an address in brackets, found {operand:?}"))),
        }
    }

    /// The space in which a symbol of an address lies, for `ld.param` of kernel parameters against those of calls.
    pub fn space_of(&self, operand: &Operand) -> Option<Space> {
        let Operand::Address(Base::Symbol(symbol), _) = operand else { return None };
        Some(match self.layout.find(*symbol) {
            Place::Param(_) => Space::Param,
            Place::Shared(_) | Place::Dynamic => Space::Shared,
            Place::Local(_) => Space::Local,
            Place::Global(_) => Space::Global,
            Place::Unused => return None,
        })
    }

    /// For variables that were thought to be named nowhere.
    fn unused(&self) -> Error {
        Error::parse(self.line, "a variable of the module that has no place in this kernel")
    }
}
