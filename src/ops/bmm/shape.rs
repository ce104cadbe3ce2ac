//! The shape of a batch of products, and where their elements are.

use crate::ops::gemm::Product;

crate::shape! {
    /// The shape of a batch of products.
    pub struct Products {
        /// Items.
        batch: 0..=1 << 20,
        /// Rows of op(A) and C.
        m: 1..=1 << 18,
        /// Columns of op(B) and C.
        n: 1..=1 << 18,
        /// Columns of op(A), rows of op(B).
        k: 1..=1 << 18,
        /// Whether A is `[batch, k, m]` and not `[batch, m, k]`.
        transposed_a: bool = [false, true],
        /// Whether B is `[batch, n, k]` and not `[batch, k, n]`.
        transposed_b: bool = [false, true],
    }
}

impl Products {
    /// The product of one item.
    pub(super) fn item(&self) -> Product {
        Product { m: self.m, n: self.n, k: self.k }
    }

    /// Rows and columns of an item of A in memory.
    pub(super) fn a(&self) -> [usize; 2] {
        if self.transposed_a { [self.k, self.m] } else { [self.m, self.k] }
    }

    /// The same of B.
    pub(super) fn b(&self) -> [usize; 2] {
        if self.transposed_b { [self.n, self.k] } else { [self.k, self.n] }
    }

    /// The place of op(A[item])[i, p] in A.
    pub(super) fn at_a(&self, item: usize, i: usize, p: usize) -> usize {
        item * self.m * self.k + if self.transposed_a { p * self.m + i } else { i * self.k + p }
    }

    /// The place of op(B[item])[p, j] in B.
    pub(super) fn at_b(&self, item: usize, p: usize, j: usize) -> usize {
        item * self.k * self.n + if self.transposed_b { j * self.k + p } else { p * self.n + j }
    }

    /// The layouts of A and B as libraries name them: as it is, or transposed.
    pub(super) fn layout(&self) -> &'static str {
        match (self.transposed_a, self.transposed_b) {
            (false, false) => "nn",
            (false, true) => "nt",
            (true, false) => "tn",
            (true, true) => "tt",
        }
    }

    /// The f32 entry of the layout, or the one for rows that start anywhere.
    pub(super) fn simt_entry(&self, aligned: bool) -> String {
        format!("bmm_simt_{}{}", self.layout(), if aligned { "" } else { "_any" })
    }
}
