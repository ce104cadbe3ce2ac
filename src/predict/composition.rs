//! Steps one behind the other: a chain, a model. Each is predicted by its family where that has one and the case is like those
//! of its sweep; what is not is estimated from its floor, and marked so.

use super::class::classify;
use super::family::Family;
use super::features::Features;
use super::fitted::Fitted;
use super::limits::Limits;
use super::sweep::overlaps;
use super::swept::Swept;
use crate::check::Subject;
use crate::check::outcome::Bound;
use crate::core::candidate::Candidate;
use crate::core::shape::describe;
use crate::core::stats::{median, quantile_sorted, sorted};
use crate::core::suite::Suite;
use crate::device::image::PASSED_PART;
use serde::Serialize;
use std::collections::BTreeMap;

/// The share of a case's bytes that a chain passes on.
const PASSED_SHARE: f64 = 1.0 / PASSED_PART as f64;

/// A step, and what is in the caches before it runs.
pub struct Step<'a> {
    /// Who computes what.
    pub subject: Subject<'a>,
    /// At which point.
    pub point: &'a [usize],
    /// The share of its bytes that the last cache holds.
    pub cached: f64,
    /// Whether it may begin before a launch ahead of it has ended.
    pub chained: bool,
    /// Whether the host launches it, and no graph.
    pub by_host: bool,
}

/// What a step's time rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A fitted family, inside the domain of its sweep.
    Fitted,
    /// The floor of the case, times what the fitted families take over theirs.
    Floor {
        /// Why there is nothing better.
        why: String,
        /// What the floor was multiplied by.
        factor: f64,
    },
}

/// What is said of a step.
#[derive(Clone, Debug, Serialize)]
pub struct StepTime {
    /// `operator::candidate`.
    pub name: String,
    /// The shape.
    pub shape: String,
    /// The time, µs.
    pub us: f64,
    /// Nine of ten lie above this …
    pub low_us: f64,
    /// … and below this, µs; for an estimate from the floor that is the floor and what the slowest family takes.
    pub high_us: f64,
    /// Launches.
    pub launches: f64,
    /// What binds it.
    pub bound: Bound,
    /// What it rests on.
    pub basis: Basis,
}

/// The time of steps together.
#[derive(Clone, Debug, Serialize)]
pub struct Composed {
    /// The time, µs.
    pub us: f64,
    /// Where all steps are at the lower end of theirs, µs.
    pub low_us: f64,
    /// And at the upper end, µs.
    pub high_us: f64,
    /// The share of the time that rests on fitted families.
    pub fitted: f64,
    /// Launches of all steps.
    pub launches: f64,
}

/// Predicts steps on one device.
pub struct Composer<'f> {
    families: Vec<Family>,
    /// Of runs that begin before the launch ahead has ended.
    chained: Vec<Family>,
    limits: &'f Limits,
    over_floor: OverFloor,
}

/// What the fitted families take over their floors: the middle of them, and what one of ten exceeds.
struct OverFloor {
    /// A launch, in empty launches.
    launch: [f64; 2],
    /// Beside the launches, where the memory takes longer than the pipe.
    memory: [f64; 2],
    /// And where the pipe does.
    compute: [f64; 2],
}

/// Where no family says anything.
const UNKNOWN: OverFloor = OverFloor { launch: [2.0, 4.0], memory: [1.2, 3.0], compute: [1.5, 4.0] };

impl OverFloor {
    /// Of these families, and of the cases of each with their times. Every family counts once, however many cases it has.
    fn of(families: &[Family], cases: &[Vec<(Features, f64)>], limits: &Limits) -> Self {
        let middle = |values: &[f64], unknown: [f64; 2]| {
            if values.is_empty() { unknown } else { [median(values), quantile_sorted(&sorted(values), 0.9)] }
        };
        // A launch that costs nothing is one whose cases were all too long to show it.
        let launches: Vec<f64> =
            families.iter().map(|family| family.parameters.launch).filter(|launch| *launch > 0.5).collect();
        let launch = middle(&launches, UNKNOWN.launch);
        let (mut memory, mut compute) = (Vec::new(), Vec::new());
        for of_family in cases {
            let (mut by_memory, mut by_pipe) = (Vec::new(), Vec::new());
            for (features, us) in of_family {
                let (of_memory, of_pipe) = (limits.memory_of(features, None), pipe_us(features, limits));
                let (larger, launched) = (of_memory.max(of_pipe), launch[0] * limits.launch_us * features.launches);
                // Of what is mostly launch nothing is left to tell.
                if larger > launched {
                    let ratios = if of_memory >= of_pipe { &mut by_memory } else { &mut by_pipe };
                    ratios.push(((us - launched) / larger).max(1.0));
                }
            }
            for (all, ratios) in [(&mut memory, by_memory), (&mut compute, by_pipe)] {
                if !ratios.is_empty() {
                    all.push(middle(&ratios, [0.0; 2]));
                }
            }
        }
        let of_families = |all: &[[f64; 2]], unknown: [f64; 2]| {
            let each = |i: usize| all.iter().map(|of_family| of_family[i]).collect::<Vec<f64>>();
            if all.is_empty() { unknown } else { [median(&each(0)), median(&each(1))] }
        };
        let (memory, compute) = (of_families(&memory, UNKNOWN.memory), of_families(&compute, UNKNOWN.compute));
        OverFloor { launch, memory, compute }
    }

