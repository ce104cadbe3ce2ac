//! A hint that is tried: what runs now and what would run, verified and timed in one session in random order.

use super::idea::{Idea, Swap, Way};
use crate::check::armed::armed;
use crate::check::perf::PerfSettings;
use crate::device::{Device, Heat};
use crate::measure::session::{Contestant, measure};
use crate::profile::knowledge::Knowledge;
use crate::profile::record::Applied;

/// Tries every idea that can be tried, and notes what came of it; what could not be is said by `say`.
pub fn apply(
    ideas: &mut [Idea],
    device: &dyn Device,
    knowledge: &Knowledge<'_>,
    seed: u64,
    say: &mut dyn FnMut(String),
) {
    for idea in ideas {
        let Some(trial) = &idea.trial else {
            say(format!("{}: {}: there is nothing in the catalogue to try", idea.hint.place, idea.hint.action));
            continue;
        };
        match tried(trial, device, knowledge, seed) {
            Ok(applied) => idea.hint.applied = Some(applied),
            Err(why) => say(format!("{}: {}: {why}", idea.hint.place, idea.hint.action)),
        }
    }
}

fn tried(trial: &Swap, device: &dyn Device, knowledge: &Knowledge<'_>, seed: u64) -> Result<Applied, String> {
    let ways = trial.before.iter().chain(&trial.after);
    let contestants = ways.map(|way| contestant(way, device, knowledge, seed));
    let mut contestants = contestants.collect::<Result<Vec<_>, String>>()?;
    let settings = PerfSettings::of(device.kind()).session.shared_with(contestants.len());
    let measured = measure(&mut contestants, &settings, seed).map_err(|fault| fault.to_string())?;
    let times: Vec<f64> = (0..contestants.len()).map(|at| measured.summary(at).median_us).collect();
    let (before, after) = times.split_at(trial.before.len());
    let sum = |times: &[f64]| trial.calls * times.iter().sum::<f64>();
    Ok(Applied { before_us: sum(before), after_us: sum(after) })
}

fn contestant<'d>(
    way: &Way,
    device: &'d dyn Device,
    knowledge: &Knowledge<'_>,
    seed: u64,
) -> Result<Contestant<'d>, String> {
    let name = format!("{}::{}::{}", way.operator, way.candidate, way.dtype);
    let subject = knowledge.subject(&way.operator, &way.candidate, way.dtype);
    let subject = subject.ok_or_else(|| format!("{name}: there is no such candidate"))?;
    let heat = if way.is_hot { Heat::Hot } else { Heat::Cold };
    armed(device, &subject, &way.point, heat, seed)
}
