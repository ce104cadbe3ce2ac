//! The times of one size, as a person reads them.

use super::session::{Measured, TIERS};
use crate::models::{CHAINS, Chain, STAGES};
use std::fmt::Write as _;

/// `64x128x256`.
pub fn size(size: &Chain) -> String {
    format!("{}x{}x{}", size.rows, size.inner, size.cols)
}

/// Stages, chains, and what exchanging stages brings.
pub fn table(measured: &Measured) -> String {
    let mut text = format!("\n{} {} on {}\n", size(&measured.size), measured.dtype, measured.device);
    let _ = writeln!(
        text,
        "{:<14} {:>12} {:>7} {:>12} {:>12} {:>7} {:>10}",
        "stage", "naive µs", "share", "library µs", "best µs", "share", "naive/best"
    );
    let (of_naive, of_best) = (measured.shares(CHAINS[0].1), measured.shares([TIERS[2]; 3]));
    for (at, stage) in STAGES.iter().enumerate() {
        let [naive, library, best] = measured.stages[at].map(|time| time.p50_us);
        let _ = writeln!(
            text,
            "{stage:<14} {naive:>12.2} {:>5.0} % {library:>12.2} {best:>12.2} {:>5.0} % {:>10.2}",
            of_naive[at] * 100.0,
            of_best[at] * 100.0,
            naive / best
        );
    }
    let _ = writeln!(
        text,
        "{:<14} {:>12} {:>12} {:>14} {:>10} {:>10} {:>7}",
        "chain", "P50 µs", "P95 µs", "rows/s", "predicted", "measured", "off"
    );
    for (at, (name, _)) in CHAINS.iter().enumerate() {
        let time = measured.chains[at];
        let _ = write!(text, "{name:<14} {:>12.2} {:>12.2} {:>14.0}", time.p50_us, time.p95_us, measured.per_s(time));
        if at > 0 {
            let exchange = measured.exchange(at);
            let off = 100.0 * (exchange.predicted / exchange.measured - 1.0);
            let _ = write!(text, " {:>8.2} × {:>8.2} × {off:>5.1} %", exchange.predicted, exchange.measured);
        }
        text.push('\n');
    }
    text
}
