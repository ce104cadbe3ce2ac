//! Double precision rounded towards zero, down or up: from the exact result as an integer, a power of two, and whether
//! anything lies below.

use crate::sim::isa::rounding::Mode;

/// The highest bit of a normalised significand.
const TOP: u32 = 125;

/// A number that is not 0: `±(bits + rest) * 2^exponent`, where the rest lies between 0 and 1.
#[derive(Debug, Clone, Copy)]
struct Exact {
    negative: bool,
    bits: u128,
    exponent: i32,
    /// Whether the rest is more than 0.
    has_rest: bool,
}

impl Exact {
    /// Of a finite number.
    #[inline(always)]
    fn of(x: f64) -> Exact {
        let bits = x.to_bits();
        let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7FF) as i32);
        let (bits, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
        Exact { negative: x.is_sign_negative(), bits: bits.into(), exponent, has_rest: false }
    }

    /// The same with its highest bit at `top`, which is not below where it is.
    #[inline(always)]
    fn normalised(self, top: u32) -> Exact {
        let shift = top - self.bits.ilog2();
        Exact { bits: self.bits << shift, exponent: self.exponent - shift as i32, ..self }
    }

    #[inline(always)]
    fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative ^ other.negative,
            bits: self.bits * other.bits,
            exponent: self.exponent + other.exponent,
            has_rest: false,
        }
    }

    /// The sum; `None` where it is 0.
    #[inline(always)]
    fn plus(self, other: Exact) -> Option<Exact> {
        let (a, b) = (self.normalised(TOP), other.normalised(TOP));
        let (large, small) = if (a.exponent, a.bits) >= (b.exponent, b.bits) { (a, b) } else { (b, a) };
        let shift = large.exponent.abs_diff(small.exponent);
        let (below, has_rest) =
            if shift > TOP { (0, true) } else { (small.bits >> shift, small.bits & ((1 << shift) - 1) != 0) };
        let bits = if large.negative == small.negative {
            large.bits + below
        } else {
            // What is taken away has a rest: one less, and the rest of that one.
            large.bits - below - u128::from(has_rest)
        };
        (bits != 0).then_some(Exact { bits, has_rest, ..large })
    }

    /// Rounded once.
    #[inline(always)]
    fn rounded(self, mode: Mode) -> f64 {
        let length = 128 - self.bits.leading_zeros() as i32;
        // Below this exponent nothing is kept.
        let shift = (length - 53).max(-1074 - self.exponent);
        let (kept, lost) = match shift {
            ..=0 => ((self.bits << -shift) as u64, false),
            1..=127 => ((self.bits >> shift) as u64, self.bits & ((1 << shift) - 1) != 0),
            _ => (0, true),
        };
        let away = match mode {
            Mode::Up => !self.negative,
            Mode::Down => self.negative,
            _ => false,
        };
        let kept = kept + u64::from(away && (lost || self.has_rest));
        let magnitude = scaled(kept, self.exponent + shift);
        // Past the largest finite number a mode that rounds towards zero stays there.
        let magnitude = if magnitude.is_infinite() && !away { f64::MAX } else { magnitude };
        if self.negative { -magnitude } else { magnitude }
    }
}

/// A significand of up to 53 bits (or 2^53) times a power of two, where that is exact or overflows.
#[inline(always)]
fn scaled(bits: u64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52);
    // In two steps: the power alone may lie outside the normal numbers.
    let half = exponent / 2;
    bits as f64 * power(half) * power(exponent - half)
}

/// What a sum of opposite numbers is.
#[inline(always)]
fn nothing(mode: Mode) -> f64 {
    if mode == Mode::Down { -0.0 } else { 0.0 }
}

/// `a * b + c`, rounded once in a mode other than the nearest.
#[inline(always)]
pub(super) fn fused(a: f64, b: f64, c: f64, mode: Mode) -> f64 {
    if !(a.is_finite() && b.is_finite() && c.is_finite()) {
        return a.mul_add(b, c);
    }
    let product = Exact::of(a).times(Exact::of(b));
    match (product.bits, c == 0.0) {
        (0, true) if product.negative == c.is_sign_negative() => c,
        (0, true) => nothing(mode),
        (0, false) => c,
        (_, true) => product.rounded(mode),
        _ => product.plus(Exact::of(c)).map_or(nothing(mode), |sum| sum.rounded(mode)),
    }
}

#[inline(always)]
pub(super) fn sum(a: f64, b: f64, mode: Mode) -> f64 {
    fused(a, 1.0, b, mode)
}

#[inline(always)]
pub(super) fn product(a: f64, b: f64, mode: Mode) -> f64 {
    if !(a.is_finite() && b.is_finite()) || a == 0.0 || b == 0.0 {
        return a * b;
    }
    Exact::of(a).times(Exact::of(b)).rounded(mode)
}

