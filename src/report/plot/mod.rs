//! Plots as SVG: what is chosen of a summary, and the kinds of plot.

mod bars;
mod canvas;
mod over_extent;
mod plane;
mod roofline;

use super::record::Record;
use super::summary::Summary;
use super::text::line;
use super::workloads::WorkloadRun;
use crate::check::outcome::{Timing, Verdict};
use crate::core::dtype::DType;
use crate::core::stats::geometric_mean;
use crate::device::Heat;
use bars::{Bar, Bars};
use canvas::group_colour;
use std::collections::BTreeMap;

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Run times as bars: candidates and peers side by side, shape by shape.
    Times,
    /// How many times as fast candidates are as their peers, or as their baselines: geometric means over shapes.
    Speedups,
    /// Operations a second over operations a byte, under the ceilings of the device.
    Roofline,
    /// Run times over one extent of the shape.
    Scaling,
    /// The largest error of each candidate, as a share of what is allowed; over one extent of the shape, where one is named.
    Errors,
    /// What exchanging stages of a chain brings: predicted by Amdahl's law from the stages alone, and measured.
    Amdahl,
}

/// Which part of a summary.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// One operator.
    pub operator: Option<String>,
    /// Some candidates; all if there is none.
    pub candidates: Vec<String>,
    /// One dtype.
    pub dtype: Option<DType>,
    /// The key of one device.
    pub device: Option<String>,
    /// The extent that runs along the axis of [`Kind::Scaling`] and [`Kind::Errors`].
    pub axis: Option<String>,
}

impl Choice {
    fn records<'a>(&self, summary: &'a Summary) -> Result<Vec<&'a Record>, String> {
        let fits = |record: &&Record| {
            self.operator.as_ref().is_none_or(|operator| record.operator == *operator)
                && (self.candidates.is_empty() || self.candidates.contains(&record.candidate))
                && self.dtype.is_none_or(|dtype| record.dtype == dtype)
                && self.device.as_ref().is_none_or(|device| record.fingerprint.as_ref() == Some(device))
        };
        let records: Vec<&Record> = summary.records.iter().filter(fits).collect();
        if records.is_empty() {
            let mut operators: Vec<&str> = summary.records.iter().map(|record| record.operator.as_str()).collect();
            operators.dedup();
            return Err(format!(
                "no record is what was chosen; the operators here are: {}",
                line(&operators.join(", "))
            ));
        }
        Ok(records)
    }
}

/// The SVG text.
///
/// # Errors
/// If the summary holds nothing of the kind, or too much for one plot.
pub fn svg(kind: Kind, summary: &Summary, choice: &Choice) -> Result<String, String> {
    if kind == Kind::Amdahl {
        return amdahl(summary, choice).svg();
    }
    let records = choice.records(summary)?;
    match kind {
        Kind::Times => times(summary, &records)?.svg(),
        Kind::Speedups => speedups(summary, &records)?.svg(),
        Kind::Errors => match choice.axis.as_deref() {
            Some(axis) => over_extent::errors(summary, &records, axis)?.svg(),
            None => errors(summary, &records)?.svg(),
        },
        Kind::Roofline => roofline::plane(summary, &records)?.svg(),
        Kind::Scaling => {
            let axis = choice.axis.as_deref().ok_or("name the extent with --axis, for example `--axis rows`")?;
            over_extent::times(summary, &records, axis)?.svg()
        }
        Kind::Amdahl => unreachable!("drawn above"),
    }
}

/// Times with cold caches that can be believed.
fn timings<'a>(records: &[&'a Record]) -> Vec<(&'a Record, &'a Timing)> {
    let all = records.iter().flat_map(|record| record.outcome.timings.iter().map(move |timing| (*record, timing)));
    all.filter(|(_, t)| t.heat == Heat::Cold && t.verdict != Verdict::Invalid && t.median_us > 0.0).collect()
}

