//! A profile of a kernel on a GPU that is not here: its time from the predictor or the ceilings of a calibration, its launch as
//! the plan has it, what its entries take and how it accesses memory as the simulator counted.

use super::options::Options;
use crate::check::counts::at;
use crate::check::{Context, Subject};
use crate::core::shape::{Point, describe};
use crate::device::DeviceKind;
use crate::device::counts::{Counts, Traffic};
use crate::device::trace::{Event, Kind, Level, Range, RangeId, Shape, Timeline, Track, Work, WorkId};
use crate::harness::arguments::DeviceChoice;
use crate::harness::command::{Failure, Selection, Workplace};
use crate::harness::devices::Devices;
use crate::profile::hints::Sectors;
use crate::profile::{Clock, Identity, Knowledge, Pairs, record_with};
use crate::report::summary::Summary;
use crate::toolchain::resources::Resources;

/// What its runs are called.
const LAUNCH: &str = "launch";

/// Profiles every selected kernel on the device that the calibration is of.
///
/// # Errors
/// What could not be selected or read.
pub fn run(options: &Options, selection: &Selection, workplace: &Workplace<'_>, on: &str) -> Result<(), Failure> {
    let (calibration, knowledge) = options.known_of(workplace.project, on, workplace.suites)?;
    let choice = DeviceChoice { kind: DeviceKind::Sim, ordinal: 0 };
    let devices = Devices::new(Some(choice), false).of_project(&workplace.project.folder);
    let simulator = devices.for_kind(DeviceKind::Cuda).map_err(Failure::Missing)?;
    let mut summary = Summary::new(workplace.project.describe_run(selection.seed));
    summary.add_device(&calibration);
    let mut number = 0;
    for (trial, points) in selection.select_any(workplace.suites)? {
        let subject = trial.subject(workplace.suites);
        if subject.candidate.body.launches(subject.operator.perf_shapes().first().unwrap_or(&Vec::new())).is_empty() {
            continue;
        }
        let points: &[Point] = if points.is_empty() { subject.operator.perf_shapes() } else { &points };
        for point in points.iter().filter(|point| subject.objection(point).is_none()) {
            number += 1;
            let context = Context::without_deadline(simulator, selection.seed);
            let counted = at(&context, &subject, point);
            let foreseen = foreseen(&subject, point, &knowledge, counted);
            let pairs = Pairs(vec![[foreseen.us; 2]; 3]);
            let identity = Identity {
                subject: format!("{} {}", subject.operator.name(), describe(subject.operator.axes(), point)),
                way: subject.candidate.name.clone(),
                device: calibration.key(),
                dtype: subject.dtype.name().into(),
                clock: Clock::Nothing,
            };
            let recorded = record_with(&foreseen.timeline, LAUNCH, &pairs, &knowledge, &identity, foreseen.sectors);
            let (run, _) = recorded.map_err(Failure::Input)?;
            options.keep(run, &mut summary)?;
            options.keep_trace(&foreseen.timeline, &knowledge, number)?;
        }
    }
    if number == 0 {
        return Err(Failure::Input("--on: no kernel was selected; host functions are profiled where they run".into()));
    }
    options.finish(&summary)
}

struct Foreseen {
    timeline: Timeline,
    us: f64,
    sectors: Option<Sectors>,
}

fn foreseen(
    subject: &Subject<'_>,
    point: &Point,
    knowledge: &Knowledge<'_>,
    counted: Result<(Point, Counts), String>,
) -> Foreseen {
    let mut timeline = Timeline { source: "prediction".into(), ..Timeline::default() };
    let facts = knowledge.facts_of(subject, point, None);
    let expected = knowledge.expected(subject, point, None);
    let (sectors, entries) = match counted {
        Ok((small, counts)) => {
            let shape = describe(subject.operator.axes(), &small);
            timeline.notes.push(format!("counted by the simulator at {shape}"));
            let entries = counts.entries.into_iter().map(|taken| taken.resources).collect();
            (of_ideal([counts.global_reads, counts.global_writes]), entries)
        }
        Err(why) => {
            timeline.notes.push(format!("not counted by the simulator: {why}"));
            (None, Vec::<Resources>::new())
        }
    };
    let us = match expected {
        Some(expected) if expected.is_predicted => {
            timeline.notes.push("the time is the predictor's; nothing was run".into());
            expected.us
        }
        expected => {
            timeline
                .notes
                .push("no family was fitted: the time is what the ceilings allow for the sectors that it moves".into());
            let moved = facts.memory_us * sectors.map_or(1.0, |sectors| sectors.of_ideal.max(1.0));
            moved.max(expected.map_or(0.0, |expected| expected.us))
        }
    };
    let (operator, candidate) = (subject.operator.name().to_owned(), subject.candidate.name.clone());
    timeline.works.push(Work {
        operator,
        candidate,
        point: point.clone(),
        dtype: subject.dtype,
        reuse_bytes: None,
        launches: 1,
    });
    let launches = subject.candidate.body.launches(point);
    let ns = |us: f64| (us * 1e3).round() as u64;
    let names = [LAUNCH, subject.operator.name()].map(|name| timeline.texts.number(name));
    let whole = Range { level: Level::Run, name: names[0], parent: None, work: None, start_ns: 0, end_ns: ns(us) };
    let step =
        Range { level: Level::Step, name: names[1], parent: Some(RangeId(0)), work: Some(WorkId(0)), ..whole.clone() };
    timeline.ranges = vec![whole, step];
    let each = us / launches.len().max(1) as f64;
    for (at, launch) in launches.iter().enumerate() {
        let resources = launch.entry.as_ref().map_or(entries.first(), |name| {
            entries.iter().find(|entry| entry.entry.contains(name.as_str())).or(entries.first())
        });
        let extents = |all: [usize; 3]| all.map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        let shape = Shape {
            grid: extents(launch.grid),
            block: extents(launch.block),
            registers: resources.map_or(0, |resources| resources.registers as u32),
            shared_bytes: (resources.map_or(0, |resources| resources.shared_bytes) + launch.shared_bytes) as u32,
        };
        timeline.events.push(Event {
            kind: Kind::Kernel,
            name: names[1],
            track: Track::Stream(1),
            start_ns: ns(each * at as f64),
            end_ns: ns(each * (at + 1) as f64),
            correlation: 0,
            range: Some(RangeId(1)),
            node: 0,
            bytes: 0,
            shape: Some(Box::new(shape)),
        });
    }
    Foreseen { timeline, us, sectors }
}

/// Sectors over the fewest that the same requests could have taken.
fn of_ideal(traffic: [Traffic; 2]) -> Option<Sectors> {
    let sum = |of: fn(&Traffic) -> u64| traffic.iter().map(of).sum::<u64>() as f64;
    let ideal = sum(|traffic| traffic.ideal_units);
    (ideal > 0.0).then(|| Sectors { of_ideal: sum(|traffic| traffic.units) / ideal })
}
