//! Input distributions: what random data a case holds.

use super::dtype::DType;
use super::seed::{Rng, below, unit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the activations of a case are drawn. Every value is representable in the case's dtype.
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Vector { n: 1..=1 << 20 } }
///
/// // Defined for finite values alone, and not near overflow.
/// let op = Op::<Vector>::new("recurrence").exclude_distributions([Distribution::NonFinite, Distribution::NearOverflow]);
/// // One candidate is not tried on some inputs, with the reason.
/// let approximate = Cpu::new::<f32>(|_: &Vector, _, _| ())
///     .exclude_distributions(Distribution::Tiny, "flushes denormals to zero");
/// ```
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
    /// Normal with a few infinities of either sign and zeros, for operators that define them and not NaN.
    Infinite,
    /// Normal with a few NaN, for operators that define them and not infinities.
    WithNan,
    /// Normal, the last element of each row large: what a sum leaves out at its end outweighs all that it adds up.
    HeavyEnd,
    /// Multiples of 1/8 in [-4, 4]: sums and shifts of them are exact.
    Grid,
}

impl Distribution {
    /// All that a gate draws from by default. [`Distribution::Infinite`] and [`Distribution::WithNan`] are the halves of
    /// [`Distribution::NonFinite`].
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

    /// Whether only floating-point inputs can be drawn so.
    pub const fn is_of_floats(self) -> bool {
        matches!(
            self,
            Distribution::NonFinite | Distribution::Infinite | Distribution::WithNan | Distribution::SignedZeros
        )
    }

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
            Distribution::Infinite => "infinite",
            Distribution::WithNan => "with_nan",
            Distribution::HeavyEnd => "heavy_end",
            Distribution::Grid => "grid",
        }
    }

    /// Draws `rows` × `width` values of `dtype`, none larger in magnitude than `range` (but for the infinities).
    pub fn draw(self, rng: &mut Rng, rows: usize, width: usize, dtype: DType, range: f64) -> Vec<f64> {
        if dtype.is_integer() {
            return self.draw_integers(rng, rows, width, dtype, range);
        }
        let limit = largest_up_to(dtype, range.min(dtype.max_finite()));
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
                    Distribution::Infinite => match below(rng, 97) {
                        0 => f64::INFINITY,
                        1 => f64::NEG_INFINITY,
                        2..=7 => 0.0 * sign(rng),
                        _ => normal.draw(rng),
                    },
                    Distribution::WithNan if below(rng, 97) == 0 => f64::NAN,
                    Distribution::WithNan => normal.draw(rng),
                    Distribution::HeavyEnd if col + 1 == width => (1.0 + unit(rng)) * HEAVY * sign(rng),
                    Distribution::HeavyEnd => normal.draw(rng),
                    Distribution::Grid => (below(rng, 65) as f64 - 32.0) / 8.0,
                };
                values.push(clamp(dtype.round(value), limit));
            }
        }
        values
    }

    /// The same of an integer type: both ends of its range, values near 0, and what lies between.
    fn draw_integers(self, rng: &mut Rng, rows: usize, width: usize, dtype: DType, range: f64) -> Vec<f64> {
        let (low, high) = (dtype.min_finite().max(-range), dtype.max_finite().min(range));
        let (centre, spread) = integer_scale(dtype);
        let mut normal = Normal::default();
        let mut values = Vec::with_capacity(rows * width);
        for _ in 0..rows {
            let level = centre + spread * normal.draw(rng);
            let special = below(rng, width.max(1));
            let end = if below(rng, 2) == 0 { low } else { high };
            for col in 0..width {
                let usual = centre + spread * normal.draw(rng);
                let value = match self {
                    Distribution::Uniform => centre + spread * (4.0 * unit(rng) - 2.0),
                    Distribution::LargeMean => high / 2.0 + usual / 2.0,
                    Distribution::Tiny | Distribution::Grid => below(rng, 3) as f64 - 1.0,
                    Distribution::NearOverflow => end - end / 4.0 * unit(rng),
                    Distribution::ConstantRows => level,
                    Distribution::Outlier if col == special => end,
                    Distribution::SignedZeros if below(rng, 3) == 0 => 0.0,
                    Distribution::HeavyEnd if col + 1 == width => end,
                    _ => usual,
                };
                // Rounded first: -0 is no integer.
                values.push(dtype.round(value).clamp(low.ceil(), high.floor()) + 0.0);
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

/// The largest value of `dtype` that is no larger than `limit`.
fn largest_up_to(dtype: DType, limit: f64) -> f64 {
    let nearest = dtype.round(limit);
    if nearest > limit { dtype.round(nearest - dtype.ulp(limit)) } else { nearest }
}

fn clamp(value: f64, limit: f64) -> f64 {
    if value.is_finite() { value.clamp(-limit, limit) } else { value }
}

/// Large against deviation 1, yet the values keep a few bits below 1.
const fn large_mean(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 64.0,
        DType::BF16 => 16.0,
        DType::E4M3 => 4.0,
        DType::E5M2 => 2.0,
        _ => 4096.0,
    }
}

/// Centre and deviation of the values of an integer type that are neither small nor large. A truth value is either.
const fn integer_scale(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::U8 => (96.0, 40.0),
        DType::I8 => (0.0, 40.0),
        DType::Bool => (0.5, 1.0),
        _ => (0.0, 1000.0),
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

/// All that have a name, those of no operator by itself too.
fn named() -> impl Iterator<Item = Distribution> {
    let apart = [Distribution::Infinite, Distribution::WithNan, Distribution::Grid];
    Distribution::ALL.into_iter().chain(apart)
}

/// A text that names no [`Distribution`].
/// ```
/// use kernelgate::prelude::*;
/// let gauss: Result<Distribution, UnknownDistribution> = "gauss".parse();
/// assert!(gauss.is_err_and(|error| error.to_string().contains("normal")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDistribution(String);

impl fmt::Display for UnknownDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = named().map(Distribution::name).collect();
        write!(f, "unknown distribution `{}`; use one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownDistribution {}

impl FromStr for Distribution {
    type Err = UnknownDistribution;

    fn from_str(text: &str) -> Result<Self, UnknownDistribution> {
        named().find(|d| d.name() == text).ok_or_else(|| UnknownDistribution(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::rng;
    use rstest::rstest;

    #[rstest]
    fn values_are_representable_and_in_range(
        #[values(DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::E5M2)] dtype: DType,
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

    #[rstest]
    fn integers_reach_both_ends_and_stay_inside(
        #[values(DType::U8, DType::I8, DType::I32, DType::I64, DType::Bool)] dtype: DType,
    ) {
        let all = Distribution::ALL.into_iter().flat_map(|one| one.draw(&mut rng(5), 32, 33, dtype, f64::MAX));
        let all: Vec<f64> = all.collect();
        assert!(all.iter().all(|&value| dtype.round(value).to_bits() == value.to_bits()), "{dtype}");
        let (least, most) = all.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        assert_eq!((least, most), (dtype.min_finite(), dtype.max_finite()));
        let narrow = Distribution::NearOverflow.draw(&mut rng(5), 8, 9, dtype, 1.0);
        assert!(narrow.iter().all(|value| value.abs() <= 1.0));
    }

    #[test]
    fn infinities_and_nan_come_apart() {
        let of = |distribution: Distribution| distribution.draw(&mut rng(6), 32, 97, DType::F16, f64::MAX);
        let (infinite, nan) = (of(Distribution::Infinite), of(Distribution::WithNan));
        assert!(infinite.contains(&f64::INFINITY) && infinite.contains(&f64::NEG_INFINITY));
        assert!(!infinite.iter().any(|v| v.is_nan()));
        assert!(nan.iter().any(|v| v.is_nan()) && !nan.iter().any(|v| v.is_infinite()));
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
