//! The element types: f32, and f16 and bf16 that widen to f32 on load and round on store.

use half::{bf16, f16};

use super::vector::{MAX_LANES, Simd};

/// A type that the CPU tiers compute on: `f32`, `half::f16` or `half::bf16`. Arithmetic is in f32.
///
/// Sealed: it is implemented for these three alone.
pub trait Lane: Element {}

/// What the kernels need of a [`Lane`]; not exported, which seals it.
pub trait Element: Copy + Default + Send + Sync + 'static {
    /// # Safety
    /// `p` is readable for `S::LANES` elements.
    unsafe fn load<S: Simd>(simd: S, p: *const Self) -> S::V;
    /// # Safety
    /// `p` is writable for `S::LANES` elements.
    unsafe fn store<S: Simd>(simd: S, p: *mut Self, v: S::V);
    /// # Safety
    /// As `store`, and `p` is aligned to `S::LANES` elements.
    unsafe fn stream<S: Simd>(simd: S, p: *mut Self, v: S::V);
    /// The slice itself where the elements are f32.
    fn as_f32(x: &[Self]) -> Option<&[f32]>;
    /// The pointer itself where the elements are f32.
    fn f32_pointer(p: *mut Self) -> Option<*mut f32>;
}

macro_rules! lane {
    ($t:ty, $load:ident, $store:ident, $stream:ident, $some:expr, $some_pointer:expr) => {
        impl Lane for $t {}

        impl Element for $t {
            #[inline(always)]
            unsafe fn load<S: Simd>(simd: S, p: *const Self) -> S::V {
                // SAFETY: the same contract.
                unsafe { simd.$load(p) }
            }
            #[inline(always)]
            unsafe fn store<S: Simd>(simd: S, p: *mut Self, v: S::V) {
                // SAFETY: the same contract.
                unsafe { simd.$store(p, v) }
            }
            #[inline(always)]
            unsafe fn stream<S: Simd>(simd: S, p: *mut Self, v: S::V) {
                // SAFETY: the same contract.
                unsafe { simd.$stream(p, v) }
            }
            fn as_f32(x: &[Self]) -> Option<&[f32]> {
                $some(x)
            }
            fn f32_pointer(p: *mut Self) -> Option<*mut f32> {
                $some_pointer(p)
            }
        }
    };
}

lane!(f32, load, store, stream, Some, Some);
lane!(f16, load_f16, store_f16, stream_f16, |_| None, |_| None);
lane!(bf16, load_bf16, store_bf16, stream_bf16, |_| None, |_| None);

/// The up to `LANES` elements of `x`; what the other lanes hold is arbitrary, but initialised.
#[inline(always)]
pub(super) fn load_ragged<S: Simd, T: Lane>(simd: S, x: &[T]) -> S::V {
    let mut buffer = [T::default(); MAX_LANES];
    buffer[..x.len()].copy_from_slice(x);
    // SAFETY: the buffer holds MAX_LANES >= LANES elements.
    unsafe { T::load(simd, buffer.as_ptr()) }
}

/// The first `y.len()` lanes of `v`.
#[inline(always)]
pub(super) fn store_ragged<S: Simd, T: Lane>(simd: S, y: &mut [T], v: S::V) {
    let mut buffer = [T::default(); MAX_LANES];
    // SAFETY: the buffer holds MAX_LANES >= LANES elements.
    unsafe { T::store(simd, buffer.as_mut_ptr(), v) };
    y.copy_from_slice(&buffer[..y.len()]);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::level::Level;
    use super::super::vector::Kernel;
    use super::*;

    /// Widens all of `from`, rounds all of `to`.
    struct Convert<'a, T>(&'a [T], &'a mut [f32], &'a [f32], &'a mut [T]);
    impl<T: Lane> Kernel for Convert<'_, T> {
        type Output = ();
        fn run<S: Simd>(self, simd: S) {
            for (x, y) in self.0.chunks(S::LANES).zip(self.1.chunks_mut(S::LANES)) {
                store_ragged(simd, y, load_ragged(simd, x));
            }
            for (x, y) in self.2.chunks(S::LANES).zip(self.3.chunks_mut(S::LANES)) {
                store_ragged(simd, y, load_ragged(simd, x));
            }
        }
    }

    /// Floats about every rounding boundary: a stride through all bit patterns.
    fn floats() -> Vec<f32> {
        (0..=u32::MAX).step_by(4093).map(f32::from_bits).collect()
    }

    #[rstest]
    #[case::f16(f16::from_bits, f16::to_f32, f16::from_f32, f16::to_bits)]
    #[case::bf16(bf16::from_bits, bf16::to_f32, bf16::from_f32, bf16::to_bits)]
    fn conversions_agree_with_half<T: Lane>(
        #[case] from_bits: fn(u16) -> T,
        #[case] widen: fn(T) -> f32,
        #[case] round: fn(f32) -> T,
        #[case] bits: fn(T) -> u16,
    ) {
        let narrow: Vec<T> = (0..=u16::MAX).map(from_bits).collect();
        let wide = floats();
        for level in Level::available() {
            let mut widened = vec![0.0; narrow.len()];
            let mut rounded = vec![T::default(); wide.len()];
            level.run(Convert(&narrow, &mut widened, &wide, &mut rounded));
            for (&x, &got) in narrow.iter().zip(&widened) {
                let want = widen(x);
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(same, "{level:?}: widening {:#06x} gave {got}, not {want}", bits(x));
            }
            for (&x, &got) in wide.iter().zip(&rounded) {
                let want = round(x);
                let same = bits(got) == bits(want) || (widen(got).is_nan() && x.is_nan());
                assert!(same, "{level:?}: rounding {x:e} gave {:#06x}, not {:#06x}", bits(got), bits(want));
            }
        }
    }
}
