//! Writes tokens behind a prompt, and times each step.

use super::{Llm, open::Opened, open::input};
use crate::cli::{Failure, print};
use crate::core::seed::{below, derive, rng};
use crate::core::stats::{median, quantile_sorted, sorted};
use crate::device::fingerprint::Fingerprint;
use crate::device::{Device, DeviceKind, Heat, Poison, TimingPlan};
use crate::harness::progress::Progress;
use crate::measure::yardstick::Yardstick;
use crate::models::{Executor, Memory, Session, Text};
use crate::report::models::{MemoryParts, ModelRun, Quantiles, VERSION};
use std::time::{Duration, Instant};

/// What was timed.
pub struct Measured {
    /// The tokens of the first sequence, of the first run.
    pub written: Vec<u32>,
    dtype: &'static str,
    prompt_tokens: usize,
    tokens: usize,
    first_ms: Vec<f64>,
    token_ms: Vec<f64>,
    memory: Memory,
    /// Weights that a step reads, and the cache of one position of all sequences.
    weights_read: usize,
    position_bytes: usize,
}

/// Tokens that depend on the seed alone.
pub fn random_prompt(llm: &Llm, opened: &Opened) -> Vec<u32> {
    let mut rng = rng(derive(llm.inference.seed, &["prompt"]));
    (0..llm.inference.prompt_tokens.max(1)).map(|_| below(&mut rng, opened.config.vocabulary) as u32).collect()
}

/// Writes behind the prompt, once for a person and as often as asked for the clock.
pub fn measure(llm: &Llm, opened: &Opened, executor: &mut dyn Executor, prompt: &[u32]) -> Result<Measured, Failure> {
    let batch = usize::from(llm.inference.batch);
    let element = llm.inference.dtype().size();
    let mut measured = Measured {
        written: Vec::new(),
        dtype: llm.inference.dtype().name(),
        prompt_tokens: prompt.len(),
        tokens: 0,
        first_ms: Vec::new(),
        token_ms: Vec::new(),
        memory: Memory::default(),
        weights_read: opened.model.parameters_read() * element,
        position_bytes: opened.model.cached_elements() * element * batch,
    };
    let stops = llm.repeat == 0;
    let mut stream = Stream::new(opened.has_text().then(|| opened.text()).transpose()?, llm.json);
    measured.once(llm, opened, executor, prompt, stops, |token| stream.push(token))?;
    stream.end()?;
    measured.written = stream.tokens;
    if llm.repeat > 0 {
        (measured.first_ms, measured.token_ms) = (Vec::new(), Vec::new());
        let progress = Progress::of(llm.repeat, llm.quiet);
        for _ in 0..llm.repeat {
            measured.once(llm, opened, executor, prompt, false, |_| Ok(()))?;
            progress.step();
        }
    }
    measured.memory = executor.memory();
    Ok(measured)
}

impl Measured {
    fn once(
        &mut self,
        llm: &Llm,
        opened: &Opened,
        executor: &mut dyn Executor,
        prompt: &[u32],
        stops: bool,
        mut show: impl FnMut(u32) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let batch = usize::from(llm.inference.batch);
        let side_by_side: Vec<u32> = prompt.iter().flat_map(|&token| vec![token; batch]).collect();
        let mut session = Session::new(executor);
        let mut begun = Instant::now();
        let tokens = session.append_for_next(&side_by_side).map_err(input)?;
        self.first_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        self.tokens = 1;
        let ends = |tokens: &[u32]| stops && opened.config.eos.contains(&tokens[0]);
        if ends(&tokens) {
            return Ok(());
        }
        show(tokens[0])?;
        begun = Instant::now();
        let mut shown = Ok(());
        let mut each = |tokens: &[u32]| {
            self.token_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            begun = Instant::now();
            self.tokens += 1;
            shown = if ends(tokens) { return false } else { show(tokens[0]) };
            shown.is_ok()
        };
        session.write(&tokens, llm.tokens - 1, &mut each).map_err(input)?;
        shown
    }

