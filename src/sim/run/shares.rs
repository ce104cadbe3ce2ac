//! Which worker runs which clusters.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Portions that a share is taken in, at the least, and clusters of one at the most.
const PORTIONS: u64 = 64;
const MOST_AT_ONCE: u64 = 32;

/// Clusters that follow each other, shared out among workers. Each goes through a stretch of its own, for neighbours
/// often write to the same lines of memory and of tables; who is done takes half of what another has left.
pub(super) struct Shares {
    left: Vec<Mutex<Range<u64>>>,
    portion: u64,
}

impl Shares {
    pub(super) fn new(clusters: u64, workers: usize) -> Self {
        let count = workers.max(1) as u64;
        let start = |worker: u64| (u128::from(clusters) * u128::from(worker) / u128::from(count)) as u64;
        Shares {
            left: (0..count).map(|worker| Mutex::new(start(worker)..start(worker + 1))).collect(),
            portion: (clusters / count / PORTIONS).clamp(1, MOST_AT_ONCE),
        }
    }

    /// The next clusters of a worker; nothing where nobody has any left.
    pub(super) fn take(&self, worker: usize) -> Option<Range<u64>> {
        loop {
            if let Some(portion) = self.next(worker) {
                return Some(portion);
            }
            let others = (worker + 1..self.left.len()).chain(0..worker);
            let half = others.filter_map(|other| self.half(other)).next()?;
            *self.hold(worker) = half;
        }
    }

    fn next(&self, worker: usize) -> Option<Range<u64>> {
        let mut left = self.hold(worker);
        let portion = left.start..left.end.min(left.start + self.portion);
        left.start = portion.end;
        (!portion.is_empty()).then_some(portion)
    }

    /// The latter half of what a worker has left.
    fn half(&self, of: usize) -> Option<Range<u64>> {
        let mut left = self.hold(of);
        let half = left.start + (left.end - left.start) / 2..left.end;
        left.end = half.start;
        (!half.is_empty()).then_some(half)
    }

    fn hold(&self, worker: usize) -> MutexGuard<'_, Range<u64>> {
        self.left[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// What each worker ran when `order` says who takes next; then all take in turn until nothing is left.
    fn run(clusters: u64, workers: usize, order: &[usize]) -> Vec<Vec<u64>> {
        let shares = Shares::new(clusters, workers);
        let mut ran = vec![Vec::new(); workers];
        let turns = order.iter().copied().chain((0..workers).cycle());
        let mut idle = 0;
        for worker in turns {
            match shares.take(worker) {
                Some(portion) => ran[worker].extend(portion),
                None => idle += 1,
            }
            if idle == workers {
                break;
            }
        }
        ran
    }

    #[rstest]
    #[case::one(10, 1, &[])]
    #[case::two(10, 2, &[])]
    #[case::fewer_than_workers(2, 5, &[])]
    #[case::none(0, 3, &[])]
    #[case::one_does_nearly_all(1000, 4, &[2; 900])]
    #[case::large(100_000, 3, &[0, 1, 1, 1])]
    fn every_cluster_runs_once(#[case] clusters: u64, #[case] workers: usize, #[case] order: &[usize]) {
        let mut ran: Vec<u64> = run(clusters, workers, order).concat();
        ran.sort_unstable();
        assert!(ran.into_iter().eq(0..clusters));
    }

    #[test]
    fn workers_of_one_speed_stay_in_stretches_of_their_own() {
        let ran = run(16, 2, &[]);
        assert!(ran[0].iter().copied().eq(0..8) && ran[1].iter().copied().eq(8..16), "{ran:?}");
    }

    #[test]
    fn who_is_done_takes_from_the_end_of_another() {
        let ran = run(16, 2, &[0; 9]);
        assert_eq!(ran[0][8], 12, "{ran:?}");
        assert_eq!(ran[1][0], 8, "{ran:?}");
    }

    #[test]
    fn no_portion_is_long() {
        let shares = Shares::new(1 << 40, 2);
        assert_eq!(shares.take(1), Some(1 << 39..(1 << 39) + MOST_AT_ONCE));
    }
}
