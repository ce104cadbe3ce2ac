//! What an operator must move and compute at the least.

/// The compulsory work of one case: each input read once, each output written once, the operations of the formula.
/// ```
/// use kernelgate::prelude::*;
///
/// // c = a b, of m × k and k × n
/// let product = |m: usize, n: usize, k: usize, t: DType| Cost {
///     bytes: (m * k + k * n + m * n) * t.size(),
///     flops: 2 * m * n * k,
/// };
/// assert_eq!(product(2, 3, 4, BF16).flops, 48);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: usize,
    /// Floating-point operations; a fused multiply-add counts as two.
    pub flops: usize,
}

impl Cost {
    /// Operations a byte; infinite when nothing is moved.
    pub fn intensity(&self) -> f64 {
        self.flops as f64 / self.bytes as f64
    }
}
