//! `kernelgate llm`: a language model on the catalogue: writes text, says how fast, judges a text.

mod generate;
pub(super) mod inference;
pub(super) mod open;
mod show;

use super::{Failure, print, project};
use crate::core::dtype::DType;
use crate::core::seed::derive;
use crate::harness::progress::{Progress, Quiet};
use crate::models::{Golden, Sampler, Sampling, perplexity};
use crate::report::summary::Summary;
use clap::Args;
use inference::Inference;
use open::Opened;
use std::path::{Path, PathBuf};

/// Arguments of `llm`.
#[derive(Args)]
pub struct Llm {
    #[command(flatten)]
    pub(super) inference: Inference,
    /// Put the prompt into the model's chat template
    #[arg(long, requires = "prompt")]
    chat: bool,
    /// Tokens to write; a text may end before
    #[arg(long, value_name = "N", default_value_t = 64)]
    tokens: usize,
    /// What logits are divided by before a token is drawn; 0 takes the most likely
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f64,
    /// Draw only from so many of the most likely tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Draw only from the most likely tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Measure so often, after a run that warms up; without it once and cold
    #[arg(long, value_name = "N", default_value_t = 0)]
    repeat: usize,
    /// Judge this text instead of writing one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "chat", "repeat"])]
    perplexity: Option<PathBuf>,
    /// Positions that a prediction can see at most, for --perplexity
    #[arg(long, value_name = "N", default_value_t = 512, requires = "perplexity")]
    window: usize,
    /// How much further on each window begins
    #[arg(long, value_name = "N", default_value_t = 256, requires = "perplexity")]
    stride: usize,
    /// Hold logits and greedy tokens against those in a file of fixtures/models/make_goldens.py
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "chat", "repeat", "perplexity"])]
    golden: Option<PathBuf>,
    #[command(flatten)]
    quiet: Quiet,
    /// Print JSON on stdout and everything else on stderr
    #[arg(long)]
    json: bool,
    /// Add the measurement to this summary, or begin it
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Llm {
    /// What a profile runs: a model that writes greedily behind a prompt.
    pub fn of_profile(inference: Inference, tokens: usize) -> Self {
        Llm {
            inference,
            chat: false,
            tokens,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            repeat: 1,
            perplexity: None,
            window: 0,
            stride: 0,
            golden: None,
            quiet: Quiet::default(),
            json: false,
            out: None,
        }
    }

    /// Opens, runs, prints.
    pub fn run(self) -> Result<(), Failure> {
        let opened = Opened::open(&self)?;
        match (&self.golden, &self.perplexity) {
            (Some(file), _) => self.compare(&opened, file),
            (_, Some(file)) => self.judge(&opened, file),
            _ => self.measure(&opened),
        }
    }

    /// How tokens are chosen.
    fn sampler(&self) -> Sampler {
        let sampling = Sampling { temperature: self.temperature, top_k: self.top_k, top_p: self.top_p };
        Sampler::new(sampling, derive(self.inference.seed, &["tokens"]))
    }

    fn measure(&self, opened: &Opened) -> Result<(), Failure> {
        let measured = opened.with_executor(self, |executor, device, way| -> Result<_, Failure> {
            let prompt = self.prompt_of(opened)?;
            let measured = generate::measure(self, opened, executor, &prompt)?;
            let (run, fingerprint) = measured.record(self, device, way);
            Ok((run, fingerprint, measured.written))
        })?;
        let (run, fingerprint, written) = measured?;
        if self.json {
            let json = serde_json::json!({"tokens": written, "run": run});
            print(&format!("{json:#}\n"))?;
        } else {
            eprint!("{}", show::table(&run));
        }
        let Some(out) = &self.out else { return Ok(()) };
        let mut summary = Summary::new(project().describe_run(self.inference.seed));
        summary.add_device(&fingerprint);
        summary.models.push(run);
        summary.write_into(out).map_err(Failure::from)
    }

    fn judge(&self, opened: &Opened, file: &Path) -> Result<(), Failure> {
        let text = std::fs::read_to_string(file)
            .map_err(|why| Failure::Input(format!("{}: cannot read: {why}", file.display())))?;
        let tokens = opened.text()?.encode(&text, true).map_err(open::input)?;
        let judged = opened.with_executor(self, |executor, _, _| {
            let progress = Progress::of(tokens.len(), self.quiet);
            progress.say("tokens");
            let judged = perplexity(executor, &tokens, self.window, self.stride, |done| progress.reach(done));
            judged.map_err(open::input)
        })??;
        if self.json {
            let json = serde_json::json!({"model": self.inference.model, "file": file, "window": self.window, "stride": self.stride,
                "tokens": judged.tokens, "nll": judged.nll, "perplexity": judged.value()});
            return print(&format!("{json}\n"));
        }
        print(&format!(
            "perplexity {:.4} over {} tokens, {:.5} nats a token\n",
            judged.value(),
            judged.tokens,
            judged.nll
        ))
    }

    fn compare(&self, opened: &Opened, file: &Path) -> Result<(), Failure> {
        let dtype = self.inference.dtype();
        let mut golden = Golden::read(file).map_err(open::input)?;
        if dtype != DType::F32 {
            golden = opened.rounded(&golden, dtype)?;
        }
        let held = opened.with_executor(self, |executor, _, _| golden.hold(executor, dtype))?.map_err(open::input)?;
        if self.json {
            let json = serde_json::json!({"model": self.inference.model, "dtype": dtype.name(), "agreement": held});
            print(&format!("{json}\n"))?;
        } else {
            print(&format!(
                "largest error {:.2e} of the largest logit, allowed {:.2e}; {} of {} greedy tokens\n",
                held.error, held.allowed, held.same_tokens, held.tokens
            ))?;
        }
        if held.holds() { Ok(()) } else { Err(Failure::Verdict) }
    }

    /// The tokens of one sequence's prompt.
    pub fn prompt_of(&self, opened: &Opened) -> Result<Vec<u32>, Failure> {
        let Some(prompt) = &self.inference.prompt else { return Ok(generate::random_prompt(self, opened)) };
        let text = opened.text()?;
        if !self.chat {
            return text.encode(prompt, true).map_err(open::input);
        }
        // The template has the special tokens in it.
        text.encode(&text.chat(prompt).map_err(open::input)?, false).map_err(open::input)
    }
}
