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

/// Whether input `i` has one leading entry for each coordinate of `axis`.
pub(super) fn follows(operator: &dyn Operator, i: usize, point: &[usize], axis: usize) -> bool {
    let mut longer = point.to_vec();
    longer[axis] += 1;
    let (now, then) = (operator.input_dims(i, point), operator.input_dims(i, &longer));
    matches!((now.first(), then.first()), (Some(&a), Some(&b)) if a == point[axis] && b == a + 1)
}

/// Cuts `rows` out of a case.
pub fn slice(operator: &dyn Operator, axis: usize, point: &[usize], inputs: &[Tensor], rows: &[usize]) -> Slice {
    let mut cut = point.to_vec();
    cut[axis] = rows.len();
    let inputs = inputs.iter().enumerate();
    let inputs = inputs.map(|(i, x)| if follows(operator, i, point, axis) { x.rows(rows) } else { x.clone() });
    Slice { point: cut, inputs: inputs.collect() }
}

/// Rows worth looking at in a case too large to look at whole: both ends, the neighbours of powers of two, and some
/// spread evenly.
pub fn telling_rows(extent: usize, most: usize) -> Vec<usize> {
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
    fn both_ends_are_telling() {
        let rows = telling_rows(1_000_003, 24);
        assert!(rows.len() <= 24 && rows[0] == 0 && rows.last() == Some(&1_000_002), "{rows:?}");
        assert_eq!(telling_rows(2, 24), [0, 1]);
        assert!(telling_rows(0, 24).is_empty());
    }
}
