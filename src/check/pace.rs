//! How long a case will take, judged by the cases that ran before it: one that would not end in time is left out, and
//! smaller ones behind it still run.

use super::boundary::{elements, has_outputs};
use super::{Context, Subject};
use crate::core::shape::{Point, describe};
use std::time::{Duration, Instant};

/// The work of a case in a rough unit: elements drawn and compared, operations of the reference, threads simulated,
/// and what every case costs. Only ratios matter.
pub fn work(subject: &Subject<'_>, point: &[usize]) -> f64 {
    const A_CASE: f64 = 2000.0;
    const A_THREAD: f64 = 10.0;
    const AN_OPERATION: f64 = 0.125;
    let flops = subject.operator.cost(point, subject.dtype).flops;
    let elements = elements(subject.operator, point);
    let body = &subject.candidate.body;
    // What the gate's own host code launches is not known beforehand.
    let threads = if body.is_library() { elements } else { body.threads(point) };
    A_CASE + elements as f64 + AN_OPERATION * flops as f64 + A_THREAD * threads as f64
}

/// What cases took: seconds, and their work.
#[derive(Clone, Copy, Default)]
struct Spent {
    seconds: f64,
    work: f64,
}

/// Time and work so far, and what was left out.
#[derive(Default)]
pub struct Pace {
    /// Of the first case, in which a kernel is compiled and what runs once runs.
    first: Option<Spent>,
    /// Of all others.
    later: Spent,
    left_out: usize,
    /// The smallest case that was left out.
    smallest: Option<(f64, Point)>,
}

impl Pace {
    /// Runs a case if it should end before the deadline.
    pub fn run<T>(
        &mut self,
        context: &Context<'_>,
        subject: &Subject<'_>,
        point: &Point,
        case: impl FnOnce() -> T,
    ) -> Option<T> {
        let (work, start) = (work(subject, point), Instant::now());
        if !self.ends_in_time(context, work) {
            self.left_out += 1;
            if self.smallest.as_ref().is_none_or(|(smallest, _)| work < *smallest) {
                self.smallest = Some((work, point.clone()));
            }
            return None;
        }
        let result = case();
        // A case with nothing to compute says nothing of one with something.
        if has_outputs(subject.operator, point) {
            self.add(Spent { seconds: start.elapsed().as_secs_f64(), work });
        }
        Some(result)
    }

    /// Whether so much work should end before the deadline.
    fn ends_in_time(&self, context: &Context<'_>, work: f64) -> bool {
        let left = context.deadline.saturating_duration_since(Instant::now());
        !left.is_zero() && self.expected(work) <= left
    }

    /// How many cases were left out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    fn add(&mut self, case: Spent) {
        if self.first.is_none() {
            self.first = Some(case);
        } else {
            self.later.seconds += case.seconds;
            self.later.work += case.work;
        }
    }

    /// How long so much work will take. The first case is run to learn; its pace counts until there is another.
    fn expected(&self, work: f64) -> Duration {
        let known = if self.later.work > 0.0 { Some(self.later) } else { self.first };
        let seconds = known.map_or(0.0, |spent| spent.seconds / spent.work * work);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// What was left out of `planned` cases, if anything.
    pub fn note(&self, subject: &Subject<'_>, planned: usize) -> Option<String> {
        let (_, smallest) = self.smallest.as_ref()?;
        let smallest = describe(subject.operator.axes(), smallest);
        Some(format!("budget spent: {} of {planned} cases not run, from {smallest} on", self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::device::cpu::CpuDevice;

    crate::shape! { struct Vector { n: 0..=1 << 30 } }

    /// Which of these cases ran in ten seconds, each with the milliseconds that it takes, and what was left out.
    fn ran(cases: &[(usize, u64)]) -> (Vec<usize>, Option<String>) {
        let operator = Op::<Vector>::new("c").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let device = CpuDevice::new();
        let context = Context::new(&device, 1, Duration::from_secs(10));
        let (mut pace, mut ran) = (Pace::default(), Vec::new());
        for &(n, milliseconds) in cases {
            pace.run(&context, &subject, &vec![n], || {
                ran.push(n);
                std::thread::sleep(Duration::from_millis(milliseconds));
            });
        }
        (ran, pace.note(&subject, cases.len()))
    }

    #[test]
    fn a_case_that_would_not_end_in_time_is_left_out_and_a_smaller_one_is_not() {
        // 4000 units of work take 20 ms, nothing takes none.
        let (ran, note) = ran(&[(0, 0), (1000, 20), (1 << 29, 20), (2000, 20)]);
        assert_eq!(ran, [0, 1000, 2000]);
        assert_eq!(note, Some("budget spent: 1 of 4 cases not run, from n=536870912 on".into()));
    }

    #[test]
    fn what_the_first_case_alone_took_is_not_expected_of_others() {
        // At the pace of the first one the last would take some 80 s.
        assert_eq!(ran(&[(1, 400), (2, 1), (3, 1), (200_000, 1)]), (vec![1, 2, 3, 200_000], None));
    }
}
