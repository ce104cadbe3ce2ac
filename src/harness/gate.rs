//! The gate as a project writes it down: operators, their candidates, and `run`.

use super::arguments::{GateArguments, Options};
use super::command::{self, Command, Failure, Workplace};
use super::conclusion::Conclusion;
use super::project::Project;
use super::run;
use super::terminal::note;
use crate::check::declaration::mistakes;
use crate::core::candidate::IntoCandidate;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::shape::Shape;
use crate::core::suite::{Suite, SuiteOf};
use clap::Parser;
use std::process::ExitCode;

/// Starts a gate for the package that it is written in.
///
/// ```no_run
/// use kernelgate::prelude::*;
/// shape! { struct Vector { n: 1..=1 << 20 } }
/// fn main() -> ExitCode {
///     let relu = Op::<Vector>::new("relu")
///         .input("x", |s| [s.n])
///         .output("y", |s| [s.n])
///         .reference(|_, x, y| for (y, &x) in y[0].iter_mut().zip(x[0]) { *y = x.max(0.0) });
///     let cpu = Cpu::new::<f32>(|_, x, y| {
///         for (y, x) in y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)) { *y = x.max(0.0) }
///     });
///     gate!(relu).dtypes([F32]).candidate("cpu", cpu).run()
/// }
/// ```
#[macro_export]
macro_rules! gate {
    () => {
        $crate::harness::Gate::new($crate::harness::Project::new(
            ::std::env!("CARGO_MANIFEST_DIR"),
            ::std::env!("CARGO_PKG_NAME"),
        ))
    };
    ($operator:expr) => {
        $crate::gate!().and($operator)
    };
}

/// Suites of one project, to be judged together.
#[derive(Clone)]
pub struct Gate {
    project: Project,
    suites: Vec<Suite>,
}

impl Gate {
    /// A gate without operators; `gate!()` knows the project.
    pub fn new(project: Project) -> Self {
        Gate { project, suites: Vec::new() }
    }

    /// Adds an operator; what follows declares its dtypes and candidates.
    pub fn and<S: Shape>(self, operator: Op<S>) -> GateOf<S> {
        GateOf { gate: self, suite: Suite::of(operator) }
    }

    /// Adds complete suites.
    pub fn suites(mut self, suites: impl IntoIterator<Item = Suite>) -> Self {
        self.suites.extend(suites);
        self
    }

    /// Does what the command line says and returns the exit code.
    pub fn run(self) -> ExitCode {
        if let Some(command) = command::asked(std::env::args_os()) {
            return self.command(command);
        }
        let options = GateArguments::parse().options.with_environment(|name| std::env::var(name).ok());
        let conclusion = options.map_or_else(Conclusion::Usage, |options| self.execute(options));
        if let Conclusion::Usage(why) | Conclusion::Broken(why) = &conclusion {
            note(format_args!("error: {why}"));
        }
        if conclusion == Conclusion::Unsupervised {
            note(format_args!(
                "nothing failed, but nobody watched this process: run without --unsupervised for a verdict"
            ));
        }
        conclusion.of_gate()
    }

    /// Does what a command asks of the suites.
    pub fn command(&self, command: Command) -> ExitCode {
        let mistakes = mistakes(&self.suites);
        if !mistakes.is_empty() {
            return Failure::Input(format!("mistakes in the declarations:\n  {}", mistakes.join("\n  "))).exit_code();
        }
        let done = command.run(&Workplace { project: &self.project, suites: &self.suites });
        done.map_or_else(Failure::exit_code, |()| ExitCode::SUCCESS)
    }

    /// The same for options that are already there.
    pub fn execute(self, options: Options) -> Conclusion {
        run::run(self.project, self.suites, options)
    }
}

/// A gate whose last operator still takes candidates: they must have its shape type.
pub struct GateOf<S> {
    gate: Gate,
    suite: SuiteOf<S>,
}

impl<S: Shape> GateOf<S> {
    /// Replaces the dtypes of this operator (f32, f16 and bf16).
    pub fn dtypes(self, dtypes: impl IntoIterator<Item = DType>) -> Self {
        GateOf { suite: self.suite.dtypes(dtypes), ..self }
    }

    /// Adds a candidate for this operator under a name, the second part of its trial names.
    pub fn candidate(self, name: &str, candidate: impl IntoCandidate<S>) -> Self {
        GateOf { suite: self.suite.candidate(name, candidate), ..self }
    }

    /// Goes on with another operator.
    pub fn and<T: Shape>(self, operator: Op<T>) -> GateOf<T> {
        self.done().and(operator)
    }

    /// Goes on with complete suites.
    pub fn suites(self, suites: impl IntoIterator<Item = Suite>) -> Gate {
        self.done().suites(suites)
    }

    /// Does what the command line says and returns the exit code.
    pub fn run(self) -> ExitCode {
        self.done().run()
    }

    fn done(self) -> Gate {
        self.gate.suites([self.suite.into()])
    }
}
