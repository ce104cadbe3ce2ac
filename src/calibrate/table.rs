//! A calibration as text.

use super::calibration::{Calibration, Level, Pipe};
use std::fmt;

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pipe::Fma => "FMA",
            Pipe::Special => "special functions",
            Pipe::Tensor => "tensor cores",
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Shared => "shared",
            Level::L1 => "L1",
            Level::L2 => "L2",
            Level::L3 => "L3",
            Level::Dram => "DRAM",
        })
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        writeln!(f, "{}, {} units, driver {}, {}", device.name, device.units, device.driver, self.measured)?;
        writeln!(f, "\n{:<28} {:>12} {:>8} {:>12} {:>8}", "peak", "burst TF/s", "MHz", "sustained", "MHz")?;
        let mhz = |mhz: Option<f64>| mhz.map_or_else(|| "-".into(), |mhz| format!("{mhz:.0}"));
        for peak in &self.peaks {
            let name = format!("{} {}", peak.pipe, peak.dtype);
            let (burst, sustained) = (mhz(peak.burst_mhz), mhz(peak.sustained_mhz));
            writeln!(
                f,
                "{name:<28} {:>12.2} {burst:>8} {:>12.2} {sustained:>8}",
                peak.burst_tflops, peak.sustained_tflops
            )?;
        }
        let best = self.best_gb_per_s(Level::Dram).unwrap_or(f64::NAN);
        writeln!(
            f,
            "\n{:<8} {:>8} {:>8} {:>12} {:>6} {:>12} {:>12} {:>10}",
            "level", "reads", "writes", "footprint", "", "µs", "GB/s", "of best"
        )?;
        for bandwidth in &self.bandwidths {
            let heat = format!("{:?}", bandwidth.heat).to_lowercase();
            let of_best = if bandwidth.level == Level::Dram {
                format!("{:.3}", bandwidth.gb_per_s / best)
            } else {
                String::new()
            };
            writeln!(
                f,
                "{:<8} {:>8} {:>8} {:>8} KiB {heat:>6} {:>12.3} {:>12.1} {of_best:>10}",
                bandwidth.level,
                bandwidth.reads,
                bandwidth.writes,
                bandwidth.footprint_bytes >> 10,
                bandwidth.launch_us,
                bandwidth.gb_per_s,
            )?;
        }
        writeln!(f, "\n{:<8} {:>12} {:>10}", "latency", "footprint", "ns")?;
        for latency in &self.latencies {
            writeln!(f, "{:<8} {:>8} KiB {:>10.1}", latency.level, latency.footprint_bytes >> 10, latency.load_ns)?;
        }
        if !self.launches.is_empty() {
            writeln!(f, "\n{:<8} {:>10} {:>18}", "blocks", "node µs", "P5 to P95")?;
        }
        for launch in &self.launches {
            let [low, high] = launch.p5_p95_us;
            writeln!(f, "{:<8} {:>10.3} {:>18}", launch.blocks, launch.node_us, format!("{low:.3} to {high:.3}"))?;
        }
        if !self.waves.is_empty() {
            writeln!(f, "\n{:<8} {:>10} {:>18}", "blocks", "µs", "of full waves")?;
        }
        for wave in &self.waves {
            writeln!(f, "{:<8} {:>10.2} {:>18.3}", wave.blocks, wave.launch_us, wave.of_full)?;
        }
        writeln!(f, "\n{:<28} {:<8} {:>10} {:>10}", "ridge, operations a byte", "level", "burst", "sustained")?;
        for ridge in self.ridges() {
            let name = format!("{} {}", ridge.pipe, ridge.dtype);
            writeln!(f, "{name:<28} {:<8} {:>10.1} {:>10.1}", ridge.level, ridge.burst, ridge.sustained)?;
        }
        if let Some(us) = self.dependent_us {
            writeln!(f, "\na launch behind one that it depends on: {us:.3} µs")?;
        }
        if let Some(host) = self.host {
            let (launch, end) = (host.launch_us, host.synchronised_us);
            writeln!(f, "a launch by the host: {launch:.2} µs, and {end:.2} µs until it knows of the end")?;
            let empty = ("an empty launch", host.over_node_us, host.dependent_over_node_us);
            let reading = ("one that reads 8 MiB", host.reading_over_node_us, host.dependent_reading_over_node_us);
            for (what, plain, dependent) in [empty, reading] {
                if let (Some(plain), Some(dependent)) = (plain, dependent) {
                    write!(f, "{what} takes longer in a queue of the host than in a graph by {plain:.3} µs, ")?;
                    writeln!(f, "a dependent one by {dependent:.3} µs")?;
                }
            }
        }
        writeln!(f, "\n{:<44} {:>8}", "factor", "of ideal")?;
        for factor in self.factors() {
            writeln!(f, "{:<44} {:>8.3}", factor.quantity, factor.value)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
