//! One way of the same beside another.

use crate::profile::{Against, ProfileRun};

/// One way beside another; the differences are the largest of the outputs, and the same over the largest output.
pub fn compared(
    ours: &ProfileRun,
    theirs: &ProfileRun,
    [largest_difference, relative_difference]: [f64; 2],
    perplexity: Option<[f64; 2]>,
) -> Against {
    Against {
        way: theirs.way.clone(),
        untraced_us: theirs.untraced_us,
        launches: [ours.launches(), theirs.launches()],
        peak_bytes: [ours.memory.peak_bytes, theirs.memory.peak_bytes],
        largest_difference: Some(largest_difference).filter(|difference| difference.is_finite()),
        relative_difference: Some(relative_difference).filter(|difference| difference.is_finite()),
        perplexity,
    }
}

/// The largest difference of two lists, and the same over the largest value of the second. What stands on one side alone
/// (a NaN, an infinity) is infinitely far.
pub fn apart(ours: &[f64], theirs: &[f64]) -> [f64; 2] {
    let difference = |(a, b): (&f64, &f64)| {
        let same = a == b || (a.is_nan() && b.is_nan());
        let difference = if same { 0.0 } else { (a - b).abs() };
        if difference.is_nan() { f64::INFINITY } else { difference }
    };
    let most = ours.iter().zip(theirs).map(difference).fold(0.0, f64::max);
    let largest = theirs.iter().filter(|value| value.is_finite()).fold(0.0f64, |most, value| most.max(value.abs()));
    [most, if most == 0.0 { 0.0 } else { most / largest.max(f64::MIN_POSITIVE) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_on_one_side_is_no_agreement() {
        assert_eq!(apart(&[1.0, -2.5], &[1.0, -2.0]), [0.5, 0.25]);
        assert_eq!(apart(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY]), [0.0, 0.0]);
        assert_eq!(apart(&[f64::NAN, 1.0], &[1.0, 1.0])[0], f64::INFINITY);
        assert_eq!(apart(&[f64::INFINITY, 1.0], &[1.0, 1.0])[0], f64::INFINITY);
    }
}
