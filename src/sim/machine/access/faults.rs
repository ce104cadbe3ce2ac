//! Lanes that must not access: they are reported, and left out.

use crate::sim::machine::context::Context;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::report::Check;

/// Reports the lanes of a pattern whose address has a fault, and returns the others.
pub(super) fn valid_lanes(
    ctx: &mut Context<'_>,
    pattern: &Pattern,
    fault: impl Fn(u64) -> Option<(Check, String)>,
) -> u32 {
    let mut valid = pattern.mask;
    for lane in pattern.lanes() {
        let address = pattern.address[lane];
        if let Some((check, message)) = fault(address) {
            ctx.report(check, lane, Some(address), message);
            valid &= !(1 << lane);
        }
    }
    valid
}
