//! Random shapes like those that an operator lists to be timed: what nobody has tuned for.

use super::inputs::footprint_bytes;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::seed::{Rng, below, derive, rng, unit};
use crate::core::shape::{Axis, Point, outside};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Extents are drawn from half the smallest to twice the largest of the shapes that the operator lists to be timed.
const BEYOND: f64 = 2.0;

/// Axes with so few listed extents keep to them where they are small: heads and their sizes are no lengths.
const FEW_VALUES: usize = 2;

/// From so many on an extent is a length, drawn from a sixty-fourth of the smallest where few are listed.
const LENGTH: usize = 256;
const FAR_BELOW: f64 = 64.0;

/// Draws without a shape that fits, after which there are no more.
pub const MOST_MISSES: usize = 400;

/// Extents of an axis to draw between, both included, in place of those around the listed ones: `m=1..4096`, or only the multiples of
/// a number: `m=1024..8192:256`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    axis: String,
    low: usize,
    high: usize,
    step: Option<usize>,
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (axis, extents) = text.split_once('=')?;
            let (low, rest) = extents.split_once("..")?;
            let (high, step) = rest.split_once(':').map_or((rest, None), |(high, step)| (high, Some(step)));
            let (low, high): (usize, usize) = (low.parse().ok()?, high.parse().ok()?);
            let step = step.map(str::parse).transpose().ok()?;
            let has_multiple = step.is_none_or(|step| step > 0 && high / step * step >= low);
            (low <= high && has_multiple && !axis.is_empty()).then(|| Range { axis: axis.into(), low, high, step })
        };
        parsed().ok_or_else(|| {
            format!(
                "expected an axis and its smallest and largest extent, m=1..4096, or those of them that are multiples of a number, \
                 m=1024..8192:256; found `{text}`"
            )
        })
    }
}

impl Range {
    /// Whether an operator has an axis of this name that holds these extents; or what is wrong.
    ///
    /// # Errors
    /// What the axes are, or what this one may hold.
    pub fn check(&self, operator: &dyn Operator) -> Result<(), String> {
        let Range { axis: name, low, high, .. } = self;
        let extents = || operator.axes().iter().filter(|axis| axis.is_extent());
        let Some(axis) = extents().find(|axis| axis.name == name) else {
            let names: Vec<&str> = extents().map(|axis| axis.name).collect();
            return Err(format!("{} has no extent `{name}`; it has {}", operator.name(), names.join(", ")));
        };
        let (min, max) = axis.bounds();
        if *low < min || *high > max {
            return Err(format!("{}: `{name}` is in {min}..{max}, found {low}..{high}", operator.name()));
        }
        Ok(())
    }
}

/// What a case may be and take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of its tensors at the most.
    pub bytes: usize,
    /// Operations at the most.
    pub flops: usize,
    /// Extents that were asked for.
    pub ranges: Vec<Range>,
}

impl Limits {
    /// What is measured in milliseconds on a GPU, and in a tenth of a second on the host.
    pub fn of(is_host: bool) -> Self {
        let gpu = Limits { bytes: 1 << 30, flops: 2_000_000_000_000, ranges: Vec::new() };
        if is_host { Limits { bytes: gpu.bytes / 8, flops: gpu.flops / 1000, ..gpu } } else { gpu }
    }

    fn allow(&self, operator: &dyn Operator, point: &[usize], dtype: DType) -> bool {
        outside(operator.axes(), point).is_none()
            && footprint_bytes(operator, point, dtype) <= self.bytes
            && operator.cost(point, dtype).flops <= self.flops
    }

    /// A shape within the limits; `None` where the operator lists none to be timed, or none is found.
    pub fn draw(&self, operator: &dyn Operator, dtype: DType, rng: &mut Rng) -> Option<Point> {
        let mut drawn = (0..MOST_MISSES).map_while(|_| like_listed(operator, &self.ranges, rng));
        drawn.find(|point| self.allow(operator, point, dtype))
    }

    /// As many different shapes as asked for, as far as there are any; the same for every candidate of the operator.
    pub fn draw_many(&self, operator: &dyn Operator, dtype: DType, count: usize, seed: u64) -> Vec<Point> {
        let mut rng = rng(derive(seed, &["random shapes", operator.name()]));
        let (mut points, mut misses) = (Vec::new(), 0);
        while points.len() < count && misses < MOST_MISSES {
            let Some(point) = self.draw(operator, dtype, &mut rng) else { break };
            if points.contains(&point) {
                misses += 1;
            } else {
                points.push(point);
            }
        }
        points
    }
}

