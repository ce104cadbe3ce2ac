//! The shape of a matrix product.

crate::shape! {
    /// The shape of a matrix product.
    pub struct Product {
        /// Rows of A and C.
        m: 0..=1 << 20,
        /// Columns of B and C.
        n: 1..=1 << 18,
        /// Columns of A, rows of B.
        k: 1..=1 << 18,
    }
}
