//! Drawing a token on the CPU, with the weights that the kernel has.
//!
//! Weights are integers: 2⁴⁰ e^((x − m) / T), the exponential by a polynomial whose every step is one rounding of f32. Their
//! sums are exact in any order, so that a device, whatever its threads, draws the token that the CPU draws.

use std::cmp::Ordering;

/// Parts of one.
pub const MICRO: usize = 1_000_000;

/// Values of a draw: u is a multiple of their reciprocal.
pub const DRAWS: usize = 1 << 31;

/// Bits of the weight of the most likely token; smaller weights lose the bits below.
const WEIGHT_BITS: i32 = 40;

/// Bits of an f32 with the leading one.
const MANTISSA_BITS: i32 = 24;

/// log2 of weights that are none.
const NO_WEIGHT: f32 = -42.0;

/// ln(2)ᵏ / k!: 2^f for |f| ≤ ½, within 2⁻²³.
const POWERS: [f32; 8] = [
    1.0,
    std::f32::consts::LN_2,
    0.240_226_5,
    0.055_504_11,
    0.009_618_129,
    0.001_333_355_8,
    0.000_154_035_3,
    0.000_015_252_734,
];

/// Which tokens are kept, and how their weights come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Tokens that are kept at least; 0 for all.
    pub top_k: usize,
    /// The share of the weights that is kept, in millionths.
    pub top_p_micro: usize,
    /// The temperature in millionths.
    pub temperature_micro: usize,
}

impl Rule {
    /// A temperature of .001: differences of .03 are as good as none below it.
    pub const LEAST_TEMPERATURE_MICRO: usize = 1_000;
    /// A temperature of 1000.
    pub const MOST_TEMPERATURE_MICRO: usize = 1_000 * MICRO;

    /// The rule nearest to these numbers.
    pub fn of(temperature: f64, top_k: usize, top_p: f64) -> Self {
        // A conversion saturates, and makes 0 of NaN.
        let micro = |x: f64| (x * MICRO as f64).round() as usize;
        Rule {
            top_k: top_k.min(1 << 18),
            top_p_micro: micro(top_p).min(MICRO),
            temperature_micro: micro(temperature).clamp(Self::LEAST_TEMPERATURE_MICRO, Self::MOST_TEMPERATURE_MICRO),
        }
    }

    /// What a difference of logits is multiplied by to be one of powers of two.
    pub fn scale(&self) -> f32 {
        (std::f64::consts::LOG2_E * MICRO as f64 / self.temperature_micro as f64) as f32
    }

    /// `top_p` of a total, rounded up, but 1 at the least.
    fn share_of(&self, total: u64) -> u64 {
        let (whole, rest) = (total / MICRO as u64, total % MICRO as u64);
        let share = self.top_p_micro as u64;
        (whole * share + (rest * share).div_ceil(MICRO as u64)).max(1)
    }
}

/// The token of a row of logits, 0 where all are NaN. `draw` is below [`DRAWS`].
///
/// ```
/// use kernelgate::ops::sample::{Rule, draw};
/// let rule = Rule::of(1.0, 2, 1.0);
/// // e^2 and e^1 are kept: .73 and .27 of their sum.
/// let logits = [0.0, 2.0, 1.0, -1.0];
/// assert_eq!([0, 1 << 30, (1 << 31) - 1].map(|number| draw(&logits, &rule, number)), [1, 1, 2]);
/// ```
pub fn draw(logits: &[f32], rule: &Rule, draw: u32) -> usize {
    let most = logits.iter().copied().fold(f32::NAN, f32::max);
    let scale = rule.scale();
    let mut least = f32::NEG_INFINITY;
    if rule.top_k > 0 && rule.top_k < logits.len() {
        let mut numbers: Vec<f32> = logits.iter().copied().filter(|x| !x.is_nan()).collect();
        if rule.top_k < numbers.len() {
            least = *numbers.select_nth_unstable_by(rule.top_k - 1, falling).1;
        }
    }
    let mut weights: Vec<u64> = logits.iter().map(|&x| if x >= least { weight(x, most, scale) } else { 0 }).collect();
    if rule.top_p_micro < MICRO {
        let mut kept: Vec<(f32, u64)> =
            logits.iter().copied().zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0).collect();
        kept.sort_unstable_by(|(a, _), (b, _)| falling(a, b));
        least = smallest_of_share(&kept, rule).unwrap_or(least);
        logits.iter().zip(&mut weights).filter(|(x, _)| **x < least).for_each(|(_, weight)| *weight = 0);
    }
    at(&weights, draw)
}

