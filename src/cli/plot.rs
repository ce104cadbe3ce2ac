//! `kernelgate plot`: summaries as SVG.

use super::inputs::Inputs;
use super::{Failure, print};
use crate::core::dtype::DType;
use crate::core::place::Place;
use crate::report::plot::{self, Choice, Kind};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What is drawn.
#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// Run times as bars: candidates and peers, shape by shape
    Times,
    /// How many times as fast as peers and baselines: geometric means
    Speedups,
    /// Operations a second over operations a byte, under the ceilings of the device
    Roofline,
    /// Run times over one extent of the shape (--axis)
    Scaling,
    /// The largest error of each candidate, as a share of what is allowed; with --axis over one extent of the shape
    Errors,
    /// What exchanging stages of `kernelgate chain` brings: predicted by Amdahl's law, and measured
    Amdahl,
}

/// Arguments of `plot`.
#[derive(Args)]
pub struct Plot {
    /// What to draw
    #[arg(value_name = "KIND")]
    kind: Form,
    /// The summaries; several are merged. Files of `kernelgate calibrate` among them give tensor cores their roofs
    #[arg(value_name = "FILE", required = true)]
    paths: Vec<PathBuf>,
    /// Of this operator alone
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// Of these candidates alone
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    candidate: Vec<String>,
    /// In this dtype alone
    #[arg(long, value_name = "DTYPE")]
    dtype: Option<DType>,
    /// On the device with this key alone, as `report --csv` shows it
    #[arg(long, value_name = "KEY")]
    device: Option<String>,
    /// The extent of the shape that runs along the axis of `scaling` and `errors`
    #[arg(long, value_name = "NAME")]
    axis: Option<String>,
    /// Where the SVG goes [default: stdout]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Plot {
    /// Draws.
    pub fn run(self) -> Result<(), Failure> {
        let summary = Inputs::of(&self.paths).merged().map_err(Failure::Input)?;
        let kind = match self.kind {
            Form::Times => Kind::Times,
            Form::Speedups => Kind::Speedups,
            Form::Roofline => Kind::Roofline,
            Form::Scaling => Kind::Scaling,
            Form::Errors => Kind::Errors,
            Form::Amdahl => Kind::Amdahl,
        };
        let choice = Choice {
            operator: self.operator,
            candidates: self.candidate,
            dtype: self.dtype,
            device: self.device,
            axis: self.axis,
        };
        let svg = plot::svg(kind, &summary, &choice).map_err(Failure::Input)?;
        let Some(out) = &self.out else { return print(&svg) };
        let mut place = Place::of(out)?;
        place.write(&svg).map_err(|e| Failure::Input(format!("{}: {e}", out.display())))
    }
}