#[inline(always)]
pub(super) fn quotient(a: f64, b: f64, mode: Mode) -> f64 {
    if !(a.is_finite() && b.is_finite()) || a == 0.0 || b == 0.0 {
        return a / b;
    }
    let (a, b) = (Exact::of(a).normalised(TOP), Exact::of(b).normalised(52));
    let exact = Exact {
        negative: a.negative ^ b.negative,
        bits: a.bits / b.bits,
        exponent: a.exponent - b.exponent,
        has_rest: a.bits % b.bits != 0,
    };
    exact.rounded(mode)
}

#[inline(always)]
pub(super) fn root(a: f64, mode: Mode) -> f64 {
    if !a.is_finite() || a <= 0.0 {
        return a.sqrt();
    }
    let a = Exact::of(a).normalised(TOP);
    // The exponent of a square is even.
    let (bits, exponent) = if a.exponent % 2 == 0 { (a.bits, a.exponent) } else { (a.bits << 1, a.exponent - 1) };
    let root = bits.isqrt();
    Exact { negative: false, bits: root, exponent: exponent / 2, has_rest: root * root != bits }.rounded(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::rng::Rng;
    use rstest::rstest;
    use std::f64::consts::SQRT_2;

    type Run = fn(f64, f64, f64, Mode) -> f64;

    const TINY: f64 = f64::from_bits(1);

    #[rstest]
    #[case(fused(1.0, 1.0, TINY, Mode::Up), 1.0f64.next_up())]
    #[case(fused(1.0, 1.0, -TINY, Mode::Down), 1.0f64.next_down())]
    #[case(fused(1.0, 1.0, -TINY, Mode::Up), 1.0)]
    #[case(fused(TINY, TINY, 0.0, Mode::Up), TINY)]
    #[case(fused(TINY, -TINY, 0.0, Mode::Up), -0.0)]
    #[case(fused(TINY, TINY, -0.0, Mode::Zero), 0.0)]
    #[case(fused(f64::MAX, 2.0, -1.0, Mode::Zero), f64::MAX)]
    #[case(fused(f64::MAX, 2.0, -1.0, Mode::Up), f64::INFINITY)]
    #[case(fused(f64::MAX, -2.0, 1.0, Mode::Up), -f64::MAX)]
    #[case(fused(2.0, 3.0, -6.0, Mode::Down), -0.0)]
    #[case(fused(2.0, 3.0, -6.0, Mode::Up), 0.0)]
    #[case(sum(-0.0, -0.0, Mode::Up), -0.0)]
    #[case(sum(0.1, 0.2, Mode::Down), 0.3)]
    #[case(sum(0.1, 0.2, Mode::Up), 0.3f64.next_up())]
    #[case(quotient(1.0, 3.0, Mode::Down), 0.333_333_333_333_333_3)]
    #[case(quotient(1.0, -3.0, Mode::Down), -0.333_333_333_333_333_37)]
    #[case(quotient(6.0, 3.0, Mode::Up), 2.0)]
    #[case(quotient(TINY, 3.0, Mode::Zero), 0.0)]
    #[case(quotient(TINY, 3.0, Mode::Up), TINY)]
    #[case(quotient(1.0, 0.0, Mode::Zero), f64::INFINITY)]
    #[case(root(2.0, Mode::Down), SQRT_2.next_down())]
    #[case(root(2.0, Mode::Up), SQRT_2)]
    #[case(root(9.0, Mode::Up), 3.0)]
    #[case(root(TINY, Mode::Zero), f64::from_bits(486 << 52))]
    fn corners(#[case] found: f64, #[case] expected: f64) {
        assert_eq!(found.to_bits(), expected.to_bits(), "{found:e} against {expected:e}");
    }

    /// The nearest result is one of the two around the exact one, which are neighbours; towards zero is the nearer to it.
    #[test]
    fn the_modes_enclose_the_nearest_result() {
        let mut rng = Rng::new(5);
        let mut number = || {
            let bits = rng.next();
            // Exponents near each other, at both ends and anywhere.
            let exponent = [1023 + bits % 60, bits % 70, 2046 - bits % 3, bits % 2047][(bits >> 20) as usize % 4];
            f64::from_bits((rng.next() & 0x800F_FFFF_FFFF_FFFF) | exponent << 52)
        };
        for _ in 0..20_000 {
            let (a, b, c) = (number(), number(), number());
            let all: [(f64, Run); 5] = [
                (a.mul_add(b, c), fused),
                (a + b, |a, b, _, mode| sum(a, b, mode)),
                (a * b, |a, b, _, mode| product(a, b, mode)),
                (a / b, |a, b, _, mode| quotient(a, b, mode)),
                (a.abs().sqrt(), |a, _, _, mode| root(a.abs(), mode)),
            ];
            for (at, (nearest, run)) in all.into_iter().enumerate() {
                let [down, up, zero] = [Mode::Down, Mode::Up, Mode::Zero].map(|mode| run(a, b, c, mode));
                let context = format!("{at}: {a:e} {b:e} {c:e}: {down:e} {nearest:e} {up:e}");
                assert!(down == up || down.next_up() == up, "{context}");
                assert!(nearest == down || nearest == up, "{context}");
                assert_eq!(zero, if nearest.is_sign_negative() { up } else { down }, "{context}");
            }
        }
    }
}
