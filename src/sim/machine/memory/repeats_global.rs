//! How the lanes of loads from global memory lay the last time.

use crate::sim::machine::memory::arrangement::Arrangement;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::registers::LANES;

/// Accesses that spread wider are looked at lane by lane.
const MAX_SPAN_BYTES: u32 = 1 << 20;

pub(crate) const SECTOR_BYTES: usize = 32;

/// How the lanes of a load lay.
#[derive(Debug, Clone)]
pub(crate) struct Repeated {
    pub arrangement: Arrangement,
    /// Sectors that it touches, and the fewest that would do, by the word of a sector in which its lowest lane lies.
    pub sectors: [(u64, u64); SECTOR_BYTES / 4],
}

/// What is known of a load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub misses: u32,
    pub repeated: Option<Box<Repeated>>,
}

impl Repeated {
    pub fn of(address: &[u64; LANES], bytes: u32) -> Option<Self> {
        let arrangement = Arrangement::of(address, bytes, MAX_SPAN_BYTES)?;
        let at_word = |word: usize| Pattern::new(arrangement.from(4 * word as u64), u32::MAX, bytes);
        let sectors = std::array::from_fn(|word| at_word(word).sectors_and_ideal());
        Some(Repeated { arrangement, sectors })
    }
}
