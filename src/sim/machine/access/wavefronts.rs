//! Counts the wavefronts of accesses to shared memory.

use crate::sim::machine::context::Context;
use crate::sim::machine::memory::address::SHARED_RANK_SHIFT;
use crate::sim::machine::memory::pattern::Pattern;

/// Counts wavefronts.
#[inline(always)]
pub(crate) fn count(ctx: &mut Context<'_>, pattern: &Pattern, is_write: bool) {
    let bytes = u64::from(pattern.mask.count_ones() * pattern.bytes);
    let (units, ideal) = if pattern.highest >> SHARED_RANK_SHIFT == 0 {
        wavefronts_and_ideal(ctx, pattern, is_write)
    } else {
        // What goes to other blocks of the cluster takes another way than the banks of this one.
        let own = |rank: u64| rank == 0 || rank == ctx.me as u64 + 1;
        let here = pattern.lanes().filter(|lane| own(pattern.address[*lane] >> SHARED_RANK_SHIFT));
        match here.fold(0, |mask, lane| mask | 1 << lane) {
            0 => (0, 0),
            here => wavefronts_and_ideal(ctx, &pattern.restrict(here), is_write),
        }
    };
    let counters = &mut ctx.log.counters;
    if is_write { &mut counters.shared_writes } else { &mut counters.shared_reads }.add(bytes, units, ideal);
    ctx.count_wavefronts(units, ideal);
}

/// Wavefronts of an access, and how many it would have taken without conflicts.
#[inline(always)]
fn wavefronts_and_ideal(ctx: &mut Context<'_>, pattern: &Pattern, is_write: bool) -> (u64, u64) {
    if pattern.uniform && pattern.bytes <= if is_write { 4 } else { 8 } {
        (1, 1)
    } else if pattern.contiguous && pattern.lowest.is_multiple_of(128) {
        let ideal = u64::from(pattern.mask.count_ones() * pattern.bytes).div_ceil(128);
        (ideal, ideal)
    } else {
        ctx.log.wavefronts.get(ctx.pc, pattern, is_write)
    }
}
