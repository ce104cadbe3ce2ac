//! `kernelgate profile`: where the time of operators, of the workloads and of language models goes.

mod llm;

use super::Failure;
use super::of_gate::OfGate;
use crate::core::suite::Suite;
use crate::harness::command::{Command, Profile};
use crate::models::{chain_suite, cnn_suite};
use clap::{Args, Subcommand};

/// Arguments of `profile`.
#[derive(Args)]
#[command(subcommand_precedence_over_arg = true, args_conflicts_with_subcommands = true)]
pub struct ProfileCommand {
    #[command(subcommand)]
    model: Option<Of>,
    #[command(flatten)]
    operators: OfGate<Profile>,
}

/// What is no operator.
#[derive(Subcommand)]
enum Of {
    /// A language model: a prefill and decoded tokens
    Llm(Box<llm::ProfileLlm>),
}

impl ProfileCommand {
    /// Profiles and prints.
    pub fn run(self) -> Result<(), Failure> {
        match self.model {
            Some(Of::Llm(llm)) => llm.run(),
            None => self.operators.run_over(suites, Command::Profile),
        }
    }
}

/// The catalogue, and the workloads that are made of it.
fn suites() -> Vec<Suite> {
    let mut suites = crate::ops::catalogue();
    suites.extend([cnn_suite(), chain_suite()]);
    suites
}
