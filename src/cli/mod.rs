//! The `kernelgate` command: one file a subcommand, each a thin layer over the library.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | good |
//! | 1 | a verdict failed |
//! | 2 | usage or input error |
//! | 3 | something required is missing |

mod ab;
mod bench;
mod calibrate;
mod check;
mod dashboard;
mod doctor;
mod list;
mod llm;
mod merge;
mod noise;
mod noise_stored;
mod plot;
mod ptx;
mod report;
mod schema;
mod selection;
mod sim;
mod sim_server;
mod tune;

use crate::core::environment;
use crate::harness::terminal::note;
use crate::harness::{Gate, Project};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "kernelgate",
    version,
    about = "Judges GPU operator kernels: the gate over the shipped catalogue, and what surrounds it.",
    after_help = format!(
        "Exit codes: 0 good, 1 a verdict failed, 2 usage or input error, 3 something required is missing.\n\n\
         Environment:\n{}",
        environment::describe()
    ),
)]
struct Command {
    #[command(subcommand)]
    subcommand: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Diagnose the CUDA setup: what this machine has, what is missing and how to get it
    Doctor(doctor::Doctor),
    /// List the operators and candidates of the catalogue
    List(list::List),
    /// Run the gate over the catalogue: the same trials and summary as `cargo test --test gate`
    Check(Box<check::Check>),
    /// Time candidates of the catalogue, without judging them against a baseline
    Bench(bench::Bench),
    /// Compare two builds of a gate on one device: one verdict a case, exit code 1 if something is slower
    Ab(Box<ab::Ab>),
    /// A/A test: noise and smallest detectable slowdown of kernels on this device
    Noise(noise::Noise),
    /// Run a language model on the catalogue: chat with it, measure it, judge it on a text
    Llm(Box<llm::Llm>),
    /// Measure what this device can really do: peaks, bandwidths, latencies, launches
    Calibrate(calibrate::Calibrate),
    /// Time the tiles of gemm on this device, and write the table by which one is chosen
    Tune(tune::Tune),
    /// Join summaries of several runs or machines into one
    Merge(merge::Merge),
    /// Turn summaries into tables, CI formats and the dashboard
    Report(report::Report),
    /// Draw summaries: run times, speed-ups, rooflines, scaling, errors, as SVG
    Plot(plot::Plot),
    /// Print the JSON Schema of the summary
    Schema,
    /// Run one kernel of a PTX or CUDA file in the simulator: what its checks find, what it costs, line by line
    Sim(Box<sim::Sim>),
    /// Carry out launches that another process asks for, a JSON line each, in the simulator
    SimServer(sim_server::SimServer),
    /// Say which kernels of PTX files the simulator runs, and what stands in the way of the others
    Ptx(ptx::Ptx),
}

/// How a subcommand ends when it does not end well.
enum Failure {
    /// A verdict failed; it has been said already.
    Verdict,
    /// Wrong input, with what is wrong.
    Input(String),
    /// Something required is not there.
    Missing(String),
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let ended = match Command::parse().subcommand {
        Sub::Check(check) => return check.run(),
        Sub::Doctor(doctor) => doctor.run(),
        Sub::List(list) => list.run(),
        Sub::Bench(bench) => bench.run(),
        Sub::Ab(ab) => ab.run(),
        Sub::Noise(noise) => noise.run(),
        Sub::Llm(llm) => llm.run(),
        Sub::Calibrate(calibrate) => calibrate.run(),
        Sub::Tune(tune) => tune.run(),
        Sub::Merge(merge) => merge.run(),
        Sub::Report(report) => report.run(),
        Sub::Plot(plot) => plot.run(),
        Sub::Schema => schema::run(),
        Sub::Sim(sim) => sim.run(),
        Sub::SimServer(server) => server.run(),
        Sub::Ptx(ptx) => ptx.run(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Verdict) => ExitCode::from(1),
        Err(Failure::Input(why)) => {
            note(format_args!("error: {why}"));
            ExitCode::from(2)
        }
        Err(Failure::Missing(why)) => {
            note(format_args!("missing: {why}"));
            ExitCode::from(3)
        }
    }
}

/// The project that the catalogue belongs to.
fn project() -> Project {
    Project::new(env!("CARGO_MANIFEST_DIR"), env!("CARGO_PKG_NAME")).run_by("kernelgate check")
}

/// The gate over the catalogue.
fn gate() -> Gate {
    Gate::new(project()).suites(crate::ops::catalogue())
}

/// Prints a line to stdout; a reader that has gone away is no reason to panic.
fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Input(format!("stdout: {e}"))),
        _ => Ok(()),
    }
}
