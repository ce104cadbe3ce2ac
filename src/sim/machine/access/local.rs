//! Local memory: a private stack a thread, kept word by word for a whole warp; and the parameter block.

use crate::sim::machine::access::faults;
use crate::sim::machine::context::Context;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::{Kind, Payload, kind_name, sub_word};
use crate::sim::machine::registers::LANES;
use crate::sim::report::Check;

/// Reports lanes outside the local memory; gives the others.
#[inline(always)]
fn valid_lanes(ctx: &mut Context<'_>, pattern: &Pattern, kind: Kind, size: u64, what: &str) -> u32 {
    if pattern.highest.saturating_add(u64::from(pattern.bytes)) <= size && !pattern.suspect {
        return pattern.mask;
    }
    let bytes = u64::from(pattern.bytes);
    let access = kind_name(kind);
    faults::valid_lanes(ctx, pattern, |offset, tell| {
        if offset.saturating_add(bytes) > size {
            let message = format_args!("{access} of {bytes} bytes at offset {offset} of {size} bytes of {what}");
            tell(Check::OutOfBounds, message);
        } else if offset % bytes != 0 {
            let message = format_args!("{access} of {bytes} bytes at {what} offset {offset}, no multiple of {bytes}");
            tell(Check::Misaligned, message);
        }
    })
}

#[inline(always)]
pub(crate) fn read<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern) -> Payload<W> {
    let mut data = [[0; LANES]; W];
    let size = u64::from(ctx.grid.local_bytes);
    for lane in crate::sim::machine::memory::pattern::lanes(valid_lanes(ctx, pattern, Kind::Read, size, "local memory"))
    {
        let offset = pattern.address[lane] as usize;
        for (word, row) in data.iter_mut().enumerate() {
            row[lane] = ctx.warp.local[offset / 4 + word].0[lane];
        }
        if pattern.bytes < 4 {
            data[0][lane] = sub_word(data[0][lane], offset, pattern.bytes);
        }
    }
    data
}

#[inline(always)]
pub(crate) fn write<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern, data: &Payload<W>) {
    let size = u64::from(ctx.grid.local_bytes);
    let end = pattern.highest.saturating_add(u64::from(pattern.bytes)).min(size);
    ctx.warp.local_written = ctx.warp.local_written.max(end.div_ceil(4) as usize);
    for lane in
        crate::sim::machine::memory::pattern::lanes(valid_lanes(ctx, pattern, Kind::Write, size, "local memory"))
    {
        let offset = pattern.address[lane] as usize;
        if pattern.bytes < 4 {
            let shift = offset % 4 * 8;
            let full = if pattern.bytes == 1 { 0xFF } else { 0xFFFF } << shift;
            let cell = &mut ctx.warp.local[offset / 4].0[lane];
            *cell = (*cell & !full) | (data[0][lane] << shift & full);
        } else {
            for (word, row) in data.iter().enumerate() {
                ctx.warp.local[offset / 4 + word].0[lane] = row[lane];
            }
        }
    }
}

/// Reads the parameter block at addresses that are only known at run time.
pub(crate) fn read_param<const W: usize>(ctx: &mut Context<'_>, pattern: &Pattern) -> Payload<W> {
    let mut data = [[0; LANES]; W];
    let params = ctx.grid.params;
    for lane in crate::sim::machine::memory::pattern::lanes(valid_lanes(
        ctx,
        pattern,
        Kind::Read,
        params.len() as u64,
        "parameters",
    )) {
        let offset = pattern.address[lane] as usize;
        for at in 0..pattern.bytes as usize {
            data[at / 4][lane] |= u32::from(params[offset + at]) << (at % 4 * 8);
        }
    }
    data
}