    /// What the summary keeps.
    pub fn record(&self, llm: &Llm, device: &dyn Device, way: &'static str) -> (ModelRun, Fingerprint) {
        let fingerprint = device.fingerprint().clone();
        let times = sorted(&self.token_ms);
        let at = |p: f64| if times.is_empty() { 0.0 } else { quantile_sorted(&times, p) };
        let token_ms = Quantiles { p50: at(0.5), p95: at(0.95), p99: at(0.99) };
        let first_ms = median(&self.first_ms);
        let batch = usize::from(llm.inference.batch);
        let rate = |amount: usize, ms: f64| if ms > 0.0 { amount as f64 / ms * 1e3 } else { 0.0 };
        // The median step stands in the middle of what is written.
        let read_bytes = self.weights_read + self.position_bytes * (self.prompt_tokens + self.tokens / 2);
        let reached = rate(read_bytes, token_ms.p50) * 1e-9;
        let Memory { weights_bytes, cache_bytes, activations_bytes, workspace_bytes } = self.memory;
        let run = ModelRun {
            version: VERSION,
            model: llm.inference.model.clone(),
            device: fingerprint.key(),
            dtype: self.dtype.into(),
            way: way.into(),
            batch,
            prompt_tokens: self.prompt_tokens,
            tokens: self.tokens,
            repeats: llm.repeat.max(1),
            first_token_ms: first_ms,
            token_ms,
            prefill_per_s: rate(self.prompt_tokens * batch, first_ms),
            decode_per_s: rate(self.token_ms.len() * batch, self.token_ms.iter().sum()),
            memory: MemoryParts {
                weights: weights_bytes,
                cache: cache_bytes,
                activations: activations_bytes,
                workspace: workspace_bytes,
                total: self.memory.total_bytes(),
            },
            read_bytes,
            of_read_ceiling: read_gb_per_s(device).map(|ceiling| reached / ceiling).filter(|_| reached > 0.0),
        };
        (run, fingerprint)
    }
}

/// What the device reads in a second, in GB, measured now; the simulator tells no time.
fn read_gb_per_s(device: &dyn Device) -> Option<f64> {
    /// More than any cache holds.
    const BYTES: usize = 256 << 20;
    const SAMPLES: usize = 7;
    if device.kind() == DeviceKind::Sim {
        return None;
    }
    let read = Yardstick::read(BYTES);
    let mut problem = read.prepare(device).ok()?;
    problem.run(Poison::Nan).ok()?;
    let session = Duration::from_secs(1);
    problem
        .arm(&TimingPlan { heat: Heat::Hot, chained: false, batch_us: 1000.0, instances: 1, planted_us: 0.0, session })
        .ok()?;
    let samples = (0..SAMPLES).filter_map(|_| problem.sample(0).ok().map(|sample| sample.launch_us));
    let best = samples.fold(f64::INFINITY, f64::min);
    Some(read.cost().bytes as f64 / best * 1e-3)
}

/// Prints text as it is written: as much as is sure.
struct Stream<'t> {
    text: Option<&'t Text>,
    json: bool,
    tokens: Vec<u32>,
    shown: usize,
}

impl<'t> Stream<'t> {
    fn new(text: Option<&'t Text>, json: bool) -> Self {
        Stream { text, json, tokens: Vec::new(), shown: 0 }
    }

    fn push(&mut self, token: u32) -> Result<(), Failure> {
        self.tokens.push(token);
        let said = match self.text {
            Some(text) => text.decode(&self.tokens).map_err(input)?,
            None => self.tokens.iter().map(|token| format!("{token} ")).collect(),
        };
        // A character that is not whole yet is shown as a replacement.
        if !said.ends_with('\u{FFFD}') && said.len() > self.shown && said.is_char_boundary(self.shown) {
            self.say(&said[self.shown..])?;
            self.shown = said.len();
        }
        Ok(())
    }

    fn say(&self, part: &str) -> Result<(), Failure> {
        use std::io::Write as _;
        if self.json {
            eprint!("{part}");
            return Ok(());
        }
        print(part)?;
        let _ = std::io::stdout().flush();
        Ok(())
    }

    fn end(&self) -> Result<(), Failure> {
        self.say("\n")
    }
}
