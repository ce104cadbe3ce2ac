//! The perf check where time means nothing: the work of a kernel, counted exactly at the timed shapes, cut down until
//! they can be simulated. It only counts; what the counts mean against accepted ones is judged above.

use super::boundary::elements;
use super::case::Case;
use super::correctness::blame;
use super::judge::{Rejection, prepare, reject};
use super::outcome::{Metric, Outcome, Verdict};
use super::slice::rows_of_output;
use super::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::operator::Operator;
use crate::core::seed::{DEFAULT_SEED, derive};
use crate::core::shape::{Point, describe};
use crate::device::counts::{Counts, Traffic};
use crate::measure::inputs::draw;

/// Elements and operations of a counted case. Counts are held against accepted ones, so nothing about a run or a
/// machine may change them.
const MOST_ELEMENTS: usize = 1 << 20;
const MOST_FLOPS: usize = 1 << 28;

/// Rows that an operator of independent rows keeps: those of a tile.
const FEWEST_ROWS: usize = 128;

/// Lanes of a warp.
const LANES: f64 = 32.0;
/// Bytes of a sector.
const SECTOR: f64 = 32.0;

/// What was counted.
pub struct Counted {
    /// The outcome without a judgement: `pass`, a skip, or a failure of the kernel.
    pub outcome: Outcome,
    /// What made the code, and for which architecture.
    pub made_by: String,
}

/// Counts a subject at every timed shape, or at `only`.
pub fn run(context: &Context<'_>, subject: &Subject<'_>, only: Option<&Point>) -> Counted {
    let mut counted = Counted { outcome: Outcome::new(Verdict::Pass), made_by: String::new() };
    let points = only.map_or_else(|| points(subject), |point| vec![point.clone()]);
    // No budget cuts this short: the shapes are small, and half of the counts would be no baseline.
    for point in &points {
        match count(context, subject, point) {
            Ok(counts) => {
                counted.outcome.metrics.extend(metrics(subject, point, &counts));
                counted.made_by = made_by(&counts);
            }
            Err(Rejection::Unsupported(why)) => {
                counted.outcome = Outcome::skip(why);
                return counted;
            }
            Err(Rejection::Failed(failure) | Rejection::Lost(failure)) => {
                blame(&mut counted.outcome, *failure);
                return counted;
            }
        }
        counted.outcome.cases += 1;
    }
    if counted.outcome.cases == 0 {
        let operator = subject.operator.name();
        counted.outcome = Outcome::skip(format!("operator {operator} lists no shapes to count (`Op::perf`)"));
    }
    counted
}

