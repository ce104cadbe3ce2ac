//! Input distributions: what random data a case holds.

use super::dtype::DType;
use super::seed::{Rng, below, unit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the activations of a case are drawn. Every value is representable in the case's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Normal, mean 0, deviation 1.
    Normal,
    /// Uniform in [-1, 1).
    Uniform,
    /// Deviation 1 around a mean that is large for the dtype: cancellation shows.
    LargeMean,
    /// Around the smallest normal number, denormals among them.
    Tiny,
    /// Large, up to the operator's range or the dtype's; rows of either sign and of both.
    NearOverflow,
    /// Each row holds one value.
    ConstantRows,
    /// Normal with one large element a row.
    Outlier,
    /// Normal with every third value a zero of either sign.
    SignedZeros,
    /// Normal with a few NaN, infinities and zeros.
    NonFinite,
    /// Normal, the last element of each row large: what a sum leaves out at its end outweighs all that it adds up.
    HeavyEnd,
    /// Multiples of 1/8 in [-4, 4]: sums and shifts of them are exact.
    Grid,
}

impl Distribution {
    /// All that a gate draws from by default.
    pub const ALL: [Distribution; 10] = [
        Distribution::Normal,
        Distribution::Uniform,
        Distribution::LargeMean,
        Distribution::Tiny,
        Distribution::NearOverflow,
        Distribution::ConstantRows,
        Distribution::Outlier,
        Distribution::SignedZeros,
        Distribution::NonFinite,
        Distribution::HeavyEnd,
    ];

    /// The name in cases and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Normal => "normal",
            Distribution::Uniform => "uniform",
            Distribution::LargeMean => "large_mean",
            Distribution::Tiny => "tiny",
            Distribution::NearOverflow => "near_overflow",
            Distribution::ConstantRows => "constant_rows",
            Distribution::Outlier => "outlier",
            Distribution::SignedZeros => "signed_zeros",
            Distribution::NonFinite => "non_finite",
            Distribution::HeavyEnd => "heavy_end",
            Distribution::Grid => "grid",
        }
    }

    /// Draws `rows` × `width` values of `dtype`, none larger in magnitude than `range` (but for the infinities).
    pub fn draw(self, rng: &mut Rng, rows: usize, width: usize, dtype: DType, range: f64) -> Vec<f64> {
        let limit = range.min(dtype.max_finite());
        let mut normal = Normal::default();
        let mut values = Vec::with_capacity(rows * width);
        for row in 0..rows {
            let level = normal.draw(rng);
            let special = below(rng, width.max(1));
            for col in 0..width {
                let value = match self {
                    Distribution::Normal => normal.draw(rng),
                    Distribution::Uniform => 2.0 * unit(rng) - 1.0,
                    Distribution::LargeMean => large_mean(dtype) + normal.draw(rng),
                    Distribution::Tiny => dtype.min_normal() * 0.5 * normal.draw(rng),
                    Distribution::NearOverflow => {
                        let sign = match row % 3 {
                            0 => sign(rng),
                            1 => -1.0,
                            _ => 1.0,
                        };
                        (0.25 + 0.75 * unit(rng)) * limit * sign
                    }
                    Distribution::ConstantRows => level,
                    Distribution::Outlier if col == special => (0.5 + unit(rng)) * limit.min(1e4) * 0.5 * sign(rng),
                    Distribution::Outlier => normal.draw(rng),
                    Distribution::SignedZeros if below(rng, 3) == 0 => 0.0 * sign(rng),
                    Distribution::SignedZeros => normal.draw(rng),
                    Distribution::NonFinite => match below(rng, 97) {
                        0 => f64::NAN,
                        1 => f64::INFINITY,
                        2 => f64::NEG_INFINITY,
                        // Beside an infinity a zero must not be skipped: their product is NaN.
                        3..=8 => 0.0 * sign(rng),
                        _ => normal.draw(rng),
                    },
                    Distribution::HeavyEnd if col + 1 == width => (1.0 + unit(rng)) * HEAVY * sign(rng),
                    Distribution::HeavyEnd => normal.draw(rng),
                    Distribution::Grid => (below(rng, 65) as f64 - 32.0) / 8.0,
                };
                values.push(clamp(dtype.round(value), limit));
            }
        }
        values
    }

    /// Draws `n` indices in `0..bound`: the first and the last row are always among them where they fit.
    pub fn draw_indices(self, rng: &mut Rng, n: usize, bound: usize) -> Vec<f64> {
        let mut values: Vec<f64> = match self {
            Distribution::ConstantRows => vec![below(rng, bound) as f64; n],
            _ => (0..n).map(|_| below(rng, bound) as f64).collect(),
        };
        if self != Distribution::ConstantRows && n > 0 {
            let at = below(rng, n);
            values[at] = bound as f64 - 1.0;
            if n > 1 {
                values[(at + 1) % n] = 0.0;
            }
        }
        values
    }
}

