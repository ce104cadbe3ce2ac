//! A batch of matrix products: gemm's for every item, with transposed factors copied to row-major first.

use std::borrow::Cow;

use rayon::prelude::*;

use super::gemm::{SERIAL_BELOW, gemm};
use super::lane::Lane;
use super::transpose::transpose;

/// `c[i] = op(a[i]) op(b[i])` for every item of (m x k) times (k x n), row-major, the items one behind the other;
/// `transposed` says of each factor whether op transposes it. Sums in f32.
///
/// # Panics
/// If the slices do not hold the same number of items.
pub fn bmm<T: Lane>((m, n, k): (usize, usize, usize), transposed: [bool; 2], a: &[T], b: &[T], c: &mut [T]) {
    if c.is_empty() {
        return;
    }
    let batch = c.len() / (m * n);
    assert_eq!(c.len(), batch * m * n, "c does not hold whole items");
    assert_eq!(a.len(), batch * m * k, "a does not have the items of c");
    assert_eq!(b.len(), batch * k * n, "b does not have the items of c");
    let job = |(item, c): (usize, &mut [T])| {
        let (a, b) = (&a[item * m * k..][..m * k], &b[item * k * n..][..k * n]);
        let a = if transposed[0] { Cow::Owned(transpose(a, m)) } else { Cow::Borrowed(a) };
        let b = if transposed[1] { Cow::Owned(transpose(b, k)) } else { Cow::Borrowed(b) };
        gemm(m, n, k, &a, &b, c);
    };
    if a.len().saturating_mul(n) < SERIAL_BELOW {
        c.chunks_exact_mut(m * n).enumerate().for_each(job);
    } else {
        c.par_chunks_exact_mut(m * n).enumerate().for_each(job);
    }
}
