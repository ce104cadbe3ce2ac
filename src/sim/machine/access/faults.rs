//! Lanes that must not access: they are reported, and left out.

use crate::sim::machine::context::Context;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::report::Check;
use std::fmt::Arguments;

/// Reports the lanes of a pattern whose address has a fault, which `find_fault` tells, and returns the others.
pub(super) fn valid_lanes(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    find_fault: impl Fn(u64, &mut dyn FnMut(Check, Arguments<'_>)),
) -> u32 {
    let mut valid = pattern.mask;
    for lane in pattern.lanes() {
        let address = pattern.address[lane];
        find_fault(address, &mut |check, message| {
            ctx.report(check, lane, Some(address), message);
            valid &= !(1 << lane);
        });
    }
    valid
}