    /// The floor of a case, what is expected, and what one of ten exceeds.
    fn estimate_us(&self, features: &Features, limits: &Limits) -> [f64; 3] {
        let (memory, pipe) = (limits.memory_of(features, None), pipe_us(features, limits));
        let (larger, over) = if memory >= pipe { (memory, self.memory) } else { (pipe, self.compute) };
        let launch = limits.launch_us * features.launches;
        let [usual, most] = [0, 1].map(|i| launch * self.launch[i] + larger * over[i]);
        [launch + larger, usual, most.max(usual)]
    }
}

fn pipe_us(features: &Features, limits: &Limits) -> f64 {
    limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype).unwrap_or(0.0)
}

/// The families of a file that the suites have, each with what it is fitted to.
fn subjects<'s>(fitted: &'s Fitted, suites: &'s [Suite]) -> impl Iterator<Item = (Subject<'s>, &'s Swept)> {
    fitted.families.iter().filter_map(|swept| {
        let suite = suites.iter().find(|suite| suite.operator.name() == swept.operator)?;
        let is_it = |one: &&Candidate| one.name == swept.candidate && one.traits.computes(swept.dtype);
        let candidate = suite.candidates.iter().find(is_it)?;
        Some((Subject { operator: suite.operator.as_ref(), candidate, dtype: swept.dtype }, swept))
    })
}

impl<'f> Composer<'f> {
    /// With the families of a file, whose operators are in `suites`.
    pub fn new(fitted: &Fitted, limits: &'f Limits, suites: &[Suite]) -> Self {
        let (mut families, mut cases) = (Vec::new(), Vec::new());
        for (subject, swept) in subjects(fitted, suites) {
            families.extend(fitted.family(&subject, limits));
            cases.push(fitted.cases(&subject, swept));
        }
        let over_floor = OverFloor::of(&families, &cases, limits);
        let of_chained = fitted.clone().exchanged();
        let chained = subjects(&of_chained, suites);
        let chained = chained.filter_map(|(subject, _)| of_chained.family(&subject, limits)).collect();
        Composer { families, chained, limits, over_floor }
    }

    /// The time of a step.
    pub fn step(&self, step: &Step<'_>) -> StepTime {
        self.limits.gpu.during(|| self.timed(step))
    }

    fn timed(&self, step: &Step<'_>) -> StepTime {
        let Step { subject, point, cached, chained, by_host } = step;
        let mut features = Features::of(subject, point);
        features.cached = *cached;
        let name = (subject.operator.name(), subject.candidate.name.as_str(), subject.dtype);
        let is_it = |family: &&Family| (family.operator.as_str(), family.candidate.as_str(), family.dtype) == name;
        let said = match self.families.iter().find(is_it) {
            Some(family) => family.predict(&features),
            None => Err("no sweep of this family".into()),
        };
        let overlapping = self.chained.iter().filter(|_| *chained).find(is_it).map(|family| {
            // A chain that was measured had what is small in the cache.
            let cached = if *cached <= PASSED_SHARE { 0.0 } else { *cached };
            family.predict(&Features { cached, ..features.clone() })
        });
        let queue = self.limits.queue.over_node_us(features.read_bytes / features.launches.max(1.0));
        let [plain, dependent] = queue.map(|us| if *by_host { us * features.launches } else { 0.0 });
        let usual = if *chained && overlaps(subject, point) { dependent } else { plain };
        let (said, queued) = match (overlapping, said) {
            // Behind another launch nothing takes longer than alone, whichever sweep knows such cases better.
            (Some(Ok(behind)), Ok(alone)) if alone.us + plain < behind.us + usual => (Ok(alone), plain),
            (Some(Ok(behind)), _) => (Ok(behind), usual),
            (_, said) => (said, usual),
        };
        let name = format!("{}::{}", subject.operator.name(), subject.candidate.name);
        let shape = describe(subject.operator.axes(), point);
        let (times, basis) = match said {
            Ok(said) => ([said.us, said.low_us, said.high_us], Basis::Fitted),
            Err(why) => {
                let [floor, usual, most] = self.over_floor.estimate_us(&features, self.limits);
                ([usual, floor, most], Basis::Floor { why, factor: usual / floor })
            }
        };
        let [us, low_us, high_us] = times.map(|us| us + queued);
        let bound = classify(us, &features, self.limits).0;
        StepTime { name, shape, us, low_us, high_us, launches: features.launches, bound, basis }
    }
}

