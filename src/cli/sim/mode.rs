//! The modes of a simulated run by their names on the command line.

use crate::sim::{Accumulation, Completion, Options, WarpOrder};
use std::str::FromStr;

/// What one run changes against the plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    InOrder,
    Descending,
    RandomOrder,
    LateCopies,
    ShuffledSums,
    Adversarial,
}

impl Mode {
    const ALL: [Mode; 6] =
        [Mode::InOrder, Mode::Descending, Mode::RandomOrder, Mode::LateCopies, Mode::ShuffledSums, Mode::Adversarial];

    /// As the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::InOrder => "in-order",
            Mode::Descending => "descending",
            Mode::RandomOrder => "random-order",
            Mode::LateCopies => "late-copies",
            Mode::ShuffledSums => "shuffled-sums",
            Mode::Adversarial => "adversarial",
        }
    }

    /// The mode that the command line spells so.
    pub fn named(text: &str) -> Result<Mode, String> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let names: Vec<_> = Mode::ALL.into_iter().map(Mode::name).collect();
            format!("`{text}` is no mode; use one of {}", names.join(", "))
        })
    }

    /// Whether the results must have the bits of the plain run.
    pub fn keeps_bits(self) -> bool {
        !matches!(self, Mode::ShuffledSums | Mode::Adversarial)
    }

    /// Whether another seed makes another run.
    fn draws(self) -> bool {
        matches!(self, Mode::RandomOrder | Mode::ShuffledSums | Mode::Adversarial)
    }

    /// The options of a run in this mode. The seed also decides the order of blocks where that matters, so a mode that
    /// does not draw has none.
    pub fn options(self, base: &Options) -> Options {
        let mut options = *base;
        if !self.draws() {
            options.seed = 0;
        }
        match self {
            Mode::InOrder => {}
            Mode::Descending => options.warp_order = WarpOrder::Descending,
            Mode::RandomOrder => options.warp_order = WarpOrder::Seeded,
            Mode::LateCopies => options.completion = Completion::Late,
            Mode::ShuffledSums => options.accumulation = Accumulation::Shuffled,
            Mode::Adversarial => options.adversarial_approximations = true,
        }
        options
    }
}

/// A mode, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    One(Mode),
    All,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Choice::All);
        }
        Mode::named(text).map(Choice::One).map_err(|why| format!("{why}, or all"))
    }
}

/// The runs to make: modes that draw once for each seed, the others once.
pub fn runs(choices: &[Choice], seed: u64, seeds: u64) -> Vec<(Mode, u64)> {
    let mut modes: Vec<Mode> = Vec::new();
    for choice in choices {
        let chosen = match choice {
            Choice::One(mode) => std::slice::from_ref(mode),
            Choice::All => Mode::ALL.as_slice(),
        };
        for mode in chosen {
            if !modes.contains(mode) {
                modes.push(*mode);
            }
        }
    }
    let seeds_of = |mode: Mode| seed..seed.saturating_add(if mode.draws() { seeds.max(1) } else { 1 });
    modes.into_iter().flat_map(|mode| seeds_of(mode).map(move |seed| (mode, seed))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modes_that_draw_take_further_seeds() {
        let all = runs(&["in-order".parse().unwrap(), Choice::All], 5, 3);
        assert_eq!(all.len(), 3 + 3 * 3);
        assert_eq!(all[0], (Mode::InOrder, 5));
        assert!("late".parse::<Choice>().unwrap_err().contains("late-copies"));
    }
}