/// The same as it is defined, all logits sorted.
pub(super) fn draw_by_sorting(logits: &[f32], rule: &Rule, draw: u32) -> usize {
    let mut sorted: Vec<f32> = logits.iter().copied().filter(|x| !x.is_nan()).collect();
    sorted.sort_by(falling);
    let Some(&most) = sorted.first() else { return 0 };
    let last = if rule.top_k == 0 { sorted.len() } else { rule.top_k.min(sorted.len()) };
    let weight = |x: f32| weight(x, most, rule.scale());
    let kept: Vec<(f32, u64)> = sorted.iter().filter(|x| **x >= sorted[last - 1]).map(|&x| (x, weight(x))).collect();
    let least = smallest_of_share(&kept, rule).unwrap_or(most);
    let weights: Vec<u64> = logits.iter().map(|&x| if x >= least { weight(x) } else { 0 }).collect();
    at(&weights, draw)
}

fn falling(a: &f32, b: &f32) -> Ordering {
    b.partial_cmp(a).unwrap_or(Ordering::Equal)
}

/// The logit down to which tokens, the most likely first, have their share of the weights.
fn smallest_of_share(kept: &[(f32, u64)], rule: &Rule) -> Option<f32> {
    let share = rule.share_of(kept.iter().map(|(_, weight)| weight).sum());
    let mut sum = 0;
    let reaches = |(_, weight): &&(f32, u64)| {
        sum += weight;
        sum >= share
    };
    kept.iter().find(reaches).map(|(x, _)| *x)
}

/// Where the sum of weights passes `draw` of their total.
fn at(weights: &[u64], draw: u32) -> usize {
    let total: u64 = weights.iter().sum();
    let mut left = (u128::from(total) * u128::from(draw) / DRAWS as u128) as u64;
    let passes = |&weight: &u64| {
        let passes = weight > left;
        left = left.saturating_sub(weight);
        passes
    };
    weights.iter().position(passes).unwrap_or(0)
}

