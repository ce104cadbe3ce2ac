//! Memory for intermediate floats, kept by each thread: fresh pages cost more than the work in them.

use crate::core::pages::Pages;
use std::cell::RefCell;

/// What a thread keeps between calls.
const KEPT_BYTES: usize = 2 << 20;

thread_local! {
    static KEPT: RefCell<Pages> = RefCell::default();
}

/// Lends `job` a slice of `len` floats of arbitrary value that begins on a cache line.
pub(super) fn with_scratch<R>(len: usize, job: impl FnOnce(&mut [f32]) -> R) -> R {
    // Taken out, not borrowed: a job that nests finds nothing, not a locked one.
    let mut pages = KEPT.take();
    let bytes = len * size_of::<f32>();
    if pages.as_slice().len() < bytes {
        pages = Pages::new(bytes);
    }
    let result = job(&mut bytemuck::cast_slice_mut(pages.as_mut_slice())[..len]);
    if pages.as_slice().len() <= KEPT_BYTES {
        KEPT.set(pages);
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
