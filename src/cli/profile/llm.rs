//! A language model: its prefill and its decoded tokens, step by step.

use super::super::llm::Llm;
use super::super::llm::inference::Inference;
use super::super::llm::open::{Opened, input};
use super::super::{Failure, project};
use crate::core::dtype::DType;
use crate::core::suite::Suite;
use crate::device::trace::{self, Timeline};
use crate::device::{Device, DeviceKind};
use crate::harness::command::{ProfileOptions, apart, compared, knowledge, plain_command};
use crate::harness::terminal::note;
use crate::measure::lock::DeviceLock;
use crate::models::{Executor, Sampler, Session};
use crate::profile::{Clock, Identity, Knowledge, Pairs, ProfileRun, record};
use crate::report::summary::Summary;
use clap::Args;
use std::time::Instant;

/// Arguments of `profile llm`.
#[derive(Args)]
pub struct ProfileLlm {
    #[command(flatten)]
    inference: Inference,
    /// Tokens to decode in each repeat
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = parse_tokens)]
    tokens: usize,
    /// Compare with another way or another dtype: naive, bf16
    #[arg(long, value_name = "WAY|DTYPE")]
    against: Option<String>,
    #[command(flatten)]
    options: ProfileOptions,
}

fn parse_tokens(text: &str) -> Result<usize, String> {
    let tokens = text.parse().ok().filter(|tokens| *tokens > 0);
    tokens.ok_or_else(|| format!("expected a number of tokens from 1, found `{text}`"))
}

/// The runs of a model.
const RUNS: [&str; 2] = ["prefill", "decode"];

/// How a graph of all launches is tried, which is another way of the model and no candidate.
fn trial_of_graph(way: &str) -> &'static str {
    if way == "graph" { "; a graph is recorded of decoded tokens alone" } else { "; to try it: --against graph" }
}

/// One way of the model, measured.
struct Measured {
    records: Vec<(ProfileRun, Vec<crate::profile::hints::Idea>)>,
    timeline: Timeline,
    /// After each token of the prompt.
    logits: Vec<f64>,
    perplexity: f64,
}

impl ProfileLlm {
    /// Measures and prints.
    pub fn run(self) -> Result<(), Failure> {
        if self.inference.device.kind == DeviceKind::Sim {
            return Err(Failure::Input("--device sim: the simulator tells no time".into()));
        }
        self.options.survive_signals();
        let suites = crate::ops::catalogue();
        let llm = self.llm(self.inference.way.clone(), self.inference.dtype);
        let opened = Opened::open(&llm)?;
        let beside = self.against.as_ref().map(|other| self.beside(other, &suites)).transpose()?;
        opened.with_executor(&llm, |executor, device, way| {
            let _lock = DeviceLock::acquire(&device.fingerprint().key()).map_err(|e| Failure::Input(e.to_string()))?;
            let known = knowledge(&self.options, &project(), device.fingerprint(), &suites)?;
            let measured = self.measure(&llm, &opened, executor, device, &known, way)?;
            let mut summary = Summary::new(project().describe_run(self.inference.seed));
            summary.add_device(device.fingerprint());
            let theirs = beside.as_ref().map_or(&[][..], |theirs| &theirs.records);
            for (at, (mut run, ideas)) in measured.records.into_iter().enumerate() {
                if let (Some((other, _)), Some(beside)) = (theirs.get(at), &beside) {
                    let perplexity = [measured.perplexity, beside.perplexity];
                    let perplexity = Some(perplexity).filter(|both| both.iter().all(|value| value.is_finite()));
                    run.against = Some(compared(&run, other, apart(&measured.logits, &beside.logits), perplexity));
                }
                let of = (device, &known, self.inference.seed);
                let tell = |what: &str| note(format_args!("{what}"));
                let command = || plain_command(std::env::args_os());
                self.options.keep_and_go_on((run, ideas), of, command, &tell, &mut summary)?;
            }
            self.options.keep_trace(&measured.timeline, &known, 1)?;
            self.options.finish(&summary)
        })?
    }

    fn llm(&self, way: Option<String>, dtype: Option<DType>) -> Llm {
        let prompt_tokens = self.inference.prompt_tokens.max(1);
        let inference = Inference { prompt_tokens, way, dtype, ..self.inference.clone() };
        Llm::of_profile(inference, self.tokens + 1)
    }