/// Large against the sum of a row, and a product of two such values is far inside the range of f16.
const HEAVY: f64 = 64.0;

fn clamp(value: f64, limit: f64) -> f64 {
    if value.is_finite() { value.clamp(-limit, limit) } else { value }
}

/// Large against deviation 1, yet the values keep a few bits below 1.
const fn large_mean(dtype: DType) -> f64 {
    match dtype {
        DType::F32 | DType::I32 => 4096.0,
        DType::F16 => 64.0,
        DType::BF16 => 16.0,
    }
}

fn sign(rng: &mut Rng) -> f64 {
    if below(rng, 2) == 0 { 1.0 } else { -1.0 }
}

/// `n` normal values of the given mean and deviation, rounded to `dtype`: weights and biases.
pub fn normal(rng: &mut Rng, n: usize, mean: f64, deviation: f64, dtype: DType) -> Vec<f64> {
    let mut normal = Normal::default();
    (0..n).map(|_| dtype.round(mean + deviation * normal.draw(rng))).collect()
}

/// Box-Muller, which yields two values at a time.
#[derive(Default)]
struct Normal {
    spare: Option<f64>,
}

impl Normal {
    fn draw(&mut self, rng: &mut Rng) -> f64 {
        if let Some(value) = self.spare.take() {
            return value;
        }
        let radius = (-2.0 * (1.0 - unit(rng)).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * unit(rng)).sin_cos();
        self.spare = Some(radius * sin);
        radius * cos
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Distribution::ALL.into_iter().chain([Distribution::Grid]);
        all.clone().find(|d| d.name() == text).ok_or_else(|| {
            let names: Vec<_> = all.map(Distribution::name).collect();
            format!("unknown distribution `{text}`; use one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::rng;
    use rstest::rstest;

    #[rstest]
    fn values_are_representable_and_in_range(
        #[values(DType::F32, DType::F16, DType::BF16)] dtype: DType,
        #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)] at: usize,
    ) {
        let distribution = Distribution::ALL[at];
        let values = distribution.draw(&mut rng(3), 8, 33, dtype, 1e4);
        assert_eq!(values.len(), 8 * 33);
        for value in values {
            assert!(dtype.round(value) == value || value.is_nan(), "{distribution} {dtype} {value:e}");
            assert!(!value.is_finite() || value.abs() <= 1e4, "{distribution} {dtype} {value:e}");
        }
    }

    #[test]
    fn a_heavy_end_outweighs_the_rest_of_its_row() {
        for row in Distribution::HeavyEnd.draw(&mut rng(4), 50, 300, DType::F32, f64::MAX).chunks(300) {
            assert!(row[299].abs() >= HEAVY && row[299].abs() > row[..299].iter().sum::<f64>().abs());
        }
    }

    #[test]
    fn indices_reach_both_ends() {
        let values = Distribution::Normal.draw_indices(&mut rng(1), 5, 1000);
        assert!(values.contains(&0.0) && values.contains(&999.0), "{values:?}");
        assert_eq!(Distribution::Normal.draw_indices(&mut rng(1), 1, 7), [6.0]);
    }

    #[test]
    fn moments_of_the_normal() {
        let values = Distribution::Normal.draw(&mut rng(9), 1, 100_000, DType::F32, f64::MAX);
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1e5;
        approx::assert_abs_diff_eq!(mean, 0.0, epsilon = 0.02);
        approx::assert_abs_diff_eq!(variance, 1.0, epsilon = 0.03);
    }
}
