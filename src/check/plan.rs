//! What the correctness check is going to try: boundary shapes, realistic shapes, every distribution, every alignment.

use super::Subject;
use super::boundary::{base, elements, points};
use super::case::Case;
use super::pace::work;
use super::way::first_of_each;
use crate::core::distribution::Distribution;
use crate::core::seed::{derive, rng};
use crate::core::shape::{Axis, Point, describe};
use crate::device::Capacity;

/// Random corners of all axes at once.
const COMBINATIONS: usize = 8;

/// An extent below this is a sliver.
const BROAD: usize = 8;

/// Buffers start at every multiple of the candidate's alignment below this.
const OFFSETS_BELOW: usize = 128;

/// What is going to be checked.
pub(super) struct Plan {
    /// What takes long comes last: it is the first to be left out where time is short.
    pub(super) cases: Vec<Case>,
    /// The first of each way that the candidate goes, by index: to be tried before the others.
    pub(super) telling: Vec<usize>,
    /// A middling shape, for relations and repetition.
    pub(super) middle: Point,
    /// What is left out, in words for the report.
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// Everything that this device takes.
    pub(super) fn whole(seed: u64, capacity: Capacity, subject: &Subject<'_>) -> Plan {
        let operator = subject.operator;
        let (mut shapes, mut notes) = shapes(seed, capacity, subject);
        notes.extend(subject.spared());
        let middle = middle(capacity, subject, &shapes);
        let large = shapes.partition_point(|point| elements(operator, point) <= elements(operator, &middle));
        let large = shapes.split_off(large);

        let distributions = subject.distributions();
        let first = distributions.first().copied().unwrap_or(Distribution::Normal);
        let case = |point: &Point, distribution: Distribution, what: &str| {
            let seed = derive(seed, &[operator.name(), what, &describe(operator.axes(), point)]);
            Case::new(point.clone(), distribution, seed)
        };
        let of_shape = |point: &Point| case(point, first, first.name());
        let mut cases: Vec<Case> = shapes.iter().map(of_shape).collect();
        for point in [base(operator), middle.clone()] {
            cases.extend(distributions.iter().map(|&distribution| case(&point, distribution, distribution.name())));
        }
        let alignment = subject.candidate.traits.alignment;
        for offset_bytes in (alignment..OFFSETS_BELOW).step_by(alignment.max(1)) {
            cases.push(Case { offset_bytes, ..case(&middle, first, "offset") });
        }
        cases.extend(large.iter().map(of_shape));
        let telling = first_of_each(&subject.candidate.body, &cases);
        Plan { cases, telling, middle, notes }
    }

    /// One case, its shape the one for relations and repetition.
    pub(super) fn of(case: Case) -> Plan {
        Plan { middle: case.point.clone(), cases: vec![case], telling: Vec::new(), notes: Vec::new() }
    }
}

/// Boundary shapes and realistic ones that the device takes, small ones first, with a note if there are others.
fn shapes(seed: u64, capacity: Capacity, subject: &Subject<'_>) -> (Vec<Point>, Vec<String>) {
    let operator = subject.operator;
    let seed = derive(seed, &[operator.name(), &subject.candidate.name]);
    let mut shapes = points(operator, &subject.candidate.traits, COMBINATIONS, &mut rng(seed));
    shapes.extend(operator.shapes().iter().cloned());
    let asked = shapes.len();
    shapes.retain(|point| fits(capacity, subject, point));
    shapes.sort_by_key(|point| elements(operator, point));
    let left_out = asked - shapes.len();
    let note = (left_out > 0).then(|| format!("{left_out} shapes are larger than this device is given"));
    (shapes, note.into_iter().collect())
}

fn fits(capacity: Capacity, subject: &Subject<'_>, point: &Point) -> bool {
    capacity.takes(elements(subject.operator, point), subject.operator.cost(point, subject.dtype).flops)
}

