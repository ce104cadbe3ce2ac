//! Loads of shared memory that start from the same register in one straight stretch of code: what holds for the first of
//! them, at another offset, holds for all.

use crate::sim::ir::program::Bundled;
use crate::sim::machine::memory::bundle::{Bundle, Member};
use crate::sim::machine::registers::Slot;

/// Bytes between the offsets of a bundle.
const MAX_REACH_BYTES: i64 = 4096;
const MAX_MEMBERS: usize = 64;

/// The bundles so far, and those that the next load may join.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    all: Vec<Bundle>,
    open: Vec<(Slot, u32)>,
}

/// A load that looks for a bundle.
pub(crate) struct Candidate {
    pub pc: u32,
    pub base: Slot,
    pub offset: i64,
    pub bytes: u32,
}

impl Bundles {
    /// Adds a load to the bundle of its base, or starts one with it.
    pub fn add(&mut self, load: &Candidate) -> Bundled {
        if let Some(&(_, at)) = self.open.iter().find(|(base, _)| *base == load.base)
            && let bundle = &mut self.all[at as usize]
            && bundle.bytes == load.bytes
            && bundle.members.len() < MAX_MEMBERS
            && let ahead = load.offset.wrapping_sub(bundle.first_offset)
            && ahead % i64::from(load.bytes) == 0
            && ahead.clamp(-MAX_REACH_BYTES, MAX_REACH_BYTES) == ahead
            && let ahead = ahead as i32
            && let (low, high) = (bundle.low.min(ahead), bundle.high.max(ahead))
            && i64::from(high) - i64::from(low) <= MAX_REACH_BYTES
        {
            (bundle.low, bundle.high) = (low, high);
            if bundle.members[0].pc + bundle.together == load.pc {
                bundle.together += 1;
            }
            bundle.members.push(Member { pc: load.pc, ahead });
            return Bundled { bundle: at, ahead, leads: false };
        }
        self.forget(load.base);
        let at = self.all.len() as u32;
        self.all.push(Bundle {
            bytes: load.bytes,
            first_offset: load.offset,
            low: 0,
            high: 0,
            members: vec![Member { pc: load.pc, ahead: 0 }],
            together: 1,
        });
        self.open.push((load.base, at));
        Bundled { bundle: at, ahead: 0, leads: true }
    }

    /// The register changes.
    pub fn forget(&mut self, base: Slot) {
        self.open.retain(|(open, _)| *open != base);
    }

    /// The straight stretch ends.
    pub fn close(&mut self) {
        self.open.clear();
    }

    pub fn finish(self) -> Vec<Bundle> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::machine::registers::Class;

    const BASE: Slot = Slot { class: Class::Wide, index: 3 };

    fn load(pc: u32, offset: i64, bytes: u32) -> Candidate {
        Candidate { pc, base: BASE, offset, bytes }
    }

    #[test]
    fn loads_from_one_register_go_together_until_it_changes() {
        let mut bundles = Bundles::default();
        assert!(bundles.add(&load(1, 8, 4)).leads);
        assert_eq!(bundles.add(&load(2, 4, 4)), Bundled { bundle: 0, ahead: -4, leads: false });
        assert_eq!(bundles.add(&load(3, 64, 4)), Bundled { bundle: 0, ahead: 56, leads: false });
        bundles.forget(BASE);
        assert!(bundles.add(&load(4, 8, 4)).leads);
        bundles.close();
        assert!(bundles.add(&load(5, 8, 4)).leads);
        let all = bundles.finish();
        assert_eq!((all.len(), all[0].low, all[0].high), (3, -4, 56));
    }

    #[test]
    fn other_sizes_odd_offsets_and_far_ones_start_anew() {
        for next in [load(2, 4, 16), load(2, 6, 4), load(2, 8192, 4), load(2, i64::MIN, 4)] {
            let mut bundles = Bundles::default();
            bundles.add(&load(1, 0, 4));
            assert!(bundles.add(&next).leads);
        }
    }
}
