//! `bench`: times candidates, with no baseline in sight, beside other candidates and peers where some are named. What is
//! measured is shown and kept shape by shape.

use super::selection::{Selected, Selection, describe_device};
use super::{Failure, Workplace, print};
use crate::check::beside::Competition;
use crate::check::outcome::{Check, Outcome, PeerTiming, Timing, Verdict};
use crate::check::perf::{self, PerfSettings};
use crate::check::{Context, Subject};
use crate::core::candidate::Candidate;
use crate::core::shape::Point;
use crate::core::suite::Suite;
use crate::device::Heat;
use crate::harness::arguments::parse_seconds;
use crate::harness::interrupt::keep_results;
use crate::harness::terminal::note;
use crate::harness::trial::Trial;
use crate::protocol::process::CommandLine;
use crate::protocol::{Deadlines, Peer};
use crate::report::record::Record;
use crate::report::standing::standings;
use crate::report::summary::Summary;
use clap::Args;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Arguments of `bench`.
#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    selection: Selection,
    /// Time the same beside these candidates of the operator, in the same session: cublaslt, cuda_v1
    #[arg(long, value_name = "CANDIDATE", value_delimiter = ',')]
    beside: Vec<String>,
    /// Time the same beside this command, which speaks the measurement protocol (docs/protocol.md); may be given several
    /// times. It is split into words like a shell would, and no shell runs it: "python3 peers/torch_peer.py --mode eager"
    #[arg(long = "peer", value_name = "COMMAND")]
    peers: Vec<String>,
    /// Seconds that a peer may take to start, to get ready for a case, to compute it
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "120", requires = "peers")]
    deadline: Duration,
    /// Keep the data in the caches between launches
    #[arg(long)]
    hot: bool,
    /// Seconds that a candidate may spend on starting new shapes
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    budget: u64,
    /// Time that the sampling of a shape may take, beside each other contestant once more [default: as in the gate]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    sampling: Option<Duration>,
    /// Print the summary as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// Where the summary goes [default: nowhere]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Bench {
    /// Measures, printing a row as soon as it is known.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        let is_json = self.json;
        let say = move |line: String| {
            if !is_json {
                return print(&line);
            }
            note(format_args!("{}", line.trim_end_matches('\n')));
            Ok(())
        };
        let project = workplace.project;
        let peers = self.start_peers()?;
        let kept = Arc::new(Mutex::new(Summary::new(project.describe_run(self.selection.seed))));
        let keep = {
            let out = self.out.clone();
            move |summary: &Summary| out.as_ref().map_or(Ok(()), |out| Ok(summary.write(out)?))
        };
        let (at_end, keep_at_end) = (Arc::clone(&kept), keep.clone());
        keep_results(move |signal| {
            let summary = at_end.lock().unwrap_or_else(PoisonError::into_inner);
            note(format_args!("ended by {signal}: what was measured is kept"));
            let _ = keep_at_end(&summary);
            summary.records.iter().flat_map(stand).for_each(|line| note(format_args!("{line}")));
            if is_json {
                let _ = print(&summary.to_json());
            }
        });
        let selected = self.selection.select(workplace.suites)?;
        self.refuse_unknown_competitors(workplace.suites, &selected)?;
        let mut device_said = None;
        let mut unreached = 0;
        self.selection.each_of(
            workplace,
            selected,
            |&Selected { trial, suite, ref subject, device, points, progress, .. }| {
                let candidates = self.competitors(suite, subject);
                if device_said.replace(device.kind()) != Some(device.kind()) {
                    say(format!("\n{}\n{}", describe_device(device.fingerprint()), header()))?;
                }
                let heat = if self.hot { Heat::Hot } else { Heat::Cold };
                let mut settings = PerfSettings { heat, only: points.to_vec(), ..PerfSettings::of(device.kind()) };
                settings.session.stopping.budget = self.sampling.unwrap_or(settings.session.stopping.budget);
                let context = Context::new(device, self.selection.seed, Duration::from_secs(self.budget));
                let start = Instant::now();
                let competition = Competition { peers: &peers, candidates: &candidates };
                let name = trial.name.trim_end_matches("::perf");
                let record = |outcome: &Outcome| Record {
                    trial: trial.name.clone(),
                    operator: subject.operator.name().into(),
                    candidate: subject.candidate.name.clone(),
                    dtype: trial.dtype,
                    check: Check::Perf,
                    device: device.kind(),
                    fingerprint: Some(device.fingerprint().key()),
                    source: trial.source.clone(),
                    duration_s: start.elapsed().as_secs_f64(),
                    repeat: project.repeat_command(&trial.name, ""),
                    outcome: outcome.clone(),
                };
                let add = |outcome: &Outcome| {
                    let mut summary = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    summary.add_device(device.fingerprint());
                    summary.add(vec![record(outcome)]);
                    keep(&summary)
                };
                // Kept after each shape, before its row is shown: what was said outlives whatever ends this process.
                let mut first = None;
                let outcome = perf::run_watched(&context, subject, &settings, competition, &mut |outcome| {
                    progress.step();
                    let said = add(outcome).and_then(|()| match outcome.timings.last() {
                        Some(timing) => {
                            say(row(name, timing))?;
                            timing.peers.iter().try_for_each(|peer| say(peer_row(peer)))
                        }
                        None => Ok(()),
                    });
                    first = first.take().or(said.err());
                });
                if let Some(failure) = first {
                    return Err(failure);
                }
                unreached += outcome.unreached;
                if outcome.timings.is_empty() || outcome.verdict.is_failure() {
                    say(format!("{name}: {}: {}\n", outcome.verdict.name(), outcome.reason))?;
                }
                for note in outcome.notes.iter().filter(|note| note.contains("not timed")) {
                    say(format!("{name}: {note}\n"))?;
                }
                stand(&record(&outcome)).into_iter().try_for_each(|line| say(line + "\n"))?;
                add(&outcome)
            },
        )?;
        let ended =
            peers.iter().filter_map(|peer| peer.hello().err().map(|end| format!("the peer {}: it {end}", peer.name())));
        let absent: Vec<String> = ended.collect();
        peers.into_iter().for_each(Peer::close);
        let summary = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let any_failed = summary.records.iter().any(|record| record.outcome.verdict.is_failure());
        if self.json {
            print(&summary.to_json())?;
        }
        match (any_failed, absent.is_empty()) {
            (true, _) => Err(Failure::Verdict),
            (false, false) => Err(Failure::Missing(absent.join("; "))),
            (false, true) if unreached > 0 => {
                Err(Failure::Cut(format!("{unreached} shapes not timed within --budget {}", self.budget)))
            }
            (false, true) => Ok(()),
        }
    }

    /// A misspelt competitor is told before anything is timed.
    fn refuse_unknown_competitors(&self, suites: &[Suite], selected: &[(Trial, Vec<Point>)]) -> Result<(), Failure> {
        let is_known = |name: &String| {
            let mut candidates = selected.iter().flat_map(|(trial, _)| &suites[trial.suite].candidates);
            candidates.any(|candidate| candidate.name == *name)
        };
        match self.beside.iter().find(|name| !is_known(name)) {
            Some(name) => {
                Err(Failure::Input(format!("--beside {name}: no operator that is timed has such a candidate")))
            }
            None => Ok(()),
        }
    }

    /// The candidates of its operator that a subject is timed beside.
    fn competitors<'a>(&self, suite: &'a Suite, subject: &Subject<'_>) -> Vec<&'a Candidate> {
        let on_host = subject.candidate.body.is_host();
        let is_competitor = |other: &&Candidate| {
            self.beside.contains(&other.name) && other.name != subject.candidate.name && other.body.is_host() == on_host
        };
        suite.candidates.iter().filter(is_competitor).collect()
    }

    fn start_peers(&self) -> Result<Vec<Peer>, Failure> {
        let start = |line: &String| {
            let command = CommandLine::parse(line).map_err(|why| Failure::Input(format!("--peer: {why}")))?;
            let peer = Peer::start(command, Deadlines::of(self.deadline));
            match peer.hello() {
                Ok(hello) => note(format_args!("peer {}: {}", hello.name, hello.about)),
                Err(end) => note(format_args!("peer {line}: it {end}")),
            }
            Ok(peer)
        };
        self.peers.iter().map(start).collect()
    }
}

