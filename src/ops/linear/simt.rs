//! The launch rule of the f32 kernel: that of gemm's, with what follows the product.

use super::Layer;
use crate::core::launch::{Launch, Plan};
use crate::ops::gemm::simt;

/// Bytes of the sums of the parts.
pub fn workspace_bytes(s: &Layer) -> usize {
    simt::workspace_bytes(1, &s.product())
}

/// One launch, or one and the outputs from the sums of its parts.
pub fn plan(s: &Layer) -> Plan {
    let (product, scalars) = (s.product(), s.scalars());
    let parts = simt::parts(1, &product);
    let entry = if s.n.is_multiple_of(4) { "linear_simt" } else { "linear_simt_any" };
    let multiply = simt::blocks(1, &product, parts, [simt::PITCH_K_MAJOR; 2]).entry(entry).without_pointers();
    // Outputs are made of the sums in the memory behind the stages.
    let shared_bytes = multiply.shared_bytes + if parts > 1 { 0 } else { simt::TILE_BYTES };
    let multiply = multiply.shared(shared_bytes);
    let out = if parts > 1 { "workspace" } else { "y" };
    let multiply = ["x", "w", "bias", "residual", out].into_iter().fold(multiply, Launch::pointer);
    let extents = [s.m as i32, s.n as i32, s.k as i32, parts as i32, simt::IN_ONE_GO];
    let multiply = extents.into_iter().chain(scalars).fold(multiply, Launch::scalar);
    let add = Launch::blocks((s.m * s.n).div_ceil(256), 256).entry("linear_simt_reduce").without_pointers();
    let add = ["workspace", "bias", "residual", "y"].into_iter().fold(add, Launch::pointer);
    let extents = [s.m as i32, s.n as i32, parts as i32];
    let add = extents.into_iter().chain(scalars).fold(add, Launch::scalar);
    Plan(if parts > 1 { vec![multiply, add] } else { vec![multiply] })
}
