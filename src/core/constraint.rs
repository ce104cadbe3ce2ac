//! Which shapes are legal: what an operator demands of its axes together, and what a candidate demands beyond that.

use super::shape::{Axis, Point, outside};
use std::ops::RangeInclusive;
use std::sync::Arc;

type NearestFn = Arc<dyn Fn(&[usize]) -> Point + Send + Sync>;

/// A demand on several axes at once: that there are as many keys as queries at the least, say.
#[derive(Clone)]
pub struct Constraint {
    /// What it says, in messages.
    pub name: &'static str,
    /// A legal point near the given one: the same if that is legal.
    pub nearest: NearestFn,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a candidate takes along one axis, where that is less than the operator has.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The axis.
    pub axis: &'static str,
    /// Extents between these.
    pub extents: RangeInclusive<usize>,
    /// Multiples of this alone.
    pub multiple: usize,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Limit { axis, extents, multiple } = self;
        match (*extents.end() < usize::MAX, *multiple > 1) {
            (true, true) => {
                write!(f, "`{axis}` from {} to {}, multiples of {multiple}", extents.start(), extents.end())
            }
            (true, false) => write!(f, "`{axis}` from {} to {}", extents.start(), extents.end()),
            (false, _) => write!(f, "`{axis}` in multiples of {multiple}"),
        }
    }
}

impl Limit {
    /// The nearest extent of an axis with these bounds that is taken, if any is.
    fn nearest(&self, extent: usize, (min, max): (usize, usize)) -> Option<usize> {
        let (low, high) = ((*self.extents.start()).max(min), (*self.extents.end()).min(max));
        let step = self.multiple.max(1);
        let (least, most) = (low.div_ceil(step) * step, high / step * step);
        (least <= most).then(|| (extent / step * step).clamp(least, most))
    }
}

/// Points are brought into line with one demand after the other, so often at the most: demands may act on one axis.
const ROUNDS: usize = 8;

/// The legal point near `point`; `None` where none is found inside the axes.
pub fn nearest(axes: &[Axis], constraints: &[Constraint], limits: &[Limit], point: &[usize]) -> Option<Point> {
    let mut point = point.to_vec();
    for _ in 0..ROUNDS {
        if objection(axes, constraints, limits, &point).is_none() {
            return Some(point);
        }
        for constraint in constraints {
            point = (constraint.nearest)(&point);
        }
        for limit in limits {
            let at = axes.iter().position(|axis| axis.name == limit.axis)?;
            point[at] = limit.nearest(point[at], axes[at].bounds())?;
        }
        for (at, axis) in point.iter_mut().zip(axes) {
            let (min, max) = axis.bounds();
            *at = (*at).clamp(min, max);
        }
    }
    None
}

/// Why a point is not legal.
pub fn objection(axes: &[Axis], constraints: &[Constraint], limits: &[Limit], point: &[usize]) -> Option<String> {
    if let Some(why) = outside(axes, point) {
        return Some(why);
    }
    if let Some(broken) = constraints.iter().find(|constraint| (constraint.nearest)(point) != point) {
        return Some(format!("the operator demands `{}`", broken.name));
    }
    let is_broken = |limit: &&Limit| {
        let at = axes.iter().zip(point).find(|(axis, _)| axis.name == limit.axis);
        at.is_some_and(|(axis, &at)| limit.nearest(at, axis.bounds()) != Some(at))
    };
    let broken = limits.iter().find(is_broken)?;
    Some(format!("the candidate takes {broken}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::shape::Shape;

    crate::shape! { struct Attention { heads: 1..=64, kv_heads: 1..=8, sq: 1..=100, skv: 1..=100 } }

    fn constraint(name: &'static str, nearest: fn(Attention) -> Attention) -> Constraint {
        Constraint { name, nearest: Arc::new(move |point| nearest(Attention::from_point(point)).to_point()) }
    }

    fn constraints() -> [Constraint; 2] {
        [
            constraint("skv >= sq", |s| Attention { skv: s.skv.max(s.sq), ..s }),
            constraint("heads % kv_heads == 0", |s| Attention { heads: s.heads.next_multiple_of(s.kv_heads), ..s }),
        ]
    }

    #[test]
    fn a_point_is_brought_into_line_and_a_legal_one_stays() {
        let axes = Attention::axes();
        let near = |point: [usize; 4]| nearest(&axes, &constraints(), &[], &point).unwrap();
        assert_eq!(near([5, 4, 7, 3]), [8, 4, 7, 7]);
        assert_eq!(near([8, 4, 7, 9]), [8, 4, 7, 9]);
        // 64 heads are the most: of 7 key heads none goes with 65.
        assert_eq!(nearest(&axes, &constraints(), &[], &[64, 7, 1, 1]), None);
    }

    #[test]
    fn a_limit_of_a_candidate_comes_on_top() {
        let axes = Attention::axes();
        let limits = [Limit { axis: "sq", extents: 10..=50, multiple: 8 }];
        assert_eq!(nearest(&axes, &constraints(), &limits, &[8, 4, 3, 3]), Some(vec![8, 4, 16, 16]));
        assert_eq!(nearest(&axes, &constraints(), &limits, &[8, 4, 99, 99]), Some(vec![8, 4, 48, 99]));
        // An axis begins at 1, multiples of 8 do not.
        let multiples = [Limit { axis: "sq", extents: 0..=usize::MAX, multiple: 8 }];
        assert_eq!(nearest(&axes, &constraints(), &multiples, &[8, 4, 1, 1]), Some(vec![8, 4, 8, 8]));
        assert_eq!(nearest(&axes, &constraints(), &multiples, &[8, 4, 100, 100]), Some(vec![8, 4, 96, 100]));
        let none = [Limit { axis: "sq", extents: 10..=11, multiple: 8 }];
        assert_eq!(nearest(&axes, &constraints(), &none, &[8, 4, 3, 3]), None);
    }

    #[test]
    fn what_is_wrong_with_a_point_is_named() {
        let limits = [Limit { axis: "sq", extents: 10..=50, multiple: 8 }];
        let why = |point: [usize; 4]| objection(&Attention::axes(), &constraints(), &limits, &point);
        assert_eq!(why([8, 4, 16, 16]), None);
        assert_eq!(why([8, 4, 16, 3]).unwrap(), "the operator demands `skv >= sq`");
        assert_eq!(why([8, 4, 17, 17]).unwrap(), "the candidate takes `sq` from 10 to 50, multiples of 8");
        assert!(why([8, 4, 16, 200]).unwrap().contains("1..=100"));
    }
}