/// How a candidate stands beside each of its peers, where it was timed at several shapes.
fn stand(record: &Record) -> Vec<String> {
    let name = record.trial.trim_end_matches("::perf");
    let several = Some(&record.outcome.timings).filter(|timings| timings.len() > 1);
    let standings = several.map(|timings| standings(timings)).unwrap_or_default();
    standings.iter().map(|standing| format!("{name} {}", standing.describe())).collect()
}

/// The first line of the table.
pub fn header() -> String {
    format!(
        "{:<32} {:<28} {:>11} {:>7} {:>8} {:>9} {:>9}\n",
        "candidate", "shape", "median µs", "± %", "GB/s", "Gflop/s", "ceiling"
    )
}

/// A peer below the candidate that it was timed with.
pub fn peer_row(peer: &PeerTiming) -> String {
    let name = format!("  beside {}", peer.name);
    let doubt = match peer.verdict {
        Verdict::Pass => String::new(),
        verdict => format!("  {}: {}", verdict.name(), peer.reason),
    };
    if peer.samples == 0 {
        return format!("{name:<32}{doubt}\n");
    }
    let share = |[low, high]: [f64; 2]| (high - low) / (high + low);
    let width = peer.interval_us.map_or_else(|| "-".into(), |ends| format!("{:.2}", share(ends) * 100.0));
    let doubt_of_ratio =
        peer.ratio_interval.map_or_else(String::new, |ends| format!(" ± {:.3}", share(ends) * peer.ratio));
    format!(
        "{name:<32} {:<28} {:>11.3} {width:>7}   candidate / peer {:.3}{doubt_of_ratio}{doubt}\n",
        "", peer.median_us, peer.ratio,
    )
}

