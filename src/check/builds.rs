//! Two builds of a gate on one device: each case measured in one session of both, and one verdict.

use super::outcome::Verdict;
use super::perf::PerfSettings;
use crate::core::dtype::DType;
use crate::core::seed::derive;
use crate::device::fault::Fault;
use crate::device::{DeviceKind, Heat};
use crate::measure::change::{Comparison, paired};
use crate::measure::series::typical;
use crate::measure::session::{Contestant, measure};
use crate::measure::threshold::{Distance, LEAST_THRESHOLD, NoiseTable};
use crate::protocol::message::{Hello, Offer};
use crate::protocol::{Peer, RemoteCase, RemoteProblem};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// A case that a build offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildCase {
    /// What is computed.
    pub operator: String,
    /// By whom.
    pub candidate: String,
    /// In which dtype.
    pub dtype: DType,
    /// At which shape.
    pub shape: String,
}

impl BuildCase {
    /// `<operator>::<candidate>::<dtype>`.
    pub fn name(&self) -> String {
        format!("{}::{}::{}", self.operator, self.candidate, self.dtype)
    }
}

/// What a build has that the other has too, or has not.
#[derive(Clone, Debug, PartialEq)]
pub struct Matched {
    /// The case.
    pub case: BuildCase,
    /// The kind of device that it runs on.
    pub device: DeviceKind,
    /// Whether base has it.
    pub in_base: bool,
    /// Whether head has it.
    pub in_head: bool,
}

/// All cases of both builds by name, dtype and shape, in the order of head; what only base has comes last. `shapes`, of which each
/// operator takes those that name axes of its own, replace the shapes that they list.
pub fn matched(base: &Hello, head: &Hello, dtypes: &[DType], shapes: &[String]) -> Vec<Matched> {
    let cases = |hello: &Hello| -> Vec<(BuildCase, DeviceKind)> {
        let of_offer = |offer: &Offer| -> Vec<(BuildCase, DeviceKind)> {
            let of_operator = shapes.iter().filter(|shape| names_axes_of(shape, offer)).cloned();
            let own = if shapes.is_empty() { offer.shapes.clone() } else { of_operator.collect() };
            let wanted = offer.dtypes.iter().filter(|dtype| dtypes.is_empty() || dtypes.contains(dtype));
            let own = &own;
            let pairs = wanted.flat_map(|&dtype| own.iter().map(move |shape| (dtype, shape.clone())));
            let case = |(dtype, shape)| {
                let (operator, candidate) = (offer.operator.clone(), offer.candidate.clone());
                (BuildCase { operator, candidate, dtype, shape }, offer.device)
            };
            pairs.map(case).collect()
        };
        hello.offers.iter().flat_map(of_offer).collect()
    };
    let (base, head) = (cases(base), cases(head));
    let mut all: Vec<Matched> = head
        .iter()
        .map(|(case, device)| {
            let in_base = base.iter().any(|(other, _)| other == case);
            Matched { case: case.clone(), device: *device, in_base, in_head: true }
        })
        .collect();
    for (case, device) in base {
        if !head.iter().any(|(other, _)| *other == case) {
            all.push(Matched { case, device, in_base: true, in_head: false });
        }
    }
    all
}

/// Whether every axis that a shape names is one of the shapes that are offered.
fn names_axes_of(shape: &str, offer: &Offer) -> bool {
    let axes = |shape: &str| -> Vec<String> {
        shape.split(',').map(|part| part.split('=').next().unwrap_or_default().trim().to_owned()).collect()
    };
    offer.shapes.iter().any(|listed| axes(shape).iter().all(|axis| axes(listed).contains(axis)))
}

