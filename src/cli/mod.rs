//! The `kernelgate` command: one file a subcommand, each a thin layer over the library.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | good |
//! | 1 | a verdict failed |
//! | 2 | usage or input error |
//! | 3 | something required is missing |

mod ab;
mod bench_cpu;
mod calibrate;
mod chain;
mod check;
mod cnn;
mod dashboard;
mod doctor;
mod gemm_tiles;
mod inputs;
mod llm;
mod merge;
mod of_gate;
mod plot;
mod predict;
mod profile;
mod project;
mod ptx;
mod report;
mod schema;
mod sim;
mod sim_server;

use crate::core::environment;
use crate::harness::command::{Bench, Command, Failure, List, Noise, Tune, print};
use crate::report::clock::began;
use clap::{Parser, Subcommand};
use of_gate::OfGate;
use project::{gate, project};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "kernelgate",
    version,
    about = "Judges GPU operator kernels: the gate over the shipped catalogue, and what surrounds it.",
    after_help = format!(
        "Exit codes: 0 good, 1 a verdict failed, 2 usage or input error, 3 something required is missing, 4 nothing failed, \
         but a time that was asked for left cases or shapes out.\n\n\
         Environment:\n{}",
        environment::describe()
    ),
)]
struct Line {
    #[command(subcommand)]
    subcommand: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Diagnose the CUDA setup: what this machine has, what is missing and how to get it
    Doctor(doctor::Doctor),
    /// List the operators and candidates of the catalogue, or of a gate
    List(OfGate<List>),
    /// Run the gate over the catalogue: the same trials and summary as `cargo test --test gate`
    Check(Box<check::Check>),
    /// Time candidates of the catalogue, or of a gate, without judging them against a baseline
    Bench(Box<OfGate<Bench>>),
    /// Time gemm, softmax, layernorm and the chain of them on the CPU, tier beside tier, beside NumPy and Numba
    BenchCpu(bench_cpu::BenchCpu),
    /// Compare two builds of a gate on one device: one verdict a case, exit code 1 if something is slower
    Ab(Box<ab::Ab>),
    /// A/A test: noise and smallest detectable slowdown of kernels on this device
    Noise(OfGate<Noise>),
    /// Run a language model on the catalogue: chat with it, measure it, judge it on a text
    Llm(Box<llm::Llm>),
    /// Classify digits with a small network: how many each variant gets right, and how fast it is
    Cnn(Box<cnn::Cnn>),
    /// Time a chain of product, softmax and norm, its stages alone, and what exchanging them brings
    Chain(chain::ChainCommand),
    /// Measure what this device can really do: peaks, bandwidths, latencies, launches
    Calibrate(calibrate::Calibrate),
    /// Say how long operators take before they are run, from a calibration; sweep, fit and validate that
    Predict(Box<predict::Predict>),
    /// Say where the time of operators and models goes, what binds it, and what would help
    Profile(Box<profile::ProfileCommand>),
    /// Time all candidates of an operator shape by shape, and write down which one is the fastest
    Tune(OfGate<Tune>),
    /// Time the tiles of gemm on this device, and write the table by which one is chosen
    GemmTiles(gemm_tiles::GemmTiles),
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

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    began();
    let ended = match Line::parse().subcommand {
        Sub::Check(check) => return check.run(),
        Sub::Doctor(doctor) => doctor.run(),
        Sub::List(list) => list.run(Command::List),
        Sub::Bench(bench) => bench.run(Command::Bench),
        Sub::BenchCpu(bench) => bench.run(),
        Sub::Ab(ab) => ab.run(),
        Sub::Noise(noise) => noise.run(Command::Noise),
        Sub::Tune(tune) => tune.run(Command::Tune),
        Sub::Llm(llm) => llm.run(),
        Sub::Cnn(cnn) => cnn.run(),
        Sub::Chain(chain) => chain.run(),
        Sub::Calibrate(calibrate) => calibrate.run(),
        Sub::Predict(predict) => predict.run(),
        Sub::Profile(profile) => profile.run(),
        Sub::GemmTiles(tiles) => tiles.run(),
        Sub::Merge(merge) => merge.run(),
        Sub::Report(report) => report.run(),
        Sub::Plot(plot) => plot.run(),
        Sub::Schema => schema::run(),
        Sub::Sim(sim) => sim.run(),
        Sub::SimServer(server) => server.run(),
        Sub::Ptx(ptx) => ptx.run(),
    };
    ended.map_or_else(Failure::exit_code, |()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_of_every_subcommand_have_names_of_their_own() {
        super::Line::command().debug_assert();
    }
}
