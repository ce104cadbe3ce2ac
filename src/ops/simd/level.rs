//! The instruction sets there are, and the choice among them, made once.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::portable::Portable;
use super::vector::{Kernel, Simd};

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Portable(Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Level {
    /// The widest, found at the first call.
    pub(super) fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::available().last().unwrap_or(Level::Portable(Portable)))
    }

    /// All that this processor has, narrow to wide.
    pub(super) fn available() -> impl Iterator<Item = Level> {
        let portable = std::iter::once(Level::Portable(Portable));
        #[cfg(target_arch = "x86_64")]
        let levels = portable.chain(Avx2::detect().map(Level::Avx2)).chain(Avx512::detect().map(Level::Avx512));
        #[cfg(not(target_arch = "x86_64"))]
        let levels = portable;
        levels
    }

    /// Runs the kernel compiled for this instruction set.
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Level::Portable(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) => simd.vectorize(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) => simd.vectorize(kernel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lanes;
    impl Kernel for Lanes {
        type Output = usize;
        fn run<S: Simd>(self, _simd: S) -> usize {
            S::LANES
        }
    }

    #[test]
    fn the_best_is_the_widest_available() {
        let lanes: Vec<usize> = Level::available().map(|level| level.run(Lanes)).collect();
        assert!(lanes.is_sorted(), "{lanes:?}");
        assert_eq!(Some(&Level::best().run(Lanes)), lanes.last());
    }
}
