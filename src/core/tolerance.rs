//! The derived tolerance: one rounding of the result, and the accumulated rounding of the arithmetic before it.
//!
//! `allowed = u · ulp(ref) + (c · ε · sqrt(depth) + i · ε_dtype) · magnitude`, where ε = 2⁻²⁴ because every candidate is
//! to accumulate in f32, `depth` is the number of roundings that an element collects, and `magnitude` is the size of the
//! quantities that were added or cancelled to make it. Both come from the operator. `i` is 0 unless a candidate says that
//! it rounds something to the dtype on the way. Integers are exact unless a candidate says otherwise.

use super::dtype::DType;

/// Unit roundoff of an f32 accumulator.
pub const ACCUMULATOR_EPSILON: f64 = 1.0 / (1u64 << 24) as f64;

/// The constants of the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// `u`: roundings of the stored result, in units in the last place of its dtype.
    pub ulps: f64,
    /// `c`: how many f32 roundings an elementary step may cost (a library function counts 2 to 3).
    pub factor: f64,
    /// `i`: roundings of something between to the dtype, relative to the magnitude.
    pub intermediate: f64,
    /// How far an element of an integer output may be off. The other constants say nothing of integers.
    pub units: f64,
}

impl Default for Tolerance {
    /// One ulp of the stored result, four roundings a step, none to the dtype between; integers exact.
    fn default() -> Self {
        Tolerance { ulps: 1.0, factor: 4.0, intermediate: 0.0, units: 0.0 }
    }
}

impl Tolerance {
    /// A tolerance with other constants; it can only be used once it has a reason.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// let loose = Tolerance::new(2.0, 16.0).because("tanh.approx is good to 2^-11");
    /// assert_eq!(loose.tolerance.ulps, 2.0);
    /// ```
    pub fn new(ulps: f64, factor: f64) -> Self {
        Tolerance { ulps, factor, ..Tolerance::default() }
    }

    /// The same for a candidate that rounds something between to the dtype: the weights of an attention, say.
    pub fn intermediate(self, roundings: f64) -> Self {
        Tolerance { intermediate: roundings, ..self }
    }

    /// The same for a candidate whose integer outputs may be off by `units`: levels of a quantisation, say, where a value
    /// in the middle between two of them may go either way.
    pub fn units(self, units: f64) -> Self {
        Tolerance { units, ..self }
    }

    /// Gives the reason, which every report then shows.
    pub fn because(self, reason: impl Into<String>) -> Override {
        Override { tolerance: self, because: reason.into() }
    }

    /// The largest error allowed where the reference is `reference`.
    pub fn allowed(&self, dtype: DType, reference: f64, depth: f64, magnitude: f64) -> f64 {
        self.allowed_after(dtype, reference, self.factor * depth.max(1.0).sqrt(), magnitude)
    }

    /// The same where the terms of a sum are equal: within a binade every addition of one of them rounds to the same side,
    /// by d(f) units in the last place, where f is the part of the term below that place and d the distance to the nearest
    /// integer. A binade further on f is half as much and the additions are twice as many, so that a plain loop comes to
    /// `depth / 4` roundings of the sum at most, where those that know nothing of each other come to `sqrt(depth)`.
    pub fn allowed_of_equal_terms(&self, dtype: DType, reference: f64, depth: f64, magnitude: f64) -> f64 {
        let independent = self.factor * depth.max(1.0).sqrt();
        self.allowed_after(dtype, reference, independent.max(depth / 4.0 + self.factor), magnitude)
    }

    fn allowed_after(&self, dtype: DType, reference: f64, roundings: f64, magnitude: f64) -> f64 {
        if dtype.is_integer() {
            return self.units;
        }
        // A rounding to the dtype takes half of its smallest number from what is smaller than its normal ones.
        let rounding = (dtype.ulp(1.0) * magnitude.abs()).max(dtype.ulp(0.0)) / 2.0;
        self.ulps * dtype.ulp(reference)
            + roundings * ACCUMULATOR_EPSILON * magnitude.abs()
            + self.intermediate * rounding
    }
}

