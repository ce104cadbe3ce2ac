//! The derived tolerance: one rounding of the result, and the accumulated rounding of the arithmetic before it.
//!
//! `allowed = u · ulp(ref) + (c · ε · sqrt(depth) + i · ε_dtype) · magnitude`, where ε = 2⁻²⁴ because every candidate is
//! to accumulate in f32, `depth` is the number of roundings that an element collects, and `magnitude` is the size of the
//! quantities that were added or cancelled to make it. Both come from the operator. `i` is 0 unless a candidate says that
//! it rounds something to the dtype on the way.

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
}

impl Default for Tolerance {
    /// One ulp of the stored result, four roundings a step, none to the dtype between.
    fn default() -> Self {
        Tolerance { ulps: 1.0, factor: 4.0, intermediate: 0.0 }
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
        Tolerance { ulps, factor, intermediate: 0.0 }
    }

    /// The same for a candidate that rounds something between to the dtype: the weights of an attention, say.
    pub fn intermediate(self, roundings: f64) -> Self {
        Tolerance { intermediate: roundings, ..self }
    }

    /// Gives the reason, which every report then shows.
    pub fn because(self, reason: impl Into<String>) -> Override {
        Override { tolerance: self, because: reason.into() }
    }

    /// The largest error allowed where the reference is `reference`.
    pub fn allowed(&self, dtype: DType, reference: f64, depth: f64, magnitude: f64) -> f64 {
        let summed = self.factor * ACCUMULATOR_EPSILON * depth.max(1.0).sqrt();
        let between = self.intermediate * dtype.ulp(1.0) / 2.0;
        self.ulps * dtype.ulp(reference) + (summed + between) * magnitude.abs()
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn both_terms_count() {
        let tolerance = Tolerance::default();
        let f32_only = tolerance.allowed(DType::F32, 1.0, 1.0, 0.0);
        assert_eq!(f32_only, f32::EPSILON as f64);
        let summed = tolerance.allowed(DType::F32, 0.0, 1024.0, 2.0) - DType::F32.ulp(0.0);
        approx::assert_relative_eq!(summed, 4.0 * ACCUMULATOR_EPSILON * 32.0 * 2.0, max_relative = 1e-9);
    }
}
