//! The property check: random shapes against the reference, the first failure shrunk to its smallest shape.
//!
//! Cases that failed before are replayed first. Everything derives from the seed of the run, so that a run repeats.

mod seeds;
mod shrink;
mod strategy;

use super::case::Case;
use super::correctness::blame;
use super::judge::{Rejection, judge_case};
use super::outcome::{Errors, Failure, Outcome, Verdict};
use super::pace::work;
use super::{Context, Subject};
use crate::core::seed::derive;
use crate::core::shape;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use shrink::{End, Shrunk, shrink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strategy::Space;

pub use shrink::Limits;

/// How many random cases to judge when nobody says.
pub const DEFAULT_CASES: u32 = 64;

/// Random cases that are planned however large they are.
const FEWEST: usize = 4;

/// A smaller shape is worth a few seconds of a failing run.
pub const SHRINKING: Limits = Limits { steps: 4000, time: Duration::from_secs(5) };

/// Judges one case.
type Judgement<'a> = dyn FnMut(&Case) -> Result<Errors, Rejection> + 'a;

/// How to search.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Random cases to judge.
    pub cases: u32,
    /// The folder that keeps failing cases, a file a candidate; nothing is kept without one.
    pub regressions: Option<PathBuf>,
    /// How long to look for a smaller shape that fails.
    pub shrinking: Limits,
}

impl Settings {
    /// As many cases as the environment variable `PROPTEST_CASES` says, or [`DEFAULT_CASES`].
    ///
    /// # Errors
    /// If the variable is not a number.
    pub fn from_env(regressions: Option<PathBuf>) -> Result<Self, String> {
        let cases = match std::env::var("PROPTEST_CASES") {
            Ok(text) => parse_cases(&text)?,
            Err(_) => DEFAULT_CASES,
        };
        Ok(Settings { cases, regressions, shrinking: SHRINKING })
    }
}

fn parse_cases(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("PROPTEST_CASES={text}: expected a number of cases, such as 256"))
}

/// Searches for a shape at which a candidate is wrong.
pub fn run(context: &Context<'_>, subject: &Subject<'_>, settings: &Settings) -> Outcome {
    search(context, subject, settings, &mut |case| match subject.objection(&case.point) {
        // Where shrinking goes beyond what the candidate takes.
        Some(why) => Err(Rejection::Unsupported(why)),
        None => judge_case(context, subject, case),
    })
}

fn search(context: &Context<'_>, subject: &Subject<'_>, settings: &Settings, judge: &mut Judgement<'_>) -> Outcome {
    let begun = Instant::now();
    let space = match Space::new(subject, context.search_capacity()) {
        Ok(space) => space,
        Err(reason) => return Outcome::skip(reason),
    };
    let file = settings.regressions.as_deref().map(|folder| seeds::path(folder, subject));
    let kept = file.as_deref().map(|file| seeds::load(file, subject, &space)).unwrap_or_default();
    let notes = subject.spared().chain(kept.notes).collect();
    let mut outcome = Outcome { notes, ..Outcome::new(Verdict::Pass) };
    let mut unsupported: Vec<String> = Vec::new();

    let mut runner = runner(context, subject);
    let replayed = kept.cases.len();
    let drawn: Vec<Case> = std::iter::repeat_with(|| space.draw(&mut runner)).take(settings.cases as usize).collect();
    let drawn = affordable(context, subject, drawn, &mut outcome.notes);
    let planned = replayed + drawn.len();
    outcome.planned = planned;
    for (i, case) in kept.cases.into_iter().chain(drawn).enumerate() {
        if context.is_over() {
            let budget = context.deadline.saturating_duration_since(begun).as_secs_f64();
            outcome.notes.push(format!("{i} of {planned} cases run: budget of {budget:.3} s spent"));
            outcome.cut = planned - i;
            break;
        }
        match judge(&case) {
            Ok(errors) => {
                outcome.cases += 1;
                outcome.add_errors(shape::describe(subject.operator.axes(), &case.point), errors);
            }
            Err(Rejection::Unsupported(reason)) => unsupported.push(reason),
            Err(Rejection::Lost(failure)) => {
                outcome.notes.push("not shrunk: the device is lost for this process".into());
                return failed(outcome, *failure, file.as_deref());
            }
            Err(Rejection::Failed(failure)) if i < replayed => {
                outcome.notes.push("a kept case fails again".into());
                return failed(outcome, *failure, None);
            }
            // No smaller shape says more, and no kept case would be worth replaying.
            Err(Rejection::Failed(failure)) if outcome.cases == 0 && !failure.depends_on_the_case() => {
                return failed(outcome, *failure, None);
            }
            Err(Rejection::Failed(failure)) => {
                let shrunk = shrink(subject.operator, case.clone(), *failure, settings.shrinking, judge);
                outcome.notes.push(describe(subject, &case, &shrunk));
                return failed(outcome, shrunk.failure, file.as_deref());
            }
        }
    }
    concluded(outcome, unsupported)
}

