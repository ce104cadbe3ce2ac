//! What the tests of the operators share: seeded values, roundings, comparison.

use half::{bf16, f16};

use super::Lane;
use super::level::Level;
use super::run::Stores;

/// A [`Lane`] that tests make from and compare as f64.
pub(super) trait Real: Lane {
    /// Half a unit in the last place of one, with room for a double rounding.
    const ROUNDING: f64;
    /// The least denormal: below the normal numbers a rounding is absolute.
    const TINY: f64;
    fn of(x: f64) -> Self;
    fn real(self) -> f64;
}

macro_rules! real {
    ($t:ty, $rounding:expr, $tiny:expr, $of:expr) => {
        impl Real for $t {
            const ROUNDING: f64 = $rounding;
            const TINY: f64 = $tiny;
            fn of(x: f64) -> Self {
                $of(x)
            }
            fn real(self) -> f64 {
                f64::from(self)
            }
        }
    };
}

real!(f32, 6.0e-8, 1.5e-45, |x| x as f32);
real!(f16, 4.9e-4, 6.0e-8, f16::from_f64);
real!(bf16, 4.0e-3, 9.2e-41, bf16::from_f64);

/// `n` values in `-4..4`, the same for the same seed.
pub(super) fn values<T: Real>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = move || {
        // Xorshift, of which the high bits serve.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::of((state >> 40) as f64 / f64::from(1 << 21) - 4.0)
    };
    std::iter::repeat_with(next).take(n).collect()
}

pub(super) fn reals<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.real()).collect()
}

/// Holds every element to a rounding of its type and to `noise`, relative to the larger of itself and
/// `scale`; NaN and infinities have to stand where they are wanted.
#[track_caller]
pub(super) fn assert_close<T: Real>(label: &str, got: &[T], want: &[f64], scale: f64, noise: f64) {
    assert_eq!(got.len(), want.len(), "{label}");
    for (i, (got, &want)) in got.iter().zip(want).enumerate() {
        let got = got.real();
        let allowed = T::ROUNDING * want.abs() + T::TINY + noise * want.abs().max(scale);
        let same = (got.is_nan() && want.is_nan()) || got == T::of(want).real() || (got - want).abs() <= allowed;
        assert!(same, "{label}: element {i} is {got:e}, not {want:e} within {allowed:e}");
    }
}

/// Runs `job` on outputs that begin 0 to 3 elements after the start of their memory and hold NaN, with
/// every instruction set and both ways to store.
pub(super) fn every_way<T: Real>(n: usize, mut job: impl FnMut(Level, Stores, &str, &mut [T])) {
    for level in Level::available() {
        for stores in [Stores::Cached, Stores::Streamed] {
            for offset in 0..4 {
                let mut memory = vec![T::of(f64::NAN); n + offset];
                let label = format!("{level:?} {stores:?} offset {offset} n {n}");
                job(level, stores, &label, &mut memory[offset..]);
            }
        }
    }
}

/// The activations in f64.
pub(super) mod reference {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    pub(in super::super) fn gelu(x: f64) -> f64 {
        0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    }

    pub(in super::super) fn gelu_tanh(x: f64) -> f64 {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        x * sigmoid(2.0 * u)
    }

    pub(in super::super) fn silu(x: f64) -> f64 {
        x * sigmoid(x)
    }
}
