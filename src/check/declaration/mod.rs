//! Whether suites are declared so that every check means something: looked at before the first trial, all mistakes at once.

use super::boundary::{base, points};
use super::slice::following;
use crate::core::candidate::{Body, Candidate, Traits};
use crate::core::constraint;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::port::Role;
use crate::core::seed::rng;
use crate::core::shape::{Domain, Point, describe};
use crate::core::suite::Suite;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is wrong with the declarations: a sentence a mistake, each with its place and what to do.
pub fn mistakes(suites: &[Suite]) -> Vec<String> {
    let mut found = Vec::new();
    if suites.is_empty() {
        found.push("the gate has no operator: add one with `gate!(operator)` or `.and(operator)`".into());
    }
    let mut seen = HashSet::new();
    for suite in suites {
        let operator = suite.operator.as_ref();
        let name = operator.name();
        if !seen.insert(name) {
            found.push(format!("two operators are called `{name}`: give each its own name, or one all candidates"));
        }
        let mut of_operator = of_operator(operator);
        of_operator.extend(of_suite(suite));
        found.extend(of_operator.into_iter().map(|mistake| format!("operator `{name}`: {mistake}")));
        for candidate in &suite.candidates {
            let place = format!("candidate `{name}::{}`", candidate.name);
            let mistakes = of_candidate(suite, candidate);
            found.extend(mistakes.into_iter().map(|mistake| format!("{place}: {mistake}")));
        }
    }
    found
}

/// Why a name cannot stand in trial and file names.
fn of_name(what: &str, name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (name.is_empty() || !name.chars().all(plain)).then(|| {
        format!("the {what} name `{name}` stands in trial and file names: use letters, digits, `_`, `-` and `.`")
    })
}

fn of_suite(suite: &Suite) -> Vec<String> {
    let mut found = Vec::new();
    if suite.candidates.is_empty() {
        found.push("it has no candidate, so nothing is judged: add one with `.candidate(name, …)`".into());
    }
    if suite.dtypes.is_empty() {
        found.push("`.dtypes([])` leaves no dtype to run in".into());
    }
    if let Some(twice) = repeated(&suite.dtypes) {
        found.push(format!("`.dtypes` names {twice} twice"));
    }
    let names = suite.candidates.iter().flat_map(|candidate| {
        let computed = suite.dtypes.iter().filter(|dtype| candidate.traits.dtypes.contains(dtype));
        computed.map(|&dtype| (&candidate.name, dtype))
    });
    if let Some((name, dtype)) = repeated(names) {
        found.push(format!("two candidates are called `{name}` in {dtype}: give each its own name"));
    }
    found
}

fn of_operator(operator: &dyn Operator) -> Vec<String> {
    let mut found: Vec<String> = of_name("operator", operator.name()).into_iter().collect();
    found.extend(operator.mistakes().iter().cloned());
    let ports = || operator.inputs().iter().chain(operator.outputs());
    if operator.outputs().is_empty() {
        found.push("it has no output, so nothing is judged: declare one with `.output(name, extents)`".into());
    }
    if ports().any(|port| port.name.is_empty()) {
        found.push("a tensor has an empty name: reports could not tell which one is meant".into());
    }
    // A tensor that is changed in place is an output under the name that it has as an input.
    let named = operator.inputs().iter().chain(operator.outputs().iter().filter(|port| !port.in_place));
    if let Some(twice) = repeated(named.map(|port| port.name)) {
        found.push(format!("two tensors are called `{twice}`: give each its own name"));
    }
    if !operator.has_reference() {
        found.push("it has no reference, so zeros would pass: define the outputs with `.reference(…)`".into());
    }
    if operator.distributions().is_empty() {
        found.push("`.distributions([])` leaves no inputs to draw: name at least `Distribution::Normal`".into());
    }
    if operator.range().is_nan() || operator.range() <= 0.0 {
        found.push(format!("`.range({})` is no magnitude: it must be above 0", operator.range()));
    }
    found.extend(of_axes(operator));
    // Extents at points of broken axes say nothing.
    if found.is_empty() {
        found.extend(of_extents(operator));
    }
    found
}

fn of_axes(operator: &dyn Operator) -> Vec<String> {
    let mut found = Vec::new();
    for axis in operator.axes() {
        match &axis.domain {
            Domain::Extent { min, max } if min > max => {
                found.push(format!("axis `{}`: the range {min}..={max} is empty", axis.name));
            }
            Domain::Choice(values) => {
                let text: Vec<String> = values.iter().map(ToString::to_string).collect();
                if let Some(twice) = repeated(&text) {
                    found.push(format!("axis `{}` lists the value {twice} twice", axis.name));
                }
            }
            Domain::Extent { .. } => {}
        }
    }
    found
}