/// Where and when.
fn origin(summary: &Summary, records: &[&Record]) -> String {
    let is_used = |key: &String| records.iter().any(|record| record.fingerprint.as_ref() == Some(key));
    let devices =
        summary.devices.iter().filter(|entry| is_used(&entry.key)).map(|entry| entry.fingerprint.name.as_str());
    let day = summary.run.started.split('T').next().unwrap_or_default();
    line(&devices.chain([day]).collect::<Vec<_>>().join(" · "))
}

/// The one word that all records share, for a title.
fn shared<'a>(records: &[&'a Record], word: impl Fn(&'a Record) -> &'a str) -> Option<&'a str> {
    let first = word(records.first()?);
    records.iter().all(|record| word(record) == first).then_some(first)
}

fn title(what: &str, records: &[&Record]) -> String {
    let parts = [shared(records, |record| &record.operator), shared(records, |record| record.dtype.name())];
    let of: Vec<&str> = parts.into_iter().flatten().collect();
    if of.is_empty() { what.to_owned() } else { line(&format!("{what}: {}", of.join(" "))) }
}

/// Times of one shape: who, how long, and whether it is a peer.
type Beside = Vec<(String, f64, bool)>;

fn times(summary: &Summary, records: &[&Record]) -> Result<Bars, String> {
    let mut shapes: BTreeMap<(&str, DType, &str), Beside> = BTreeMap::new();
    for (record, timing) in timings(records) {
        let group = shapes.entry((&record.operator, record.dtype, &timing.shape)).or_default();
        group.push((record.candidate.clone(), timing.median_us, false));
        for peer in timing.peers.iter().filter(|peer| peer.verdict == Verdict::Pass && peer.median_us > 0.0) {
            if !group.iter().any(|(name, _, _)| *name == peer.name) {
                group.push((peer.name.clone(), peer.median_us, true));
            }
        }
    }
    let names = |(operator, dtype, shape): (&str, DType, &str)| {
        let operator = shared(records, |record| &record.operator).map_or(operator, |_| "");
        let dtype = shared(records, |record| record.dtype.name()).map_or(dtype.name(), |_| "");
        [operator, dtype, shape].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let mut bars = Vec::new();
    for (key, mut group) in shapes {
        group.sort_by(|a, b| a.1.total_cmp(&b.1));
        for (i, (name, us, is_peer)) in group.into_iter().enumerate() {
            let heading = (i == 0).then(|| line(&names(key)));
            let colour = group_colour(usize::from(is_peer));
            bars.push(Bar { heading, label: line(&name), value: us, text: short(us), colour });
        }
    }
    Ok(Bars {
        title: title("Run time, µs", records),
        origin: origin(summary, records) + " · caches cold · lower is better",
        bars,
        reference: None,
        legend: vec![("candidate".into(), group_colour(0)), ("peer".into(), group_colour(1))],
    })
}

fn speedups(summary: &Summary, records: &[&Record]) -> Result<Bars, String> {
    let mut ratios: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for (record, timing) in timings(records) {
        let name = line(&format!("{}::{}::{}", record.operator, record.candidate, record.dtype));
        for peer in timing.peers.iter().filter(|peer| peer.verdict == Verdict::Pass && peer.ratio > 0.0) {
            ratios.entry((name.clone(), format!("over {}", line(&peer.name)))).or_default().push(peer.ratio.recip());
        }
        if let Some(ratio) = timing.ratio.filter(|ratio| *ratio > 0.0) {
            ratios.entry((name, "over its baseline".into())).or_default().push(ratio.recip());
        }
    }
    let mut last = String::new();
    let bars = ratios.into_iter().map(|((name, other), ratios)| {
        let mean = geometric_mean(&ratios);
        let heading = (name != last).then(|| name.clone());
        last = name;
        let colour = group_colour(if mean < 1.0 { 1 } else { 0 });
        Bar {
            heading, label: format!("{other} ({})", ratios.len()), value: mean, text: format!("{mean:.2} ×"), colour
        }
    });
    Ok(Bars {
        title: title("Speed-up", records),
        origin: origin(summary, records) + " · geometric mean over as many shapes as stand in brackets",
        bars: bars.collect(),
        reference: Some(1.0),
        legend: Vec::new(),
    })
}

fn errors(summary: &Summary, records: &[&Record]) -> Result<Bars, String> {
    let mut worst: BTreeMap<(String, DType), f64> = BTreeMap::new();
    for record in records {
        if let Some(of_allowed) = record.outcome.worst_of_allowed().filter(|share| share.is_finite()) {
            let name = line(&format!("{}::{}", record.operator, record.candidate));
            let share = worst.entry((name, record.dtype)).or_insert(0.0);
            *share = share.max(of_allowed);
        }
    }
    let mut last = String::new();
    let bars = worst.into_iter().map(|((name, dtype), share)| {
        let heading = (name != last).then(|| name.clone());
        last = name;
        let colour = group_colour(if share > 1.0 { 1 } else { 0 });
        Bar { heading, label: dtype.name().into(), value: share, text: format!("{:.0} %", share * 100.0), colour }
    });
    Ok(Bars {
        title: title("Largest error, of what is allowed", records),
        origin: origin(summary, records),
        bars: bars.collect(),
        reference: Some(1.0),
        legend: Vec::new(),
    })
}

/// A group of bars a shape, two bars an exchange.
fn amdahl(summary: &Summary, choice: &Choice) -> Bars {
    let fits = |run: &&WorkloadRun| {
        choice.operator.as_ref().is_none_or(|workload| run.workload == *workload)
            && (choice.candidates.is_empty() || choice.candidates.contains(&run.variant))
            && choice.dtype.is_none_or(|dtype| run.dtype == dtype.name())
            && choice.device.as_ref().is_none_or(|device| run.device == *device)
    };
    let mut bars = Vec::new();
    let mut last = String::new();
    for run in summary.workloads.iter().filter(fits) {
        let Some(exchange) = run.exchange else { continue };
        let name = line(&format!("{} {} on {}", run.shape, run.dtype, run.device));
        for (what, value, colour) in [("predicted", exchange.predicted, 0), ("measured", exchange.measured, 1)] {
            let heading = (name != last).then(|| name.clone());
            last.clone_from(&name);
            let label = line(&format!("{} {what}", run.variant));
            bars.push(Bar { heading, label, value, text: format!("{value:.2} ×"), colour: group_colour(colour) });
        }
    }
    let devices = summary.devices.iter().map(|entry| entry.fingerprint.name.as_str());
    let day = summary.run.started.split('T').next().unwrap_or_default();
    Bars {
        title: "Speed-up over the naive chain".into(),
        origin: line(&devices.chain([day]).collect::<Vec<_>>().join(" · ")) + " · by Amdahl's law, and measured",
        bars,
        reference: Some(1.0),
        legend: vec![("predicted".into(), group_colour(0)), ("measured".into(), group_colour(1))],
    }
}

/// Three digits.
fn short(x: f64) -> String {
    let decimals = if x >= 100.0 {
        0
    } else if x >= 10.0 {
        1
    } else {
        2
    };
    format!("{x:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::{PeerTiming, ShapeErrors};
    use crate::report::record::samples::{passed, slower};
    use crate::report::summary::samples::run;
    use crate::report::workloads;

    fn summary() -> Summary {
        let mut record = slower();
        let peer = PeerTiming {
            median_us: 6.0,
            ratio: 0.5,
            ..PeerTiming::untimed("<eager>".into(), String::new(), Verdict::Pass, String::new())
        };
        record.outcome.timings[0].peers.push(peer);
        let mut summary = Summary::new(run("r"));
        summary.add(vec![record, passed()]);
        summary
    }

    #[test]
    fn times_stand_beside_those_of_peers() {
        let summary = summary();
        let records: Vec<&Record> = summary.records.iter().collect();
        let bars = times(&summary, &records).unwrap().bars;
        let found: Vec<_> = bars.iter().map(|bar| (bar.heading.as_deref(), bar.label.as_str(), bar.value)).collect();
        assert_eq!(found, [(Some("n=1024"), "fast", 3.0), (None, "<eager>", 6.0), (Some("n=4096"), "fast", 10.5)]);
        let bars = speedups(&summary, &records).unwrap().bars;
        let found: Vec<_> = bars.iter().map(|bar| (bar.label.as_str(), (bar.value * 1e3).round())).collect();
        assert_eq!(found, [("over <eager> (1)", 2000.0), ("over its baseline (2)", 976.0)]);
    }

    #[test]
    fn an_exchange_is_drawn_as_predicted_beside_as_measured() {
        let mut summary = summary();
        assert!(svg(Kind::Amdahl, &summary, &Choice::default()).unwrap_err().contains("nothing to plot"));
        let mut cheap = workloads::samples::chain("rows=1", 2.0);
        cheap.exchange = None;
        summary.workloads = vec![cheap, workloads::samples::chain("rows=2", 1.5)];
        let bars = amdahl(&summary, &Choice::default()).bars;
        let found: Vec<_> = bars.iter().map(|bar| (bar.heading.as_deref(), bar.label.as_str(), bar.value)).collect();
        let heading = Some("rows=2 f32 on d");
        assert_eq!(found, [(heading, "best_softmax predicted", 1.25), (None, "best_softmax measured", 1.5)]);
        let other = Choice { dtype: Some(DType::BF16), ..Choice::default() };
        assert!(svg(Kind::Amdahl, &summary, &other).is_err());
        assert!(svg(Kind::Amdahl, &summary, &Choice::default()).unwrap().contains("Amdahl"));
    }

    #[test]
    fn errors_over_an_extent_are_the_largest_of_each_candidate() {
        let error = |shape: &str, share: f64| ShapeErrors { shape: shape.into(), max_ulp: 1.0, max_of_allowed: share };
        let mut summary = summary();
        let outcome = &mut summary.records[1].outcome;
        let of = [("k=8,m=1", 0.1), ("k=8,m=2", 0.3), ("k=64,m=1", 0.2), ("k=0,m=1", 0.0), ("k=16,m=1", 0.0)];
        outcome.shape_errors = of.map(|(shape, share)| error(shape, share)).into();
        let choice = Choice { axis: Some("k".into()), ..Choice::default() };
        let records = choice.records(&summary).unwrap();
        let plane = over_extent::errors(&summary, &records, "k").unwrap();
        let found: Vec<_> = plane.points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(found, [(8.0, 0.3), (16.0, over_extent::EXACT), (64.0, 0.2)]);
        assert!(over_extent::errors(&summary, &records, "n").err().unwrap().contains("the extents here are: k, m"));
        assert!(svg(Kind::Errors, &summary, &choice).unwrap().contains("largest error"));
    }

    #[test]
    fn a_line_joins_shapes_that_differ_in_one_extent() {
        let summary = summary();
        let choice = Choice { axis: Some("n".into()), ..Choice::default() };
        let records = choice.records(&summary).unwrap();
        let plane = over_extent::times(&summary, &records, "n").unwrap();
        let found: Vec<_> = plane.points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(found, [(1024.0, 3.0), (4096.0, 10.5)]);
        assert!(over_extent::times(&summary, &records, "m").err().unwrap().contains("the extents here are: n"));
        assert!(svg(Kind::Scaling, &summary, &Choice::default()).unwrap_err().contains("--axis"));
        let other = Choice { operator: Some("gemm".into()), ..Choice::default() };
        assert!(svg(Kind::Times, &summary, &other).unwrap_err().contains("the operators here are: gelu"));
    }
}
