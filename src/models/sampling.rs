//! The next token from logits: the largest, or drawn, with a temperature, from the most likely ones.

use crate::ops::sample::{DRAWS, Rule, draw};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// What logits are divided by, in millionths from .001 to 1000; 0 takes the largest.
    pub temperature: f64,
    /// Only this many of the most likely, and those as likely as the last of them; 0 for all.
    pub top_k: usize,
    /// Only the most likely that together have this probability, in millionths.
    pub top_p: f64,
}

impl Default for Sampling {
    /// The largest.
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0 }
    }
}

/// Chooses tokens: the same for the same seed, position and sequence, whatever was chosen before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
}

impl Sampler {
    /// A sampler whose numbers are those of a seed.
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        Sampler { sampling, seed }
    }

    /// How tokens are drawn, where they are.
    pub fn rule(&self) -> Option<Rule> {
        let Sampling { temperature, top_k, top_p } = self.sampling;
        (temperature > 0.0).then(|| Rule::of(temperature, top_k, top_p))
    }

    /// The token behind a position of a sequence, from the logits there.
    pub fn choose(&self, logits: &[f32], position: usize, sequence: usize) -> u32 {
        let token = match self.rule() {
            Some(rule) => draw(logits, &rule, self.number(position, sequence)),
            None => largest(logits),
        };
        token as u32
    }

    /// What the token behind a position of a sequence is drawn by: uniform below 2³¹, without a state.
    pub fn number(&self, position: usize, sequence: usize) -> u32 {
        let mixed = [position, sequence].iter().fold(mix(self.seed), |mixed, &part| mix(mixed ^ part as u64));
        (mixed >> (u64::BITS - DRAWS.ilog2())) as u32
    }
}

/// A step of SplitMix64.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The first of the largest, NaN left out of account.
pub fn largest(logits: &[f32]) -> usize {
    let larger = |best: usize, i: usize| if logits[i] > logits[best] || logits[best].is_nan() { i } else { best };
    (0..logits.len()).reduce(larger).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    #[test]
    fn tokens_come_as_often_as_they_are_likely() {
        let sampler = Sampler::new(Sampling { temperature: 1.0, ..Sampling::default() }, 7);
        let weights: Vec<f64> = LOGITS.iter().map(|x| f64::from(*x).exp()).collect();
        let n = 20_000;
        // Along positions, and along sequences.
        for at in [|i| (i, 0), |i| (0, i)] {
            let drawn = (0..n).map(at).map(|(position, sequence)| sampler.choose(&LOGITS, position, sequence));
            let ones = drawn.filter(|token| *token == 1).count() as f64 / n as f64;
            assert!((ones - weights[1] / weights.iter().sum::<f64>()).abs() < 0.01, "{ones}");
        }
    }

    #[test]
    fn numbers_depend_on_seed_position_and_sequence() {
        let of = |seed| Sampler::new(Sampling::default(), seed);
        let mut numbers: Vec<u32> =
            (0..4).flat_map(|seed| (0..20).flat_map(move |i| (0..20).map(move |j| of(seed).number(i, j)))).collect();
        assert!(numbers.iter().all(|number| (*number as usize) < DRAWS));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 1600);
        assert_eq!(of(3).number(5, 6), of(3).number(5, 6));
    }

    #[test]
    fn without_temperature_the_first_largest_is_taken() {
        assert_eq!(Sampler::default().choose(&[1.0, f32::NAN, 3.0, 3.0], 0, 0), 2);
        assert_eq!(largest(&[f32::NAN, 1.0]), 1);
    }
}
