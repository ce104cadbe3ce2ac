//! What the correctness check is going to try: boundary shapes, realistic shapes, every distribution, every alignment.

use super::boundary::{base, elements, points};
use super::case::Case;
use super::pace::work;
use super::way::first_of_each;
use super::{Context, Subject};
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

/// Elements of all tensors that one case goes past, where the device takes a quarter of that: enough for products of
/// several blocks along every grid axis, and for offsets that 20 bits do not hold.
const BEYOND: usize = 1 << 20;

/// The share of the work that long shapes may take: those past 16 bits and the one past [`BEYOND`].
const OF_LONG: f64 = 0.5;

/// The share that relations, the order of rows and repetition may take at the middling shape.
const OF_REPRESENTATIVE: f64 = 0.25;

/// Launches for the order of rows and repetition, as far as they take time.
const LAUNCHES_BESIDE: usize = 8;

/// What is going to be checked. Declarations, the seed and the work that is allowed decide it, no clock does.
pub(super) struct Plan {
    /// In the order in which they run, the most revealing first: where time was asked to be short, the last are left out.
    pub(super) cases: Vec<Case>,
    /// A small shape, for relations and launches in a row.
    pub(super) base: Point,
    /// A middling shape, for relations and repetition.
    pub(super) representative: Point,
    /// Whether relations and repetition are held there too, and not at the smallest shape alone.
    pub(super) at_representative: bool,
    /// What 16 bits do not hold, along each axis.
    past_16_bits: Vec<Point>,
    /// What is left out, in words for the report.
    pub(super) notes: Vec<String>,
}

/// How much a case tells; the order in which cases are planned and run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The first of each way that the candidate goes, and every distribution at the base shape.
    First,
    /// What 16 bits do not hold, along each axis, and one case past [`BEYOND`].
    Long,
    /// Every distribution and every offset at the middling shape.
    Representative,
    /// The other boundary shapes up to the middling one.
    Small,
    /// Those above.
    Large,
}

impl Plan {
    /// Everything that this device takes and `work` pays for.
    pub(super) fn new(context: &Context<'_>, subject: &Subject<'_>) -> Plan {
        let whole = Plan::whole(context.seed, context.capacity(), subject);
        whole.within(context.work, context.past_16_bits, subject)
    }