/// One timed shape.
pub fn row(name: &str, timing: &Timing) -> String {
    let per_second = |amount: usize| amount as f64 / timing.median_us * 1e-3;
    let half_width = (timing.high_us - timing.low_us) / 2.0 / timing.median_us * 100.0;
    let ceiling = timing.of_ceiling.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0));
    let doubt = if timing.verdict == Verdict::Pass { "" } else { timing.verdict.name() };
    let text = format!(
        "{name:<32} {:<28} {:>11.3} {half_width:>7.2} {:>8.1} {:>9.1} {ceiling:>9} {doubt}",
        timing.shape,
        timing.median_us,
        per_second(timing.bytes),
        per_second(timing.flops),
    );
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::simulated::timing;
    use crate::core::dtype::DType;
    use crate::harness::command::samples::suite;
    use clap::Parser;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn a_kernel_is_timed_beside_kernels_and_a_host_function_beside_its_like() {
        let suite = suite();
        let asked = Asked::parse_from(["bench", "--beside", "host,other_host,kernel,other_kernel"]);
        let beside = |candidate: usize| -> Vec<&str> {
            let candidate = &suite.candidates[candidate];
            let subject = Subject { operator: suite.operator.as_ref(), candidate, dtype: DType::F32 };
            asked.bench.competitors(&suite, &subject).iter().map(|other| other.name.as_str()).collect()
        };
        assert_eq!((beside(0), beside(2)), (vec!["other_host"], vec!["other_kernel"]));
    }

    #[test]
    fn figures_stand_below_what_they_are() {
        let timing = Timing { of_ceiling: Some(0.9), verdict: Verdict::Invalid, ..timing("n=8", 20.0, None) };
        let (header, row) = (header(), row("c", &timing));
        let end = |text: &str, word: &str| text.find(word).map(|at| text[..at + word.len()].chars().count());
        // 2^20 bytes and 2^18 operations in 20 µs, 0.1 % to either side.
        let columns =
            [("median µs", "20.000"), ("± %", "0.10"), ("GB/s", "52.4"), ("Gflop/s", "13.1"), ("ceiling", "90 %")];
        for (head, figure) in columns {
            assert!(end(&header, head).is_some() && end(&header, head) == end(&row, figure), "{head}:\n{header}{row}");
        }
        assert!(row.starts_with("c  ") && row.ends_with(" invalid\n") && header.contains("shape"), "{header}{row}");
    }
}
