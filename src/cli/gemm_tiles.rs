//! `kernelgate gemm-tiles`: times every tile of the kernels of gemm and linear for compute capability 9.0a and writes the table by
//! which one is chosen.

use super::{Failure, project};
use crate::calibrate::versioned;
use crate::check::Subject;
use crate::core::dtype::DType;
use crate::core::seed::{DEFAULT_SEED, parse as parse_seed};
use crate::core::shape::{Point, describe, parse};
use crate::device::DeviceKind;
use crate::device::fault::Fault;
use crate::harness::arguments::DeviceChoice;
use crate::harness::devices::Devices;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::measure::inputs::Pool;
use crate::measure::shapes::Limits;
use crate::ops::bmm;
use crate::ops::gemm::tuning::{self, Timed, Tuned};
use crate::ops::linear;
use crate::predict::time_shape;
use crate::report::standing::Standing;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Arguments of `gemm-tiles`.
#[derive(Args)]
pub struct GemmTiles {
    /// Where kernels run: cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// The operator whose products are timed
    #[arg(long, value_name = "OPERATOR", default_value = "gemm")]
    of: Of,
    /// Where the table goes [default: src/ops/gemm/tiles.json of the project]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Time so many random shapes too, beside those that are listed
    #[arg(long, value_name = "N", default_value_t = 0)]
    random: usize,
    /// The seed of the random shapes and of the inputs
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = DEFAULT_SEED, hide_default_value = true)]
    seed: u64,
    /// Keep the times in this file, a JSON array with a row a tile and shape
    #[arg(long, value_name = "PATH")]
    times: Option<PathBuf>,
    /// Time these shapes instead of those that are listed: m=16,n=4096,k=4096; may be given several times
    #[arg(long = "shape", value_name = "AXIS=N,…")]
    shapes: Vec<String>,
    /// Fit the times of such a file, and measure nothing; may be given several times
    #[arg(long, value_name = "PATH", conflicts_with_all = ["device", "of", "shapes", "random", "times"])]
    from: Vec<PathBuf>,
    #[command(flatten)]
    quiet: Quiet,
}

/// An operator with these tiles.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Of {
    #[default]
    Gemm,
    Linear,
    Bmm,
}

impl Of {
    fn tuned(self) -> Tuned {
        match self {
            Of::Gemm => tuning::tuned(),
            Of::Linear => linear::tuned(),
            Of::Bmm => bmm::tuned(),
        }
    }
}

/// What was measured on a device.
#[derive(Deserialize, Serialize)]
struct Times {
    device: String,
    #[serde(default)]
    of: Of,
    timed: Vec<Timed>,
}

impl GemmTiles {
    /// Measures, fits and writes.
    pub fn run(self) -> Result<(), Failure> {
        let times = match self.from.as_slice() {
            [] => vec![self.measure()?],
            paths => paths.iter().map(|path| read(path)).collect::<Result<_, _>>()?,
        };
        let device = &times[0].device;
        if let Some(other) = times.iter().find(|times| times.device != *device) {
            return Err(Failure::Input(format!("times of two devices: {device} and {}; fit each apart", other.device)));
        }
        let tuned: Vec<Tuned> = times.iter().map(|times| times.of.tuned()).collect();
        let timed: Vec<_> = tuned.iter().zip(times.iter().map(|times| times.timed.as_slice())).collect();
        let table = tuning::table(device, &timed);
        let out = self.out.unwrap_or_else(|| project().folder.join("src/ops/gemm/tiles.json"));
        write(&out, &table)?;
        note(format_args!("{} written", out.display()));
        // By the table that this program was built with: build again for how the new one chooses.
        for (tuned, timed) in timed {
            let all = standings(tuned, timed);
            let name = tuned.suite.operator.name();
            all.for_each(|standing| note(format_args!("{name}: what is chosen now {}", standing.describe())));
        }
        Ok(())
    }

    fn measure(&self) -> Result<Times, Failure> {
        let devices = Devices::new(self.device, true);
        let device = devices.for_kind(DeviceKind::Cuda).map_err(Failure::Missing)?;
        let tuned = self.of.tuned();
        let operator = tuned.suite.operator.as_ref();
        let random = Limits::of(false).draw_many(operator, DType::BF16, self.random, self.seed);
        let asked: Vec<Point> = self
            .shapes
            .iter()
            .map(|shape| parse(operator.axes(), shape))
            .collect::<Result<_, _>>()
            .map_err(Failure::Input)?;
        let listed = if asked.is_empty() { tuned.listed.clone() } else { asked };
        // What follows the product of a layer is left out.
        let points = listed.into_iter().chain(random).map(|point| point[..tuned.extents].to_vec());
        let points: Vec<Point> = points.collect();
        let progress = Progress::of(points.len(), self.quiet);
        let pool = Pool::new(self.seed);
        let mut found = Times { device: device.fingerprint().name.clone(), of: self.of, timed: Vec::new() };
        for product in &points {
            let mut timed = Vec::new();
            let point = &(tuned.point)(product);
            let shape = describe(operator.axes(), point);
            progress.say(&shape);
            for candidate in tuned.suite.candidates.iter().filter(|candidate| tuned.suits(&candidate.name, product)) {
                let subject = Subject { operator, candidate, dtype: DType::BF16 };
                match time_shape(device, &subject, point, &pool, false) {
                    Ok(us) => timed.push(Timed { tile: candidate.name.clone(), point: product.clone(), us }),
                    Err(Fault::Unsupported(_)) => {}
                    Err(fault) => return Err(Failure::Missing(format!("{} at {shape}: {fault}", candidate.name))),
                }
            }
            progress.step();
            // After each shape: what was measured outlives whatever ends this process.
            found.timed.append(&mut timed);
            if let Some(path) = &self.times {
                write(path, &found)?;
            }
        }
        Ok(found)
    }
}

fn read(path: &Path) -> Result<Times, Failure> {
    let times = |text: &str| {
        serde_json::from_str(text).map_err(|error| format!("no times of tiles as --times writes them: {error}"))
    };
    versioned::read(path, times).map_err(Failure::Input)
}

fn write(path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    versioned::write(path, content).map_err(Failure::Input)
}

/// How the tile that the rule chooses stands beside the fastest of its shape, and beside cuBLASLt.
fn standings(tuned: &Tuned, timed: &[Timed]) -> impl Iterator<Item = Standing> {
    let shapes: BTreeSet<&Point> = timed.iter().map(|timed| &timed.point).collect();
    let us = |point: &Point, tile: &str| timed.iter().find(|t| t.point == *point && t.tile == tile).map(|t| t.us);
    let axes = &tuned.suite.operator.axes()[..tuned.extents];
    let beside = |who: &str, others: &dyn Fn(&Timed) -> bool| {
        let ratio = |point: &&Point| {
            let chosen = us(point, tuned.chosen(point))?;
            let best = timed.iter().filter(|t| t.point == **point && others(t)).map(|t| t.us).min_by(f64::total_cmp)?;
            Some((describe(axes, point), chosen / best))
        };
        Standing::of(who, shapes.iter().filter_map(ratio).collect())
    };
    let tiles = beside("the fastest tile", &|timed| timed.tile != tuning::VENDOR);
    let vendor = beside(tuning::VENDOR, &|timed| timed.tile == tuning::VENDOR);
    tiles.into_iter().chain(vendor)
}
