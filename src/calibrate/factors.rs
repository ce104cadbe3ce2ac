//! Calibration factors: what is reached over what would be ideal, each of them below one.

use super::calibration::{Calibration, Level, Pattern, Pipe, Wave};
use crate::core::dtype::DType;
use std::fmt;

/// What a factor is of.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// Bandwidth of DRAM with so many streams read and written, over the best of any mix.
    Mix {
        /// Streams that are read.
        reads: usize,
        /// Streams that are written.
        writes: usize,
    },
    /// Bytes a second that were asked for, over those of the same kernel with neighbours side by side.
    Access {
        /// How the access is not contiguous.
        pattern: Pattern,
        /// Bytes from an element to the next, or of a row.
        step_bytes: usize,
    },
    /// Operations a multiprocessor does a second with so many equal blocks, over those with full waves.
    Waves {
        /// Blocks.
        blocks: usize,
        /// Whether a wave begins here: one block more than fills the ones before.
        is_step: bool,
    },
    /// A sustained peak over the burst.
    Sustained {
        /// The pipe.
        pipe: Pipe,
        /// Its dtype.
        dtype: DType,
    },
    /// A burst over what the pipe could do in each clock that was seen.
    OfClock {
        /// The pipe.
        pipe: Pipe,
        /// Its dtype.
        dtype: DType,
    },
}

/// Realistic over ideal.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// Of what.
    pub quantity: Quantity,
    /// The quotient.
    pub value: f64,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Quantity::Mix { reads, writes } => format!("DRAM, {reads} read, {writes} written"),
            Quantity::Access { pattern: Pattern::Strided, step_bytes } => format!("elements {step_bytes} bytes apart"),
            Quantity::Access { pattern: Pattern::Gathered, step_bytes } => {
                format!("rows of {step_bytes} bytes at random")
            }
            Quantity::Waves { blocks, is_step } => {
                format!("{blocks} blocks{}", if *is_step { ", a step" } else { "" })
            }
            Quantity::Sustained { pipe, dtype } => format!("{pipe} {dtype}, sustained of burst"),
            Quantity::OfClock { pipe, dtype } => format!("{pipe} {dtype}, of each clock"),
        };
        f.pad(&text)
    }
}

impl Calibration {
    /// All factors that follow from what was measured.
    pub fn factors(&self) -> Vec<Factor> {
        let factor = |quantity, value: f64| Factor { quantity, value };
        let mut found = Vec::new();
        if let Some(best) = self.best_gb_per_s(Level::Dram) {
            let largest = self.bandwidths.iter().filter(|b| b.level == Level::Dram && b.reads != b.writes);
            // Where mixes were measured; footprints have the plain ones alone.
            let largest = largest.filter(|b| b.writes > 0).map(|b| b.footprint_bytes).max();
            let mixes = self.bandwidths.iter().filter(|b| b.level == Level::Dram && Some(b.footprint_bytes) == largest);
            let mut seen = Vec::new();
            for b in mixes {
                if !seen.contains(&(b.reads, b.writes)) {
                    seen.push((b.reads, b.writes));
                    found.push(factor(Quantity::Mix { reads: b.reads, writes: b.writes }, b.gb_per_s / best));
                }
            }
        }
        let contiguous = self.accesses.iter().find(|a| a.pattern == Pattern::Strided && a.step_bytes == 4);
        if let Some(contiguous) = contiguous {
            found.extend(self.accesses.iter().map(|access| {
                let (pattern, step_bytes) = (access.pattern, access.step_bytes);
                factor(Quantity::Access { pattern, step_bytes }, access.gb_per_s / contiguous.gb_per_s)
            }));
        }
        found.extend(self.waves.iter().enumerate().map(|(i, wave)| {
            let is_step = i > 0 && is_step(&self.waves[i - 1], wave);
            factor(Quantity::Waves { blocks: wave.blocks, is_step }, wave.of_full)
        }));
        for peak in &self.peaks {
            let (pipe, dtype) = (peak.pipe, peak.dtype);
            found.push(factor(Quantity::Sustained { pipe, dtype }, peak.sustained_tflops / peak.burst_tflops));
            let a_clock = operations_a_clock(&self.device.arch, pipe, dtype);
            if let (Some(a_clock), Some(mhz)) = (a_clock, peak.burst_mhz) {
                let ideal = a_clock * self.device.units as f64 * mhz * 1e-6;
                found.push(factor(Quantity::OfClock { pipe, dtype }, peak.burst_tflops / ideal));
            }
        }
        found
    }
}

