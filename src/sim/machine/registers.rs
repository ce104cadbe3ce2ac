//! The register file of a warp.

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// One 4-byte register (or an 8-byte one) of all lanes.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Row<T>(pub [T; LANES]);

impl<T: Copy> Row<T> {
    pub fn splat(value: T) -> Self {
        Row([value; LANES])
    }
}

/// Which of the three files of a warp a register lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// 8, 16 and 32 bits, zero extended.
    Word,
    /// 64 bits.
    Wide,
    /// Predicates: one bit a lane.
    Pred,
}

/// A register's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub class: Class,
    pub index: u32,
}

/// The registers of one warp; constants and special registers live here too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registers {
    pub words: Vec<Row<u32>>,
    pub wides: Vec<Row<u64>>,
    /// Slot 0 is always true.
    pub preds: Vec<u32>,
}

impl Registers {
    #[inline(always)]
    pub fn word(&self, slot: u32) -> &[u32; LANES] {
        &self.words[slot as usize].0
    }

    #[inline(always)]
    pub fn wide(&self, slot: u32) -> &[u64; LANES] {
        &self.wides[slot as usize].0
    }

    #[inline(always)]
    pub fn set_word(&mut self, slot: u32, value: &[u32; LANES], mask: u32) {
        let row = &mut self.words[slot as usize].0;
        if mask == u32::MAX {
            *row = *value;
        } else {
            for lane in 0..LANES {
                let keep = ((mask >> lane) & 1).wrapping_sub(1);
                row[lane] = (row[lane] & keep) | (value[lane] & !keep);
            }
        }
    }

    #[inline(always)]
    pub fn set_wide(&mut self, slot: u32, value: &[u64; LANES], mask: u32) {
        let row = &mut self.wides[slot as usize].0;
        if mask == u32::MAX {
            *row = *value;
        } else {
            for lane in 0..LANES {
                let keep = u64::from((mask >> lane) & 1).wrapping_sub(1);
                row[lane] = (row[lane] & keep) | (value[lane] & !keep);
            }
        }
    }

    #[inline(always)]
    pub fn set_pred(&mut self, slot: u32, value: u32, mask: u32) {
        let pred = &mut self.preds[slot as usize];
        *pred = (*pred & !mask) | (value & mask);
    }

    /// The lanes of `mask` whose guard holds.
    #[inline(always)]
    pub fn guarded(&self, guard: Guard, mask: u32) -> u32 {
        if guard.is_always() {
            return mask;
        }
        mask & (self.preds[(guard.0 >> 1) as usize] ^ 0u32.wrapping_sub(guard.0 & 1))
    }
}

/// A predicate slot and a negation, packed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard(u32);

impl Guard {
    pub const ALWAYS: Guard = Guard(0);

    pub fn new(slot: u32, negated: bool) -> Self {
        Guard(slot << 1 | u32::from(negated))
    }

    pub fn is_always(self) -> bool {
        self.0 == 0
    }
}
