//! How the lanes of bundles of loads lay the last time.

use crate::sim::machine::counters::Counters;
use crate::sim::machine::memory::arrangement::Arrangement;
use crate::sim::machine::memory::bank_conflicts::wavefronts_of_load;
use crate::sim::machine::memory::bundle::Bundle;
use crate::sim::machine::registers::LANES;

/// Accesses that spread wider are looked at lane by lane.
const MAX_SPAN_BYTES: u32 = 4096;

/// A turn that no warp has.
pub(crate) const NEVER: u64 = 0;

/// How the lanes of the loads of a bundle lay.
#[derive(Debug, Clone)]
pub(crate) struct Repeated {
    pub arrangement: Arrangement,
    pub units: u64,
    pub ideal: u64,
    /// How often a bundle was carried out that way.
    pub times: u64,
}

/// What is known of a bundle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub misses: u32,
    pub repeated: Option<Box<Repeated>>,
    /// The turn in which its first load was carried out, and the lowest address of that load.
    pub turn: u64,
    pub lowest: u32,
}

/// The arrangements by bundle.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    pub by_bundle: Vec<Known>,
    /// Stretches of code so far in which nothing but the running lanes came to act; from 1 on once one runs.
    pub turn: u64,
}

impl Repeats {
    pub fn new(bundles: usize) -> Self {
        Repeats { by_bundle: vec![Known::default(); bundles], turn: 0 }
    }

    /// Others may have acted: what the first loads of bundles found holds no longer.
    #[inline(always)]
    pub fn next_turn(&mut self) {
        self.turn += 1;
    }

    #[inline(always)]
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Adds what is not counted yet.
    pub fn settle(&mut self, bundles: &[Bundle], counters: &mut Counters) {
        for (known, bundle) in self.by_bundle.iter_mut().zip(bundles) {
            if let Some(repeated) = &mut known.repeated {
                repeated.settle(bundle, counters);
            }
        }
    }
}

impl Repeated {
    /// `None` where lanes lie too far apart.
    pub fn of(address: &[u64; LANES], bytes: u32) -> Option<Self> {
        let arrangement = Arrangement::of(address, bytes, MAX_SPAN_BYTES)?;
        let (units, ideal) = wavefronts_of_load(&address.map(|at| at as u32), bytes);
        Some(Repeated { arrangement, units, ideal, times: 0 })
    }

    /// Counts the loads of the bundle that were carried out that way.
    pub fn settle(&mut self, bundle: &Bundle, counters: &mut Counters) {
        let times = std::mem::take(&mut self.times);
        let bytes = u64::from(bundle.bytes) * LANES as u64;
        for member in &bundle.members {
            counters.shared_reads.add_often(times, bytes, self.units, self.ideal);
            let count = &mut counters.by_pc[member.pc as usize];
            count.wavefronts += times * self.units;
            count.bank_conflicts += times * (self.units - self.ideal);
        }
    }
}
