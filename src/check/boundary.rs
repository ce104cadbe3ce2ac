//! Boundary shapes: where kernels go wrong. Made from the axes and from the tile extents that a candidate declares.

use crate::core::candidate::Traits;
use crate::core::constraint::{Limit, nearest};
use crate::core::operator::Operator;
use crate::core::seed::{Rng, below};
use crate::core::shape::{Axis, Point};

/// Extents that trip kernels whatever their tiles: warps, vectors, blocks, primes between.
const BOUNDARY_EXTENTS: [usize; 16] = [1, 2, 3, 7, 8, 31, 32, 33, 61, 127, 128, 129, 257, 1023, 1024, 1025];

/// Both sides of a 16-bit index, and of the largest grid along y and z. Met by every axis that can be so long.
const PAST_16_BITS: [usize; 3] = [65_535, 65_536, 65_537];

/// Extents of the other axes meanwhile: all different, and so small that a device which is given little takes the case.
const NARROW: [usize; 6] = [2, 3, 4, 5, 6, 7];

/// Extents of the axes that are not being varied: small, odd and all different, so that no two extents are mixed up.
const BASE: [usize; 6] = [5, 37, 11, 67, 13, 19];

/// The extents worth trying on one axis, ascending.
pub fn extents(axis: &Axis, traits: &Traits) -> Vec<usize> {
    let (min, max) = axis.bounds();
    let tiles = traits.tiles.iter().filter(|(name, _)| *name == axis.name).map(|&(_, tile)| tile);
    let around = tiles.flat_map(|t| [t.saturating_sub(1), t, t + 1, 2 * t, 2 * t + 1, 3 * t - 1]);
    let mut extents: Vec<usize> = if axis.is_extent() {
        [min].into_iter().chain(BOUNDARY_EXTENTS).chain(around).filter(|e| (min..=max).contains(e)).collect()
    } else {
        (min..=max).collect()
    };
    extents.sort_unstable();
    extents.dedup();
    extents
}

/// The point from which one axis at a time is varied: the operator's own, or boundary extents, or what is legal near them.
pub fn base(operator: &dyn Operator, limits: &[Limit]) -> Point {
    let base = operator.base().cloned().unwrap_or_else(|| filled(operator.axes(), &BASE));
    nearest(operator.axes(), operator.constraints(), limits, &base).unwrap_or(base)
}

/// Extents in the order of the axes, attributes at their default.
fn filled(axes: &[Axis], extents: &[usize]) -> Point {
    let mut next = extents.iter().cycle();
    axes.iter()
        .map(|axis| {
            let (min, max) = axis.bounds();
            if axis.is_extent() { next.next().map_or(min, |&e| e.clamp(min, max)) } else { min }
        })
        .collect()
}

/// The points at which one axis goes past 16 bits, the others no larger than at `base`.
fn past_16_bits(axes: &[Axis], base: &[usize]) -> impl Iterator<Item = Point> {
    let long = axes.iter().enumerate().filter(|(_, axis)| axis.is_extent());
    long.flat_map(|(i, axis)| {
        let (min, max) = axis.bounds();
        let others: Vec<Axis> = [&axes[..i], &axes[i + 1..]].concat();
        let base = base[..i].iter().chain(&base[i + 1..]);
        let narrow: Point =
            filled(&others, &NARROW).into_iter().zip(base).map(|(narrow, &base)| narrow.min(base)).collect();
        PAST_16_BITS.into_iter().filter(move |extent| (min..=max).contains(extent)).map(move |extent| {
            let mut point = narrow.clone();
            point.insert(i, extent);
            point
        })
    })
}

/// Every boundary extent of every axis, the other axes at [`base`], those that no 16 bits hold, and `combinations` random
/// corners of all axes at once. Smallest first, so that the first failure is a small one.
pub fn points(operator: &dyn Operator, traits: &Traits, combinations: usize, rng: &mut Rng) -> Vec<Point> {
    let axes = operator.axes();
    let choices: Vec<Vec<usize>> = axes.iter().map(|axis| extents(axis, traits)).collect();
    let base = base(operator, &traits.limits);
    let mut points = vec![base.clone()];
    for (i, extents) in choices.iter().enumerate() {
        for &extent in extents {
            let mut point = base.clone();
            point[i] = extent;
            points.push(point);
        }
    }
    for _ in 0..combinations {
        points.push(choices.iter().map(|extents| extents[below(rng, extents.len())]).collect());
    }
    points.extend(past_16_bits(axes, &base));
    let legal = |point: &Point| nearest(axes, operator.constraints(), &traits.limits, point);
    let mut points: Vec<Point> = points.iter().filter_map(legal).collect();
    points.sort_by_key(|point| (elements(operator, point), point.clone()));
    points.dedup();
    points
}

/// Elements of all tensors at a point.
pub fn elements(operator: &dyn Operator, point: &[usize]) -> usize {
    let inputs = (0..operator.inputs().len()).map(|i| operator.input_dims(i, point));
    let outputs = (0..operator.outputs().len()).map(|i| operator.output_dims(i, point));
    inputs.chain(outputs).map(|dims| dims.iter().product::<usize>()).sum()
}

/// Whether there is anything to compute at a point.
pub fn has_outputs(operator: &dyn Operator, point: &[usize]) -> bool {
    (0..operator.outputs().len()).any(|i| !operator.output_dims(i, point).contains(&0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::operator::Op;
    use crate::core::seed::rng;
    use crate::core::shape::Shape;

    crate::shape! { struct Rows { rows: 0..=4096, cols: 1..=2048, eps: f32 = [1e-5, 1e-3] } }

    #[test]
    fn every_axis_meets_its_corners_and_its_tiles() {
        let op = Op::<Rows>::new("r").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows, s.cols]);
        let traits = Traits { tiles: vec![("cols", 512)], ..Traits::default() };
        let points = points(&op, &traits, 4, &mut rng(1));
        for cols in [1, 511, 512, 513, 1025] {
            assert!(points.contains(&vec![5, cols, 0]), "cols {cols}");
        }
        assert!(points.contains(&vec![0, 37, 0]), "no rows at all");
        assert!(points.contains(&vec![5, 37, 1]), "the other eps");
        assert!(points.is_sorted_by_key(|p| elements(&op, p)));
    }

    crate::shape! { struct Long { rows: 0..=1 << 20, cols: 1..=65_536, eps: f32 = [1e-5, 1e-3] } }

    #[test]
    fn every_long_axis_goes_past_16_bits() {
        let points: Vec<Point> = past_16_bits(&Long::axes(), &[5, 37, 0]).collect();
        let (rows, cols) = ([65_535, 65_536, 65_537], [65_535, 65_536]);
        let expected = rows.map(|rows| vec![rows, 2, 0]).into_iter().chain(cols.map(|cols| vec![2, cols, 0]));
        assert_eq!(points, expected.collect::<Vec<_>>());
        assert_eq!(past_16_bits(&Rows::axes(), &[5, 37, 0]).count(), 0);
        let below: Vec<Point> = past_16_bits(&Long::axes(), &[1, 1, 0]).collect();
        assert!(below.iter().all(|point| point[..2].contains(&1)), "{below:?}");
    }

    #[test]
    fn an_operator_may_say_where_its_axes_are_varied_from() {
        let op = Op::<Rows>::new("r").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows, s.cols]);
        let op = op.varied_around(Rows { rows: 9, cols: 4, eps: 1e-3 });
        let points = points(&op, &Traits::default(), 0, &mut rng(1));
        assert!(points.contains(&vec![9, 4, 1]) && points.contains(&vec![9, 1025, 1]), "{points:?}");
    }
}
