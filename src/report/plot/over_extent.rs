//! Times and errors over one extent of the shape.

use super::plane::{Mark, Plane, Point};
use super::{origin, shared, timings, title};
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::text::line;
use std::collections::BTreeMap;

/// Where an axis with logarithms shows what has no error.
pub const EXACT: f64 = 1e-3;

/// Times over an extent: a line joins shapes that differ in nothing else.
pub fn times(summary: &Summary, records: &[&Record], axis: &str) -> Result<Plane, String> {
    let mut points = Vec::new();
    let mut axes = Vec::new();
    for (record, timing) in timings(records) {
        let Some(x) = along(&timing.shape, axis, &mut axes) else { continue };
        let rest = extents(&timing.shape).filter(|(name, _)| *name != axis);
        let rest: Vec<String> = rest.map(|(name, value)| format!("{name}={value}")).collect();
        let series = [vec![name(record, records)], rest].concat().join(" ");
        points.push(Point { series: line(&series), mark: Mark::Circle, x, y: timing.median_us });
    }
    let count = |series: &str| points.iter().filter(|point| point.series == series).count();
    let lines: Vec<Point> = points.iter().filter(|point| count(&point.series) > 1).cloned().collect();
    if lines.is_empty() {
        return Err(format!("no two shapes differ in `{axis}` alone; {}", there_are(axes)));
    }
    let origin = origin(summary, records) + " · caches cold";
    Ok(plane("Run time", "µs".into(), origin, axis, lines, records))
}

/// The largest error of each candidate over an extent, whatever the others are.
pub fn errors(summary: &Summary, records: &[&Record], axis: &str) -> Result<Plane, String> {
    let mut axes = Vec::new();
    let mut largest: BTreeMap<(String, u64), f64> = BTreeMap::new();
    for record in records {
        let outcome = &record.outcome;
        let failed = outcome.failure.iter().filter_map(|failure| Some((&failure.case.shape, failure.of_allowed()?)));
        let judged = outcome.shape_errors.iter().map(|found| (&found.shape, found.max_of_allowed));
        for (shape, of_allowed) in judged.chain(failed) {
            let Some(x) = along(shape, axis, &mut axes).filter(|x| *x >= 1.0) else { continue };
            let y = largest.entry((name(record, records), x as u64)).or_insert(EXACT);
            *y = y.max(of_allowed);
        }
    }
    if largest.is_empty() {
        return Err(format!("no errors are known by `{axis}`; {}", there_are(axes)));
    }
    let finite = largest.into_iter().filter(|(_, y)| y.is_finite());
    let points =
        finite.map(|((series, x), y)| Point { series: line(&series), mark: Mark::Circle, x: x as f64, y }).collect();
    let y = format!("largest error, of what is allowed ({EXACT}: none)");
    Ok(plane("Error", y, origin(summary, records), axis, points, records))
}

fn plane(what: &str, y: String, origin: String, axis: &str, points: Vec<Point>, records: &[&Record]) -> Plane {
    let title = title(&format!("{what} over {}", line(axis)), records);
    Plane { title, origin, x: line(axis), y, points, joined: true, roofs: Vec::new(), marks: Vec::new() }
}

fn extents(shape: &str) -> impl Iterator<Item = (&str, &str)> {
    shape.split(',').filter_map(|part| part.split_once('='))
}

/// The extent of a shape along an axis; the names of all of its axes are kept.
fn along(shape: &str, axis: &str, axes: &mut Vec<String>) -> Option<f64> {
    axes.extend(extents(shape).map(|(name, _)| name.to_owned()));
    extents(shape).find(|(name, _)| *name == axis)?.1.parse().ok()
}

fn there_are(mut axes: Vec<String>) -> String {
    axes.sort();
    axes.dedup();
    format!("the extents here are: {}", line(&axes.join(", ")))
}

/// What tells a record from the others.
fn name(record: &Record, records: &[&Record]) -> String {
    let operator = shared(records, |record| &record.operator).is_none().then(|| record.operator.clone());
    let dtype = shared(records, |record| record.dtype.name()).is_none().then(|| record.dtype.name().to_owned());
    operator.into_iter().chain([record.candidate.clone()]).chain(dtype).collect::<Vec<_>>().join(" ")
}
