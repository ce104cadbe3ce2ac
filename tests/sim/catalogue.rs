//! The kernels of the catalogue as subjects, from their committed PTX.

use super::subject::{Argument, Expected, Group, Subject};
use kernelgate::core::candidate::{Body, Candidate, Kernel};
use kernelgate::core::distribution::Distribution;
use kernelgate::core::dtype::DType;
use kernelgate::core::launch::{Argument as Further, Launch as Plan};
use kernelgate::core::operator::{Operator, draw_inputs};
use kernelgate::core::tolerance::Tolerance;
use kernelgate::device::sim::{Committed, FOLDER};
use kernelgate::sim::{Dim, Launch};
use std::collections::BTreeMap;

/// Shapes of an operator with tails, without, and on other paths of its kernels.
fn shapes(operator: &dyn Operator) -> Vec<Vec<usize>> {
    match operator.axes().iter().map(|axis| axis.name).collect::<Vec<_>>().as_slice() {
        ["n"] => vec![vec![1037], vec![8192], vec![3]],
        ["m", "n", "k"] => vec![vec![33, 70, 45], vec![130, 128, 64], vec![64, 36, 100]],
        ["vocab", "dim", "ids"] => vec![vec![7, 19, 133], vec![50, 128, 20], vec![9, 1024, 5], vec![3, 4100, 2]],
        ["rows", "cols", rest @ ..] => [[3, 301], [2, 1024], [37, 33], [2, 5000], [1, 20_000]]
            .into_iter()
            .map(|rows| rows.into_iter().chain(rest.iter().map(|_| 0)).collect())
            .collect(),
        ["tokens", "heads", "half"] => {
            vec![vec![3, 5, 7], vec![37, 2, 32], vec![5, 3, 64], vec![2, 2, 128], vec![2, 1, 256]]
        }
        // An empty shape launches nothing.
        _ => operator
            .shapes()
            .iter()
            .filter(|point| operator.cost(point, DType::F32).bytes > 0)
            .min_by_key(|point| operator.cost(point, DType::F32).bytes)
            .cloned()
            .into_iter()
            .collect(),
    }
}

/// Widths at which kernels that hold rows in registers change their ways.
fn widths(operator: &dyn Operator) -> Vec<Vec<usize>> {
    match operator.axes().iter().map(|axis| axis.name).collect::<Vec<_>>().as_slice() {
        ["n"] => (1..40).chain([255, 256, 257, 1023, 1024, 1025, 2048, 4095]).map(|n| vec![n]).collect(),
        ["m", "n", "k"] => (1..34).flat_map(|at| [vec![at, 67 - at, 33 + at % 3], vec![at, 5, 1 + at % 5]]).collect(),
        ["vocab", "dim", "ids"] => (1..34).map(|at| vec![at, at * 4 + at % 3, 3 + at]).collect(),
        ["rows", "cols", rest @ ..] => {
            let cols = (1..33).chain((32..1056).step_by(32).flat_map(|at| [at, at + 1]));
            let cols = cols.chain((1024..8193).step_by(512).flat_map(|at| [at, at + 1]));
            cols.map(|cols| [2, cols].into_iter().chain(rest.iter().map(|_| 0)).collect()).collect()
        }
        _ => Vec::new(),
    }
}

/// The committed PTX of a kernel.
fn committed(kernel: &Kernel, dtype: DType) -> Option<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    Committed::new(folder).find(&kernel.program, dtype).map(|ptx| ptx.text)
}

/// The CUDA candidates of the catalogue in f32 that take one launch, by entry.
pub fn kernels() -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for suite in kernelgate::ops::catalogue() {
        for candidate in suite.candidates.iter().filter(|candidate| candidate.traits.dtypes.contains(&DType::F32)) {
            let Body::Cuda(kernel) = &candidate.body else { continue };
            let Some(ptx) = committed(kernel, DType::F32) else { continue };
            let mut groups: BTreeMap<String, Group> = BTreeMap::new();
            let operator = suite.operator.as_ref();
            // A subject has no room beside its inputs and outputs.
            let subject = |point: &[usize], draw| match kernel.plan(point).0.as_slice() {
                [plan] if candidate.body.workspace_bytes(point) == 0 => {
                    let entry = kernel.entry_of(plan, DType::F32);
                    Some((entry.clone(), case(operator, candidate, plan, point, draw, &entry, &ptx)))
                }
                _ => None,
            };
            let distributions = [Distribution::Normal, Distribution::NonFinite];
            let distributions = distributions.into_iter().filter(|one| operator.distributions().contains(one));
            for (point, distribution) in
                shapes(operator).iter().flat_map(|point| distributions.clone().map(move |d| (point, d)))
            {
                let found = subject(point, Draw::From(distribution));
                found.into_iter().for_each(|(entry, subject)| groups.entry(entry).or_default().subjects.push(subject));
            }
            // Inputs that show what ordinary ones forgive: a maximum that was not subtracted, say.
            let rare = operator
                .distributions()
                .iter()
                .filter(|one| ![Distribution::Normal, Distribution::Uniform, Distribution::NonFinite].contains(one));
            let rare = rare.flat_map(|one| shapes(operator).into_iter().map(move |point| (point, *one)));
            for (entry, subject) in rare.filter_map(|(point, one)| subject(&point, Draw::From(one))) {
                groups.entry(entry).or_default().further.push(subject);
            }
            let peaks = shapes(operator).into_iter().flat_map(|point| (0..4).map(move |third| (point.clone(), third)));
            for (entry, subject) in peaks.filter_map(|(point, third)| subject(&point, Draw::Peak { third })) {
                groups.entry(entry).or_default().further.push(subject);
            }
            for (entry, subject) in
                widths(operator).iter().filter_map(|point| subject(point, Draw::From(Distribution::Normal)))
            {
                groups.entry(entry).or_default().further.push(subject);
            }
            // The ways of one version for short rows are often those of another.
            let is_new = |group: &Group| {
                let same = |a: &Subject, b: &Subject| (&a.ptx, &a.launch.entry) == (&b.ptx, &b.launch.entry);
                let first = group.subjects.first();
                first.is_some_and(|first| {
                    !all.iter().any(|known| known.subjects.first().is_some_and(|known| same(known, first)))
                })
            };
            let new: Vec<Group> = groups.into_values().filter(is_new).collect();
            all.extend(new);
        }
    }
    all
}