/// What became of a case; an entry of the summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildComparison {
    /// The case.
    #[serde(flatten)]
    pub case: BuildCase,
    /// The key of the device.
    pub device: String,
    /// Caches cold or hot.
    pub heat: Heat,
    /// `same`, `faster`, `slower`, `unclear`; `skip`, `fail` and `invalid` where nothing was compared.
    pub verdict: Verdict,
    /// Why, where it is not plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Time a launch of base, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_us: Option<f64>,
    /// Time a launch of head, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_us: Option<f64>,
    /// Head over base: above 1 is slower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// 95 % confidence interval of the ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// The relative change that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Sessions that were measured: two where the first saw a change.
    pub sessions: usize,
    /// Which of several comparisons of this case it is, from 0.
    #[serde(default)]
    pub turn: usize,
}

impl BuildComparison {
    /// A case that was not compared.
    pub fn none(case: BuildCase, device: String, verdict: Verdict, reason: String) -> Self {
        BuildComparison {
            case,
            device,
            heat: Heat::Cold,
            verdict,
            reason,
            base_us: None,
            head_us: None,
            ratio: None,
            interval: None,
            threshold: None,
            sessions: 0,
            turn: 0,
        }
    }
}

/// One case of both builds, ready to be compared any number of times.
pub struct Duel<'p> {
    case: BuildCase,
    kind: DeviceKind,
    device: String,
    sides: [Rc<RemoteCase<'p>>; 2],
    seed: u64,
}

/// The sides, as reasons name them.
const SIDES: [&str; 2] = ["base", "head"];

/// Why a session of both came to nothing: the side, and what it did.
struct Fell(usize, Fault);

impl Fell {
    /// A base that fails leaves nothing to compare with; a head that fails is a failure.
    fn verdict(&self) -> Verdict {
        match self {
            Fell(_, Fault::Unsupported(_)) | Fell(0, _) => Verdict::Skip,
            Fell(..) => Verdict::Fail,
        }
    }

    fn reason(&self) -> String {
        format!("{}: {}", SIDES[self.0], self.1)
    }
}

