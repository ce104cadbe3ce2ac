//! Random cases of a subject: weighted corners and log-uniform extents, kept within what the device can do.

use crate::check::Subject;
use crate::check::boundary::elements;
use crate::check::case::Case;
use crate::core::distribution::Distribution;
use crate::core::shape::{Axis, Point, describe};
use crate::device::Capacity;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::{Union, ValueTree};
use proptest::test_runner::TestRunner;

/// Buffers start at every allowed offset below this one; devices align the buffers themselves to it.
const OFFSET_LIMIT_BYTES: usize = 256;

/// Small extents, where vectors and warps have tails.
const SMALL: usize = 33;

const PRIMES: [usize; 16] = [3, 5, 7, 13, 31, 61, 127, 131, 251, 257, 509, 521, 1021, 2039, 4093, 8191];

/// All cases of a subject that fit a device, as a strategy to draw from.
pub(super) struct Space<'a> {
    subject: &'a Subject<'a>,
    capacity: Capacity,
    /// The largest coordinate of each axis that fits while the other extents are at their smallest.
    most: Point,
    strategy: BoxedStrategy<Draw>,
}

/// A case before its extents are cut to the capacity.
#[derive(Clone, Debug)]
struct Draw {
    wanted: Point,
    /// The axes in the order in which they get what they want; the last ones make do with the rest.
    order: Vec<usize>,
    distribution: Distribution,
    offset_bytes: usize,
    seed: u32,
}

impl<'a> Space<'a> {
    /// The space of a subject.
    ///
    /// # Errors
    /// If not even the smallest shape fits.
    pub fn new(subject: &'a Subject<'a>, capacity: Capacity) -> Result<Self, String> {
        let axes = subject.operator.axes();
        let smallest: Point = axes.iter().map(smallest_nonempty).collect();
        if subject.nearest(&smallest).is_none() {
            return Err(format!("no legal shape near {}", describe(axes, &smallest)));
        }
        let mut space = Space { subject, capacity, most: smallest.clone(), strategy: Just(Draw::none()).boxed() };
        if !space.fits(&smallest) {
            let shape = describe(axes, &smallest);
            let (elements, flops) = (elements(subject.operator, &smallest), space.flops(&smallest));
            return Err(format!(
                "no shape fits this device: {shape} alone has {elements} elements and {flops} operations; the device takes {} and {}",
                capacity.elements, capacity.flops
            ));
        }
        for (i, axis) in axes.iter().enumerate() {
            space.most[i] =
                if axis.is_extent() { space.largest(&smallest, i, axis.bounds().1) } else { axis.bounds().1 };
        }
        space.strategy = space.draws();
        Ok(space)
    }

    /// Draws the next case.
    pub fn draw(&self, runner: &mut TestRunner) -> Case {
        // None of the strategies below filters, so none can give up.
        let draw = self.strategy.new_tree(runner).expect("a strategy without filters").current();
        Case {
            point: self.legal(self.cut(&draw)),
            distribution: draw.distribution,
            seed: u64::from(draw.seed),
            offset_bytes: draw.offset_bytes,
        }
    }

    /// Whether the legal point near a point is within the capacity.
    pub fn fits(&self, point: &[usize]) -> bool {
        self.subject.nearest(point).is_some_and(|point| {
            self.capacity.takes(elements(self.subject.operator, &point), self.flops(&point))
                && self.subject.candidate.body.threads(&point) <= self.capacity.threads
        })
    }

    /// The legal point near a drawn one, or near the smallest: an empty extent may be none that fits.
    fn legal(&self, point: Point) -> Point {
        let smallest = || self.subject.operator.axes().iter().map(smallest_nonempty).collect::<Point>();
        let near = if self.fits(&point) { point } else { smallest() };
        self.subject.nearest(&near).unwrap_or(near)
    }

    /// Whether buffers may start `offset_bytes` behind a boundary.
    pub fn allows_offset(&self, offset_bytes: usize) -> bool {
        offset_bytes.is_multiple_of(self.subject.offset_step()) && offset_bytes < OFFSET_LIMIT_BYTES
    }

    fn flops(&self, point: &[usize]) -> usize {
        self.subject.operator.cost(point, self.subject.dtype).flops
    }

