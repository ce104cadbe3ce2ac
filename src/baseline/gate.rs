//! The perf trial as a gate runs it: measured, judged, and measured once more before anything is called slower.

use super::BaselineSettings;
use super::judge::judge;
use crate::check::outcome::{Outcome, Timing, Verdict};
use crate::check::perf::{self, PerfSettings, worst};
use crate::check::{Context, Subject};
use std::time::Instant;

/// Times a subject and judges it against its baseline.
pub fn gate(context: &Context<'_>, subject: &Subject<'_>, perf: &PerfSettings, baseline: &BaselineSettings) -> Outcome {
    let fingerprint = context.device.fingerprint();
    let mut budget = context.deadline.saturating_duration_since(Instant::now());
    confirmed(|| {
        // What was timed within the budget can be timed again within twice as much.
        let context = Context::new(context.device, context.seed, budget);
        budget *= 2;
        judge(perf::run(&context, subject, perf), subject, fingerprint, baseline)
    })
}

/// A regression must show twice, in two sessions with buffers and batches of their own: what one session got by chance
/// (placement in memory, a neighbour on the host) the other does not repeat.
fn confirmed(mut measure: impl FnMut() -> Outcome) -> Outcome {
    let first = measure();
    if first.verdict != Verdict::Slower {
        return first;
    }
    let mut second = measure();
    if second.timings.is_empty() && second.verdict != Verdict::Fail {
        return first;
    }
    for timing in &mut second.timings {
        let was = first.timings.iter().find(|t| t.shape == timing.shape && t.heat == timing.heat);
        if let Some(note) = was.and_then(|was| weigh(was, timing)) {
            second.notes.push(note);
        }
    }
    // A failure that is not about one shape (no baseline where one is required) stands.
    if second.verdict != Verdict::Fail {
        let verdict = worst(&second.timings);
        if verdict == Verdict::Unclear && second.verdict != verdict {
            second.reason = second.notes.last().cloned().unwrap_or_default();
        }
        second.verdict = verdict;
    }
    second
}

/// Two measurements that disagree on a regression make it unclear.
fn weigh(first: &Timing, second: &mut Timing) -> Option<String> {
    let slower = |timing: &Timing| timing.verdict == Verdict::Slower;
    let settled = matches!(second.verdict, Verdict::Slower | Verdict::Same | Verdict::Faster);
    if slower(first) == slower(second) || !settled {
        return None;
    }
    second.verdict = Verdict::Unclear;
    Some(format!(
        "{}: slower in one of two measurements ({:.3} µs, then {:.3} µs)",
        first.shape, first.median_us, second.median_us
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::simulated::timing;
    use rstest::rstest;

    fn outcome(verdicts: &[Verdict]) -> Outcome {
        let timings = verdicts.iter().enumerate();
        let timings: Vec<Timing> =
            timings.map(|(i, &verdict)| Timing { verdict, ..timing(&format!("n={i}"), 10.0, None) }).collect();
        Outcome { timings: timings.clone(), reason: "because".into(), ..Outcome::new(worst(&timings)) }
    }

    use Verdict::{Faster, Invalid, Same, Slower, Unclear};

    #[rstest]
    #[case::nothing_slower(&[Same, Faster], &[], Faster, 1)]
    #[case::confirmed(&[Slower, Same], &[Slower, Same], Slower, 2)]
    #[case::not_confirmed(&[Slower, Same], &[Same, Same], Unclear, 2)]
    #[case::another_shape(&[Slower, Same], &[Same, Slower], Unclear, 2)]
    #[case::one_of_two(&[Slower, Slower], &[Same, Slower], Slower, 2)]
    #[case::worse_things_stand(&[Slower, Same], &[Invalid, Same], Invalid, 2)]
    #[case::unclear_stays_unclear(&[Slower, Same], &[Unclear, Same], Unclear, 2)]
    fn a_regression_must_show_twice(
        #[case] first: &[Verdict],
        #[case] second: &[Verdict],
        #[case] expected: Verdict,
        #[case] measurements: usize,
    ) {
        let mut runs = [outcome(second), outcome(first)].to_vec();
        let judged = confirmed(|| runs.pop().expect("two measurements at the most"));
        assert_eq!((judged.verdict, 2 - runs.len()), (expected, measurements), "{judged:?}");
        assert!(!judged.reason.is_empty());
    }

    #[test]
    fn a_second_measurement_that_measured_nothing_refutes_nothing() {
        let mut runs = vec![Outcome::skip("the lock"), outcome(&[Slower])];
        assert_eq!(confirmed(|| runs.pop().unwrap()).verdict, Slower);
    }

    #[test]
    fn a_candidate_that_now_fails_has_failed() {
        let mut runs = vec![Outcome::fail("wrong values"), outcome(&[Slower])];
        assert_eq!(confirmed(|| runs.pop().unwrap()).verdict, Verdict::Fail);
    }
}
