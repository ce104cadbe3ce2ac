//! Competitors of a candidate: peers, and other candidates of its operator. They get the same inputs, are judged by the same
//! comparison and timed in the same session. Whatever they do, the candidate is timed.

use super::case::Case;
use super::judge::Rejection;
use super::outcome::{Errors, PeerTiming, Verdict};
use super::verify::{verified, verify_before_timing};
use super::{Context, Subject};
use crate::core::candidate::Candidate;
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{DeviceKind, Problem, TimingPlan};
use crate::measure::change::{MIN_SAMPLES, paired};
use crate::measure::session::{Contestant, Measurement};
use crate::measure::threshold::LEAST_THRESHOLD;
use crate::protocol::message::Offer;
use crate::protocol::remote::{InputFiles, RemoteCase, RemoteJob, RemoteProblem};
use crate::protocol::{Misconduct, Peer};
use std::rc::Rc;

/// Who is timed beside a candidate.
#[derive(Clone, Copy, Default)]
pub struct Competition<'a> {
    /// Other programs, each with all its ways to compute the operator.
    pub peers: &'a [Peer],
    /// Other candidates of the operator, on the same device.
    pub candidates: &'a [&'a Candidate],
}

/// Those that compete at one shape.
pub(super) struct Competitors<'p> {
    competitors: Vec<Competitor<'p>>,
}

/// Another candidate, or one way in which one peer computes the operator.
struct Competitor<'p> {
    name: String,
    about: String,
    stage: Stage<'p>,
}

/// How far a competitor has come.
enum Stage<'p> {
    /// It takes no part, and this is why.
    Out(Verdict, String),
    /// It has computed the case.
    Ready {
        source: Source<'p>,
        errors: Option<Errors>,
        /// What is wrong with its outputs.
        wrong: Option<String>,
        /// Its place among the contestants, once it is armed.
        place: usize,
    },
}

/// Who computes the case of a competitor.
enum Source<'p> {
    Peer(Rc<RemoteCase<'p>>),
    /// `None` once it is a contestant.
    Candidate(Option<Box<dyn Problem + 'p>>),
}

impl<'p> Source<'p> {
    /// What a session samples.
    fn problem(&mut self) -> Option<Box<dyn Problem + 'p>> {
        match self {
            Source::Peer(case) => Some(Box::new(RemoteProblem::of(Rc::clone(case)))),
            Source::Candidate(problem) => problem.take(),
        }
    }

    /// Whether what the timed batches left behind is right still, and what is wrong if not.
    fn after(
        &self,
        contestant: &mut Contestant<'_>,
        right: impl Fn(&[Tensor]) -> Result<Option<Errors>, String>,
    ) -> Result<(), String> {
        match self {
            Source::Peer(case) => {
                let outputs = case.replay(contestant.instances() - 1).map_err(|fault| fault.to_string())?;
                right(&outputs).map(|_| ())
            }
            // Its outputs were right before: the same bits are.
            Source::Candidate(_) => match contestant.problem().timed_outputs_agree() {
                Ok(true) => Ok(()),
                Ok(false) => Err("the outputs have changed".into()),
                Err(fault) => Err(fault.to_string()),
            },
        }
    }
}

impl<'p> Competitors<'p> {
    /// Gives the case to every other candidate, and to every way of every peer that computes it on this kind of device, and
    /// judges what comes back.
    pub fn admit(
        competition: Competition<'p>,
        context: &Context<'p>,
        subject: &Subject<'_>,
        case: &Case,
        inputs: &[Tensor],
    ) -> Self {
        let candidates =
            competition.candidates.iter().map(|&other| of_candidate(context, other, subject, case, inputs));
        let mut competitors: Vec<Competitor<'p>> = candidates.collect();
        if !competition.peers.is_empty() {
            competitors.extend(peers(competition.peers, context.device.kind(), subject, case, inputs));
        }
        Competitors { competitors }
    }

    /// Whether nobody takes part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many take part.
    pub fn len(&self) -> usize {
        self.competitors.iter().filter(|competitor| matches!(competitor.stage, Stage::Ready { .. })).count()
    }

