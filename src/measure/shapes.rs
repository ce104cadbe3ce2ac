//! Random shapes like those that an operator lists to be timed: what nobody has tuned for.

use super::inputs::footprint_bytes;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::seed::{Rng, below, derive, rng, unit};
use crate::core::shape::{Point, outside};
use std::collections::BTreeSet;

/// Extents are drawn from half the smallest to twice the largest of the shapes that the operator lists to be timed.
const BEYOND: f64 = 2.0;

/// Axes with so few listed extents keep to them where they are small: heads and their sizes are no lengths.
const FEW_VALUES: usize = 2;

/// From so many on an extent is a length, drawn from a sixty-fourth of the smallest where few are listed.
const LENGTH: usize = 256;
const FAR_BELOW: f64 = 64.0;

/// Draws without a shape that fits, after which there are no more.
pub const MOST_MISSES: usize = 400;

/// What a case may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of its tensors at the most.
    pub bytes: usize,
    /// Operations at the most.
    pub flops: usize,
}

impl Limits {
    /// What is measured in milliseconds on a GPU, and in a tenth of a second on the host.
    pub fn of(is_host: bool) -> Self {
        let gpu = Limits { bytes: 1 << 30, flops: 2_000_000_000_000 };
        if is_host { Limits { bytes: gpu.bytes / 8, flops: gpu.flops / 1000 } } else { gpu }
    }

    fn allow(&self, operator: &dyn Operator, point: &[usize], dtype: DType) -> bool {
        outside(operator.axes(), point).is_none()
            && footprint_bytes(operator, point, dtype) <= self.bytes
            && operator.cost(point, dtype).flops <= self.flops
    }

    /// A shape within the limits; `None` where the operator lists none to be timed, or none is found.
    pub fn draw(&self, operator: &dyn Operator, dtype: DType, rng: &mut Rng) -> Option<Point> {
        let mut drawn = (0..MOST_MISSES).map_while(|_| like_listed(operator, rng));
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

/// A shape like those that the operator lists to be timed, log-uniform in every extent; `None` if it lists none.
fn like_listed(operator: &dyn Operator, rng: &mut Rng) -> Option<Point> {
    let listed = operator.perf_shapes();
    let like = listed.get(below(rng, listed.len().max(1)))?;
    let at = operator.axes().iter().enumerate().map(|(i, axis)| {
        let values: BTreeSet<usize> = listed.iter().map(|point| point[i]).collect();
        let (min, max) = axis.bounds();
        let (low, high) = (values.first().copied().unwrap_or(min), values.last().copied().unwrap_or(max));
        let is_few = values.len() <= FEW_VALUES;
        if !axis.is_extent() || (is_few && high < LENGTH) {
            return like[i];
        }
        let divisor = if is_few { FAR_BELOW } else { BEYOND };
        let (low, high) = ((low as f64 / divisor).max(min.max(1) as f64), (high as f64 * BEYOND).min(max as f64));
        let extent = (low.ln() + unit(rng) * (high.ln() - low.ln())).exp();
        // A third of all extents are multiples of 64, as most of those in models are, a third of eight.
        let step = [1.0, 8.0, 64.0][below(rng, 3)];
        ((extent / step).round().max(1.0) * step).clamp(low.ceil(), high.floor()) as usize
    });
    Some(at.collect())
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
        let limits = Limits { bytes: 1 << 16, flops: 1 << 30 };
        let points = limits.draw_many(&operator(), DType::F32, 50, 1);
        assert!(!points.is_empty() && points.iter().all(|point| 2 * point[0] * point[1] * 4 <= 1 << 16));
        assert!(Limits { bytes: 1, flops: 1 }.draw_many(&operator(), DType::F32, 50, 1).is_empty());
    }
}
