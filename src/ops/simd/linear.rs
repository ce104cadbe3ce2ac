//! A linear layer: a product in f32, then what follows it, row by row.

use rayon::prelude::*;

use super::convert::convert;
use super::gemm::gemm;
use super::lane::Lane;
use super::level::Level;
use super::scratch::with_scratch;
use super::transpose::transposed;

/// A function of every element of the first slice, into the second.
pub type Elementwise = fn(&[f32], &mut [f32]);

/// `y = activation(x wᵀ + bias) + residual`, with rows of `k` elements in `x` and `w`; what is `None` is left out.
///
/// # Panics
/// If the slices do not hold whole rows, `bias` not an element for each row of `w`, or `y` and `residual` not one for
/// each pair of rows of `x` and `w`.
pub fn linear<T: Lane>(
    k: usize,
    x: &[T],
    w: &[T],
    bias: &[T],
    activation: Option<Elementwise>,
    residual: Option<&[T]>,
    y: &mut [T],
) {
    let (m, n) = (x.len() / k, w.len() / k);
    assert!(x.len() == m * k && w.len() == n * k, "x and w are not rows of k");
    assert_eq!(bias.len(), n, "bias does not have the rows of w");
    assert_eq!(y.len(), m * n, "y is not rows of x by rows of w");
    assert!(residual.is_none_or(|residual| residual.len() == y.len()), "residual is not as long as y");
    if y.is_empty() {
        return;
    }
    let level = Level::best();
    let (mut wide_x, mut wide_bias, mut sums) = (vec![0.0; x.len()], vec![0.0; n], vec![0.0; y.len()]);
    convert(level, x, &mut wide_x);
    convert(level, bias, &mut wide_bias);
    gemm(m, n, k, &wide_x, &transposed(w, k), &mut sums);
    y.par_chunks_exact_mut(n).zip(sums.par_chunks_exact_mut(n)).enumerate().for_each(|(row, (y, sums))| {
        sums.iter_mut().zip(&wide_bias).for_each(|(sum, bias)| *sum += bias);
        with_scratch(2 * n, |scratch| {
            let (activated, added) = scratch.split_at_mut(n);
            match activation {
                Some(activation) => activation(sums, activated),
                None => activated.copy_from_slice(sums),
            }
            if let Some(residual) = residual {
                convert(level, &residual[row * n..][..n], added);
                activated.iter_mut().zip(&*added).for_each(|(y, added)| *y += added);
            }
            convert(level, activated, y);
        });
    });
}
