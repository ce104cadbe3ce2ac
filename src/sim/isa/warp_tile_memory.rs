//! Where the matrices of `wmma` lie in memory, and how lanes read and write their elements.

use crate::sim::ir::program::AddressOperand;
use crate::sim::isa::load_store::{addresses, by_space};
use crate::sim::machine::access::{global, shared};
use crate::sim::machine::context::Context;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::Payload;
use crate::sim::machine::registers::LANES;
use crate::sim::ptx::types::Space;
use crate::sim::report::Check;

/// What the address of a matrix, and the bytes from a row to the next, must be multiples of.
const BASE_ALIGNMENT: u64 = 32;
const PITCH_ALIGNMENT: u64 = 16;

/// Which matrix of `d = a * b + c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    A,
    B,
    Sums,
}

/// Where a matrix begins, and the bytes from a row (or column) to the next: `None` where it may not lie there.
pub(super) fn matrix_start(
    ctx: &mut Context<'_>,
    address: &AddressOperand,
    pitch: u32,
    bits: u32,
) -> Option<(u64, u64)> {
    let base = addresses(&ctx.warp.registers, address)[0];
    let pitch = u64::from(ctx.warp.registers.word(pitch)[0]) * u64::from(bits) / 8;
    if !base.is_multiple_of(BASE_ALIGNMENT) || !pitch.is_multiple_of(PITCH_ALIGNMENT) {
        let message = format!(
            "a matrix at an address that is no multiple of {BASE_ALIGNMENT}, or with {pitch} bytes a row, no multiple of {PITCH_ALIGNMENT}"
        );
        ctx.report(Check::Misaligned, 0, Some(base), message);
        return None;
    }
    Some((base, pitch))
}

/// Reads `bytes` of each lane.
pub(super) fn read(ctx: &mut Context<'_>, space: Space, address: [u64; LANES], bytes: u32) -> Payload<2> {
    let mut data = [[0; LANES]; 2];
    by_space(Pattern::new(address, u32::MAX, bytes), space, |space, pattern| {
        let one_word = |words: Payload<1>| [words[0], [0; LANES]];
        let part: Payload<2> = match (space, bytes) {
            (Space::Shared, 8) => shared::read(ctx, pattern, None),
            (Space::Shared, _) => one_word(shared::read(ctx, pattern, None)),
            (_, 8) => global::read(ctx, pattern, None),
            _ => one_word(global::read(ctx, pattern, None)),
        };
        for lane in pattern.lanes() {
            (0..2).for_each(|word| data[word][lane] = part[word][lane]);
        }
    });
    data
}

pub(super) fn write(ctx: &mut Context<'_>, space: Space, address: [u64; LANES], bytes: u32, data: &Payload<2>) {
    by_space(Pattern::new(address, u32::MAX, bytes), space, |space, pattern| match (space, bytes) {
        (Space::Shared, 8) => shared::write(ctx, pattern, data, None),
        (Space::Shared, _) => shared::write(ctx, pattern, &[data[0]], None),
        (_, 8) => global::write(ctx, pattern, data, None),
        _ => global::write(ctx, pattern, &[data[0]], None),
    });
}
