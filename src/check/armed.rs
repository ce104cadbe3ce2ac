//! A case that is to be timed beside others: verified, then armed.

use super::case::Case;
use super::perf::PerfSettings;
use super::verify::verified;
use super::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::shape::{Point, describe};
use crate::device::{Device, Heat};
use crate::measure::session::Contestant;

/// A contestant of a session that has shown to be right.
///
/// # Errors
/// Which case was wrong or could not run, and why.
pub fn armed<'d>(
    device: &'d dyn Device,
    subject: &Subject<'_>,
    point: &Point,
    heat: Heat,
    seed: u64,
) -> Result<Contestant<'d>, String> {
    let operator = subject.operator;
    let place = format!("{}::{} {}", operator.name(), subject.candidate.name, describe(operator.axes(), point));
    let case = Case::new(point.clone(), Distribution::Normal, seed);
    let context = Context::without_deadline(device, seed);
    let (problem, _) = verified(&context, subject, &case, &case.inputs(subject))
        .map_err(|rejection| format!("{place}: {}", rejection.text()))?;
    let settings = PerfSettings { heat, ..PerfSettings::of(device.kind()) };
    Contestant::arm(problem, &settings.plan()).map_err(|fault| format!("{place}: {fault}"))
}