    fn draws(&self) -> BoxedStrategy<Draw> {
        let axes = self.subject.operator.axes();
        let wanted: Vec<_> = axes.iter().zip(&self.most).map(|(axis, &most)| self.coordinate(axis, most)).collect();
        let order = Just((0..axes.len()).collect::<Vec<_>>()).prop_shuffle();
        let mut distributions = self.subject.distributions();
        if distributions.is_empty() {
            distributions.push(Distribution::Normal);
        }
        let offsets: Vec<_> = (0..OFFSET_LIMIT_BYTES).step_by(self.subject.offset_step()).collect();
        let offset = prop_oneof![1 => Just(0), 2 => select(offsets)];
        (wanted, order, select(distributions), offset, any::<u32>())
            .prop_map(|(wanted, order, distribution, offset_bytes, seed)| Draw {
                wanted,
                order,
                distribution,
                offset_bytes,
                seed,
            })
            .boxed()
    }

    /// One coordinate, corners first.
    fn coordinate(&self, axis: &Axis, most: usize) -> BoxedStrategy<usize> {
        let (min, _) = axis.bounds();
        if !axis.is_extent() {
            return (min..=most).boxed();
        }
        let traits = &self.subject.candidate.traits;
        let vector = traits.alignment_in(self.subject.dtype) / self.subject.dtype.size();
        let tiles = traits.tiles.iter().filter(|(name, _)| *name == axis.name).map(|&(_, extent)| extent);
        let arms = [
            (4, tiles.flat_map(|tile| (1..=4).map(move |n| n * tile)).flat_map(around).collect()),
            (3, (0..24).map(|power| 1 << power).flat_map(around).collect()),
            (2, (min..=min + SMALL).collect()),
            (1, (1..=4).map(|n| n * vector).flat_map(around).collect()),
            (1, PRIMES.to_vec()),
            (1, vec![min, min + 1, most]),
        ];
        let corners = arms.into_iter().filter_map(|(weight, mut extents): (u32, Vec<usize>)| {
            extents.retain(|extent| (min..=most).contains(extent));
            (!extents.is_empty()).then(|| (weight, select(extents).boxed()))
        });
        let low = min.max(1);
        let anywhere = (0.0..=1.0).prop_map(move |part| log_between(low, most, part)).boxed();
        Union::new_weighted(corners.chain([(5, anywhere)]).collect()).boxed()
    }

    /// The point that a draw wants, with the extents that come last cut so that the whole fits. Extents grow from the
    /// smallest ones, so that no operator is asked about a shape far beyond the capacity.
    fn cut(&self, draw: &Draw) -> Point {
        let axes = self.subject.operator.axes();
        let wanted = axes.iter().zip(&draw.wanted);
        let mut point: Point =
            wanted.map(|(axis, &at)| if axis.is_extent() { smallest_nonempty(axis) } else { at }).collect();
        for &i in draw.order.iter().filter(|&&i| axes[i].is_extent()) {
            let (low, wanted) = (point[i], draw.wanted[i]);
            point[i] = wanted.max(low);
            if !self.fits(&point) {
                let most = self.largest(&point, i, wanted);
                let part = (wanted as f64 / low as f64).ln() / (self.most[i] as f64 / low as f64).ln();
                // The same share of what is left: cutting to the most itself would make every second case a large one.
                point[i] = log_between(low, most, part.clamp(0.0, 1.0));
            }
        }
        for (i, axis) in axes.iter().enumerate() {
            if axis.is_extent() {
                point[i] = point[i].min(draw.wanted[i]);
            }
        }
        point
    }

    /// The largest extent of axis `i`, at most `limit`, with which a point fits; the smallest legal one if none does.
    fn largest(&self, point: &[usize], i: usize, limit: usize) -> usize {
        let mut point = point.to_vec();
        let mut fitting = smallest_nonempty(&self.subject.operator.axes()[i]);
        // Grown by doubling, then bisected, for the reason that `cut` gives.
        let mut step = 1;
        while step > 0 {
            point[i] = fitting.saturating_add(step).min(limit);
            if point[i] > fitting && self.fits(&point) {
                fitting = point[i];
                step = step.saturating_mul(2);
            } else {
                step /= 2;
            }
        }
        fitting
    }
}

impl Draw {
    fn none() -> Self {
        Draw { wanted: Vec::new(), order: Vec::new(), distribution: Distribution::Normal, offset_bytes: 0, seed: 0 }
    }
}

/// The smallest extent that leaves tensors with elements; the default of an attribute.
fn smallest_nonempty(axis: &Axis) -> usize {
    let (min, max) = axis.bounds();
    if axis.is_extent() { min.max(1).min(max) } else { min }
}

fn around(extent: usize) -> [usize; 3] {
    [extent.saturating_sub(1), extent, extent + 1]
}

/// `low` at part 0, `high` at part 1, evenly by magnitude in between.
fn log_between(low: usize, high: usize, part: f64) -> usize {
    if high <= low {
        return low;
    }
    let value = (low as f64) * (high as f64 / low as f64).powf(part);
    (value.round() as usize).clamp(low, high)
}
