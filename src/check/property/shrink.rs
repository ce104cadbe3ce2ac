//! From a failing case to the smallest one, axis by axis.
//!
//! A binary search alone sticks on defects that depend on divisibility, so small extents, halves, neighbours and
//! repeated steps are all tried, until no smaller extent of any single axis fails any more.

use super::Judgement;
use crate::check::case::Case;
use crate::check::judge::Rejection;
use crate::check::outcome::Failure;
use crate::core::constraint::nearest;
use crate::core::distribution::Distribution;
use crate::core::operator::Operator;
use crate::core::shape::Point;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long to go on shrinking.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Cases to judge at the most.
    pub steps: usize,
    /// Time to spend at the most.
    pub time: Duration,
}

/// Why shrinking ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// No single change makes the case smaller and still fail.
    Smallest,
    /// A limit was reached.
    Limit,
    /// A smaller case took the device away.
    Lost(Case),
}

/// The result of shrinking.
#[derive(Clone, Debug)]
pub(super) struct Shrunk {
    /// The smallest failing case found.
    pub case: Case,
    /// What is wrong there.
    pub failure: Failure,
    /// Cases judged on the way.
    pub steps: usize,
    /// Why it ended.
    pub end: End,
}

/// How hard to look for a smaller extent.
#[derive(Clone, Copy)]
struct Effort {
    /// The smallest extents are all tried, as many as this.
    smallest: usize,
    /// So are the next smaller ones.
    next_smaller: usize,
}

/// Quick first, while cases are still large and slow, then thorough.
const EFFORTS: [Effort; 2] = [Effort { smallest: 4, next_smaller: 2 }, Effort { smallest: 128, next_smaller: 64 }];

/// Shrinks `case`, which failed with `failure`.
pub(super) fn shrink(
    operator: &dyn Operator,
    case: Case,
    failure: Failure,
    limits: Limits,
    judge: &mut Judgement<'_>,
) -> Shrunk {
    let mut search = Search {
        operator,
        best: Shrunk { case, failure, steps: 0, end: End::Smallest },
        passed: HashSet::new(),
        max_steps: limits.steps,
        deadline: Instant::now() + limits.time,
        judge,
    };
    for effort in EFFORTS {
        while search.pass(effort) {}
    }
    search.best
}

struct Search<'a, 'j> {
    operator: &'a dyn Operator,
    best: Shrunk,
    /// Cases that are not worth judging again.
    passed: HashSet<(Point, Distribution, usize)>,
    max_steps: usize,
    deadline: Instant,
    judge: &'a mut Judgement<'j>,
}

impl Search<'_, '_> {
    /// Tries every change once; whether the case became smaller.
    fn pass(&mut self, effort: Effort) -> bool {
        let before = self.best.case.clone();
        self.simplify();
        for group in self.groups() {
            while self.lower(&group, effort) {}
        }
        self.best.case != before
    }

    /// Default attributes, aligned buffers, plain data.
    fn simplify(&mut self) {
        for (i, axis) in self.operator.axes().iter().enumerate() {
            for value in 0..if axis.is_extent() { 0 } else { self.best.case.point[i] } {
                if self.fails_at(&[i], value) {
                    break;
                }
            }
        }
        if self.best.case.offset_bytes != 0 {
            self.fails(Case { offset_bytes: 0, ..self.best.case.clone() });
        }
        let plain = Distribution::Normal;
        if self.best.case.distribution != plain && self.operator.distributions().contains(&plain) {
            self.fails(Case { distribution: plain, ..self.best.case.clone() });
        }
    }