/// A CUDA candidate in f32 at a shape; `None` where it takes several launches.
pub fn candidate(operator: &str, name: &str, point: &[usize]) -> Option<Subject> {
    let suite = kernelgate::ops::catalogue().into_iter().find(|suite| suite.operator.name() == operator)?;
    let candidate = suite.candidates.iter().find(|candidate| candidate.name == name)?;
    let Body::Cuda(kernel) = &candidate.body else { return None };
    let ptx = committed(kernel, DType::F32)?;
    let plan = kernel.plan(point).0;
    let [plan] = plan.as_slice() else { return None };
    let entry = kernel.entry_of(plan, DType::F32);
    let draw = Draw::From(Distribution::Normal);
    Some(case(suite.operator.as_ref(), candidate, plan, point, draw, &entry, &ptx))
}

/// What the inputs of a case hold.
#[derive(Debug, Clone, Copy)]
enum Draw {
    From(Distribution),
    /// Normal numbers, and one far above them in each row of the first input: so many thirds along it.
    Peak {
        third: usize,
    },
}

/// Far enough above normal numbers that exponentials without the largest number subtracted overflow.
const PEAK: f32 = 200.0;

/// The inputs: their bytes and their values.
fn inputs(operator: &dyn Operator, point: &[usize], draw: Draw) -> (Vec<Vec<u8>>, Vec<Vec<f64>>) {
    let distribution = if let Draw::From(distribution) = draw { distribution } else { Distribution::Normal };
    let inputs = draw_inputs(operator, point, DType::F32, distribution, 1);
    let mut bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
    let mut values: Vec<Vec<f64>> = inputs.iter().map(|input| input.to_f64()).collect();
    if let (Draw::Peak { third }, [_, columns, ..]) = (draw, point)
        && operator.axes().iter().map(|axis| axis.name).take(2).eq(["rows", "cols"])
    {
        for row in (0..values[0].len()).step_by(*columns) {
            let at = row + (columns - 1) * third / 3;
            values[0][at] = f64::from(PEAK);
            bytes[0][4 * at..4 * at + 4].copy_from_slice(&PEAK.to_le_bytes());
        }
    }
    (bytes, values)
}

/// A candidate at one shape, with one draw of inputs.
fn case(
    operator: &dyn Operator,
    candidate: &Candidate,
    plan: &Plan,
    point: &[usize],
    draw: Draw,
    entry: &str,
    ptx: &str,
) -> Subject {
    let (inputs, wide) = inputs(operator, point, draw);
    let wide: Vec<&[f64]> = wide.iter().map(Vec::as_slice).collect();
    let lengths = (0..operator.outputs().len()).map(|at| operator.output_dims(at, point).iter().product());
    let mut values: Vec<Vec<f64>> = lengths.map(|length: usize| vec![0.0; length]).collect();
    operator.reference(point, &wide, &mut values);
    let mut magnitudes = values.clone();
    operator.magnitude(point, &wide, &mut magnitudes);
    let depth = operator.depth(point);
    let own = candidate.traits.tolerance.as_ref().or_else(|| operator.tolerance());
    let tolerance = own.map_or_else(Tolerance::default, |own| own.tolerance);
    let mut arguments: Vec<Argument> = inputs.into_iter().map(Argument::Input).collect();
    let mut expected = Vec::new();
    for (values, magnitudes) in values.into_iter().zip(magnitudes) {
        let allowed = values.iter().zip(magnitudes);
        let allowed = allowed.map(|(value, size)| tolerance.allowed(DType::F32, *value, depth, size)).collect();
        let argument = arguments.len();
        arguments.push(Argument::Output(values.len() * DType::F32.size()));
        expected.push(Expected { argument, values, allowed });
    }
    arguments.extend(plan.arguments.iter().filter_map(|argument| match argument {
        Further::Scalar(scalar) => Some(Argument::Scalar(scalar.bytes())),
        // No kernel in f32 takes them.
        Further::Map(_) | Further::Pointer(_) => None,
    }));
    let dim = |[x, y, z]: [usize; 3]| Dim::new(x as u32, y as u32, z as u32);
    Subject {
        name: format!("{} {} {entry}", operator.name(), candidate.name),
        ptx: ptx.to_owned(),
        launch: Launch::new(entry, dim(plan.grid), dim(plan.block))
            .cluster(plan.cluster as u32)
            .dynamic_shared(plan.shared_bytes as u32),
        arguments,
        expected,
        is_async: plan.cluster > 1,
    }
}
