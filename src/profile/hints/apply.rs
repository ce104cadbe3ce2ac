//! A hint that is tried: what runs now and what would run, verified and timed in one session in random order.

use super::idea::{Idea, Swap, Way};
use crate::check::armed::armed;
use crate::check::perf::PerfSettings;
use crate::device::{Device, Heat};
use crate::measure::session::{Contestant, measure};
use crate::profile::knowledge::Knowledge;
use crate::profile::record::Applied;

/// Tries every idea that can be tried, and notes what came of it; why others were not is noted too, and said by `say`.
pub fn apply(
    ideas: &mut [Idea],
    device: &dyn Device,
    knowledge: &Knowledge<'_>,
    seed: u64,
    say: &mut dyn FnMut(String),
) {
    for idea in ideas {
        let found = match &idea.trial {
            Some(trial) => tried(trial, device, knowledge, seed),
            None => Err("there is nothing in the catalogue to try".into()),
        };
        match found {
            Ok(applied) => idea.hint.applied = Some(applied),
            Err(why) => {
                say(format!("{}: {}: {why}", idea.hint.place, idea.hint.action));
                idea.hint.not_applied = why;
            }
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

#[cfg(test)]
mod tests {
    use super::super::idea::hint;
    use super::*;
    use crate::core::dtype::DType;
    use crate::device::cpu::CpuDevice;
    use crate::profile::samples::{host_knowledge, suites};

    #[test]
    fn why_a_hint_was_not_tried_is_kept_with_it() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let way = Way {
            operator: "add".into(),
            candidate: "nothing".into(),
            point: vec![8],
            dtype: DType::F32,
            is_hot: true,
        };
        let swap = Swap { before: vec![way.clone()], after: vec![way], calls: 1.0 };
        let of = |trial| Idea {
            hint: hint("waves", "add::tiled".into(), "another tile".into(), "seen".into(), 1.0, "roofline"),
            trial,
        };
        let (mut ideas, mut said) = ([of(None), of(Some(swap))], Vec::new());
        apply(&mut ideas, &CpuDevice::new(), &knowledge, 1, &mut |why| said.push(why));
        assert_eq!(ideas[0].hint.not_applied, "there is nothing in the catalogue to try");
        assert_eq!(ideas[1].hint.not_applied, "add::nothing::f32: there is no such candidate");
        assert_eq!(said[1], "add::tiled: another tile: add::nothing::f32: there is no such candidate");
        let table = crate::profile::hint_table(&[ideas[1].hint.clone()]);
        assert!(table.contains("not applied: add::nothing::f32: there is no such candidate\n"), "{table}");
    }
}