    /// Each extent alone, and those that are equal together: a defect may need them equal.
    fn groups(&self) -> Vec<Vec<usize>> {
        let (axes, point) = (self.operator.axes(), &self.best.case.point);
        let extents: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].is_extent()).collect();
        let mut groups: Vec<Vec<usize>> = extents.iter().map(|&i| vec![i]).collect();
        for &i in &extents {
            let equal: Vec<usize> = extents.iter().copied().filter(|&j| point[j] == point[i]).collect();
            if equal.len() > 1 && equal[0] == i {
                groups.push(equal);
            }
        }
        groups
    }

    /// Looks for one smaller extent of a group that still fails.
    fn lower(&mut self, group: &[usize], effort: Effort) -> bool {
        let now = self.best.case.point[group[0]];
        if group.iter().any(|&i| self.best.case.point[i] != now) {
            return false;
        }
        let axes = self.operator.axes();
        let min = group.iter().map(|&i| axes[i].bounds().0).max().unwrap_or(0);
        let range = now.saturating_sub(min);
        if (min..now).take(effort.smallest).any(|extent| self.fails_at(group, extent)) {
            return true;
        }
        let halves = (1..usize::BITS).map(|k| range >> k).take_while(|&step| step > 0);
        let next = 1..=range.min(effort.next_smaller);
        for step in halves.chain(next) {
            if self.fails_at(group, now - step) {
                self.gallop(group, min, step);
                return true;
            }
        }
        false
    }

    /// A step that worked may be a period of the defect: takes it again, in ever longer strides.
    fn gallop(&mut self, group: &[usize], min: usize, step: usize) {
        let mut stride = step;
        while stride >= step {
            let now = self.best.case.point[group[0]];
            let further = now.checked_sub(stride).filter(|&extent| extent >= min);
            if further.is_some_and(|extent| self.fails_at(group, extent)) {
                stride *= 2;
            } else {
                stride /= 2;
            }
        }
    }

    fn fails_at(&mut self, group: &[usize], coordinate: usize) -> bool {
        let mut case = self.best.case.clone();
        group.iter().for_each(|&i| case.point[i] = coordinate);
        // What a constraint makes of it must be smaller all the same, or shrinking would go around in circles.
        let Some(legal) = nearest(self.operator.axes(), self.operator.constraints(), &[], &case.point) else {
            return false;
        };
        let is_larger = legal.iter().zip(&self.best.case.point).any(|(new, best)| new > best);
        case.point = legal;
        !is_larger && case.point != self.best.case.point && self.fails(case)
    }

    /// Judges a case and takes it over if it fails. Once a limit is reached nothing fails any more.
    fn fails(&mut self, case: Case) -> bool {
        let key = (case.point.clone(), case.distribution, case.offset_bytes);
        if self.best.end != End::Smallest || self.passed.contains(&key) {
            return false;
        }
        if self.best.steps >= self.max_steps || Instant::now() >= self.deadline {
            self.best.end = End::Limit;
            return false;
        }
        self.best.steps += 1;
        match (self.judge)(&case) {
            Err(Rejection::Failed(failure)) => {
                (self.best.case, self.best.failure) = (case, *failure);
                true
            }
            Err(Rejection::Lost(_)) => {
                self.best.end = End::Lost(case);
                false
            }
            Ok(_) | Err(Rejection::Unsupported(_)) => {
                self.passed.insert(key);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Errors;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use rstest::rstest;

    crate::shape! { struct Grid { rows: 0..=1 << 20, cols: 1..=1 << 20, causal: bool = [false, true] } }

    /// Shrinks `point` under a planted defect and returns where it ended, and how.
    fn shrunk(point: [usize; 3], limits: Limits, wrong: impl Fn(&Case) -> Option<Rejection>) -> Shrunk {
        let op = Op::<Grid>::new("grid").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows, s.cols]);
        let case = Case { point: point.to_vec(), distribution: Distribution::Tiny, seed: 1, offset_bytes: 48 };
        let Some(Rejection::Failed(first)) = wrong(&case) else { panic!("the first case has to fail") };
        shrink(&op, case, *first, limits, &mut |case| wrong(case).map_or(Ok(Errors::default()), Err))
    }

    fn failed(case: &Case) -> Failure {
        let id = crate::check::case::CaseId {
            shape: format!("{:?}", case.point),
            dtype: DType::F32,
            distribution: case.distribution,
            seed: case.seed,
            offset_bytes: case.offset_bytes,
        };
        Failure { check: "values".into(), case: id, text: String::new(), worst: None, errors: None }
    }

    const AMPLE: Limits = Limits { steps: 5000, time: Duration::from_secs(60) };

    #[rstest]
    #[case::always([777, 999, 1], |_: &[usize]| true, [0, 1, 0])]
    #[case::divisibility([1, 1354, 0], |p: &[usize]| p[1] % 7 == 3, [0, 3, 0])]
    #[case::divisibility_above([1, 1354, 0], |p: &[usize]| p[1] % 7 == 3 && p[1] > 200, [0, 206, 0])]
    #[case::a_long_period([1, 999_983, 0], |p: &[usize]| p[1] % 61 == 999_983 % 61 && p[1] > 5000, [0, 5001 + (999_983 - 5001) % 61, 0])]
    #[case::two_axes([3000, 777, 1], |p: &[usize]| p[0] > 100 && p[1] % 2 == 1, [101, 1, 0])]
    #[case::one_extent([9, 1025, 1], |p: &[usize]| p[0] > 0 && p[1] == 1025, [1, 1025, 0])]
    #[case::threshold([7, 1 << 19, 0], |p: &[usize]| p[1] > 1024, [0, 1025, 0])]
    #[case::an_attribute([50, 50, 1], |p: &[usize]| p[2] == 1 && p[1] >= 33, [0, 33, 1])]
    #[case::equal_extents([640, 640, 0], |p: &[usize]| p[0] == p[1] && p[0] >= 17, [17, 17, 0])]
    #[case::not_a_multiple([100, 100, 0], |p: &[usize]| !p[0].is_multiple_of(16), [1, 1, 0])]
    fn the_smallest_shape_is_found(
        #[case] start: [usize; 3],
        #[case] wrong: fn(&[usize]) -> bool,
        #[case] expected: [usize; 3],
    ) {
        let shrunk = shrunk(start, AMPLE, |case| wrong(&case.point).then(|| Rejection::Failed(Box::new(failed(case)))));
        assert_eq!(shrunk.case.point, expected, "after {} steps", shrunk.steps);
        assert_eq!((shrunk.case.distribution, shrunk.case.offset_bytes), (Distribution::Normal, 0));
        assert_eq!(shrunk.failure, failed(&shrunk.case), "the failure is that of the smallest case");
        assert_eq!(shrunk.end, End::Smallest);
        // Exactly the smallest: no smaller extent of any single axis fails.
        for axis in 0..2 {
            for smaller in 0..expected[axis] {
                let mut point = expected;
                point[axis] = smaller;
                assert!(!wrong(&point) || point[1] == 0, "{point:?} is smaller");
            }
        }
    }

    #[test]
    fn what_matters_is_kept() {
        let shrunk = shrunk([8, 8, 0], AMPLE, |case| {
            let wrong = case.offset_bytes % 32 == 16 && case.distribution == Distribution::Tiny;
            wrong.then(|| Rejection::Failed(Box::new(failed(case))))
        });
        assert_eq!((shrunk.case.distribution, shrunk.case.offset_bytes), (Distribution::Tiny, 48));
        assert_eq!(shrunk.case.point, [0, 1, 0]);
    }

    #[test]
    fn a_lost_device_ends_it_at_once() {
        let calls = std::cell::Cell::new(0);
        let shrunk = shrunk([400, 400, 0], AMPLE, |case| {
            calls.set(calls.get() + 1);
            let failure = Box::new(failed(case));
            Some(if case.point[1] < 100 { Rejection::Lost(failure) } else { Rejection::Failed(failure) })
        });
        assert!(matches!(shrunk.end, End::Lost(_)), "{:?}", shrunk.end);
        assert_eq!(calls.get(), shrunk.steps + 1, "nothing runs after the loss");
        assert_eq!(shrunk.failure, failed(&shrunk.case));
    }

    #[rstest]
    #[case::steps(Limits { steps: 7, time: Duration::from_secs(60) }, 7)]
    #[case::time(Limits { steps: 5000, time: Duration::ZERO }, 0)]
    fn limits_hold(#[case] limits: Limits, #[case] steps: usize) {
        let shrunk = shrunk([400, 1025, 0], limits, |case| {
            (case.point[1] >= 1025).then(|| Rejection::Failed(Box::new(failed(case))))
        });
        assert_eq!((shrunk.steps, shrunk.end), (steps, End::Limit));
    }
}