/// A smallish shape with at least a few thousand elements and no sliver among its extents, for relations and
/// distributions say little about rows of one column; or the largest.
fn middle(capacity: Capacity, subject: &Subject<'_>, shapes: &[Point]) -> Point {
    let is_broad = |axis: &Axis, extent: usize| !axis.is_extent() || extent >= BROAD.min(axis.bounds().1);
    let axes = subject.operator.axes();
    let real: Vec<&Point> = shapes.iter().filter(|point| elements(subject.operator, point) >= 4096).collect();
    let broad =
        real.iter().copied().filter(|point| axes.iter().zip(*point).all(|(axis, &extent)| is_broad(axis, extent)));
    let broad: Vec<&Point> = broad.collect();
    let mut candidates = if broad.is_empty() { real } else { broad };
    // By work, not by elements: a kernel may start a block an element.
    candidates.sort_by(|a, b| work(subject, a).total_cmp(&work(subject, b)));
    let found = candidates.get(candidates.len() / 4).copied().or_else(|| shapes.last());
    found.cloned().filter(|point| fits(capacity, subject, point)).unwrap_or_else(|| base(subject.operator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Cpu, Declare, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::core::tensor::{Inputs, Outputs};
    use crate::device::Device;
    use crate::device::cpu::CpuDevice;
    use rstest::rstest;

    crate::shape! { struct Rows { rows: 1..=1024, cols: 1..=2048 } }

    fn plan(elements: usize, seed: u64) -> Plan {
        let operator = Op::<Rows>::new("double")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows, s.cols])
            .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols });
        let candidate = Cpu::new::<f32>(|_: &Rows, _: &Inputs<'_>, _: &mut Outputs<'_>| ()).alignment(32).named("c");
        let capacity = Capacity { elements, flops: usize::MAX, ..CpuDevice::new().capacity() };
        Plan::whole(seed, capacity, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 })
    }

    fn size(point: &Point) -> usize {
        2 * point[0] * point[1]
    }

    #[test]
    fn the_middling_shape_has_no_sliver_and_meets_every_distribution_and_alignment() {
        let plan = plan(usize::MAX, 1);
        assert!(plan.middle.iter().all(|&extent| extent >= BROAD) && size(&plan.middle) >= 4096, "{:?}", plan.middle);
        let there: Vec<&Case> = plan.cases.iter().filter(|case| case.point == plan.middle).collect();
        let drawn: Vec<Distribution> = there.iter().map(|case| case.distribution).collect();
        assert!(Distribution::ALL.iter().all(|one| drawn.contains(one)), "{drawn:?}");
        let offsets: Vec<usize> = there.iter().map(|case| case.offset_bytes).filter(|&bytes| bytes > 0).collect();
        assert_eq!(offsets, [32, 64, 96]);
    }

    #[test]
    fn what_is_larger_than_the_middling_shape_comes_last() {
        let plan = plan(usize::MAX, 1);
        let is_large = |case: &Case| size(&case.point) > size(&plan.middle);
        let first = plan.cases.iter().position(is_large).unwrap();
        assert!(plan.cases[first..].iter().all(is_large));
    }

    #[rstest]
    #[case::all(usize::MAX, false)]
    #[case::some(8000, true)]
    fn shapes_beyond_the_device_are_left_out_and_counted(#[case] elements: usize, #[case] is_cut: bool) {
        let (plan, whole) = (plan(elements, 1), plan(usize::MAX, 1));
        assert!(plan.cases.iter().all(|case| size(&case.point) <= elements));
        assert_eq!(plan.cases.len() < whole.cases.len(), is_cut, "{} of {}", plan.cases.len(), whole.cases.len());
        assert_eq!(plan.notes.iter().any(|note| note.contains("larger than this device")), is_cut, "{:?}", plan.notes);
    }

    #[test]
    fn the_seed_decides_the_cases() {
        assert!(plan(usize::MAX, 1).cases == plan(usize::MAX, 1).cases);
        assert!(plan(usize::MAX, 1).cases != plan(usize::MAX, 2).cases);
    }
}
