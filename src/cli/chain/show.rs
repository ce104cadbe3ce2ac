//! The times of one size, as a person reads them.

use super::session::{Measured, TIERS};
use crate::core::columns::Columns;
use crate::models::{CHAINS, Chain, STAGES};
use std::fmt::Write as _;

/// `64x128x256`.
pub fn size(size: &Chain) -> String {
    format!("{}x{}x{}", size.rows, size.inner, size.cols)
}

/// Stages, chains, and what exchanging stages brings.
pub fn table(measured: &Measured) -> String {
    let mut text = format!("\n{} {} on {}\n", size(&measured.size), measured.dtype, measured.device);
    let (of_naive, of_best) = (measured.shares(CHAINS[0].1), measured.shares([TIERS[2]; 3]));
    let mut stages =
        Columns::new(["stage", ">naive µs", ">share", ">library µs", ">best µs", ">share", ">naive / best"]);
    for (at, stage) in STAGES.iter().enumerate() {
        let [naive, library, best] = measured.stages[at].map(|time| time.p50_us);
        let (us, share) = (|us: f64| format!("{us:.2}"), |share: f64| format!("{:.0} %", share * 100.0));
        let cells = [us(naive), share(of_naive[at]), us(library), us(best), share(of_best[at]), us(naive / best)];
        stages.row(std::iter::once((*stage).to_owned()).chain(cells));
    }
    let mut chains = Columns::new(["chain", ">P50 µs", ">P95 µs", ">rows/s", ">predicted", ">measured", ">off"]);
    for (at, (name, _)) in CHAINS.iter().enumerate() {
        let time = measured.chains[at];
        let us = |us: f64| format!("{us:.2}");
        let mut cells =
            vec![(*name).to_owned(), us(time.p50_us), us(time.p95_us), format!("{:.0}", measured.per_s(time))];
        if at > 0 {
            let exchange = measured.exchange(at);
            let off = 100.0 * (exchange.predicted / exchange.measured - 1.0);
            let times = |factor: f64| format!("{factor:.2} ×");
            cells.extend([times(exchange.predicted), times(exchange.measured), format!("{off:.1} %")]);
        }
        chains.row(cells);
    }
    let _ = write!(text, "{stages}\n{chains}");
    text
}
