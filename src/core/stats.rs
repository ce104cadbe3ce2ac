//! Order statistics of timings: nothing here assumes a normal distribution.

/// The `p`-quantile (0 to 1) of sorted values, linearly interpolated; NaN for none.
pub fn quantile_sorted(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let (low, fraction) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * fraction
}

/// A sorted copy.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// The median; NaN for none.
pub fn median(values: &[f64]) -> f64 {
    quantile_sorted(&sorted(values), 0.5)
}

/// The geometric mean; NaN for none.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// What the mean of the squares of `n` standard normal values exceeds with a probability of no more than `probability`
/// (the Chernoff bound of χ²): the x above 1 at which n / 2 · (x − 1 − ln x) is −ln(probability).
pub fn chi_square_mean_limit(n: usize, probability: f64) -> f64 {
    let wanted = -2.0 * probability.ln() / n.max(1) as f64;
    let reached = |x: f64| x - 1.0 - x.ln();
    let (mut low, mut high) = (1.0, 2.0);
    while reached(high) < wanted {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if reached(middle) < wanted { low = middle } else { high = middle }
    }
    high
}

/// An interval around an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Half the width over the centre.
    pub fn relative_half_width(&self) -> f64 {
        (self.high - self.low) / (self.high + self.low)
    }

    /// Whether `value` lies in it.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The distribution-free confidence interval of the median by order statistics (normal approximation of the
/// binomial ranks), at `z` standard deviations: 1.96 for 95 %. All of the range for fewer than six values.
pub fn median_interval(values: &[f64], z: f64) -> Interval {
    let values = sorted(values);
    let n = values.len();
    if n == 0 {
        return Interval { low: f64::NAN, high: f64::NAN };
    }
    if n < 6 {
        return Interval { low: values[0], high: values[n - 1] };
    }
    let spread = z * (n as f64).sqrt() / 2.0;
    let middle = n as f64 / 2.0;
    let low = (middle - spread).floor().max(0.0) as usize;
    let high = ((middle + spread).ceil() as usize).min(n - 1);
    Interval { low: values[low], high: values[high] }
}

/// The 95 % interval.
pub const Z95: f64 = 1.959964;

/// The interval of `median(b) / median(a)`, from the standard errors that both median intervals imply.
pub fn ratio_interval(a: &[f64], b: &[f64], z: f64) -> Interval {
    let ratio = median(b) / median(a);
    let relative = median_interval(a, z).relative_half_width().hypot(median_interval(b, z).relative_half_width());
    Interval { low: ratio * (1.0 - relative), high: ratio * (1.0 + relative) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::{rng, unit};
    use rstest::rstest;

    #[rstest]
    #[case(&[], f64::NAN)]
    #[case(&[3.0], 3.0)]
    #[case(&[4.0, 1.0], 2.5)]
    #[case(&[9.0, 1.0, 5.0], 5.0)]
    fn medians(#[case] values: &[f64], #[case] expected: f64) {
        let got = median(values);
        assert!(got == expected || (got.is_nan() && expected.is_nan()), "{got}");
    }

    #[test]
    fn the_interval_covers_the_median_about_as_often_as_it_says() {
        let mut rng = rng(5);
        let tries = 2000;
        let covered = (0..tries)
            .filter(|_| {
                let values: Vec<f64> = (0..41).map(|_| unit(&mut rng).powi(3)).collect();
                median_interval(&values, Z95).contains(0.125)
            })
            .count();
        let rate = covered as f64 / f64::from(tries);
        assert!((0.94..=0.99).contains(&rate), "{rate}");
    }

    /// A uniform value stands for a χ² of two degrees: twice its negative logarithm.
    #[test]
    fn the_limit_of_a_mean_square_is_exceeded_as_rarely_as_it_says() {
        let (mut rng, tries) = (rng(7), 20_000);
        for pairs in [1, 8, 64] {
            let mean = |rng: &mut _| (0..pairs).map(|_| -(1.0 - unit(rng)).ln()).sum::<f64>() / f64::from(pairs);
            let limit = chi_square_mean_limit(2 * pairs as usize, 0.01);
            let over = (0..tries).filter(|_| mean(&mut rng) > limit).count();
            assert!((1..=tries / 100).contains(&over), "{over} of {tries} beyond {limit}");
        }
        assert!((40.0..50.0).contains(&chi_square_mean_limit(1, 1e-9)), "{}", chi_square_mean_limit(1, 1e-9));
    }

    #[test]
    fn the_ratio_interval_excludes_a_real_difference() {
        let mut rng = rng(6);
        let a: Vec<f64> = (0..60).map(|_| 1.0 + 0.004 * unit(&mut rng)).collect();
        let b: Vec<f64> = (0..60).map(|_| 1.02 + 0.004 * unit(&mut rng)).collect();
        assert!(ratio_interval(&a, &b, Z95).low > 1.015);
        assert!(ratio_interval(&a, &a, Z95).contains(1.0));
    }
}