impl Composed {
    /// Steps in one stream: each begins when the one before has ended. What the graphs of the calibration and of the sweeps
    /// overlap of a launch with the end of the one before is in the times of the steps already.
    pub fn of(steps: &[StepTime]) -> Self {
        let sum = |value: &dyn Fn(&StepTime) -> f64| steps.iter().map(value).sum::<f64>();
        let us = sum(&|step| step.us);
        let fitted = sum(&|step| if step.basis == Basis::Fitted { step.us } else { 0.0 });
        Composed {
            us,
            low_us: sum(&|step| step.low_us),
            high_us: sum(&|step| step.high_us),
            fitted: if us > 0.0 { fitted / us } else { 0.0 },
            launches: sum(&|step| step.launches),
        }
    }

    /// How the time is shared by operators, the largest share first.
    pub fn shares(steps: &[StepTime]) -> Vec<(String, f64)> {
        let all: f64 = steps.iter().map(|step| step.us).sum();
        let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
        steps.iter().for_each(|step| *by_name.entry(&step.name).or_default() += step.us);
        let mut shares: Vec<(String, f64)> = by_name.into_iter().map(|(name, us)| (name.into(), us / all)).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::h200;
    use super::super::fitted::VERSION;
    use super::super::model::Parameters;
    use super::*;
    use crate::calibrate::Calibration;
    use crate::core::candidate::{Cuda, Declare};
    use crate::core::cost::Cost;
    use crate::core::dtype::DType;
    use crate::core::launch::Launch;
    use crate::core::operator::Op;
    use crate::predict::Observation;
    use crate::predict::limits::Queue;

    crate::shape! { struct Vector { n: 1..=1 << 30 } }

    fn suite() -> Suite {
        let operator = Op::<Vector>::new("copy")
            .input("x", |s| [s.n])
            .output("y", |s| [s.n])
            .cost(|s, t| Cost { bytes: 2 * s.n * t.size(), flops: s.n });
        let launch = |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256);
        let cuda = Cuda::source("", "copy", launch).dtypes([DType::F32]);
        Suite::of(operator).candidate("cuda", cuda).into()
    }

    /// Copies of 2^16 to 2^26 elements that take twice the plain stream.
    fn fitted(suite: &Suite, limits: &Limits) -> Fitted {
        let subject = subject(suite);
        let parameters = Parameters { memory: 2.0, ..Parameters::IDEAL };
        let us = |n: usize| parameters.time_us(&Features::of(&subject, &[n]), limits);
        let sizes = (16..27).map(|shift| 1usize << shift).chain([3 << 20]);
        let observations = sizes.map(|n| Observation::new(format!("n={n}"), us(n))).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/calibration/nvidia-h200-132.json");
        let calibration = Calibration::read(std::path::Path::new(path)).unwrap();
        Fitted {
            version: VERSION,
            device: calibration.device.clone(),
            measured: calibration.measured.clone(),
            revision: None,
            calibrated: calibration.measured,
            families: vec![Swept::new(("copy", "cuda", DType::F32), parameters, observations)],
            chained: Vec::new(),
        }
    }

