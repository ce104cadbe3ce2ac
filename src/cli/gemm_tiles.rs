//! `kernelgate gemm-tiles`: times every tile of gemm's kernels for compute capability 9.0a and writes the table by which one is
//! chosen.

use super::{Failure, project};
use crate::check::Subject;
use crate::core::dtype::DType;
use crate::core::packed;
use crate::core::seed::{DEFAULT_SEED, parse as parse_seed};
use crate::core::shape::{Point, describe};
use crate::device::DeviceKind;
use crate::device::fault::Fault;
use crate::harness::arguments::DeviceChoice;
use crate::harness::devices::Devices;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::measure::inputs::Pool;
use crate::measure::shapes::Limits;
use crate::ops::gemm::tuning::{self, Timed};
use crate::predict::time_shape;
use crate::report::standing::Standing;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Arguments of `gemm-tiles`.
#[derive(Args)]
pub struct GemmTiles {
    /// Where kernels run: cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
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
    /// Fit the times of such a file, and measure nothing
    #[arg(long, value_name = "PATH", conflicts_with_all = ["device", "random", "times"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    quiet: Quiet,
}

/// What was measured on a device.
#[derive(Deserialize, Serialize)]
struct Times {
    device: String,
    timed: Vec<Timed>,
}

impl GemmTiles {
    /// Measures, fits and writes.
    pub fn run(self) -> Result<(), Failure> {
        let times = match &self.from {
            Some(path) => read(path)?,
            None => self.measure()?,
        };
        let table = tuning::table(&times.device, &times.timed);
        let out = self.out.unwrap_or_else(|| project().folder.join("src/ops/gemm/tiles.json"));
        write(&out, &table)?;
        note(format_args!("{} written", out.display()));
        // By the table that this program was built with: build again for how the new one chooses.
        standings(&times.timed).for_each(|standing| note(format_args!("what is chosen now {}", standing.describe())));
        Ok(())
    }

    fn measure(&self) -> Result<Times, Failure> {
        let devices = Devices::new(self.device, true);
        let device = devices.for_kind(DeviceKind::Cuda).map_err(Failure::Missing)?;
        let suite = tuning::suite();
        let operator = suite.operator.as_ref();
        let random = Limits::of(false).draw_many(operator, DType::BF16, self.random, self.seed);
        let points: Vec<Point> = tuning::points().into_iter().chain(random).collect();
        let progress = Progress::of(points.len(), self.quiet);
        let pool = Pool::new(self.seed);
        let mut found = Times { device: device.fingerprint().name.clone(), timed: Vec::new() };
        for point in &points {
            let mut timed = Vec::new();
            let shape = describe(operator.axes(), point);
            progress.say(&shape);
            for candidate in suite.candidates.iter().filter(|candidate| tuning::suits(&candidate.name, point)) {
                let subject = Subject { operator, candidate, dtype: DType::BF16 };
                match time_shape(device, &subject, point, &pool, false) {
                    Ok(us) => timed.push(Timed { tile: candidate.name.clone(), point: point.clone(), us }),
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
    let of = |why: String| Failure::Input(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).and_then(packed::text).map_err(|error| of(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| of(format!("no times of tiles as --times writes them: {error}")))
}

fn write(path: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let of = |why: String| Failure::Input(format!("{}: {why}", path.display()));
    let text = serde_json::to_string_pretty(content).map_err(|error| of(error.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|error| of(error.to_string()))
}

/// How the tile that the rule chooses stands beside the fastest of its shape, and beside cuBLASLt.
fn standings(timed: &[Timed]) -> impl Iterator<Item = Standing> {
    let shapes: BTreeSet<&Point> = timed.iter().map(|timed| &timed.point).collect();
    let us = |point: &Point, tile: &str| timed.iter().find(|t| t.point == *point && t.tile == tile).map(|t| t.us);
    let beside = |who: &str, others: &dyn Fn(&Timed) -> bool| {
        let ratio = |point: &&Point| {
            let chosen = us(point, tuning::chosen(point))?;
            let best = timed.iter().filter(|t| t.point == **point && others(t)).map(|t| t.us).min_by(f64::total_cmp)?;
            Some((format!("m={},n={},k={}", point[0], point[1], point[2]), chosen / best))
        };
        Standing::of(who, shapes.iter().filter_map(ratio).collect())
    };
    let tiles = beside("the fastest tile", &|timed| timed.tile != tuning::VENDOR);
    let vendor = beside(tuning::VENDOR, &|timed| timed.tile == tuning::VENDOR);
    tiles.into_iter().chain(vendor)
}
