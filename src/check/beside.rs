//! Peers beside a candidate: given the same inputs, judged by the same comparison, timed in the same session. Whatever
//! they do, the candidate is timed.

use super::Subject;
use super::case::Case;
use super::judge::Rejection;
use super::outcome::{Errors, PeerTiming, Verdict};
use super::verify::verify_before_timing;
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{DeviceKind, TimingPlan};
use crate::measure::change::{MIN_SAMPLES, paired};
use crate::measure::session::{Contestant, Measurement};
use crate::measure::threshold::LEAST_THRESHOLD;
use crate::protocol::message::Offer;
use crate::protocol::remote::{InputFiles, RemoteCase, RemoteJob, RemoteProblem};
use crate::protocol::{Misconduct, Peer};
use std::rc::Rc;

/// The peers of one shape.
pub(super) struct Party<'p> {
    guests: Vec<Guest<'p>>,
}

/// One way in which one peer computes the operator.
struct Guest<'p> {
    name: String,
    about: String,
    stage: Stage<'p>,
}

/// How far a guest has come.
enum Stage<'p> {
    /// It takes no part, and this is why.
    Out(Verdict, String),
    /// It has computed the case.
    Ready {
        case: Rc<RemoteCase<'p>>,
        errors: Option<Errors>,
        /// What is wrong with its outputs.
        wrong: Option<String>,
        /// Its place among the contestants, once it is armed.
        place: usize,
    },
}

impl<'p> Party<'p> {
    /// Gives the case to every way of every peer that computes it on this kind of device, and judges what comes back.
    pub fn invite(
        peers: &'p [Peer],
        device: DeviceKind,
        subject: &Subject<'_>,
        case: &Case,
        inputs: &[Tensor],
    ) -> Self {
        if peers.is_empty() {
            return Party { guests: Vec::new() };
        }
        let files = InputFiles::write(subject.operator, inputs);
        let guests = peers.iter().flat_map(|peer| {
            let offers = match offers(peer, device, subject) {
                Ok(offers) => offers,
                Err((verdict, why)) => {
                    let about = peer.hello().map_or_else(|_| String::new(), |hello| hello.about.clone());
                    return vec![Guest { name: peer.name(), about, stage: Stage::Out(verdict, why) }];
                }
            };
            let guest = |offer: &Offer| {
                let prepared = files.as_ref().map_err(Clone::clone);
                let stage = prepared.and_then(|files| prepare(peer, offer, subject, case, inputs, files));
                let about = peer.hello().map_or_else(|_| String::new(), |hello| hello.about.clone());
                Guest { name: offer.candidate.clone(), about, stage: stage.unwrap_or_else(|fault| out(&fault)) }
            };
            offers.into_iter().map(guest).collect()
        });
        Party { guests: guests.collect() }
    }

    /// Whether nobody takes part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many take part.
    pub fn len(&self) -> usize {
        self.guests.iter().filter(|guest| matches!(guest.stage, Stage::Ready { .. })).count()
    }

    /// Arms those that take part and adds them to the contestants.
    pub fn join<'d>(&mut self, contestants: &mut Vec<Contestant<'d>>, plan: &TimingPlan)
    where
        'p: 'd,
    {
        for guest in &mut self.guests {
            let Stage::Ready { case, place, .. } = &mut guest.stage else { continue };
            let problem: Box<dyn crate::device::Problem + 'd> = Box::new(RemoteProblem::of(Rc::clone(case)));
            match Contestant::arm(problem, plan) {
                Ok(contestant) => {
                    *place = contestants.len();
                    contestants.push(contestant.as_guest());
                }
                Err(fault) => guest.stage = out(&fault),
            }
        }
    }

    /// What came of them, the candidate being contestant 0. What was timed is judged once more.
    pub fn conclude(
        self,
        measurement: &Measurement,
        contestants: &[Contestant<'_>],
        subject: &Subject<'_>,
        case: &Case,
        inputs: &[Tensor],
    ) -> Vec<PeerTiming> {
        let candidate = measurement.kept_us(0);
        let timing = |Guest { name, about, stage }: Guest<'p>| {
            let (remote, errors, wrong, place) = match stage {
                Stage::Out(verdict, why) => return PeerTiming::untimed(name, about, verdict, why),
                Stage::Ready { case, errors, wrong, place } => (case, errors, wrong, place),
            };
            if let Some(fault) = contestants[place].left() {
                return PeerTiming::untimed(name, about, Verdict::Fail, fault.to_string());
            }
            let summary = measurement.summary(place);
            let comparison = paired(&measurement.kept_us(place), &candidate, LEAST_THRESHOLD);
            let last = contestants[place].instances() - 1;
            let after = remote.replay(last).map_err(|fault| fault.to_string());
            let after = after.and_then(|outputs| judge(subject, case, inputs, &outputs));
            let (verdict, reason) = match (wrong, after) {
                (Some(wrong), _) => (Verdict::Fail, wrong),
                (None, Err(why)) => (Verdict::Invalid, format!("after it was timed: {why}")),
                (None, Ok(_)) if summary.samples < MIN_SAMPLES => {
                    (Verdict::Unclear, "too few samples within the budget".into())
                }
                (None, Ok(_)) => (Verdict::Pass, String::new()),
            };
            let finite = |low: f64, high: f64| (low.is_finite() && high.is_finite()).then_some([low, high]);
            PeerTiming {
                verdict,
                reason,
                errors,
                median_us: summary.median_us,
                interval_us: finite(summary.interval_us.low, summary.interval_us.high),
                samples: summary.samples,
                dropped: summary.dropped,
                clock_mhz: summary.clock_mhz,
                ratio: comparison.ratio,
                ratio_interval: finite(comparison.interval.low, comparison.interval.high),
                ..PeerTiming::untimed(name, about, verdict, String::new())
            }
        };
        self.guests.into_iter().map(timing).collect()
    }
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
    Ok(Stage::Ready { case: Rc::new(remote), errors, wrong, place: 0 })
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