    /// The way, or the dtype, that it is compared with.
    fn beside(&self, other: &str, suites: &[Suite]) -> Result<Measured, Failure> {
        let dtype = other.parse::<DType>().ok();
        let way = if dtype.is_some() { self.inference.way.clone() } else { Some(other.to_owned()) };
        let llm = self.llm(way, dtype.or(self.inference.dtype));
        let opened = Opened::open(&llm)?;
        opened.with_executor(&llm, |executor, device, way| {
            note(format_args!("beside it: {way} in {}", llm.inference.dtype()));
            let _lock = DeviceLock::acquire(&device.fingerprint().key()).map_err(|e| Failure::Input(e.to_string()))?;
            let known = knowledge(&self.options, &project(), device.fingerprint(), suites)?;
            self.measure(&llm, &opened, executor, device, &known, way)
        })?
    }

    fn measure(
        &self,
        llm: &Llm,
        opened: &Opened,
        executor: &mut dyn Executor,
        device: &dyn Device,
        known: &Knowledge<'_>,
        way: &str,
    ) -> Result<Measured, Failure> {
        let prompt = llm.prompt_of(opened)?;
        let (logits, perplexity) = self.judge(executor, &prompt)?;
        let memory = executor.memory();
        let recording = device.recording();
        recording.during(|| {
            trace::held("weights", memory.weights_bytes);
            trace::held("cache", memory.cache_bytes);
            trace::held("workspace", memory.workspace_bytes);
        });
        self.once(executor, &prompt)?;
        let repeats = self.options.repeats as usize;
        let pairs = Pairs::take(repeats, self.inference.seed, |traced| {
            if traced { recording.during(|| self.once(executor, &prompt)) } else { self.once(executor, &prompt) }
        })?;
        let timeline = recording.end();
        let identity = Identity {
            subject: format!("{} batch={}", self.inference.model, self.inference.batch),
            way: way.into(),
            device: device.fingerprint().key(),
            dtype: llm.inference.dtype().name().into(),
            clock: Clock::Run,
        };
        let records = RUNS.iter().zip(&pairs).map(|(run, pairs)| record(&timeline, run, pairs, known, &identity));
        let mut records: Vec<_> = records.collect::<Result<_, String>>().map_err(Failure::Input)?;
        records.iter_mut().for_each(|(run, ideas)| {
            let hints = run.hints.iter_mut().chain(ideas.iter_mut().map(|idea| &mut idea.hint));
            hints.filter(|hint| hint.rule == "graph").for_each(|hint| hint.evidence.push_str(trial_of_graph(way)));
        });
        Ok(Measured { records, timeline, logits, perplexity })
    }

    /// A prompt and the tokens behind it; the time of the prompt, and of a token on average, µs.
    fn once(&self, executor: &mut dyn Executor, prompt: &[u32]) -> Result<[f64; 2], Failure> {
        let batch = usize::from(self.inference.batch);
        let vocabulary = executor.vocabulary();
        let side_by_side: Vec<u32> = prompt.iter().flat_map(|&token| vec![token; batch]).collect();
        let mut session = Session::new(executor);
        let mut append = |run: &str, tokens: &[u32]| {
            let begun = Instant::now();
            // The range and the clock have the same extent: the choice of the next tokens is part of a run.
            let whole = trace::run(run);
            let logits = session.append(tokens).map_err(input)?;
            let next: Vec<u32> =
                logits.chunks_exact(vocabulary).map(|row| Sampler::default().choose(row, 0, 0)).collect();
            drop(whole);
            Ok::<_, Failure>((begun.elapsed().as_secs_f64() * 1e6, next))
        };
        let (prefill_us, mut tokens) = append(RUNS[0], &side_by_side)?;
        let mut decode_us = 0.0;
        for _ in 0..self.tokens {
            let (us, next) = append(RUNS[1], &tokens)?;
            (decode_us, tokens) = (decode_us + us, next);
        }
        Ok([prefill_us, decode_us / self.tokens as f64])
    }

    /// The logits after each token of the prompt, and how well each token was expected.
    fn judge(&self, executor: &mut dyn Executor, prompt: &[u32]) -> Result<(Vec<f64>, f64), Failure> {
        let batch = usize::from(self.inference.batch);
        let vocabulary = executor.vocabulary();
        let mut session = Session::new(executor);
        let (mut all, mut nats) = (Vec::new(), Vec::new());
        for (at, &token) in prompt.iter().enumerate() {
            let logits = session.append(&vec![token; batch]).map_err(input)?;
            let row: Vec<f64> = logits[..vocabulary].iter().map(|&logit| f64::from(logit)).collect();
            if let Some(&next) = prompt.get(at + 1) {
                let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|logit| (logit - most).exp()).sum();
                nats.push(most + sum.ln() - row[next as usize]);
            }
            all.extend(row);
        }
        let mean = if nats.is_empty() { f64::NAN } else { nats.iter().sum::<f64>() / nats.len() as f64 };
        Ok((all, mean.exp()))
    }
}