/// Those of the drawn cases that the work of the context pays for, in order; [`FEWEST`] of them in any case.
fn affordable(context: &Context<'_>, subject: &Subject<'_>, drawn: Vec<Case>, notes: &mut Vec<String>) -> Vec<Case> {
    let (asked, mut left, mut kept) = (drawn.len(), context.work, 0);
    let is_paid = |case: &Case| {
        let work = work(subject, &case.point);
        let is_paid = work <= left || kept < FEWEST;
        if is_paid {
            left -= work;
            kept += 1;
        }
        is_paid
    };
    let paid: Vec<Case> = drawn.into_iter().filter(is_paid).collect();
    if paid.len() < asked {
        notes.push(format!(
            "{} of {asked} random cases planned: the gate has this much work for each trial on this device; \
             `--run-budget 0` plans all",
            paid.len()
        ));
    }
    paid
}

/// The source of random draws: another one for every trial, the same one in every run of one seed.
fn runner(context: &Context<'_>, subject: &Subject<'_>) -> TestRunner {
    let trial = [subject.operator.name(), &subject.candidate.name, subject.dtype.name(), "property"];
    TestRunner::new(Config {
        rng_seed: RngSeed::Fixed(derive(context.seed, &trial)),
        failure_persistence: None,
        ..Config::default()
    })
}

/// A note on how the smallest case was found.
fn describe(subject: &Subject<'_>, first: &Case, shrunk: &Shrunk) -> String {
    let (first, steps) = (first.id(subject), shrunk.steps);
    let end = match &shrunk.end {
        End::Smallest => String::new(),
        End::Limit => "; a smaller one may exist, the limit of shrinking was reached".into(),
        End::Lost(case) => format!("; {} took the device away and ended the shrinking", case.id(subject)),
    };
    format!("first seen at {first}; shrunk in {steps} steps{end}")
}

/// A failure, which is kept in `file`.
fn failed(mut outcome: Outcome, failure: Failure, file: Option<&Path>) -> Outcome {
    outcome.cases += 1;
    if let Some(file) = file {
        outcome.notes.push(match seeds::keep(file, &failure.case, &failure.check) {
            Ok(()) => format!("kept in {}, to be replayed first", file.display()),
            Err(error) => format!("could not be kept in {}: {error}", file.display()),
        });
    }
    blame(&mut outcome, failure);
    outcome
}

/// What no failure means: a pass only if something was judged.
fn concluded(mut outcome: Outcome, unsupported: Vec<String>) -> Outcome {
    if let Some(reason) = unsupported.first() {
        outcome.notes.push(format!("{} cases not supported here: {reason}", unsupported.len()));
    }
    if outcome.cases == 0 {
        outcome.verdict = Verdict::Skip;
        let reason = unsupported.into_iter().next().or_else(|| outcome.notes.last().cloned());
        outcome.reason = reason.unwrap_or_else(|| "no case was asked for".into());
    }
    outcome.unless_mostly_cut()
}

#[cfg(test)]
mod tests;