/// What the closures of an operator say at its boundary shapes and at those that it lists.
fn of_extents(operator: &dyn Operator) -> Vec<String> {
    let mut shapes = points(operator, &Traits::default(), 0, &mut rng(0));
    shapes.extend(operator.shapes().iter().chain(operator.perf_shapes()).cloned());
    let mut found = Vec::new();
    let mut say = |mistake: String| {
        if !found.contains(&mistake) {
            found.push(mistake);
        }
    };
    let listed = operator.shapes().iter().chain(operator.perf_shapes()).chain(operator.base());
    for point in listed {
        if let Some(why) = constraint::objection(operator.axes(), operator.constraints(), &[], point) {
            say(format!("the shape {} is listed, but {why}", describe(operator.axes(), point)));
        }
    }
    for point in &shapes {
        let at = describe(operator.axes(), point);
        // One mistake a closure is enough: it would be made at every shape.
        match catch_unwind(AssertUnwindSafe(|| of_point(operator, point))) {
            Ok(None) => {}
            Ok(Some(mistake)) => {
                say(format!("{mistake} at {at}"));
                break;
            }
            Err(_) => {
                say(format!("a closure of its declaration (extents, cost, depth, bound or fan-in) panics at {at}"));
                break;
            }
        }
    }
    for point in operator.perf_shapes() {
        let cost = catch_unwind(AssertUnwindSafe(|| operator.cost(point, DType::F32)));
        if cost.is_ok_and(|cost| cost.bytes == 0 && cost.flops == 0) {
            say(format!(
                "the timed shape {} has no cost: say with `.cost(…)` how many bytes and operations it takes",
                describe(operator.axes(), point)
            ));
            break;
        }
    }
    if let Some(axis) = operator.separable()
        && let Ok(Some(mistake)) = catch_unwind(AssertUnwindSafe(|| of_separable(operator, axis)))
    {
        say(mistake);
    }
    if found.is_empty() {
        found.extend(of_reference(operator));
    }
    found
}

/// A mistake that the closures make at one point.
fn of_point(operator: &dyn Operator, point: &Point) -> Option<String> {
    for (i, port) in operator.inputs().iter().enumerate() {
        let is_empty = operator.input_dims(i, point).contains(&0);
        let number = if port.role == Role::Index {
            operator.index_bound(i, point).saturating_sub(operator.index_first(i, point))
        } else {
            1
        };
        if !is_empty && (number == 0 || number > i32::MAX as usize) {
            return Some(format!(
                "index input `{}` has the bound {}, no i32 index from {} on is below it or holds it,",
                port.name,
                operator.index_bound(i, point),
                operator.index_first(i, point)
            ));
        }
        if port.role == Role::Weight {
            operator.fan_in(i, point);
        }
    }
    for i in 0..operator.outputs().len() {
        operator.output_dims(i, point);
    }
    operator.cost(point, DType::F32);
    let depth = operator.depth(point);
    depth.is_nan().then(|| "`.depth` is no number".into())
}

/// Rows can be taken apart only where they lead every output.
fn of_separable(operator: &dyn Operator, axis: usize) -> Option<String> {
    let name = operator.axes()[axis].name;
    if !operator.axes()[axis].is_extent() {
        return Some(format!("`.separable(\"{name}\")` names an attribute; it takes the axis of independent rows"));
    }
    let mut point = base(operator, &[]);
    let (min, max) = operator.axes()[axis].bounds();
    if min == max {
        return None;
    }
    point[axis] = point[axis].min(max - 1);
    let unmoved = (0..operator.outputs().len())
        .find(|&i| following(|point| operator.output_dims(i, point), &point, axis).is_none());
    if let Some(i) = unmoved {
        return Some(format!(
            "`.separable(\"{name}\")`: output `{}` does not have `{name}` as an extent, so its rows cannot be taken apart",
            operator.outputs()[i].name
        ));
    }
    let any =
        (0..operator.inputs().len()).any(|i| following(|point| operator.input_dims(i, point), &point, axis).is_some());
    (!any && !operator.inputs().is_empty()).then(|| {
        format!("`.separable(\"{name}\")`: no input has `{name}` as an extent, so no row has inputs of its own")
    })
}

/// The smallest shape with something in it.
fn smallest(operator: &dyn Operator) -> Point {
    let extents = operator.axes().iter().map(|axis| {
        let (min, max) = axis.bounds();
        if axis.is_extent() { min.max(1).min(max) } else { min }
    });
    let point: Point = extents.collect();
    constraint::nearest(operator.axes(), operator.constraints(), &[], &point).unwrap_or(point)
}

