//! Memory for intermediate floats, kept by each thread: fresh pages cost more than the work in them.

use std::cell::RefCell;

/// One cache line, so that vectors in scratch memory never straddle two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// What a thread keeps between calls, in lines: 2 MiB.
const KEPT_LINES: usize = (2 << 20) / size_of::<Line>();

thread_local! {
    static KEPT: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Lends `job` a slice of `len` floats of arbitrary value that begins on a cache line.
pub(super) fn with_scratch<R>(len: usize, job: impl FnOnce(&mut [f32]) -> R) -> R {
    // Taken out, not borrowed: a job that nests finds an empty vector, not a locked one.
    let mut lines = KEPT.take();
    let count = len.div_ceil(LINE);
    if lines.len() < count {
        lines.resize(count, Line([0.0; LINE]));
    }
    // SAFETY: `lines` is `count * LINE >= len` contiguous, initialised floats.
    let floats = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), len) };
    let result = job(floats);
    if lines.len() <= KEPT_LINES {
        KEPT.set(lines);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_aligned_and_nests() {
        with_scratch(33, |outer| {
            outer.fill(1.0);
            with_scratch(65, |inner| {
                inner.fill(2.0);
                assert_eq!(inner.as_ptr() as usize % 64, 0);
            });
            assert_eq!(outer, [1.0; 33]);
        });
    }
}