/// A tolerance that replaces the derived one, with the reason why.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The constants.
    pub tolerance: Tolerance,
    /// Why they are needed.
    pub because: String,
}

/// The page for users, whose examples are run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tolerances.md")]
struct Page;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_examples_of_the_page_hold() {
        let page = include_str!("../../docs/tolerances.md");
        let rows = page.lines().skip_while(|line| !line.starts_with("| element |")).skip(2);
        let mut checked = 0;
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let numbers: Vec<f64> = cells[1..].iter().map(|cell| cell.parse().unwrap()).collect();
            let [value, magnitude, depth, ulp, sum, allowed] = numbers[..] else { panic!("{row}") };
            let dtype: DType = cells[0].split([' ', ',']).next().unwrap().parse().unwrap();
            let found = Tolerance::default().allowed(dtype, value, depth, magnitude) / ACCUMULATOR_EPSILON;
            assert_eq!((dtype.ulp(value) / ACCUMULATOR_EPSILON, ulp + sum, found), (ulp, allowed, allowed), "{row}");
            checked += 1;
        }
        assert_eq!(checked, 4);
    }

    #[test]
    fn a_rounding_between_is_one_of_the_dtype() {
        let rounding = |dtype: DType| {
            let between = Tolerance::default().intermediate(1.0).allowed(dtype, 1.0, 1.0, 3.0);
            between - Tolerance::default().allowed(dtype, 1.0, 1.0, 3.0)
        };
        approx::assert_relative_eq!(rounding(DType::BF16), 3.0 / 256.0, max_relative = 1e-9);
        approx::assert_relative_eq!(rounding(DType::F16), 3.0 / 2048.0, max_relative = 1e-9);
    }

    #[test]
    fn a_rounding_between_takes_half_of_the_smallest_number_from_a_smaller_one() {
        let smallest = DType::F16.ulp(0.0);
        let allowed =
            |roundings: f64| Tolerance::default().intermediate(roundings).allowed(DType::F16, 0.0, 1.0, smallest);
        approx::assert_relative_eq!(allowed(4.0) - allowed(0.0), 2.0 * smallest, max_relative = 1e-9);
    }

    #[test]
    fn integers_are_exact_unless_said_otherwise() {
        assert_eq!(Tolerance::new(9.0, 9.0).allowed(DType::I32, 1000.0, 1e6, 1e6), 0.0);
        assert_eq!(Tolerance::default().units(2.0).allowed(DType::I32, 1000.0, 1e6, 1e6), 2.0);
        assert_eq!(Tolerance::default().units(2.0), Tolerance { units: 2.0, ..Tolerance::default() });
    }

    /// A plain loop, over terms of every kind.
    #[test]
    fn equal_terms_stay_within_what_they_are_allowed() {
        let tolerance = Tolerance::default();
        let mut most_of_independent = 0.0f64;
        for depth in [8usize, 64, 365, 1000, 4096, 20_000] {
            for at in 0..512 {
                let term = 1.0 + at as f32 / 512.0 + at as f32 * f32::EPSILON;
                let sum: f32 = (0..depth).map(|_| term).sum();
                let right = f64::from(term) * depth as f64;
                let error = (f64::from(sum) - right).abs();
                let depth = depth as f64;
                assert!(
                    error <= tolerance.allowed_of_equal_terms(DType::F32, right, depth, right),
                    "{depth} of {term}"
                );
                most_of_independent =
                    most_of_independent.max(error / tolerance.allowed(DType::F32, right, depth, right));
            }
        }
        assert!(most_of_independent > 1.0, "{most_of_independent}: independent roundings would do");
    }

    #[test]
    fn both_terms_count() {
        let tolerance = Tolerance::default();
        let f32_only = tolerance.allowed(DType::F32, 1.0, 1.0, 0.0);
        assert_eq!(f32_only, f32::EPSILON as f64);
        let summed = tolerance.allowed(DType::F32, 0.0, 1024.0, 2.0) - DType::F32.ulp(0.0);
        approx::assert_relative_eq!(summed, 4.0 * ACCUMULATOR_EPSILON * 32.0 * 2.0, max_relative = 1e-9);
    }
}
