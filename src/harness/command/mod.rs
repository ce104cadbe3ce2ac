//! What a gate can be asked beside its trials: what it has, how fast that is, how noisy, which candidate is the fastest for a
//! shape. `cargo test --test gate -- --command bench …` asks a project's own gate; the `kernelgate` command asks the catalogue,
//! or with `--gate` any gate.

mod bench;
mod ending;
mod list;
mod noise;
mod noise_stored;
mod profile;
mod selection;
mod tune;
mod workplace;

pub use bench::{Bench, header, peer_row, row};
pub use ending::{Failure, print};
pub use list::List;
pub use noise::Noise;
pub use profile::{Options as ProfileOptions, Profile, apart, compared, knowledge, plain_command};
pub use selection::{Selected, Selection, describe_device};
pub use tune::Tune;
pub use workplace::Workplace;

use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// The first argument of a gate that is asked for something else than its trials.
pub const FLAG: &str = "--command";

/// What a gate can be asked.
#[derive(Subcommand)]
pub enum Command {
    /// List the operators and candidates
    List(List),
    /// Time candidates, without judging them against a baseline
    Bench(Bench),
    /// A/A test: noise and smallest detectable slowdown of kernels on this device
    Noise(Noise),
    /// Time all candidates of an operator shape by shape, and write down which one is the fastest
    Tune(Tune),
    /// Say where the time of candidates goes, what binds it, and what would help
    Profile(Profile),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// Whatever ends it early; what was measured until then is kept.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        match self {
            Command::List(list) => list.run(workplace),
            Command::Bench(bench) => bench.run(workplace),
            Command::Noise(noise) => noise.run(workplace),
            Command::Tune(tune) => tune.run(workplace),
            Command::Profile(profile) => profile.run(workplace),
        }
    }
}

#[derive(Parser)]
#[command(
    name = "gate --command",
    disable_version_flag = true,
    after_help = "Exit codes: 0 good, 1 a verdict failed, 2 usage or input error, 3 something required is missing, \
                  4 nothing failed, but `--budget` left shapes out."
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// What a gate with these arguments is asked, if it is not its trials.
pub fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Command> {
    let program = arguments.next()?;
    (arguments.next()? == FLAG).then(|| Line::parse_from(std::iter::once(program).chain(arguments)).command)
}

/// A suite that the tests of the commands share.
#[cfg(test)]
mod samples {
    use crate::core::candidate::{Cpu, Cuda, Declare as _};
    use crate::core::dtype::DType;
    use crate::core::launch::Launch;
    use crate::core::operator::Op;
    use crate::core::suite::Suite;

    crate::shape! { struct Vector { n: 1..=8 } }

    /// Two functions on the host and two kernels.
    pub fn suite() -> Suite {
        let op = Op::<Vector>::new("f").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let host = || Cpu::new::<f32>(|_: &Vector, _, _| {}).dtypes([DType::F32]);
        let kernel = || Cuda::source("", "f", |_: &Vector| Launch::blocks(1, 1)).dtypes([DType::F32]);
        let suite = Suite::of(op).candidate("host", host()).candidate("other_host", host());
        suite.candidate("kernel", kernel()).candidate("other_kernel", kernel()).into()
    }
}
