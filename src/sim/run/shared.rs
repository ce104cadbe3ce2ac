//! The shared memory of a block: the variables of the program, and what a launch asks for behind them.

use crate::sim::error::{Error, Result};
use crate::sim::ir::program::Program;

/// Of one block on the largest supported device.
const MAX_SHARED_BYTES: u32 = 227 * 1024;

/// Where the dynamic shared memory of a block starts, and the bytes of all of it.
///
/// # Errors
/// [`Error::Launch`] where a block cannot have so much.
pub(super) fn shared_memory(program: &Program, dynamic_bytes: u32) -> Result<(u32, u32)> {
    let start = program.shared_bytes.next_multiple_of(program.dynamic_shared_align.max(1));
    // Without a dynamic part nothing is there past the last variable: what aligns that part is nobody's.
    let bytes = match dynamic_bytes {
        0 => program.shared_bytes,
        dynamic => start.saturating_add(dynamic),
    };
    if bytes > MAX_SHARED_BYTES {
        return Err(Error::Launch(format!("{bytes} bytes of shared memory a block; the limit is {MAX_SHARED_BYTES}")));
    }
    Ok((start, bytes))
}
