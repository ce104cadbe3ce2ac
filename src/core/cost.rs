//! What an operator must move and compute at the least.

/// The compulsory work of one case: each input read once, each output written once, the operations of the formula.
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
