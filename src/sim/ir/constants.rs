//! Rows that hold no PTX register: constants, special registers, arguments, addresses, intermediate results.

use crate::sim::ir::assignment::Assignment;
use crate::sim::ir::program::{ParamRow, SpecialRow, SymbolRow};
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::ptx::special::Special;
use std::collections::HashMap;

pub(crate) struct Constants {
    pub words: u32,
    pub wides: u32,
    pub preds: u32,
    pub word_values: HashMap<u32, u32>,
    pub wide_values: HashMap<u64, u32>,
    pub specials: Vec<SpecialRow>,
    pub params: Vec<ParamRow>,
    pub symbols: Vec<SymbolRow>,
    pub dynamic: Vec<(Slot, i64)>,
}

impl Constants {
    /// Rows after those of the registers.
    pub fn new(assignment: &Assignment) -> Self {
        Constants {
            words: assignment.words,
            wides: assignment.wides,
            preds: assignment.preds,
            word_values: HashMap::new(),
            wide_values: HashMap::new(),
            specials: Vec::new(),
            params: Vec::new(),
            symbols: Vec::new(),
            dynamic: Vec::new(),
        }
    }

    /// A row of its own.
    pub fn fresh(&mut self, class: Class) -> Slot {
        let count = match class {
            Class::Word => &mut self.words,
            Class::Wide => &mut self.wides,
            Class::Pred => &mut self.preds,
        };
        *count += 1;
        Slot { class, index: *count - 1 }
    }

    pub fn word(&mut self, value: u32) -> u32 {
        if let Some(&slot) = self.word_values.get(&value) {
            return slot;
        }
        let slot = self.fresh(Class::Word).index;
        self.word_values.insert(value, slot);
        slot
    }

    pub fn wide(&mut self, value: u64) -> u32 {
        if let Some(&slot) = self.wide_values.get(&value) {
            return slot;
        }
        let slot = self.fresh(Class::Wide).index;
        self.wide_values.insert(value, slot);
        slot
    }

    pub fn special(&mut self, special: Special) -> Slot {
        let class = match special {
            Special::Gridid | Special::Clock64 | Special::Globaltimer => Class::Wide,
            _ => Class::Word,
        };
        if let Some(row) = self.specials.iter().find(|row| row.special == special) {
            return Slot { class, index: row.slot };
        }
        let slot = self.fresh(class);
        self.specials.push(SpecialRow { special, slot: slot.index });
        slot
    }

    pub fn param(&mut self, class: Class, offset: u32, bytes: u32, signed: bool) -> Slot {
        let known = self
            .params
            .iter()
            .find(|row| (row.slot.class, row.offset, row.bytes, row.signed) == (class, offset, bytes, signed));
        if let Some(row) = known {
            return row.slot;
        }
        let slot = self.fresh(class);
        self.params.push(ParamRow { slot, offset, bytes, signed });
        slot
    }

    pub fn symbol(&mut self, variable: usize, offset: i64) -> u32 {
        if let Some(row) = self.symbols.iter().find(|row| (row.variable, row.offset) == (variable, offset)) {
            return row.slot;
        }
        let slot = self.fresh(Class::Wide).index;
        self.symbols.push(SymbolRow { slot, variable, offset });
        slot
    }

    pub fn dynamic(&mut self, class: Class, offset: i64) -> Slot {
        if let Some((slot, _)) = self.dynamic.iter().find(|(slot, known)| (slot.class, *known) == (class, offset)) {
            return *slot;
        }
        let slot = self.fresh(class);
        self.dynamic.push((slot, offset));
        slot
    }
}
