//! Variants and peers at one batch, timed in one session.

use super::{Variant, Workload};
use crate::check::beside::Competition;
use crate::check::outcome::{Check, Timing, Verdict};
use crate::check::perf::{self, PerfSettings};
use crate::check::{Context, Subject};
use crate::cli::project;
use crate::core::candidate::Candidate;
use crate::core::shape::Shape as _;
use crate::device::{Device, DeviceKind, Heat};
use crate::protocol::Peer;
use crate::report::record::Record;
use crate::report::workloads::{RunTime, WorkloadRun};
use std::time::{Duration, Instant};

/// For starting the session; what was started is finished.
const BUDGET: Duration = Duration::from_secs(600);

/// The times of a batch.
pub struct Timed {
    /// Digits at a time.
    pub batch: usize,
    /// The first of those that were timed.
    pub first: Variant,
    /// The others, in the order in which they were asked for.
    pub others: Vec<Variant>,
    /// What a gate would make of it.
    pub record: Record,
    key: String,
}

/// Times the variants of one device, the first beside the others and the peers. None where there is no variant, or no clock.
pub fn side_by_side(
    workload: &Workload,
    present: &[(Variant, &dyn Device)],
    peers: &[Peer],
    batch: usize,
) -> Option<Timed> {
    let &(first, device) = present.first()?;
    if device.kind() == DeviceKind::Sim {
        return None;
    }
    let candidate = workload.candidate(first).ok()?;
    let others: Vec<Variant> = present[1..].iter().map(|(variant, _)| *variant).collect();
    let candidates: Vec<&Candidate> = others.iter().filter_map(|variant| workload.candidate(*variant).ok()).collect();
    let subject = Subject { operator: &*workload.suite.operator, candidate, dtype: workload.dtype };
    let only = vec![workload.classifier.shape(batch).to_point()];
    // A classifier that runs again and again finds its weights where it left them.
    let mut settings = PerfSettings { heat: Heat::Hot, only, ..PerfSettings::of(device.kind()) };
    settings.session.stopping.budget *= 8;
    let start = Instant::now();
    let context = Context::new(device, workload.seed, BUDGET);
    let competition = Competition { peers, candidates: &candidates };
    let outcome = perf::run_beside(&context, &subject, &settings, competition);
    let trial = format!("cnn::{}::{}::{}", candidate.name, workload.dtype, Check::Perf.name());
    let record = Record {
        repeat: project().repeat_command(&trial, ""),
        trial,
        operator: "cnn".into(),
        candidate: candidate.name.clone(),
        dtype: workload.dtype,
        check: Check::Perf,
        device: device.kind(),
        fingerprint: Some(device.fingerprint().key()),
        source: None,
        duration_s: start.elapsed().as_secs_f64(),
        outcome,
    };
    Some(Timed { batch, first, others, record, key: device.fingerprint().key() })
}

impl Timed {
    /// What was measured, unless the candidate failed.
    pub fn timing(&self) -> Option<&Timing> {
        self.record.outcome.timings.first()
    }

    /// A record a variant.
    pub fn runs(&self, record: impl Fn(Variant, &str) -> WorkloadRun) -> Vec<WorkloadRun> {
        let Some(timing) = self.timing() else {
            let why = self.record.outcome.reason.clone();
            return vec![WorkloadRun { skipped: Some(why), ..record(self.first, &self.key) }];
        };
        let time = |p50_us: f64, p95_us: f64| RunTime { p50_us, p95_us, per_s: self.batch as f64 / p50_us * 1e6 };
        let first = WorkloadRun { time: Some(time(timing.median_us, timing.p95_us)), ..record(self.first, &self.key) };
        let others = self.others.iter().filter_map(|&variant| {
            let peer = timing.peers.iter().find(|peer| peer.name == variant.names().1)?;
            let run = record(variant, &self.key);
            Some(match (peer.verdict, peer.p95_us) {
                (Verdict::Pass | Verdict::Unclear, Some(p95_us)) => {
                    WorkloadRun { time: Some(time(peer.median_us, p95_us)), ..run }
                }
                _ => WorkloadRun { skipped: Some(peer.reason.clone()), ..run },
            })
        });
        [first].into_iter().chain(others).collect()
    }
}