    /// Arms those that take part and adds them to the contestants.
    pub fn join<'d>(&mut self, contestants: &mut Vec<Contestant<'d>>, plan: &TimingPlan)
    where
        'p: 'd,
    {
        for competitor in &mut self.competitors {
            let Stage::Ready { source, place, .. } = &mut competitor.stage else { continue };
            let Some(problem) = source.problem() else { continue };
            match Contestant::arm(problem, plan) {
                Ok(contestant) => {
                    *place = contestants.len();
                    contestants.push(contestant.as_competitor());
                }
                Err(fault) => competitor.stage = out(&fault),
            }
        }
    }

    /// What came of them, the candidate being contestant 0. What was timed is judged once more.
    pub fn conclude(
        self,
        measurement: &Measurement,
        contestants: &mut [Contestant<'_>],
        subject: &Subject<'_>,
        case: &Case,
        inputs: &[Tensor],
    ) -> Vec<PeerTiming> {
        let candidate = measurement.kept_us(0);
        let timing = |Competitor { name, about, stage }: Competitor<'p>| {
            let (source, errors, wrong, place) = match stage {
                Stage::Out(verdict, why) => return PeerTiming::untimed(name, about, verdict, why),
                Stage::Ready { source, errors, wrong, place } => (source, errors, wrong, place),
            };
            if let Some(fault) = contestants[place].left() {
                return PeerTiming::untimed(name, about, Verdict::Fail, fault.to_string());
            }
            let summary = measurement.summary(place);
            let comparison = paired(&measurement.kept_us(place), &candidate, LEAST_THRESHOLD);
            let after = source.after(&mut contestants[place], |outputs| judge(subject, case, inputs, outputs));
            let (verdict, reason) = match (wrong, after) {
                (Some(wrong), _) => (Verdict::Fail, wrong),
                (None, Err(why)) => (Verdict::Invalid, format!("after it was timed: {why}")),
                (None, Ok(())) if summary.samples < MIN_SAMPLES => {
                    (Verdict::Unclear, "too few samples within the budget".into())
                }
                (None, Ok(())) => (Verdict::Pass, String::new()),
            };
            let finite = |low: f64, high: f64| (low.is_finite() && high.is_finite()).then_some([low, high]);
            PeerTiming {
                verdict,
                reason,
                errors,
                median_us: summary.median_us,
                p95_us: Some(summary.p95_us).filter(|us| us.is_finite()),
                interval_us: finite(summary.interval_us.low, summary.interval_us.high),
                samples: summary.samples,
                dropped: summary.dropped,
                clock_mhz: summary.clock_mhz,
                ratio: comparison.ratio,
                ratio_interval: finite(comparison.interval.low, comparison.interval.high),
                ..PeerTiming::untimed(name, about, verdict, String::new())
            }
        };
        self.competitors.into_iter().map(timing).collect()
    }
}

/// The competitors that peers are.
fn peers<'p>(
    peers: &'p [Peer],
    device: DeviceKind,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
) -> Vec<Competitor<'p>> {
    let files = InputFiles::write(subject.operator, inputs);
    let competitors = peers.iter().flat_map(|peer| {
        let about = peer.hello().map_or_else(|_| String::new(), |hello| hello.about.clone());
        let offers = match offers(peer, device, subject) {
            Ok(offers) => offers,
            Err((verdict, why)) => {
                return vec![Competitor { name: peer.name(), about, stage: Stage::Out(verdict, why) }];
            }
        };
        let competitor = |offer: &Offer| {
            let prepared = files.as_ref().map_err(Clone::clone);
            let stage = prepared.and_then(|files| prepare(peer, offer, subject, case, inputs, files));
            let stage = stage.unwrap_or_else(|fault| out(&fault));
            Competitor { name: offer.candidate.clone(), about: about.clone(), stage }
        };
        offers.into_iter().map(competitor).collect()
    });
    competitors.collect()
}

/// The competitor that another candidate is.
fn of_candidate<'p>(
    context: &Context<'p>,
    candidate: &Candidate,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
) -> Competitor<'p> {
    let stage = match verified(context, &Subject { candidate, ..*subject }, case, inputs) {
        Ok((problem, errors)) => {
            Stage::Ready { source: Source::Candidate(Some(problem)), errors, wrong: None, place: 0 }
        }
        Err(Rejection::Unsupported(why)) => Stage::Out(Verdict::Skip, why),
        Err(Rejection::Failed(failure) | Rejection::Lost(failure)) => Stage::Out(Verdict::Fail, failure.text),
    };
    let about = candidate.body.describe(&case.point, subject.dtype).unwrap_or_default();
    Competitor { name: candidate.name.clone(), about, stage }
}

/// The ways of a peer that fit, or why there is none.
fn offers<'p>(peer: &'p Peer, device: DeviceKind, subject: &Subject<'_>) -> Result<Vec<&'p Offer>, (Verdict, String)> {
    let hello = peer.hello().map_err(|end: &Misconduct| (Verdict::Fail, format!("the peer {end}")))?;
    let (operator, dtype) = (subject.operator.name(), subject.dtype);
    let fitting: Vec<&Offer> = hello.offers_for(operator, dtype, device).collect();
    if fitting.is_empty() {
        return Err((Verdict::Skip, format!("offers no {operator} in {dtype} on a device of kind {device}")));
    }
    Ok(fitting)
}

/// Has a peer compute the case.
fn prepare<'p>(
    peer: &'p Peer,
    offer: &Offer,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
    files: &InputFiles,
) -> Result<Stage<'p>, Fault> {
    let Subject { operator, dtype, .. } = *subject;
    let job = RemoteJob { operator, candidate: &offer.candidate, point: &case.point, dtype, seed: case.seed };
    let remote = RemoteCase::prepare(peer, &job, files)?;
    let (errors, wrong) = match judge(subject, case, inputs, &remote.run()?) {
        Ok(errors) => (errors, None),
        Err(wrong) => (None, Some(wrong)),
    };
    Ok(Stage::Ready { source: Source::Peer(Rc::new(remote)), errors, wrong, place: 0 })
}

/// The same comparison as a candidate's.
fn judge(subject: &Subject<'_>, case: &Case, inputs: &[Tensor], outputs: &[Tensor]) -> Result<Option<Errors>, String> {
    verify_before_timing(subject, case, inputs, outputs).map_err(|rejection| match rejection {
        Rejection::Failed(failure) | Rejection::Lost(failure) => failure.text,
        Rejection::Unsupported(why) => why,
    })
}

fn out<'p>(fault: &Fault) -> Stage<'p> {
    match fault {
        Fault::Unsupported(why) => Stage::Out(Verdict::Skip, why.clone()),
        fault => Stage::Out(Verdict::Fail, fault.to_string()),
    }
}