/// 2⁴⁰ e^((x − most) / T), `scale` being log2(e) / T: what `kernels/sample/sample.cu` computes, bit for bit.
fn weight(x: f32, most: f32, scale: f32) -> u64 {
    // Infinities have no difference.
    let log2 = if x == most { 0.0 } else { (x - most) * scale };
    // NaN has no weight either.
    if log2.is_nan() || log2 <= NO_WEIGHT {
        return 0;
    }
    let whole = log2.round_ties_even();
    let part = log2 - whole;
    let power = POWERS.iter().rev().copied().reduce(|sum, factor| sum * part + factor).unwrap_or(1.0);
    // Exact: an f32 of ½ to 2.
    let mantissa = (power * (1 << MANTISSA_BITS) as f32) as u64;
    let shift = whole as i32 + WEIGHT_BITS - MANTISSA_BITS;
    if shift < 0 { mantissa >> -shift } else { mantissa << shift }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::{below, rng, unit};
    use rstest::rstest;

    #[test]
    fn weights_are_exponentials() {
        let scale = Rule::of(1.0, 0, 1.0).scale();
        for i in 0..20_000 {
            let x = -16.0 * i as f32 / 20_000.0;
            let (found, exact) = (weight(x, 0.0, scale) as f64, f64::from(x).exp() * 2f64.powi(WEIGHT_BITS));
            // Roundings of the scale and of the product, those of the polynomial, and the bits that are cut off.
            let allowed = (2.0 * f64::from(x).abs() + 3.0) * 2f64.powi(-24) * exact + 1.0;
            assert!((found - exact).abs() <= allowed, "{x}: {found} {exact}");
        }
        assert_eq!(weight(3.0, 3.0, scale), 1 << WEIGHT_BITS);
    }

    #[rstest]
    #[case(f32::NAN, 1.0, 0)]
    #[case(f32::NEG_INFINITY, 1.0, 0)]
    #[case(f32::INFINITY, f32::INFINITY, 1 << 40)]
    #[case(1.0, f32::INFINITY, 0)]
    #[case(f32::NEG_INFINITY, f32::NEG_INFINITY, 1 << 40)]
    #[case(-3e38, 3e38, 0)]
    #[case(-0.0, 0.0, 1 << 40)]
    fn logits_of_every_class_have_a_weight(#[case] x: f32, #[case] most: f32, #[case] expected: u64) {
        assert_eq!(weight(x, most, 1.0), expected);
    }

    #[rstest]
    #[case::all(1.0, 0, 1.0, &[0, 1, 2, 3])]
    #[case::two(1.0, 2, 1.0, &[1, 2])]
    #[case::a_share(1.0, 0, 0.7, &[1, 2])]
    #[case::the_most_likely(1.0, 0, 0.0, &[1])]
    #[case::of_those_that_are_left(1.0, 2, 0.74, &[1, 2])]
    #[case::enough_of_those_that_are_left(1.0, 2, 0.73, &[1])]
    #[case::more_than_there_are(1.0, 9, 1.0, &[0, 1, 2, 3])]
    #[case::cold(0.001, 0, 1.0, &[1])]
    fn only_the_likely_are_drawn(
        #[case] temperature: f64,
        #[case] top_k: usize,
        #[case] top_p: f64,
        #[case] expected: &[usize],
    ) {
        let rule = Rule::of(temperature, top_k, top_p);
        let mut rng = rng(3);
        let mut drawn: Vec<usize> =
            (0..500).map(|_| draw(&[0.0, 2.0, 1.0, -1.0, f32::NAN], &rule, below(&mut rng, DRAWS) as u32)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn, expected);
    }

    #[test]
    fn equal_logits_are_kept_together() {
        for rule in [Rule::of(1.0, 1, 1.0), Rule::of(1.0, 0, 0.1)] {
            let drawn = [0, 1 << 30, (1 << 31) - 1].map(|number| draw(&[3.0, 0.0, 3.0, 3.0], &rule, number));
            assert_eq!(drawn, [0, 2, 3]);
        }
    }

    #[test]
    fn a_row_without_a_number_gives_the_first_token() {
        let rule = Rule::of(1.0, 1, 0.5);
        assert_eq!(draw(&[f32::NAN; 3], &rule, 7), 0);
        assert_eq!(draw_by_sorting(&[f32::NAN; 3], &rule, 7), 0);
    }

    /// Repeated values and all classes of numbers among them.
    #[test]
    fn sorting_and_selecting_draw_the_same_tokens() {
        let mut rng = rng(9);
        for case in 0..2000 {
            let n = 1 + below(&mut rng, 60);
            let logits: Vec<f32> = (0..n)
                .map(|_| match below(&mut rng, 20) {
                    0 => f32::NAN,
                    1 => f32::NEG_INFINITY,
                    2 if case % 5 == 0 => f32::INFINITY,
                    3 => -0.0,
                    _ => (below(&mut rng, 65) as f32 - 32.0) / 8.0,
                })
                .collect();
            let rule = Rule::of(0.1 + 3.0 * unit(&mut rng), below(&mut rng, n + 2), unit(&mut rng).mul_add(1.2, -0.1));
            let number = below(&mut rng, DRAWS) as u32;
            assert_eq!(draw(&logits, &rule, number), draw_by_sorting(&logits, &rule, number), "{logits:?} {rule:?}");
        }
    }

    #[rstest]
    #[case(f64::NAN, 5, f64::NAN, 1000, 0)]
    #[case(0.7, 5, 0.95, 700_000, 950_000)]
    #[case(1e9, 5, 7.0, 1_000_000_000, 1_000_000)]
    fn numbers_become_the_nearest_rule(
        #[case] temperature: f64,
        #[case] top_k: usize,
        #[case] top_p: f64,
        #[case] temperature_micro: usize,
        #[case] top_p_micro: usize,
    ) {
        assert_eq!(Rule::of(temperature, top_k, top_p), Rule { top_k, top_p_micro, temperature_micro });
    }
}
