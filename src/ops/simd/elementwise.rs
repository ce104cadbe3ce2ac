//! gelu, gelu_tanh and silu, and the bare vector functions, over slices.

use super::lane::Lane;
use super::level::Level;
use super::math;
use super::run::{Ahead, Stores, map};
use super::threads::for_each_piece;
use super::vector::{Kernel, Simd};

/// A function of one element.
pub(super) trait Formula: Copy + Sync {
    fn apply<S: Simd>(self, simd: S, x: S::V) -> S::V;
}

struct Map<'a, T, F> {
    formula: F,
    stores: Stores,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Lane, F: Formula> Kernel for Map<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        map(
            simd,
            self.stores,
            Ahead::NOTHING,
            self.x,
            self.y,
            #[inline(always)]
            |x| self.formula.apply(simd, x),
        );
    }
}

/// `y = formula(x)`.
pub(super) fn apply<T: Lane, F: Formula>(level: Level, stores: Stores, formula: F, x: &[T], y: &mut [T]) {
    for_each_piece(1, y, &|first, y| {
        let x = &x[first..][..y.len()];
        level.run(Map { formula, stores, x, y });
    });
}

macro_rules! elementwise {
    ($($(#[$doc:meta])+ $name:ident, $formula:ident;)+) => {$(
        #[derive(Clone, Copy)]
        pub(super) struct $formula;

        impl Formula for $formula {
            #[inline(always)]
            fn apply<S: Simd>(self, simd: S, x: S::V) -> S::V {
                math::$name(simd, x)
            }
        }

        $(#[$doc])+
        ///
        /// # Panics
        /// If `x` and `y` differ in length.
        pub fn $name<T: Lane>(x: &[T], y: &mut [T]) {
            assert_eq!(x.len(), y.len(), "x and y differ in length");
            apply(Level::best(), Stores::of::<T>(1, y.len()), $formula, x, y);
        }
    )+};
}

elementwise! {
    /// `y = x/2 (1 + erf(x / sqrt 2))`.
    gelu, Gelu;
    /// `y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`.
    gelu_tanh, GeluTanh;
    /// `y = x / (1 + e^-x)`.
    silu, Silu;
    /// `y = x < 0 ? 0 : x`.
    relu, Relu;
    /// `y = e^x`, in f32 within 1 unit in the last place.
    exp, Exp;
    /// `y = erf(x)`, in f32 within 2 units in the last place.
    erf, Erf;
    /// `y = tanh(x)`, in f32 within 2 units in the last place.
    tanh, Tanh;
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use rstest::rstest;

    use super::super::testing::{Real, assert_close, every_way, reals, reference, values};
    use super::*;

    fn check<T: Real>(formula: impl Formula, reference: fn(f64) -> f64, x: &[T]) {
        let want: Vec<f64> = reals(x).into_iter().map(reference).collect();
        every_way(x.len(), |level, stores, label, y| {
            apply(level, stores, formula, x, y);
            assert_close(label, y, &want, 0.0, 2e-6);
        });
    }

    #[rstest]
    #[case::gelu(Gelu, reference::gelu)]
    #[case::silu(Silu, reference::silu)]
    #[case::gelu_tanh(GeluTanh, reference::gelu_tanh)]
    #[case::tanh(Tanh, f64::tanh)]
    fn every_length_agrees_with_the_reference(
        #[case] formula: impl Formula,
        #[case] reference: fn(f64) -> f64,
        #[values(0, 1, 7, 8, 9, 15, 16, 17, 63, 1000, 70_001)] n: usize,
    ) {
        check::<f32>(formula, reference, &values(n, 1));
        check::<f16>(formula, reference, &values(n, 2));
        check::<bf16>(formula, reference, &values(n, 3));
    }

    #[rstest]
    #[case::gelu(gelu, [f32::NAN, f32::NAN, f32::INFINITY])]
    #[case::gelu_tanh(gelu_tanh, [f32::NAN, f32::NAN, f32::INFINITY])]
    #[case::silu(silu, [f32::NAN, f32::NAN, f32::INFINITY])]
    #[case::exp(exp, [f32::NAN, 0.0, f32::INFINITY])]
    #[case::erf(erf, [f32::NAN, -1.0, 1.0])]
    #[case::tanh(tanh, [f32::NAN, -1.0, 1.0])]
    fn nan_and_infinities_follow_the_formula(#[case] function: fn(&[f32], &mut [f32]), #[case] want: [f32; 3]) {
        let mut y = [7.0; 3];
        function(&[f32::NAN, f32::NEG_INFINITY, f32::INFINITY], &mut y);
        for (y, want) in y.into_iter().zip(want) {
            assert!(y == want || (y.is_nan() && want.is_nan()), "{y} is not {want}");
        }
    }
}
