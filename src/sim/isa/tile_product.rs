//! The sums of matrix operations: fused multiply-adds in a given order of k, in tiles that stay in vector registers.

use crate::sim::machine::product_queue::MAX_K;

/// Adds the products of a (rows of k) and b (rows of n) to sums (rows of n). Each sum takes its products in the order
/// given, whatever the tiles.
#[inline(always)]
pub(super) fn accumulate(a: &[[f32; MAX_K]], b: &[f32], n: usize, order: &[usize], sums: &mut [f32]) {
    if n.is_multiple_of(16) && a.len().is_multiple_of(4) {
        tiles::<4, 16>(a, b, n, order, sums);
    } else {
        tiles::<8, 8>(a, b, n, order, sums);
    }
}

/// Tiles of R rows and C columns; both divide what there is.
#[inline(always)]
fn tiles<const R: usize, const C: usize>(a: &[[f32; MAX_K]], b: &[f32], n: usize, order: &[usize], sums: &mut [f32]) {
    let (tiles_of_rows, _) = a.as_chunks::<R>();
    for (rows, sums) in tiles_of_rows.iter().zip(sums.chunks_exact_mut(R * n)) {
        for first in (0..n).step_by(C) {
            let mut tile = [[0.0f32; C]; R];
            for (row, tile) in tile.iter_mut().enumerate() {
                tile.copy_from_slice(&sums[row * n + first..][..C]);
            }
            for &k in order {
                let across = &b[k * n + first..][..C];
                for (row, tile) in rows.iter().zip(&mut tile) {
                    let factor = row[k];
                    for (sum, b) in tile.iter_mut().zip(across) {
                        *sum = factor.mul_add(*b, *sum);
                    }
                }
            }
            for (row, tile) in tile.iter().enumerate() {
                sums[row * n + first..][..C].copy_from_slice(tile);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(8)]
    #[case(16)]
    #[case(24)]
    #[case(64)]
    fn every_sum_takes_its_products_in_order(#[case] n: usize) {
        let value = |at: usize| (at * 37 % 101) as f32 / 7.0 - 5.0;
        let a: [[f32; MAX_K]; 16] = std::array::from_fn(|row| std::array::from_fn(|k| value(row * 31 + k)));
        let b: Vec<f32> = (0..MAX_K * n).map(|at| value(at * 3)).collect();
        let order = [3, 0, 2, 1, 15, 7];
        let mut sums: Vec<f32> = (0..16 * n).map(value).collect();
        let before = sums.clone();
        accumulate(&a, &b, n, &order, &mut sums);
        for at in 0..16 * n {
            let expected = order.iter().fold(before[at], |sum, &k| a[at / n][k].mul_add(b[k * n + at % n], sum));
            assert_eq!(sums[at].to_bits(), expected.to_bits(), "sum {at}");
        }
    }
}
