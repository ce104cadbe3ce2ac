//! Some rows of a case as a case of their own, for operators whose rows are independent.
//!
//! References of large cases are computed slice by slice in parallel, and large timed cases are verified on some rows.

use crate::core::operator::Operator;
use crate::core::shape::Point;
use crate::core::tensor::Tensor;

/// The rows of one axis of a point, and the inputs that go with them.
pub struct Slice {
    /// The point with the axis cut to the number of rows.
    pub point: Point,
    /// The inputs, those that follow the axis cut to the rows.
    pub inputs: Vec<Tensor>,
}

/// The first dimension that has one entry for each coordinate of `axis`, of a tensor with these extents.
pub(super) fn following(dims: impl Fn(&[usize]) -> Vec<usize>, point: &[usize], axis: usize) -> Option<usize> {
    let mut longer = point.to_vec();
    longer[axis] += 1;
    let extents = dims(point).into_iter().zip(dims(&longer));
    extents.into_iter().position(|(now, then)| now == point[axis] && then == now + 1)
}

/// The dimension of output `i` that follows the axis along which the operator is separable.
pub fn rows_of_output(operator: &dyn Operator, i: usize, point: &[usize], axis: usize) -> usize {
    following(|point| operator.output_dims(i, point), point, axis).unwrap_or(0)
}

/// Cuts `rows` out of a case.
pub fn slice(operator: &dyn Operator, axis: usize, point: &[usize], inputs: &[Tensor], rows: &[usize]) -> Slice {
    let mut cut = point.to_vec();
    cut[axis] = rows.len();
    let inputs = inputs.iter().enumerate().map(|(i, x)| {
        let along = following(|point| operator.input_dims(i, point), point, axis);
        along.map_or_else(|| x.clone(), |along| x.take(along, rows))
    });
    Slice { point: cut, inputs: inputs.collect() }
}

/// Rows worth looking at in a case too large to look at whole: both ends, the neighbours of powers of two, and some
/// spread evenly.
pub fn representative_rows(extent: usize, most: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|bit| 1usize << bit).take_while(|&p| p <= extent);
    let near = powers.flat_map(|p| [p.wrapping_sub(1), p]);
    let even = (0..most).map(|i| i * extent / most.max(1));
    let mut rows: Vec<usize> =
        [0, extent.saturating_sub(1)].into_iter().chain(near).chain(even).filter(|&row| row < extent).collect();
    rows.sort_unstable();
    rows.dedup();
    // Too many: keep both ends and thin out the middle evenly.
    if rows.len() > most && most >= 2 {
        let last = rows.len() - 1;
        rows = (0..most).map(|i| rows[i * last / (most - 1)]).collect();
        rows.dedup();
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;

    crate::shape! { struct Product { m: 1..=64, n: 1..=64 } }

    #[test]
    fn only_inputs_that_follow_the_axis_are_cut() {
        // n equals m here, so extents alone could not tell.
        let op = Op::<Product>::new("p").input("a", |s| [s.m, 2]).input("b", |s| [s.n, 2]).separable("m");
        let a = Tensor::from_f64(DType::F32, &[3, 2], &[0., 1., 2., 3., 4., 5.]);
        let cut = slice(&op, 0, &[3, 3], &[a.clone(), a.clone()], &[2]);
        assert_eq!(cut.point, [1, 3]);
        assert_eq!(cut.inputs[0].to_f64(), [4., 5.]);
        assert_eq!(cut.inputs[1], a);
    }

    #[test]
    fn rows_may_lie_along_an_inner_dimension() {
        let op = Op::<Product>::new("p").input("x", |s| [s.n, s.m]).output("y", |s| [s.n, s.m, 2]).separable("m");
        let x = Tensor::from_f64(DType::F32, &[2, 3], &[0., 1., 2., 3., 4., 5.]);
        assert_eq!(slice(&op, 0, &[3, 2], &[x], &[2, 0]).inputs[0].to_f64(), [2., 0., 5., 3.]);
        assert_eq!(rows_of_output(&op, 0, &[3, 2], 0), 1);
    }

    #[test]
    fn both_ends_are_representative() {
        let rows = representative_rows(1_000_003, 24);
        assert!(rows.len() <= 24 && rows[0] == 0 && rows.last() == Some(&1_000_002), "{rows:?}");
        assert_eq!(representative_rows(2, 24), [0, 1]);
        assert!(representative_rows(0, 24).is_empty());
    }

    #[test]
    fn no_long_stretch_is_without_a_representative() {
        let rows = representative_rows(1 << 20, 64);
        let longest = rows.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest <= 1 << 16, "{longest}: {rows:?}");
    }
}