/// Whether the time jumps where few blocks are added.
fn is_step(before: &Wave, now: &Wave) -> bool {
    const JUMP: f64 = 1.2;
    let blocks = now.blocks as f64 / before.blocks.max(1) as f64;
    now.launch_us / before.launch_us > JUMP * blocks
}

/// Operations a clock of one multiprocessor, as its makers state them; where they are not known, nothing is said.
fn operations_a_clock(arch: &str, pipe: Pipe, dtype: DType) -> Option<f64> {
    if arch != "sm_90" {
        return None;
    }
    match (pipe, dtype) {
        (Pipe::Fma, DType::F32) => Some(256.0),
        (Pipe::Special, DType::F32) => Some(16.0),
        (Pipe::Tensor, DType::F32) => Some(2048.0),
        (Pipe::Tensor, DType::F16 | DType::BF16) => Some(4096.0),
        (Pipe::Tensor, DType::E4M3 | DType::E5M2) => Some(8192.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::calibration::tests::sample;
    use super::super::calibration::{Access, Bandwidth};
    use super::*;
    use crate::device::Heat;
    use std::path::Path;

    fn value(factors: &[Factor], is_it: impl Fn(&Quantity) -> bool) -> f64 {
        factors.iter().find(|factor| is_it(&factor.quantity)).unwrap_or_else(|| panic!("{factors:?}")).value
    }

    #[test]
    fn factors_are_what_they_are_defined_as() {
        let mut calibration = sample();
        let (footprint_bytes, launch_us) = (1 << 28, 60.0);
        let mix = |reads, writes, gb_per_s| Bandwidth {
            level: Level::Dram,
            reads,
            writes,
            footprint_bytes,
            heat: Heat::Cold,
            launch_us,
            gb_per_s,
        };
        calibration.bandwidths.extend([mix(8, 1, 3000.0), mix(0, 1, 2000.0)]);
        let access =
            |pattern, step_bytes, gb_per_s| Access { pattern, step_bytes, footprint_bytes, launch_us, gb_per_s };
        calibration.accesses = vec![
            access(Pattern::Strided, 4, 3000.0),
            access(Pattern::Strided, 32, 375.0),
            access(Pattern::Gathered, 128, 1500.0),
        ];
        let wave = |blocks, launch_us, of_full| Wave { blocks, launch_us, of_full };
        calibration.waves =
            vec![wave(66, 10.0, 0.5), wave(132, 10.2, 1.0), wave(133, 20.0, 0.51), wave(264, 20.4, 1.0)];
        let factors = calibration.factors();
        let of = |quantity: Quantity| value(&factors, |found| *found == quantity);
        approx::assert_relative_eq!(of(Quantity::Mix { reads: 8, writes: 1 }), 0.75);
        approx::assert_relative_eq!(of(Quantity::Mix { reads: 0, writes: 1 }), 0.5);
        approx::assert_relative_eq!(of(Quantity::Access { pattern: Pattern::Strided, step_bytes: 32 }), 0.125);
        approx::assert_relative_eq!(of(Quantity::Access { pattern: Pattern::Gathered, step_bytes: 128 }), 0.5);
        approx::assert_relative_eq!(of(Quantity::Waves { blocks: 133, is_step: true }), 0.51);
        approx::assert_relative_eq!(of(Quantity::Waves { blocks: 264, is_step: false }), 1.0);
        let (pipe, dtype) = (Pipe::Tensor, DType::BF16);
        approx::assert_relative_eq!(of(Quantity::Sustained { pipe, dtype }), 0.875);
        approx::assert_relative_eq!(of(Quantity::OfClock { pipe, dtype }), 800.0 / (4096.0 * 132.0 * 1980.0 * 1e-6));
    }

    #[test]
    fn the_files_that_ship_have_steps_at_every_wave_and_no_factor_above_one() {
        for name in ["nvidia-h200-132", "nvidia-h100-80gb-hbm3-132"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("snapshots/calibration/{name}.json"));
            let factors = Calibration::read(&path).unwrap().factors();
            assert!(factors.iter().all(|factor| factor.value > 0.0 && factor.value < 1.06), "{name}: {factors:?}");
            let steps = factors.iter().filter_map(|factor| match factor.quantity {
                Quantity::Waves { blocks, is_step: true } => Some(blocks),
                _ => None,
            });
            assert_eq!(steps.collect::<Vec<_>>(), [133, 265, 397, 529], "{name}");
        }
    }
}