/// The shapes that are counted.
pub fn points(subject: &Subject<'_>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for point in subject.operator.perf_shapes() {
        let point = cut(subject, point.clone());
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

/// Counts a subject at a shape, cut down until it can be simulated: that shape, and what was counted there.
///
/// # Errors
/// Why it cannot be simulated, or what the simulator found.
pub fn at(context: &Context<'_>, subject: &Subject<'_>, point: &Point) -> Result<(Point, Counts), String> {
    let small = cut(subject, point.clone());
    // Halved extents may be ones that the operator or the candidate does not take.
    let small = subject.nearest(&small).ok_or("no smaller shape is one that it takes")?;
    let counts = count(context, subject, &small).map_err(Rejection::text)?;
    Ok((small, counts))
}

/// Halves extents until the case can be simulated: first the number of independent rows, which changes nothing about
/// a row, then whatever is largest of what makes it smaller.
fn cut(subject: &Subject<'_>, mut point: Point) -> Point {
    let size = |point: &Point| {
        let operator = subject.operator;
        [elements(operator, point), operator.cost(point, subject.dtype).flops]
    };
    while size(&point)[0] > MOST_ELEMENTS || size(&point)[1] > MOST_FLOPS {
        let Some(axis) = next_axis(subject.operator, &point, size) else { break };
        point[axis] = point[axis].div_ceil(2);
    }
    point
}

fn next_axis(operator: &dyn Operator, point: &Point, size: impl Fn(&Point) -> [usize; 2]) -> Option<usize> {
    let lies_outside = |axis: usize| rows_of_output(operator, 0, point, axis) == 0;
    let rows = operator.separable().filter(|&axis| point[axis] > FEWEST_ROWS && lies_outside(axis));
    rows.or_else(|| {
        let can_halve = |&i: &usize| {
            let axis = &operator.axes()[i];
            let mut halved = point.clone();
            halved[i] = point[i].div_ceil(2);
            axis.is_extent() && halved[i] >= axis.bounds().0.max(1) && point[i] > 1 && size(&halved) != size(point)
        };
        (0..point.len()).filter(can_halve).max_by_key(|&i| point[i])
    })
}

fn count(context: &Context<'_>, subject: &Subject<'_>, point: &Point) -> Result<Counts, Rejection> {
    let shape = describe(subject.operator.axes(), point);
    // Not the seed of the run: branches may depend on the data.
    let seed = derive(DEFAULT_SEED, &[subject.operator.name(), "counts", &shape]);
    let case = Case::new(point.clone(), Distribution::Normal, seed);
    let inputs = draw(subject.operator, point, subject.dtype, seed);
    let mut problem = prepare(context, subject, &case, &inputs)?;
    problem.count().map_err(|fault| reject(context, subject, &case, fault))
}

fn made_by(counts: &Counts) -> String {
    let compiler = if counts.compiler.is_empty() { "PTX as given" } else { &counts.compiler };
    format!("{compiler}, {}", counts.arch)
}

/// Counts as rows: what is zero has none.
fn metrics(subject: &Subject<'_>, point: &Point, counts: &Counts) -> Vec<Metric> {
    let operator = subject.operator;
    let shape = describe(operator.axes(), point);
    let product = |dims: Vec<usize>| dims.iter().product::<usize>() as f64;
    let bytes =
        |dims: Vec<usize>, port: &crate::core::port::Port| product(dims) * port.dtype(subject.dtype).size() as f64;
    let outputs = operator.outputs().iter().enumerate();
    let elements: f64 = outputs.clone().map(|(i, _)| product(operator.output_dims(i, point))).sum();
    let written: f64 = outputs.map(|(i, port)| bytes(operator.output_dims(i, point), port)).sum();
    let inputs = operator.inputs().iter().enumerate();
    let read: f64 = inputs.map(|(i, port)| bytes(operator.input_dims(i, point), port)).sum();

    let mut rows = Vec::new();
    let mut row = |name: String, value: u64, relative: Option<(f64, &str)>| {
        if value > 0 {
            let relative = relative.map(|(unit, of)| format!("{:.4} {of}", value as f64 / unit));
            rows.push(Metric { shape: shape.clone(), name, value, relative, accepted: None });
        }
    };
    let total: u64 = counts.instructions.iter().map(|(_, count)| count).sum();
    let an_element = |_: u64| Some((elements / LANES, "an element"));
    row("instructions".into(), total, an_element(total));
    for (class, count) in &counts.instructions {
        row(format!("instructions: {class}"), *count, an_element(*count));
    }
    row("idle lanes".into(), counts.idle_lanes, Some((LANES * total as f64, "of all")));
    row("divergent branches".into(), counts.divergent_branches, None);
    row("barrier arrivals".into(), counts.barriers, None);
    for (name, traffic, compulsory) in
        [("global read", counts.global_reads, read), ("global write", counts.global_writes, written)]
    {
        row(format!("{name} bytes"), traffic.bytes, Some((compulsory, "of compulsory")));
        row(format!("{name} sectors"), traffic.units, Some((compulsory / SECTOR, "of compulsory")));
    }
    for (name, Traffic { units, ideal_units, .. }) in
        [("shared read", counts.shared_reads), ("shared write", counts.shared_writes)]
    {
        row(format!("{name} wavefronts"), units, Some((ideal_units as f64, "of ideal")));
        row(format!("{name} wavefronts: excess"), units.saturating_sub(ideal_units), None);
    }
    for taken in &counts.entries {
        let entry = &taken.resources.entry;
        row(format!("registers: {entry}"), taken.resources.registers as u64, None);
        row(format!("spilled bytes: {entry}"), taken.resources.spill_bytes as u64, None);
        row(format!("shared bytes: {entry}"), taken.resources.shared_bytes as u64, None);
        row(format!("{RESIDENT}: {entry}"), taken.resident_warps as u64, Some((64.0, "of all")));
    }
    rows
}

/// The only metric of which more is better.
pub const RESIDENT: &str = "resident warps";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;

    crate::shape! { struct Product { m: 1..=1 << 20, n: 1..=1 << 20, k: 1..=1 << 20 } }

    #[test]
    fn rows_are_cut_before_what_a_row_is() {
        let operator = Op::<Product>::new("gemm")
            .input("a", |s| [s.m, s.k])
            .input("b", |s| [s.k, s.n])
            .output("c", |s| [s.m, s.n])
            .cost(|s, _| Cost { bytes: 0, flops: 2 * s.m * s.n * s.k })
            .separable("m")
            .perf([(1 << 14, 64, 32), (1 << 15, 64, 32), (256, 4096, 4096), (8, 8, 8)].map(|(m, n, k)| Product {
                m,
                n,
                k,
            }));
        let candidate: Candidate = Cpu::new::<f32>(|_: &Product, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let points = points(&subject);
        assert_eq!(points, [vec![8192, 64, 32], vec![128, 1024, 512], vec![8, 8, 8]]);
    }

    #[test]
    fn counts_become_rows_and_zeros_do_not() {
        let operator = Op::<Product>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Product, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let traffic = Traffic { bytes: 512, units: 32, ideal_units: 16 };
        let counts = Counts {
            instructions: vec![("integer".into(), 6), ("global".into(), 2)],
            global_reads: traffic,
            shared_reads: traffic,
            ..Counts::default()
        };
        let rows = metrics(&subject, &vec![1, 64, 1], &counts);
        let text = |row: &Metric| format!("{} {} {}", row.name, row.value, row.relative.as_deref().unwrap_or("-"));
        assert_eq!(
            rows.iter().map(text).collect::<Vec<_>>(),
            [
                "instructions 8 4.0000 an element",
                "instructions: integer 6 3.0000 an element",
                "instructions: global 2 1.0000 an element",
                "global read bytes 512 2.0000 of compulsory",
                "global read sectors 32 4.0000 of compulsory",
                "shared read wavefronts 32 2.0000 of ideal",
                "shared read wavefronts: excess 16 -",
            ]
        );
    }
}
