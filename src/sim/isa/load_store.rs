//! `ld` and `st`: from an address operand to the space that it points into, and between registers and words.

use crate::sim::ir::program::{Access, ActionFn, AddressOperand, Instr, Program};
use crate::sim::machine::access::{global, local, shared};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::{LOCAL_WINDOW, OFFSET_MASK, PARAM_WINDOW, Window, window};
use crate::sim::machine::memory::pattern::{Pattern, follow};
use crate::sim::machine::memory::payload::Payload;
use crate::sim::machine::registers::{Class, LANES, Registers, Slot};
use crate::sim::ptx::types::Space;
use crate::sim::report::Check;
use crate::sim::tier::{Tiers, tiers};

/// The address of each lane.
#[inline(always)]
pub(crate) fn addresses(registers: &Registers, operand: &AddressOperand) -> [u64; LANES] {
    let offset = operand.offset as u64;
    match operand.base {
        None => [offset; LANES],
        Some(slot) if slot.class == Class::Wide => {
            let base = registers.wide(slot.index);
            std::array::from_fn(|lane| base[lane].wrapping_add(offset))
        }
        Some(slot) => {
            let base = registers.word(slot.index);
            std::array::from_fn(|lane| u64::from(base[lane].wrapping_add(offset as u32)))
        }
    }
}

/// Splits a generic pattern by the windows that it points into; a pattern comes without its window.
#[inline(always)]
pub(crate) fn by_space(pattern: Pattern, space: Space, mut visit: impl FnMut(Space, &Pattern)) {
    if space != Space::Generic {
        return visit(space, &pattern);
    }
    let mut rest = pattern.mask;
    while rest != 0 {
        let found = window(pattern.address[rest.trailing_zeros() as usize]);
        let members = if window(pattern.lowest) == found && window(pattern.highest) == found {
            pattern.mask
        } else {
            pattern.lanes_at(|address| window(address) == found)
        };
        rest &= !members;
        match found {
            Window::Global => visit(Space::Global, &pattern.restrict(members)),
            Window::Shared => visit(Space::Shared, &strip(&pattern, members)),
            Window::Local => visit(Space::Local, &strip(&pattern, members)),
            Window::Param => visit(Space::Param, &strip(&pattern, members)),
        }
    }
}

fn strip(pattern: &Pattern, mask: u32) -> Pattern {
    Pattern::new(pattern.address.map(|address| address & OFFSET_MASK), mask, pattern.bytes)
}

/// Loads the words of all lanes, whatever the space.
#[inline(always)]
pub(crate) fn read_words<const W: usize>(ctx: &mut Context<'_>, access: &Access, mask: u32) -> Payload<W> {
    let pattern = Pattern::new(addresses(&ctx.warp.registers, &access.address), mask, access.bytes());
    match access.space {
        Space::Global | Space::Const => return global::read(ctx, &pattern, access.strong),
        Space::Shared => return shared::read(ctx, &pattern, access.strong),
        Space::Local => return local::read(ctx, &pattern),
        Space::Param | Space::Generic => {}
    }
    let mut data = [[0; LANES]; W];
    by_space(pattern, access.space, |space, pattern| {
        let part: Payload<W> = match space {
            Space::Shared => shared::read(ctx, pattern, access.strong),
            Space::Local => local::read(ctx, pattern),
            Space::Param => local::read_param(ctx, &strip(pattern, pattern.mask)),
            _ => global::read(ctx, pattern, access.strong),
        };
        for lane in pattern.lanes() {
            for word in 0..W {
                data[word][lane] = part[word][lane];
            }
        }
    });
    data
}

/// Stores the words of the active lanes, whatever the space.
#[inline(always)]
pub(crate) fn write_words<const W: usize>(ctx: &mut Context<'_>, access: &Access, mask: u32, data: &Payload<W>) {
    let pattern = Pattern::new(addresses(&ctx.warp.registers, &access.address), mask, access.bytes());
    match access.space {
        Space::Global => return global::write(ctx, &pattern, data, access.strong),
        Space::Shared => return shared::write(ctx, &pattern, data, access.strong),
        _ => {}
    }
    by_space(pattern, access.space, |space, pattern| match space {
        Space::Shared => shared::write(ctx, pattern, data, access.strong),
        Space::Local => local::write(ctx, pattern, data),
        Space::Param => {
            for lane in pattern.lanes() {
                ctx.report(
                    Check::ReadOnly,
                    lane,
                    Some(pattern.address[lane]),
                    "write to the kernel parameters".to_owned(),
                );
            }
        }
        _ => global::write(ctx, pattern, data, access.strong),
    });
}

