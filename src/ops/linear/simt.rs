//! The launch rule in f32: that of gemm's kernel with what follows the product, or for few outputs a warp a dot product.

use super::Layer;
use crate::core::gpu::multiprocessors;
use crate::core::launch::{Launch, Plan};
use crate::ops::gemm::simt;

/// Rows of x and of w of a block that computes dot products.
const ROWS: usize = 4;
const WARPS: usize = 8;
const WARP: usize = 32;
/// About what dot products take on an H200: a launch, and bytes in a µs of w, which comes from memory, and of x, which the first
/// cache has.
const LAUNCH_US: f64 = 2.0;
const W_BYTES_A_US: f64 = 3.5e6;
const X_BYTES_A_US: f64 = 12e6;

/// Eight accesses of 16 bytes a lane: shorter dot products are more shuffles than products.
const LEAST_K: usize = 8 * 4 * WARP;

/// Whether dot products are expected to take less time than tiles, most of which would be empty.
fn by_dots(s: &Layer) -> bool {
    let bytes = |rows: usize| (rows * s.n * s.k * F32_BYTES) as f64;
    let dots_us = LAUNCH_US + bytes(s.m.div_ceil(ROWS)) / W_BYTES_A_US + bytes(s.m) / X_BYTES_A_US;
    s.k >= LEAST_K && dots_us < simt::estimate_us(1, &s.product())
}

const F32_BYTES: usize = 4;

/// Bytes of the sums of the parts.
pub fn workspace_bytes(s: &Layer) -> usize {
    if by_dots(s) { 0 } else { simt::workspace_bytes(1, &s.product()) }
}

/// One launch, or one and the outputs from the sums of its parts.
pub fn plan(s: &Layer) -> Plan {
    if by_dots(s) { dots(s).into() } else { tiles(s) }
}

fn dots(s: &Layer) -> Launch {
    let entry = if s.k.is_multiple_of(ROWS) { "linear_dots" } else { "linear_dots_any" };
    let rows = s.m.div_ceil(ROWS);
    // All warps of a block share an output where there are few.
    let parts = if rows * s.n < WARPS * multiprocessors() { WARPS } else { 1 };
    let launch = Launch::grid([(s.n * parts).div_ceil(WARPS), rows, 1], [WARPS * WARP, 1, 1]).entry(entry);
    [s.m, s.n, s.k, parts].map(|extent| extent as i32).into_iter().chain(s.scalars()).fold(launch, Launch::scalar)
}

fn tiles(s: &Layer) -> Plan {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::linear::Activation;
    use rstest::rstest;

    #[rstest]
    #[case::classes_of_a_digit(1, 10, 3136, true)]
    #[case::of_some(64, 10, 3136, true)]
    #[case::of_a_thousand(1024, 10, 3136, false)]
    #[case::a_word(1, 4096, 4096, true)]
    #[case::four_words(4, 4096, 4096, true)]
    #[case::sixteen_words(16, 4096, 4096, false)]
    #[case::square(512, 512, 512, false)]
    #[case::short_sums(24, 64, 64, false)]
    fn few_outputs_are_dot_products(#[case] m: usize, #[case] n: usize, #[case] k: usize, #[case] expected: bool) {
        assert_eq!(by_dots(&Layer { m, n, k, activation: Activation::None, residual: false }), expected);
    }
}
