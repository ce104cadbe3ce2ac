//! `kernelgate check`: the gate over the catalogue, without cargo.

use super::{gate, print, project};
use crate::core::{environment, packed};
use crate::harness::arguments::Options;
use crate::harness::conclusion::Conclusion;
use crate::harness::terminal::note;
use clap::Args;
use std::process::ExitCode;

/// Arguments of `check`: those of a gate.
#[derive(Args)]
pub struct Check {
    /// Print the summary as JSON; the log goes to a file beside the summary
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

impl Check {
    /// Runs the gate.
    pub fn run(self) -> ExitCode {
        let conclusion = match self.options.with_environment(|name| std::env::var(name).ok()) {
            Ok(options) if self.json => run_for_machines(options),
            Ok(options) => gate().execute(options),
            Err(why) => Conclusion::Usage(why),
        };
        if let Conclusion::Usage(why) | Conclusion::Broken(why) = &conclusion {
            note(format_args!("error: {why}"));
        }
        conclusion.of_command()
    }
}

fn run_for_machines(mut options: Options) -> Conclusion {
    let out = options.out.clone().unwrap_or_else(|| project().summary_path());
    let log = out.with_extension("log");
    if let Some(Err(e)) = out.parent().map(std::fs::create_dir_all) {
        return Conclusion::Broken(format!("{}: cannot create its folder: {e}", out.display()));
    }
    if std::env::var_os(environment::WORKER).is_none() {
        note(format_args!("log: {}", log.display()));
    }
    options.logfile.get_or_insert_with(|| log.to_string_lossy().into_owned());
    options.out = Some(out.clone());
    let conclusion = gate().execute(options);
    match std::fs::read(&out).and_then(packed::text) {
        Ok(summary)
            if matches!(conclusion, Conclusion::Good | Conclusion::Failed | Conclusion::Missing | Conclusion::Cut) =>
        {
            print(&summary).map_or_else(|_| Conclusion::Broken("stdout is closed".into()), |()| conclusion)
        }
        _ => conclusion,
    }
}
