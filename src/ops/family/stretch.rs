//! How many products are summed in one go.
//!
//! Within a binade every addition of the same product rounds to the same side: by d(f) units in the last place, where f is
//! the part of the product below that place and d the distance to the nearest integer. A binade further down f is twice as
//! much and the additions half as many, so all come to at most n / 4 units of 2⁻²⁴ of the sum, where the tolerance allows
//! 4 √n. A long sum is therefore cut into stretches: each is summed from 0, then joins the total, which leans no more than
//! its own few terms make it.

/// A stretch that is right for every sum of up to 2¹⁸ products.
pub const STRETCH: usize = 128;

/// The most of `k` products that a stretch may have. Stretches of s end (s + k / s) / 4 units off, here some 3 √k.
pub fn longest(k: usize) -> usize {
    STRETCH.max(12 * k.isqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_products_stay_within_the_tolerance() {
        for k in (1..4096).chain([1 << 14, 1 << 18]) {
            for stretch in [STRETCH, longest(k)] {
                let (k, s) = (k as f64, stretch.min(k) as f64);
                assert!((s + k / s) / 4.0 <= 3.1 * k.sqrt(), "{k} in stretches of {s}");
            }
        }
    }
}