/// A shape like those that the operator lists to be timed, or in the ranges asked for, log-uniform in every extent; `None` if it
/// lists none.
fn like_listed(operator: &dyn Operator, ranges: &[Range], rng: &mut Rng) -> Option<Point> {
    let listed = operator.perf_shapes();
    let like = listed.get(below(rng, listed.len().max(1)))?;
    let at = operator.axes().iter().enumerate().map(|(i, axis)| {
        let range = ranges.iter().find(|range| range.axis == axis.name);
        let between = range.map(|range| (range.low as f64, range.high as f64));
        let Some((low, high)) = between.or_else(|| around(axis, listed.iter().map(|point| point[i]))) else {
            return like[i];
        };
        // What may be nothing is drawn one higher.
        let shift = if low < 1.0 { 1.0 } else { 0.0 };
        let [from, to] = [low, high].map(|extent| (extent + shift).ln());
        let extent = (from + unit(rng) * (to - from)).exp() - shift;
        // A third of all extents are multiples of 64, as most of those in models are, a third of eight.
        let usual = [1.0, 8.0, 64.0][below(rng, 3)];
        let asked = range.and_then(|range| range.step).map(|step| step as f64);
        let (step, of_ends) = (asked.unwrap_or(usual), asked.unwrap_or(1.0));
        let ends = [(low / of_ends).ceil() * of_ends, (high / of_ends).floor() * of_ends];
        ((extent / step).round().max(1.0 - shift) * step).clamp(ends[0], ends[1]) as usize
    });
    Some(at.collect())
}

/// Between which extents an axis is drawn of which these are listed; `None` where it keeps to them.
fn around(axis: &Axis, listed: impl Iterator<Item = usize>) -> Option<(f64, f64)> {
    let values: BTreeSet<usize> = listed.collect();
    let (min, max) = axis.bounds();
    let (low, high) = (*values.first()?, *values.last()?);
    let is_few = values.len() <= FEW_VALUES;
    if !axis.is_extent() || (is_few && high < LENGTH) {
        return None;
    }
    let divisor = if is_few { FAR_BELOW } else { BEYOND };
    Some(((low as f64 / divisor).max(min.max(1) as f64), (high as f64 * BEYOND).min(max as f64)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::core::cost::Cost;
    use crate::core::operator::Op;

    crate::shape! { pub(crate) struct Matrix { rows: 1..=1 << 20, cols: 1..=1 << 16, heads: 1..=64 } }

    /// Twice a matrix.
    pub(crate) fn operator() -> Op<Matrix> {
        let listed = [(64, 128), (256, 512), (512, 32)].map(|(rows, cols)| Matrix { rows, cols, heads: 8 });
        Op::<Matrix>::new("scale")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows, s.cols])
            .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, &x)| *y = 2.0 * x))
            .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols })
            .perf(listed)
    }

    #[test]
    fn shapes_are_drawn_around_those_that_are_listed_and_repeat_by_seed() {
        let drawn = |seed| Limits::of(false).draw_many(&operator(), DType::F32, 300, seed);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_eq!(drawn(1).len(), 300);
        for point in drawn(1) {
            assert!((32..=1024).contains(&point[0]) && (16..=1024).contains(&point[1]) && point[2] == 8, "{point:?}");
        }
        assert!(drawn(1).iter().any(|point| point[0] % 8 != 0), "ragged ones among them");
    }

    #[test]
    fn limits_hold() {
        let limits = Limits { bytes: 1 << 16, ..Limits::of(false) };
        let points = limits.draw_many(&operator(), DType::F32, 50, 1);
        assert!(!points.is_empty() && points.iter().all(|point| 2 * point[0] * point[1] * 4 <= 1 << 16));
        assert!(Limits { bytes: 1, ..limits }.draw_many(&operator(), DType::F32, 50, 1).is_empty());
    }
    #[test]
    fn an_axis_may_be_asked_for_in_other_extents() {
        let ranges = vec!["cols=1..40".parse().unwrap(), "heads=2..3".parse().unwrap()];
        let limits = Limits { ranges, ..Limits::of(false) };
        let points = limits.draw_many(&operator(), DType::F32, 300, 1);
        assert!(points.iter().all(|at| (32..=1024).contains(&at[0]) && at[1] <= 40 && (2..=3).contains(&at[2])));
        assert!(points.iter().any(|at| at[1] < 8) && points.iter().any(|at| at[2] == 2));

        let limits = Limits { ranges: vec!["rows=90..1000:96".parse().unwrap()], ..limits };
        let rows: BTreeSet<usize> = limits.draw_many(&operator(), DType::F32, 300, 1).iter().map(|at| at[0]).collect();
        assert_eq!(rows, (1..=10).map(|i| i * 96).collect());
    }

    #[rstest::rstest]
    #[case("cols=1..4096", "")]
    #[case("width=1..8", "scale has no extent `width`; it has rows, cols, heads")]
    #[case("heads=1..65", "`heads` is in 1..64, found 1..65")]
    #[case("cols=0..8", "`cols` is in 1..65536, found 0..8")]
    #[case("cols=9..8", "expected an axis")]
    #[case("=1..8", "expected an axis")]
    #[case("cols=8", "expected an axis")]
    #[case("cols=8..64:32", "")]
    #[case("cols=8..31:32", "expected an axis")]
    #[case("cols=0..31:0", "expected an axis")]
    #[case("cols=0..31:", "expected an axis")]
    fn a_range_is_held_against_the_axes(#[case] text: &str, #[case] expected: &str) {
        let said = text.parse::<Range>().and_then(|range| range.check(&operator())).err().unwrap_or_default();
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{said}");
    }
}
