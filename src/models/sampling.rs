//! The next token from logits: the largest, or drawn, with a temperature, from the most likely ones.

use crate::core::seed::{Rng, rng};
use rand_pcg::rand_core::Rng as _;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// What logits are divided by; 0 takes the largest.
    pub temperature: f64,
    /// Only this many of the most likely; 0 for all.
    pub top_k: usize,
    /// Only the most likely that together have this probability.
    pub top_p: f64,
}

impl Default for Sampling {
    /// The largest.
    fn default() -> Self {
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0 }
    }
}

/// Draws tokens, the same from the same seed.
pub struct Sampler {
    sampling: Sampling,
    rng: Rng,
}

impl Sampler {
    /// A sampler of its own state.
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        Sampler { sampling, rng: rng(seed) }
    }

    /// The next token of one row of logits.
    pub fn next(&mut self, logits: &[f32]) -> u32 {
        if self.sampling.temperature <= 0.0 {
            return largest(logits) as u32;
        }
        let likely = likely(&self.sampling, logits);
        let total: f64 = likely.iter().map(|(_, p)| p).sum();
        let mut left = uniform(&mut self.rng) * total;
        for &(token, p) in &likely {
            left -= p;
            if left < 0.0 {
                return token as u32;
            }
        }
        likely[likely.len() - 1].0 as u32
    }
}

/// In [0, 1).
fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The first of the largest, NaN left out of account.
pub fn largest(logits: &[f32]) -> usize {
    let larger = |best: usize, i: usize| if logits[i] > logits[best] || logits[best].is_nan() { i } else { best };
    (0..logits.len()).reduce(larger).unwrap_or(0)
}

/// The tokens that may be drawn, the most likely first, with weights.
fn likely(sampling: &Sampling, logits: &[f32]) -> Vec<(usize, f64)> {
    let max = f64::from(logits[largest(logits)]);
    let weight = |&logit: &f32| ((f64::from(logit) - max) / sampling.temperature).exp();
    let mut all: Vec<(usize, f64)> = logits.iter().map(weight).enumerate().collect();
    all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    if sampling.top_k > 0 {
        all.truncate(sampling.top_k);
    }
    let total: f64 = all.iter().map(|(_, p)| p).sum();
    let mut sum = 0.0;
    let kept = all.iter().take_while(|(_, p)| {
        let before = sum;
        sum += p;
        before < sampling.top_p * total
    });
    let kept = kept.count().max(1);
    all.truncate(kept);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, -1.0];

    #[rstest]
    #[case(Sampling { temperature: 1.0, top_k: 2, top_p: 1.0 }, &[1, 2])]
    #[case(Sampling { temperature: 1.0, top_k: 0, top_p: 0.7 }, &[1, 2])]
    #[case(Sampling { temperature: 1.0, top_k: 0, top_p: 0.0 }, &[1])]
    #[case(Sampling { temperature: 0.1, top_k: 0, top_p: 0.99 }, &[1])]
    #[case(Sampling { temperature: 1.0, top_k: 0, top_p: 1.0 }, &[1, 2, 0, 3])]
    fn only_the_likely_are_drawn(#[case] sampling: Sampling, #[case] expected: &[usize]) {
        let tokens: Vec<usize> = likely(&sampling, &LOGITS).into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, expected);
        let mut sampler = Sampler::new(sampling, 3);
        assert!((0..200).all(|_| expected.contains(&(sampler.next(&LOGITS) as usize))));
    }

    #[test]
    fn tokens_come_as_often_as_they_are_likely() {
        let mut sampler = Sampler::new(Sampling { temperature: 1.0, ..Sampling::default() }, 7);
        let n = 20_000;
        let ones = (0..n).filter(|_| sampler.next(&LOGITS) == 1).count() as f64 / f64::from(n);
        let weights: Vec<f64> = LOGITS.iter().map(|x| f64::from(*x).exp()).collect();
        assert!((ones - weights[1] / weights.iter().sum::<f64>()).abs() < 0.01, "{ones}");
    }

    #[test]
    fn without_temperature_the_first_largest_is_taken() {
        assert_eq!(Sampler::new(Sampling::default(), 0).next(&[1.0, f32::NAN, 3.0, 3.0]), 2);
        assert_eq!(largest(&[f32::NAN, 1.0]), 1);
    }
}