impl<'p> Duel<'p> {
    /// Has both builds prepare the case, each with its own drawing of the inputs and its own reference.
    ///
    /// # Errors
    /// What is to be said of the case if one cannot.
    pub fn prepare(
        peers: [&'p Peer; 2],
        case: &BuildCase,
        (kind, device): (DeviceKind, &str),
        seed: u64,
    ) -> Result<Self, Box<BuildComparison>> {
        let seed = derive(seed, &["builds", &case.name(), &case.shape]);
        let open = |side: usize| {
            let BuildCase { operator, candidate, dtype, shape } = case;
            RemoteCase::drawn_there(peers[side], operator, candidate, *dtype, shape, seed).map_err(|f| Fell(side, f))
        };
        match (open(0), open(1)) {
            (Ok(base), Ok(head)) => {
                let sides = [Rc::new(base), Rc::new(head)];
                Ok(Duel { case: case.clone(), kind, device: device.into(), sides, seed })
            }
            // What is wrong with head counts more.
            (_, Err(fell)) | (Err(fell), _) => {
                Err(Box::new(BuildComparison::none(case.clone(), device.into(), fell.verdict(), fell.reason())))
            }
        }
    }

    /// Compares once, with batches and buffers of its own, and once more if that shows a change.
    pub fn compare(&self, settings: &PerfSettings, table: &NoiseTable, turn: usize) -> BuildComparison {
        let result = |sessions: usize, of: Result<Session, Fell>| match of {
            Ok(session) => BuildComparison {
                heat: settings.heat,
                base_us: Some(session.base_us),
                head_us: Some(session.head_us),
                ratio: Some(session.comparison.ratio),
                interval: Some([session.comparison.interval.low, session.comparison.interval.high])
                    .filter(|ends| ends.iter().all(|end| end.is_finite())),
                threshold: Some(session.threshold),
                sessions,
                turn,
                ..self.none(session.comparison.change.into(), String::new())
            },
            Err(fell) => BuildComparison { sessions, turn, ..self.none(fell.verdict(), fell.reason()) },
        };
        let session = |number: u64| self.session(settings, table, self.seed.wrapping_add(2 * turn as u64 + number));
        confirmed(result(1, session(0)), || result(2, session(1)))
    }

    fn none(&self, verdict: Verdict, reason: String) -> BuildComparison {
        BuildComparison::none(self.case.clone(), self.device.clone(), verdict, reason)
    }

    fn session(&self, settings: &PerfSettings, table: &NoiseTable, seed: u64) -> Result<Session, Fell> {
        let arm = |side: usize| {
            let problem = Box::new(RemoteProblem::of(Rc::clone(&self.sides[side])));
            Contestant::arm(problem, &settings.plan()).map(Contestant::as_competitor).map_err(|fault| Fell(side, fault))
        };
        let mut contestants = [arm(0)?, arm(1)?];
        // Both are competitors, so that whoever fails is known by name.
        let measurement = measure(&mut contestants, &settings.session, seed).map_err(|fault| Fell(1, fault))?;
        for (side, contestant) in contestants.iter_mut().enumerate() {
            if let Some(fault) = contestant.left() {
                return Err(Fell(side, fault.clone()));
            }
            contestant.problem().timed_outputs_agree().map_err(|fault| Fell(side, fault))?;
        }
        let (base, head) = (measurement.kept_us(0), measurement.kept_us(1));
        let threshold = threshold(self.kind, table, typical(&base));
        Ok(Session {
            base_us: typical(&base),
            head_us: typical(&head),
            comparison: paired(&base, &head, threshold),
            threshold,
        })
    }
}

/// A change must show in two sessions, each with buffers and batches of its own: what one got by chance the other does
/// not repeat.
fn confirmed(first: BuildComparison, second: impl FnOnce() -> BuildComparison) -> BuildComparison {
    if !matches!(first.verdict, Verdict::Slower | Verdict::Faster) {
        return first;
    }
    let second = second();
    let is_settled = matches!(second.verdict, Verdict::Same | Verdict::Slower | Verdict::Faster);
    if second.verdict == first.verdict || !is_settled {
        return second;
    }
    let ratio = |comparison: &BuildComparison| comparison.ratio.unwrap_or(f64::NAN);
    let reason = format!("two sessions disagree: head / base {:.4}, then {:.4}", ratio(&first), ratio(&second));
    BuildComparison { verdict: Verdict::Unclear, reason, ..second }
}

/// The relative change that counts. On a GPU an interval over sixteen instances in eight placements knows the noise of
/// just this case, and a change must show twice: nothing has to be added for the noisiest kernel of its length. On a CPU
/// there is one instance, whose offset no interval sees: the noise of the device decides.
fn threshold(kind: DeviceKind, table: &NoiseTable, launch_us: f64) -> f64 {
    match kind {
        DeviceKind::Cuda => LEAST_THRESHOLD,
        DeviceKind::Cpu | DeviceKind::Sim => table.threshold(launch_us, Distance::Paired),
    }
}

/// What one session of both said.
struct Session {
    base_us: f64,
    head_us: f64,
    comparison: Comparison,
    threshold: f64,
}

/// How often each verdict was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Comparisons.
    pub compared: usize,
    /// How many were called slower.
    pub slower: usize,
    /// How many were called faster.
    pub faster: usize,
    /// How many could not tell.
    pub unclear: usize,
}