/// The reference at the smallest shape: it must leave every output its length.
fn of_reference(operator: &dyn Operator) -> Option<String> {
    let smallest = smallest(operator);
    let at = describe(operator.axes(), &smallest);
    let distribution = *operator.distributions().first().unwrap_or(&Distribution::Normal);
    let lengths = |outputs: &[Vec<f64>]| outputs.iter().map(Vec::len).collect::<Vec<_>>();
    let called = catch_unwind(AssertUnwindSafe(|| {
        let inputs = crate::core::operator::draw_inputs(operator, &smallest, DType::F32, distribution, 1);
        let inputs: Vec<Vec<f64>> = inputs.iter().map(crate::core::tensor::Tensor::to_f64).collect();
        let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let dims = (0..operator.outputs().len()).map(|i| operator.output_dims(i, &smallest));
        let mut outputs: Vec<Vec<f64>> = dims.map(|dims| vec![0.0; dims.iter().product()]).collect();
        let wanted = lengths(&outputs);
        operator.reference(&smallest, DType::F32, &inputs, &mut outputs);
        let of_reference = lengths(&outputs);
        operator.magnitude(&smallest, &inputs, &mut outputs);
        (wanted, of_reference, lengths(&outputs))
    }));
    match called {
        Err(_) => Some(format!("its reference or magnitude panics at {at}")),
        Ok((wanted, reference, _)) if reference != wanted => Some(format!(
            "its reference leaves outputs of {reference:?} elements at {at}, their extents say {wanted:?}: write into \
             the given vectors"
        )),
        Ok((wanted, _, magnitude)) if magnitude != wanted => Some(format!(
            "its magnitude leaves outputs of {magnitude:?} elements at {at}, their extents say {wanted:?}: write into \
             the given vectors"
        )),
        Ok(_) => None,
    }
}

fn of_candidate(suite: &Suite, candidate: &Candidate) -> Vec<String> {
    let operator = suite.operator.as_ref();
    let traits = &candidate.traits;
    let mut found: Vec<String> = of_name("candidate", &candidate.name).into_iter().collect();
    let names = |dtypes: &[DType]| dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    if !suite.candidates.is_empty() && suite.dtypes_of(candidate).next().is_none() {
        found.push(format!(
            "it has no trial: it computes {}, the operator runs in {}; name a common dtype with `.dtypes`",
            if traits.dtypes.is_empty() { "no dtype".into() } else { names(&traits.dtypes) },
            if suite.dtypes.is_empty() { "none".into() } else { names(&suite.dtypes) },
        ));
    }
    if let Some(twice) = repeated(&traits.dtypes) {
        found.push(format!("it names {twice} twice"));
    }
    if let Body::Cpu(body) = &candidate.body {
        let without: Vec<DType> = traits.dtypes.iter().copied().filter(|&dtype| !body.computes(dtype)).collect();
        if !without.is_empty() {
            found
                .push(format!("`.dtypes` names {}, for which it has no function: add it with `.and`", names(&without)));
        }
    }
    for &(name, extent) in &traits.tiles {
        match operator.axes().iter().find(|axis| axis.name == name) {
            None => {
                let axes: Vec<_> = operator.axes().iter().map(|axis| axis.name).collect();
                found.push(format!("`.tile(\"{name}\", {extent})`: no such axis; the axes are {}", axes.join(", ")));
            }
            Some(axis) if !axis.is_extent() => {
                found.push(format!("`.tile(\"{name}\", {extent})`: `{name}` is an attribute and has no tiles"));
            }
            Some(_) if extent == 0 => found.push(format!("`.tile(\"{name}\", 0)`: a tile has at least one element")),
            Some(_) => {}
        }
    }
    if !traits.alignment.is_power_of_two() {
        found.push(format!("`.alignment({})`: a power of two is expected, in bytes", traits.alignment));
    }
    for (dtype, bytes) in traits.alignments.iter().filter(|(_, bytes)| !bytes.is_power_of_two()) {
        found.push(format!("`.alignment_in({dtype}, {bytes})`: a power of two is expected, in bytes"));
    }
    for limit in traits.limits.iter().filter(|limit| limit.multiple == 0) {
        found.push(format!("`.multiples(\"{}\", 0)`: a step of at least 1 is expected", limit.axis));
    }
    for limit in &traits.limits {
        match operator.axes().iter().find(|axis| axis.name == limit.axis) {
            Some(axis) if axis.is_extent() => {}
            Some(_) => found.push(format!("it takes {limit}, which is an attribute and no extent")),
            None => {
                let axes: Vec<_> = operator.axes().iter().map(|axis| axis.name).collect();
                found.push(format!("it takes {limit}: no such axis; the axes are {}", axes.join(", ")));
            }
        }
    }
    let (axes, smallest) = (operator.axes(), smallest(operator));
    if found.is_empty() && constraint::nearest(axes, operator.constraints(), &traits.limits, &smallest).is_none() {
        found.push("no shape is legal for it: its `.extents` and `.multiples` leave none of the operator's".into());
    }
    let tried = |one: &Distribution| traits.exclude_distributions.iter().all(|(other, _)| other != one);
    if !operator.distributions().is_empty() && !operator.distributions().iter().any(tried) {
        found.push("`.exclude_distributions` leaves no inputs to try it on".into());
    }
    for (distribution, _) in traits.exclude_distributions.iter().filter(|(_, reason)| reason.trim().is_empty()) {
        found.push(format!("`.exclude_distributions({distribution}, …)` gives no reason"));
    }
    found
}

/// The first value that occurs twice.
fn repeated<T: std::hash::Hash + Eq + Clone>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = HashSet::new();
    values.into_iter().find(|value| !seen.insert(value.clone()))
}

#[cfg(test)]
mod tests;
