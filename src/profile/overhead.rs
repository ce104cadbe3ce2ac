//! What tracing costs: runs with it and without it in turns, in an order that changes.

use crate::core::seed::{permutation, rng};
use crate::core::stats::{Z95, median, median_interval};

/// What the times of pairs extend over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The range of a run, by the clock of the host.
    Run,
    /// A launch in a batch, by the clock of the device, which begins with the batch.
    Batch,
    /// Nothing: they were not measured.
    Nothing,
}

/// Times of runs, µs: one without and one with tracing a pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs(pub Vec<[f64; 2]>);

impl Pairs {
    /// Takes `count` pairs of each of several times; `run` is told whether it is traced and says them, µs.
    ///
    /// # Errors
    /// What `run` says.
    pub fn take<E, const TIMES: usize>(
        count: usize,
        seed: u64,
        mut run: impl FnMut(bool) -> Result<[f64; TIMES], E>,
    ) -> Result<[Pairs; TIMES], E> {
        let mut rng = rng(seed);
        let mut all: [Pairs; TIMES] = std::array::from_fn(|_| Pairs::default());
        for _ in 0..count {
            let mut pair = [[0.0; TIMES]; 2];
            for at in permutation(&mut rng, 2) {
                pair[at] = run(at == 1)?;
            }
            let [without, with] = pair;
            all.iter_mut().zip(without).zip(with).for_each(|((pairs, without), with)| pairs.0.push([without, with]));
        }
        Ok(all)
    }

    fn side(&self, at: usize) -> Vec<f64> {
        self.0.iter().map(|pair| pair[at]).collect()
    }

    /// The median without tracing, µs.
    pub fn untraced_us(&self) -> f64 {
        median(&self.side(0))
    }

    /// The median with tracing, µs.
    pub fn traced_us(&self) -> f64 {
        median(&self.side(1))
    }

    /// The mean with tracing, µs.
    pub fn traced_mean_us(&self) -> f64 {
        self.side(1).iter().sum::<f64>() / self.0.len() as f64
    }

    /// What tracing adds, as a share of the time without it: the median over the pairs.
    pub fn overhead(&self) -> f64 {
        median(&self.shares())
    }

    /// The 95 % interval of that.
    pub fn overhead_interval(&self) -> [f64; 2] {
        let interval = median_interval(&self.shares(), Z95);
        [interval.low, interval.high]
    }

    fn shares(&self) -> Vec<f64> {
        self.0.iter().map(|[without, with]| with / without - 1.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_the_median_of_pairs_that_take_turns() {
        let mut order = Vec::new();
        let pairs = Pairs::take(40, 1, |traced| {
            order.push(traced);
            Ok::<_, ()>([if traced { 103.0 } else { 100.0 }])
        });
        let [pairs] = pairs.unwrap();
        approx::assert_relative_eq!(pairs.overhead(), 0.03, epsilon = 1e-12);
        assert_eq!((pairs.untraced_us(), pairs.traced_us(), pairs.traced_mean_us()), (100.0, 103.0, 103.0));
        let first = order.chunks(2).filter(|pair| pair[0]).count();
        assert!((8..=32).contains(&first), "tracing came first in {first} of 40");
        assert!(order.chunks(2).all(|pair| pair[0] != pair[1]));
    }
}