impl Tally {
    /// The tally of some comparisons; those that came to nothing are left out.
    pub fn of<'a>(comparisons: impl IntoIterator<Item = &'a BuildComparison>) -> Self {
        let mut tally = Tally::default();
        for comparison in comparisons {
            let slot = match comparison.verdict {
                Verdict::Same => None,
                Verdict::Slower => Some(&mut tally.slower),
                Verdict::Faster => Some(&mut tally.faster),
                Verdict::Unclear => Some(&mut tally.unclear),
                _ => continue,
            };
            if let Some(slot) = slot {
                *slot += 1;
            }
            tally.compared += 1;
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::VERSION;
    use rstest::rstest;

    fn hello(offers: &[(&str, &[DType], &[&str])]) -> Hello {
        let offer = |&(candidate, dtypes, shapes): &(&str, &[DType], &[&str])| Offer {
            operator: "gelu".into(),
            candidate: candidate.into(),
            device: DeviceKind::Cpu,
            dtypes: dtypes.to_vec(),
            shapes: shapes.iter().map(|shape| (*shape).to_owned()).collect(),
        };
        let offers = offers.iter().map(offer).collect();
        Hello { protocol: VERSION, name: "g".into(), about: String::new(), devices: Vec::new(), offers }
    }

    #[test]
    fn cases_match_by_name_dtype_and_shape() {
        use DType::{F16, F32};
        let base = hello(&[("a", &[F32, F16], &["n=1", "n=2"]), ("gone", &[F32], &["n=1"])]);
        let head = hello(&[("a", &[F32], &["n=2", "n=3"]), ("new", &[F32], &["n=1"])]);
        let all = |dtypes: &[DType], shapes: &[&str]| {
            let shapes: Vec<String> = shapes.iter().map(|shape| (*shape).to_owned()).collect();
            let text = |m: Matched| {
                let side = match (m.in_base, m.in_head) {
                    (true, true) => "both",
                    (true, false) => "base",
                    _ => "head",
                };
                format!("{} {} {side}", m.case.name(), m.case.shape)
            };
            matched(&base, &head, dtypes, &shapes).into_iter().map(text).collect::<Vec<_>>()
        };
        let expected = [
            "gelu::a::f32 n=2 both",
            "gelu::a::f32 n=3 head",
            "gelu::new::f32 n=1 head",
            "gelu::a::f32 n=1 base",
            "gelu::gone::f32 n=1 base",
        ];
        assert_eq!(all(&[F32], &[]), expected);
        assert_eq!(all(&[F16], &["n=7", "rows=7"]), ["gelu::a::f16 n=7 base"]);
        assert_eq!(all(&[F16], &["n=7", "n=8"]), ["gelu::a::f16 n=7 base", "gelu::a::f16 n=8 base"]);
        assert!(all(&[], &["n=7,rows=7"]).is_empty(), "an axis that nobody has");
        assert_eq!(all(&[], &[]).len(), 7);
    }

    fn comparison(verdict: Verdict) -> BuildComparison {
        let case = BuildCase { operator: "f".into(), candidate: "c".into(), dtype: DType::F32, shape: "n=1".into() };
        BuildComparison::none(case, "cpu".into(), verdict, String::new())
    }

    #[rstest]
    #[case::plain(Verdict::Same, None, Verdict::Same)]
    #[case::nothing_to_confirm(Verdict::Unclear, None, Verdict::Unclear)]
    #[case::slower_twice(Verdict::Slower, Some(Verdict::Slower), Verdict::Slower)]
    #[case::faster_twice(Verdict::Faster, Some(Verdict::Faster), Verdict::Faster)]
    #[case::by_chance(Verdict::Slower, Some(Verdict::Same), Verdict::Unclear)]
    #[case::opposite(Verdict::Slower, Some(Verdict::Faster), Verdict::Unclear)]
    #[case::then_unclear(Verdict::Slower, Some(Verdict::Unclear), Verdict::Unclear)]
    #[case::then_dead(Verdict::Slower, Some(Verdict::Fail), Verdict::Fail)]
    fn a_change_must_show_twice(#[case] first: Verdict, #[case] second: Option<Verdict>, #[case] expected: Verdict) {
        let second = || comparison(second.expect("no second session is needed"));
        assert_eq!(confirmed(comparison(first), second).verdict, expected);
    }

    #[test]
    fn a_tally_counts_what_was_compared() {
        let all = [Verdict::Same, Verdict::Slower, Verdict::Unclear, Verdict::Skip, Verdict::Fail].map(comparison);
        assert_eq!(Tally::of(&all), Tally { compared: 3, slower: 1, faster: 0, unclear: 1 });
    }
}
