//! The data of the page: a summary in as few bytes as it can be read back from. Every text stands once, numbers keep six
//! digits, and what a script can derive is left out.

use super::Named;
use crate::calibrate::Calibration;
use crate::check::outcome::{Check, PeerTiming, Timing};
use crate::device::Heat;
use crate::report::formats::rank;
use crate::report::history::History;
use crate::report::record::Record;
use crate::report::summary::Summary;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Texts by number.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Texts {
    /// The number of a text; an empty one has none.
    fn number(&mut self, text: &str) -> Value {
        if text.is_empty() {
            return Value::Null;
        }
        if let Some(&number) = self.numbers.get(text) {
            return number.into();
        }
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.all.len() - 1);
        (self.all.len() - 1).into()
    }
}

/// The JSON text, in which no markup can begin.
pub(super) fn json(
    summaries: &[Named],
    calibrations: &[Calibration],
    history: Option<&History>,
    follow: Option<&str>,
) -> String {
    let mut texts = Texts::default();
    let summaries: Vec<Value> = summaries.iter().map(|named| summary(named, &mut texts)).collect();
    let mut page = json!({ "summaries": summaries, "strings": texts.all });
    if !calibrations.is_empty() {
        page["calibrations"] = calibrations.iter().map(calibration).collect();
    }
    if let Some(history) = history {
        page["history"] = history.to_json();
    }
    if let Some(version) = follow {
        page["follow"] = version.into();
    }
    page.to_string().replace('<', "\\u003c")
}

/// A calibration, with the ridge points that follow from it.
fn calibration(calibration: &Calibration) -> Value {
    let mut value = serde_json::to_value(calibration).expect("a calibration has string keys");
    let ridges = calibration.ridges().into_iter().map(|ridge| {
        json!({
            "pipe": ridge.pipe, "dtype": ridge.dtype.name(), "level": ridge.level,
            "burst": ridge.burst, "sustained": ridge.sustained,
        })
    });
    value["ridges"] = ridges.collect();
    round(&mut value);
    value
}

fn summary(named: &Named, texts: &mut Texts) -> Value {
    let records: Vec<Value> = named.summary.records.iter().map(|one| record(one, texts)).collect();
    // All sections but the records, whichever there are.
    let rest = Summary { records: Vec::new(), ..named.summary.clone() };
    let mut value = serde_json::to_value(&rest).expect("a summary has string keys and no failing serializer");
    round(&mut value);
    // A page says how many there were.
    value["run"]["merged"] = if rest.run.merged.is_empty() { Value::Null } else { rest.run.merged.len().into() };
    value["run"]["seed"] = format!("{:#x}", rest.run.seed).into();
    value["label"] = named.label.as_str().into();
    value["records"] = records.into();
    value
}

fn record(record: &Record, texts: &mut Texts) -> Value {
    let outcome = &record.outcome;
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            entry.insert(name.into(), value);
        }
    };
    put("o", texts.number(&record.operator));
    put("c", texts.number(&record.candidate));
    put("t", texts.number(record.dtype.name()));
    put("k", Check::ALL.iter().position(|check| *check == record.check).into());
    put("d", texts.number(record.device.name()));
    put("f", texts.number(record.fingerprint.as_deref().unwrap_or_default()));
    put("v", rank(outcome.verdict).into());
    put("r", texts.number(&outcome.reason));
    put("n", outcome.cases.into());
    put("p", some(outcome.planned));
    put("u", some(outcome.cut));
    if let Some(e) = outcome.errors {
        put("e", [e.max_abs, e.max_rel, e.max_ulp, e.max_of_allowed].map(number).to_vec().into());
    }
    if let Some(share) = outcome.worst_of_allowed() {
        // JSON has no infinity.
        put("m", if share.is_finite() { number(share) } else { "inf".into() });
    }
    if let Some(failure) = &outcome.failure {
        put("x", serde_json::to_value(failure).expect("a failure has string keys and no failing serializer"));
    }
    put("s", texts.number(record.source.as_deref().unwrap_or_default()));
    put("q", number(record.duration_s));
    // What precedes the name of the trial is the same for all of a gate.
    let (start, end) = record.repeat.split_once(&record.trial).unwrap_or((&record.repeat, ""));
    let is_split = start.len() < record.repeat.len();
    put("z", texts.number(start));
    if is_split {
        put("y", end.into());
    }
    if !outcome.notes.is_empty() {
        put("w", outcome.notes.iter().map(|note| texts.number(note)).collect());
    }
    if !outcome.timings.is_empty() {
        put("T", outcome.timings.iter().map(|one| timing(one, texts)).collect());
    }
    if !outcome.metrics.is_empty() {
        let metrics = outcome.metrics.iter().map(|m| {
            let relative = texts.number(m.relative.as_deref().unwrap_or_default());
            json!([texts.number(&m.shape), texts.number(&m.name), m.value, relative, m.accepted])
        });
        let metrics: Vec<Value> = metrics.collect();
        put("M", metrics.into());
    }
    entry.into()
}