    fn subject(suite: &Suite) -> Subject<'_> {
        Subject { operator: suite.operator.as_ref(), candidate: &suite.candidates[0], dtype: DType::F32 }
    }

    /// What is said of `n` elements, by themselves in a graph and with cold caches but for what is changed.
    fn step_of(composer: &Composer<'_>, suite: &Suite, n: usize, change: impl FnOnce(&mut Step<'_>)) -> StepTime {
        let point = [n];
        let subject = subject(suite);
        let mut step = Step { subject, point: &point, cached: 0.0, chained: false, by_host: false };
        change(&mut step);
        composer.step(&step)
    }

    #[test]
    fn steps_add_up_and_what_is_outside_is_marked() {
        let (suite, limits) = (suite(), h200());
        let fitted = fitted(&suite, &limits);
        let composer = Composer::new(&fitted, &limits, std::slice::from_ref(&suite));
        let of = |n: usize| step_of(&composer, &suite, n, |_| ());
        let (inside, outside) = (of(1 << 24), of(1 << 29));
        assert_eq!(inside.basis, Basis::Fitted);
        let Basis::Floor { why, factor } = &outside.basis else { panic!("{outside:?}") };
        assert!(why.contains("outside the calibrated domain") && (1.5..2.1).contains(factor), "{why} {factor}");
        // The floor and its factor are about what the family takes there too.
        assert!((outside.us / (inside.us * 32.0) - 1.0).abs() < 0.2, "{outside:?} {inside:?}");
        assert!(outside.low_us < outside.us && outside.us <= outside.high_us);
        let steps = [inside.clone(), outside.clone(), inside.clone()];
        let composed = Composed::of(&steps);
        approx::assert_relative_eq!(composed.us, 2.0 * inside.us + outside.us, max_relative = 1e-9);
        approx::assert_relative_eq!(composed.fitted, 2.0 * inside.us / composed.us, max_relative = 1e-9);
        assert_eq!((composed.launches, Composed::shares(&steps)), (3.0, vec![("copy::cuda".into(), 1.0)]));
    }

    #[test]
    fn what_is_in_the_cache_takes_less() {
        let (suite, limits) = (suite(), h200());
        let fitted = fitted(&suite, &limits);
        let composer = Composer::new(&fitted, &limits, std::slice::from_ref(&suite));
        let us = |cached: f64| step_of(&composer, &suite, 1 << 20, |step| step.cached = cached).us;
        approx::assert_relative_eq!(us(1e-6), us(0.0), max_relative = 1e-4);
        assert!(us(1.0) < 0.8 * us(0.0) && us(0.5) < us(0.0) && us(0.5) > us(1.0), "{} {}", us(1.0), us(0.0));
    }

    #[test]
    fn a_step_behind_another_is_of_the_chained_families() {
        let (suite, limits) = (suite(), h200());
        let mut fitted = fitted(&suite, &limits);
        let observations = fitted.families[0].observations[..6].to_vec();
        fitted.chained = vec![Swept::new(("copy", "cuda", DType::F32), Parameters::IDEAL, observations)];
        let composer = Composer::new(&fitted, &limits, std::slice::from_ref(&suite));
        let us = |n: usize, chained: bool| step_of(&composer, &suite, n, |step| step.chained = chained).us;
        assert!(us(1 << 18, true) < 0.8 * us(1 << 18, false), "{} {}", us(1 << 18, true), us(1 << 18, false));
        // What was not measured chained is as it is alone.
        assert_eq!(us(1 << 25, true), us(1 << 25, false));
    }

    #[test]
    fn a_step_behind_another_takes_no_longer_than_alone() {
        let (suite, limits) = (suite(), h200());
        let mut fitted = fitted(&suite, &limits);
        let mut slower = fitted.families[0].observations.clone();
        slower.iter_mut().for_each(|observation| observation.us *= 1.5);
        let slower = Swept::new(("copy", "cuda", DType::F32), Parameters { memory: 3.0, ..Parameters::IDEAL }, slower);
        fitted.chained = vec![slower];
        let of = |fitted: &Fitted| {
            let composer = Composer::new(fitted, &limits, std::slice::from_ref(&suite));
            [true, false].map(|chained| step_of(&composer, &suite, 1 << 22, |step| step.chained = chained).us)
        };
        let [behind, alone] = of(&fitted);
        assert_eq!(behind, alone);
        // Both are said to be slower: it is the chained family that is not believed.
        let [exchanged_behind, exchanged_alone] = of(&fitted.exchanged());
        assert!(exchanged_behind == alone && exchanged_alone > 1.3 * alone, "{exchanged_alone} {alone}");
    }

    #[test]
    fn a_launch_by_the_host_takes_longer_than_one_of_a_graph() {
        let (suite, mut limits) = (suite(), h200());
        limits.queue = Queue { empty: [0.5, 0.25], reading: [1.5, 0.5] };
        let fitted = fitted(&suite, &limits);
        let composer = Composer::new(&fitted, &limits, std::slice::from_ref(&suite));
        let of = |chained: bool, by_host: bool| {
            step_of(&composer, &suite, 1 << 20, |step| (step.chained, step.by_host) = (chained, by_host))
        };
        let (graph, host) = (of(false, false), of(false, true));
        // It reads 4 MiB.
        let longer = 0.5 + f64::sqrt(0.5);
        approx::assert_relative_eq!(host.us, graph.us + longer, max_relative = 1e-9);
        approx::assert_relative_eq!(host.high_us, graph.high_us + longer, max_relative = 1e-9);
        // Its launch is none that may begin before the one ahead has ended.
        assert_eq!(of(true, true).us, host.us);
    }

    #[test]
    fn an_unknown_operator_has_its_floor() {
        let (suite, limits) = (suite(), h200());
        let mut none = fitted(&suite, &limits);
        none.families.clear();
        let composer = Composer::new(&none, &limits, std::slice::from_ref(&suite));
        let found = step_of(&composer, &suite, 1 << 24, |_| ());
        let Basis::Floor { why, factor } = &found.basis else { panic!("{found:?}") };
        assert!(why.contains("no sweep") && (1.2..1.3).contains(factor), "{why} {factor}");
    }
}
