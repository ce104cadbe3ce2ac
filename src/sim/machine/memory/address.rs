//! How a 64-bit device address is made up: allocation number above, offset below; windows for shared, local and
//! parameters.

/// Bits of the offset inside an allocation: 16 GiB each.
pub(crate) const OFFSET_BITS: u32 = 34;
pub(crate) const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// The generic address of the first byte of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 1 << OFFSET_BITS;
/// The generic address of the first byte of a thread's local memory.
pub(crate) const LOCAL_WINDOW: u64 = 2 << OFFSET_BITS;
/// The generic address of the parameter block.
pub(crate) const PARAM_WINDOW: u64 = 3 << OFFSET_BITS;
/// Addresses of device functions lie here, where no memory is.
pub(crate) const FUNCTION_WINDOW: u64 = 4 << OFFSET_BITS;
/// Handles of textures and surfaces lie here.
pub(crate) const TEXTURE_WINDOW: u64 = 5 << OFFSET_BITS;
/// Numbers below belong to the windows and to null.
pub(crate) const FIRST_ALLOCATION: u64 = 16;

/// Shared addresses name the block in the cluster above this bit: 0 is the own block, n + 1 is rank n.
pub(crate) const SHARED_RANK_SHIFT: u32 = 24;

/// What a generic address points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Shared,
    Local,
    Param,
    Global,
}

pub(crate) fn window(address: u64) -> Window {
    match address >> OFFSET_BITS {
        1 => Window::Shared,
        2 => Window::Local,
        3 => Window::Param,
        _ => Window::Global,
    }
}