#[inline(always)]
fn load<const W: usize>(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let access = &program.accesses[instr.x as usize];
    let data: Payload<W> = read_words(ctx, access, mask);
    if let Some(scope) = access.strong.filter(|_| access.ordering) {
        ctx.acquire(scope);
    }
    for (element, slot) in access.slots.iter().enumerate() {
        let Some(slot) = slot else { continue };
        let value = unpack(&data, access, element);
        match slot.class {
            Class::Word => ctx.warp.registers.set_word(slot.index, &value.0, mask),
            _ => {
                let wide = std::array::from_fn(|lane| u64::from(value.0[lane]) | u64::from(value.1[lane]) << 32);
                ctx.warp.registers.set_wide(slot.index, &wide, mask);
            }
        }
    }
    Outcome::Next
}

/// Low and high words of an element, extended to 64 bits by the type of the access.
#[inline(always)]
fn unpack<const W: usize>(data: &Payload<W>, access: &Access, element: usize) -> ([u32; LANES], [u32; LANES]) {
    let position = element * access.width as usize;
    let mut low = data[(position / 4).min(W - 1)];
    let mut high = [0; LANES];
    match access.width {
        8 => high = data[(position / 4 + 1).min(W - 1)],
        4 => {}
        width => {
            let shift = position % 4 * 8;
            let spare = 32 - width * 8;
            for value in &mut low {
                let top = (*value >> shift) << spare;
                *value = if access.signed { ((top as i32) >> spare) as u32 } else { top >> spare };
            }
        }
    }
    if access.signed && access.width < 8 {
        high = low.map(|value| ((value as i32) >> 31) as u32);
        // A narrow value in a 16-bit register stays within its 16 bits; readers of that register look at no more.
    }
    (low, high)
}

#[inline(always)]
fn store<const W: usize>(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let access = &program.accesses[instr.x as usize];
    if W == 1 && mask == u32::MAX && store_row(ctx, access) {
        return Outcome::Next;
    }
    let data: Payload<W> = words_to_store(&ctx.warp.registers, access);
    if let Some(scope) = access.strong.filter(|_| access.ordering) {
        ctx.release(scope, mask);
    }
    write_words(ctx, access, mask, &data);
    Outcome::Next
}

/// Stores a word of each lane to shared memory where they follow each other, as most do, and nothing has to be moved
/// before; `false` where it is otherwise.
#[inline(always)]
fn store_row(ctx: &mut Context<'_>, access: &Access) -> bool {
    let (Space::Shared, 4, None) = (access.space, access.width, access.strong) else { return false };
    let Some(Slot { class: Class::Wide, index: base }) = access.address.base else { return false };
    let [Some(Slot { class: Class::Word, index })] = *access.slots else { return false };
    let address = ctx.warp.registers.wide(base);
    let lowest = address[0].wrapping_add(access.address.offset as u64);
    follow::<4>(address) && shared::write_row(ctx, lowest, index)
}

/// What all lanes store.
#[inline(always)]
fn words_to_store<const W: usize>(registers: &Registers, access: &Access) -> Payload<W> {
    if W == 1
        && access.width == 4
        && let [Some(Slot { class: Class::Word, index })] = *access.slots
    {
        return [*registers.word(index); W];
    }
    let mut data = [[0; LANES]; W];
    for (element, slot) in access.slots.iter().enumerate() {
        let Some(slot) = slot else { continue };
        let position = element * access.width as usize;
        let at = (position / 4).min(W - 1);
        match slot.class {
            Class::Word if access.width >= 4 => data[at] = *registers.word(slot.index),
            Class::Word => {
                let value = registers.word(slot.index);
                let (shift, full) = (position % 4 * 8, (1u32 << (access.width * 8)) - 1);
                for lane in 0..LANES {
                    data[at][lane] |= (value[lane] & full) << shift;
                }
            }
            _ => {
                let value = registers.wide(slot.index);
                let full = if access.width >= 4 { u32::MAX } else { (1u32 << (access.width * 8)) - 1 };
                for lane in 0..LANES {
                    data[at][lane] |= (value[lane] as u32 & full) << (position % 4 * 8);
                    if access.width == 8 {
                        data[(at + 1).min(W - 1)][lane] = (value[lane] >> 32) as u32;
                    }
                }
            }
        }
    }
    data
}

/// The handler of a load of that many bytes a lane.
pub(crate) fn load_handler(bytes: u32) -> Option<Tiers<ActionFn>> {
    Some(match bytes {
        1 | 2 | 4 => tiers!(load::<1>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        8 => tiers!(load::<2>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        16 => tiers!(load::<4>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        32 => tiers!(load::<8>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        _ => return None,
    })
}

/// The handler of a store of that many bytes a lane.
pub(crate) fn store_handler(bytes: u32) -> Option<Tiers<ActionFn>> {
    Some(match bytes {
        1 | 2 | 4 => tiers!(store::<1>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        8 => tiers!(store::<2>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        16 => tiers!(store::<4>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        32 => tiers!(store::<8>: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        _ => return None,
    })
}

/// The generic address of local offset 0 and of the first parameter, for `cvta`.
pub(crate) fn window_base(space: Space) -> u64 {
    match space {
        Space::Shared => crate::sim::machine::memory::address::SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        _ => 0,
    }
}
