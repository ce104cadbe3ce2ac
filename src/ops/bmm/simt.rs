//! The launch rule of the f32 kernel: that of gemm's for every item.

use super::Products;
use crate::core::launch::{Launch, Plan};
use crate::ops::gemm::simt::{self, PITCH_K_MAJOR, PITCH_MN_MAJOR, SLICE, stretch};

/// Bytes of the sums of the parts.
pub fn workspace_bytes(s: &Products) -> usize {
    simt::workspace_bytes(s.batch, &s.item())
}

/// One launch, or one and the sum of its parts. Where a block sums more than one stretch, its totals lie behind the stages.
pub fn plan(s: &Products) -> Plan {
    in_parts(s, simt::parts(s.batch, &s.item()))
}

/// The same with k in so many parts.
pub(super) fn in_parts(s: &Products, parts: usize) -> Plan {
    let pitches = [s.transposed_a, !s.transposed_b].map(|across| if across { PITCH_MN_MAJOR } else { PITCH_K_MAJOR });
    let aligned = s.n.is_multiple_of(4) && (!s.transposed_a || s.m.is_multiple_of(4));
    let slices = s.k.div_ceil(SLICE).div_ceil(parts);
    let stretch = stretch(s.k, slices);
    let totals = if slices > stretch { simt::TILE_BYTES } else { 0 };
    let multiply = simt::blocks(s.batch, &s.item(), parts, pitches);
    let shared_bytes = multiply.shared_bytes + totals;
    let multiply = multiply.shared(shared_bytes).entry(s.simt_entry(aligned)).without_pointers();
    let multiply = multiply.pointer("a").pointer("b").pointer(if parts > 1 { "workspace" } else { "c" });
    let extents = [s.batch, s.m, s.n, s.k, parts, stretch];
    let multiply = extents.into_iter().fold(multiply, |launch, extent| launch.scalar(extent as i32));
    let outputs = s.batch * s.m * s.n;
    let add = Launch::blocks(outputs.div_ceil(256), 256).entry("bmm_simt_reduce").without_pointers();
    let add = add.pointer("workspace").pointer("c").scalar(outputs as i64).scalar(parts as i32);
    Plan(if parts > 1 { vec![multiply, add] } else { vec![multiply] })
}