fn timing(timing: &Timing, texts: &mut Texts) -> Value {
    let t = timing;
    let maybe = |value: Option<f64>| value.map_or(Value::Null, number);
    let mut row = vec![texts.number(&t.shape), usize::from(t.heat == Heat::Hot).into()];
    row.extend([t.median_us, t.p5_us, t.p95_us, t.low_us, t.high_us].map(number));
    row.extend([
        t.samples.into(),
        t.dropped.into(),
        maybe(t.clock_mhz.map(f64::round)),
        t.bytes.into(),
        t.flops.into(),
    ]);
    row.extend([t.copy_us, t.read_us, t.fma_us, t.floor_us, t.of_ceiling, t.baseline_us].map(maybe));
    row.extend([t.ratio, t.normalised_ratio, t.threshold].map(maybe));
    row.extend([rank(t.verdict).into(), maybe(t.predicted_us), t.code.as_deref().into()]);
    let peers: Vec<Value> = t.peers.iter().map(|one| peer(one, texts)).collect();
    row.push(if peers.is_empty() { Value::Null } else { peers.into() });
    row.push(t.predicted_interval_us.map_or(Value::Null, |interval| interval.map(number).to_vec().into()));
    row.push(t.bound.map_or(Value::Null, |bound| texts.number(bound.name())));
    while row.last().is_some_and(Value::is_null) {
        row.pop();
    }
    row.into()
}

fn peer(p: &PeerTiming, texts: &mut Texts) -> Value {
    let [low, high] = p.ratio_interval.map_or([Value::Null, Value::Null], |interval| interval.map(number));
    let (name, about, reason) = (texts.number(&p.name), texts.number(&p.about), texts.number(&p.reason));
    let error = p.errors.map_or(Value::Null, |errors| number(errors.max_of_allowed));
    json!([name, about, rank(p.verdict), reason, number(p.median_us), number(p.ratio), low, high, p.samples, error])
}

/// A count that is mostly 0.
fn some(count: usize) -> Value {
    if count == 0 { Value::Null } else { count.into() }
}

/// Six digits; whole numbers without a point. What is not finite is `null`.
fn number(x: f64) -> Value {
    let short: f64 = format!("{x:.5e}").parse().unwrap_or(x);
    if short.fract() == 0.0 && short.abs() < 1e15 { (short as i64).into() } else { short.into() }
}

/// The same in all that lies within.
fn round(value: &mut Value) {
    match value {
        Value::Number(found) if found.is_f64() => *value = found.as_f64().map_or(Value::Null, number),
        Value::Array(list) => list.iter_mut().for_each(round),
        Value::Object(map) => map.values_mut().for_each(round),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [1.0 / 3.0, 4096.0, 1e300, 70_368_744_177_664.0, f64::NAN, 0.0].map(|x| number(x).to_string());
        assert_eq!(shown, ["0.333333", "4096", "1e+300", "70368700000000", "null", "0"]);
    }
}