    /// Everything that this device takes.
    fn whole(seed: u64, capacity: Capacity, subject: &Subject<'_>) -> Plan {
        let operator = subject.operator;
        let (shapes, mut notes) = shapes(seed, capacity, subject);
        notes.extend(subject.spared());
        let representative = representative(capacity, subject, &shapes);
        let base = base(operator, &subject.candidate.traits.limits);

        let distributions = subject.distributions();
        let first = distributions.first().copied().unwrap_or(Distribution::Normal);
        let case = |point: &Point, distribution: Distribution, what: &str| {
            let seed = derive(seed, &[operator.name(), what, &describe(operator.axes(), point)]);
            Case::new(point.clone(), distribution, seed)
        };
        let of_shape = |point: &Point| case(point, first, first.name());
        let drawn = |point: &Point| -> Vec<Case> {
            distributions.iter().map(|&distribution| case(point, distribution, distribution.name())).collect()
        };
        let size = |point: &Point| elements(operator, point);
        let past_16_bits = past_16_bits(&shapes);
        let rank = |point: &Point| match size(point) {
            _ if past_16_bits.contains(point) => Rank::Long,
            size if size <= elements(operator, &representative) => Rank::Small,
            _ => Rank::Large,
        };
        let mut ranked: Vec<(Rank, Case)> = shapes.iter().map(|point| (rank(point), of_shape(point))).collect();
        let cases: Vec<Case> = ranked.iter().map(|(_, case)| case.clone()).collect();
        for index in first_of_each(&subject.candidate.body, &cases) {
            ranked[index].0 = Rank::First;
        }
        ranked.extend(drawn(&base).into_iter().map(|case| (Rank::First, case)));
        ranked.extend(beyond(capacity, subject, &base).map(|point| (Rank::Long, case(&point, first, "beyond"))));
        ranked.extend(drawn(&representative).into_iter().map(|case| (Rank::Representative, case)));
        let step = subject.offset_step();
        for offset_bytes in (step..OFFSETS_BELOW).step_by(step) {
            ranked.push((Rank::Representative, Case { offset_bytes, ..case(&representative, first, "offset") }));
        }
        // Equal ranks stay in order, small shapes first: the first failure is then a small one.
        ranked.sort_by_key(|(rank, _)| *rank);
        let mut cases: Vec<Case> = Vec::new();
        for (_, case) in ranked {
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        Plan { cases, base, representative, at_representative: true, past_16_bits, notes }
    }

    /// What `allowed` work pays for, the most revealing cases first. The base shape is always paid for; what 16 bits do not
    /// hold has an allowance `beside`.
    fn within(mut self, allowed: f64, mut beside: f64, subject: &Subject<'_>) -> Plan {
        let launches = 2 * subject.operator.relations().len() + LAUNCHES_BESIDE;
        let at_representative = launches as f64 * work(subject, &self.representative);
        self.at_representative = at_representative <= OF_REPRESENTATIVE * allowed;
        let mut left = if self.at_representative { allowed - at_representative } else { allowed };
        let mut long = OF_LONG * allowed;
        let (base, past_16_bits, asked) = (&self.base, &self.past_16_bits, self.cases.len());
        let representative_work = work(subject, &self.representative);
        let mut smallest: Option<(f64, Point)> = None;
        self.cases.retain(|case| {
            let work = work(subject, &case.point);
            let is_long = work > representative_work;
            let is_paid = case.point == *base || (work <= left && (!is_long || work <= long));
            let is_paid_beside = !is_paid && work <= beside && past_16_bits.contains(&case.point);
            if is_paid {
                left -= work;
                long -= if is_long { work } else { 0.0 };
            } else if is_paid_beside {
                beside -= work;
            } else if smallest.as_ref().is_none_or(|(least, _)| work < *least) {
                smallest = Some((work, case.point.clone()));
            }
            is_paid || is_paid_beside
        });
        let axes = subject.operator.axes();
        if let Some((_, smallest)) = smallest {
            let left_out = asked - self.cases.len();
            self.notes.push(format!(
                "{left_out} of {asked} cases not planned, from {} on: the gate has this much work for each trial on this \
                 device; `--run-budget 0` plans all",
                describe(axes, &smallest)
            ));
        }
        if !self.at_representative {
            let (base, representative) = (describe(axes, base), describe(axes, &self.representative));
            self.notes
                .push(format!("relations, row order and repetition planned at {base} only, not at {representative}"));
        }
        self
    }

    /// One case, its shape the one for relations and repetition.
    pub(super) fn of(case: Case) -> Plan {
        let point = case.point.clone();
        Plan {
            base: point.clone(),
            representative: point,
            at_representative: true,
            cases: vec![case],
            past_16_bits: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// The smallest point along each axis whose extent 16 bits do not hold, or the one next to it; small points come first.
fn past_16_bits(shapes: &[Point]) -> Vec<Point> {
    let axes = shapes.first().map_or(0, Vec::len);
    let first = |axis: usize, least: usize| shapes.iter().find(|point| point[axis] >= least).cloned();
    (0..axes).filter_map(|axis| first(axis, (1 << 16) + 1).or_else(|| first(axis, (1 << 16) - 1))).collect()
}

/// The point with the least work at which the tensors have more than [`BEYOND`] elements together: the base, stretched
/// along one axis, and along the others where that does not do.
fn beyond(capacity: Capacity, subject: &Subject<'_>, base: &Point) -> Option<Point> {
    let operator = subject.operator;
    if capacity.elements < BEYOND / 4 {
        return None;
    }
    let axes = operator.axes();
    let extents: Vec<usize> = (0..base.len()).filter(|&axis| axes[axis].is_extent()).collect();
    let stretched = |first: usize| {
        let mut point = base.clone();
        let others = extents.iter().copied().filter(|&axis| axis != first);
        for axis in [first].into_iter().chain(others) {
            let (mut low, mut high) = (point[axis], axes[axis].bounds().1.min(BEYOND));
            point[axis] = high;
            if elements(operator, &point) <= BEYOND {
                continue;
            }
            while low < high {
                point[axis] = low.midpoint(high);
                if elements(operator, &point) > BEYOND { high = point[axis] } else { low = point[axis] + 1 }
            }
            point[axis] = low;
            return subject.nearest(&point).filter(|point| elements(operator, point) > BEYOND);
        }
        None
    };
    let points = extents.iter().filter_map(|&axis| stretched(axis));
    let affordable = points.filter(|point| operator.cost(point, subject.dtype).flops <= capacity.flops);
    affordable.min_by(|a, b| work(subject, a).total_cmp(&work(subject, b)))
}

/// Boundary shapes and realistic ones that the device takes, small ones first, with a note if there are others.
fn shapes(seed: u64, capacity: Capacity, subject: &Subject<'_>) -> (Vec<Point>, Vec<String>) {
    let operator = subject.operator;
    let seed = derive(seed, &[operator.name(), &subject.candidate.name]);
    let mut shapes = points(operator, &subject.candidate.traits, COMBINATIONS, &mut rng(seed));
    shapes.extend(operator.shapes().iter().filter(|point| subject.objection(point).is_none()).cloned());
    let asked = shapes.len();
    shapes.retain(|point| fits(capacity, subject, point));
    shapes.sort_by_key(|point| elements(operator, point));
    let left_out = asked - shapes.len();
    let note = (left_out > 0).then(|| format!("{left_out} shapes are larger than this device, or this run, is given"));
    (shapes, note.into_iter().collect())
}

fn fits(capacity: Capacity, subject: &Subject<'_>, point: &Point) -> bool {
    capacity.takes(elements(subject.operator, point), subject.operator.cost(point, subject.dtype).flops)
}

/// The representative shape: a small one with at least a few thousand elements and no sliver among its extents, for relations and
/// distributions say little about rows of one column; or the largest.
fn representative(capacity: Capacity, subject: &Subject<'_>, shapes: &[Point]) -> Point {
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
    found
        .cloned()
        .filter(|point| fits(capacity, subject, point))
        .unwrap_or_else(|| base(subject.operator, &subject.candidate.traits.limits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, Declare, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::core::tensor::{Inputs, Outputs};
    use crate::device::Device;
    use crate::device::cpu::CpuDevice;
    use rstest::rstest;

    crate::shape! { struct Rows { rows: 1..=1024, cols: 1..=2048 } }

    fn operator() -> Op<Rows> {
        Op::<Rows>::new("double")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows, s.cols])
            .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols })
    }

    fn candidate() -> Candidate {
        Cpu::new::<f32>(|_: &Rows, _: &Inputs<'_>, _: &mut Outputs<'_>| ()).alignment(32).named("c")
    }

    fn plan(elements: usize, seed: u64) -> Plan {
        let (operator, candidate) = (operator(), candidate());
        let capacity = Capacity { elements, flops: usize::MAX, ..CpuDevice::new().capacity() };
        Plan::whole(seed, capacity, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 })
    }

    fn size(point: &Point) -> usize {
        2 * point[0] * point[1]
    }

    #[test]
    fn the_middling_shape_has_no_sliver_and_meets_every_distribution_and_alignment() {
        let plan = plan(usize::MAX, 1);
        assert!(
            plan.representative.iter().all(|&extent| extent >= BROAD) && size(&plan.representative) >= 4096,
            "{:?}",
            plan.representative
        );
        let there: Vec<&Case> = plan.cases.iter().filter(|case| case.point == plan.representative).collect();
        let drawn: Vec<Distribution> = there.iter().map(|case| case.distribution).collect();
        assert!(Distribution::ALL.iter().all(|one| drawn.contains(one)), "{drawn:?}");
        let offsets: Vec<usize> = there.iter().map(|case| case.offset_bytes).filter(|&bytes| bytes > 0).collect();
        assert_eq!(offsets, [32, 64, 96]);
    }

    #[test]
    fn the_most_revealing_comes_first_and_what_is_large_last() {
        let plan = plan(usize::MAX, 1);
        let is_large = |case: &Case| size(&case.point) > size(&plan.representative);
        let beyond = plan.cases.iter().position(|case| size(&case.point) > BEYOND).unwrap();
        assert!(beyond < 12, "right behind the distributions: {beyond}");
        let last = plan.cases.iter().rposition(|case| !is_large(case)).unwrap();
        assert!(last + 1 < plan.cases.len(), "large ones come last");
        assert!((0..last).all(|index| index == beyond || !is_large(&plan.cases[index])));
        assert!(size(&plan.cases[beyond].point) < BEYOND + 2 * 2048, "just past it");
    }

    crate::shape! { struct Long { rows: 1..=1 << 20, cols: 1..=1 << 20 } }

    #[test]
    fn what_16_bits_do_not_hold_comes_early_along_every_axis() {
        let operator = Op::<Long>::new("d").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows, s.cols]);
        let candidate = Cpu::new::<f32>(|_: &Long, _: &Inputs<'_>, _: &mut Outputs<'_>| ()).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let plan = Plan::whole(1, CpuDevice::new().capacity(), &subject);
        for axis in 0..2 {
            let at = plan.cases.iter().position(|case| case.point[axis] == 65_537).unwrap();
            assert!(at < 15, "axis {axis}: {at} of {}", plan.cases.len());
        }
        let past = |beside| -> Vec<usize> {
            let cut = Plan::whole(1, CpuDevice::new().capacity(), &subject).within(1e5, beside, &subject);
            (0..2).filter(|&axis| cut.cases.iter().any(|case| case.point[axis] >= 65_537)).collect()
        };
        let [first, second] = [0, 1].map(|at| work(&subject, &plan.past_16_bits[at]));
        let axes = [0.0, first, first + second].map(|beside| past(beside).len());
        assert_eq!(axes, [0, 1, 2], "{first}, {second}");
    }

    #[rstest]
    #[case::a_tenth(0.1)]
    #[case::half(0.5)]
    fn work_cuts_the_plan_from_its_end_and_says_so(#[case] share: f64) {
        let (whole, operator, candidate) = (plan(usize::MAX, 1), operator(), candidate());
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let of = |plan: &Plan| plan.cases.iter().map(|case| work(&subject, &case.point)).sum::<f64>();
        let allowed = share * of(&whole);
        let cut = plan(usize::MAX, 1).within(allowed, 0.0, &subject);
        assert!(of(&cut) <= allowed && cut.cases.len() < whole.cases.len(), "{} of {allowed}", of(&cut));
        assert!(cut.notes.iter().any(|note| note.contains("cases not planned")), "{:?}", cut.notes);
        let of_base = |plan: &Plan| plan.cases.iter().filter(|case| case.point == [5, 37]).count();
        assert_eq!(of_base(&cut), of_base(&whole), "every distribution at the base");
        let all = plan(usize::MAX, 1).within(f64::INFINITY, 0.0, &subject);
        assert!(all.cases == whole.cases && all.notes == whole.notes && all.at_representative);
        assert!(!plan(usize::MAX, 1).within(0.0, 0.0, &subject).at_representative);
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

    #[test]
    fn slivers_do_not_become_the_middling_shape_by_their_number() {
        let slivers = (2..BROAD).flat_map(|rows| (2000..=2048).map(move |cols| Rows { rows, cols }));
        let (operator, candidate) = (operator().shapes(slivers), candidate());
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let plan = Plan::whole(1, CpuDevice::new().capacity(), &subject);
        assert!(plan.representative.iter().all(|&extent| extent >= BROAD), "{:?}", plan.representative);
    }

    #[rstest]
    fn long_shapes_leave_the_others_their_share(#[values(0.5, 0.9)] share: f64) {
        let large = (500..512).map(|rows| Rows { rows, cols: 2048 });
        let (operator, candidate) = (operator().shapes(large), candidate());
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let works = |plan: &Plan| -> Vec<f64> { plan.cases.iter().map(|case| work(&subject, &case.point)).collect() };
        let capacity = Capacity { elements: usize::MAX, flops: usize::MAX, ..CpuDevice::new().capacity() };
        let whole = Plan::whole(1, capacity, &subject);
        let (middling, allowed) = (work(&subject, &whole.representative), share * works(&whole).iter().sum::<f64>());
        let long: f64 = works(&whole.within(allowed, 0.0, &subject)).into_iter().filter(|&one| one > middling).sum();
        assert!((0.25 * allowed..=OF_LONG * allowed).contains(&long), "{long} of {allowed}");
    }
}
