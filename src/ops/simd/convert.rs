//! Whole slices from one element type to another: widened exactly, rounded to nearest even.

use super::lane::Lane;
use super::level::Level;
use super::run::{Ahead, Stores, map};
use super::vector::{Kernel, Simd};

struct Convert<'a, X, Y> {
    from: &'a [X],
    to: &'a mut [Y],
}

impl<X: Lane, Y: Lane> Kernel for Convert<'_, X, Y> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        map(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            self.from,
            self.to,
            #[inline(always)]
            |x| x,
        );
    }
}

/// `to = from`, which is as long.
pub(super) fn convert<X: Lane, Y: Lane>(level: Level, from: &[X], to: &mut [Y]) {
    level.run(Convert { from, to });
}
