//! A measurement session: several armed problems on one device, sampled in random order until their medians are known.

use super::clock::ClockWatch;
use super::series::{Series, Summary};
use super::stopping::{Ending, StoppingRule};
use crate::core::seed::{permutation, rng};
use crate::core::stats::median;
use crate::device::fault::Fault;
use crate::device::{Problem, Sample, TimingPlan};
use std::time::{Duration, Instant};

/// How a session runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionSettings {
    /// How long to run before samples count: clocks rise, pages and instruction caches fill.
    pub warm_up: Duration,
    /// When to end.
    pub stopping: StoppingRule,
}

impl Default for SessionSettings {
    /// A 0.5 % interval, or a quarter of a second.
    fn default() -> Self {
        SessionSettings {
            warm_up: Duration::from_millis(5),
            stopping: StoppingRule {
                half_width: 0.005,
                min_rounds: 5,
                max_rounds: 200,
                budget: Duration::from_millis(250),
            },
        }
    }
}

impl SessionSettings {
    /// The same for a session with `more` contestants, which take their time too.
    pub fn shared_with(mut self, more: usize) -> Self {
        self.stopping.budget *= 1 + more as u32;
        self
    }
}

/// A problem that takes part in a session.
pub struct Contestant<'d> {
    problem: Box<dyn Problem + 'd>,
    instances: usize,
    /// Whether the session goes on without it.
    is_competitor: bool,
    left: Option<Fault>,
}

impl<'d> Contestant<'d> {
    /// Arms a problem.
    ///
    /// # Errors
    /// As [`Problem::arm`].
    pub fn arm(problem: Box<dyn Problem + 'd>, plan: &TimingPlan) -> Result<Self, Fault> {
        let mut contestant = Contestant::unarmed(problem);
        contestant.arm_again(plan)?;
        Ok(contestant)
    }

    /// A contestant that is still to be armed.
    pub fn unarmed(problem: Box<dyn Problem + 'd>) -> Self {
        Contestant { problem, instances: 0, is_competitor: false, left: None }
    }

    /// Makes it a competitor: should it fail, the session goes on without it.
    pub fn as_competitor(self) -> Self {
        Contestant { is_competitor: true, ..self }
    }

    /// Why a competitor has left the session.
    pub fn left(&self) -> Option<&Fault> {
        self.left.as_ref()
    }

    /// Batches that are recorded.
    pub fn instances(&self) -> usize {
        self.instances
    }

    /// Arms it anew, with fresh instances.
    ///
    /// # Errors
    /// As [`Problem::arm`].
    pub fn arm_again(&mut self, plan: &TimingPlan) -> Result<(), Fault> {
        self.instances = self.problem.arm(plan)?.max(1);
        Ok(())
    }

    /// Arms it, with a slowdown of `share` of its time planted; 0 plants nothing.
    ///
    /// # Errors
    /// As [`Problem::arm`].
    pub fn arm_planted(&mut self, plan: &TimingPlan, share: f64) -> Result<(), Fault> {
        self.arm_again(plan)?;
        if share > 0.0 {
            let planted_us = share * self.launch_us()?;
            self.arm_again(&TimingPlan { planted_us, ..*plan })?;
        }
        Ok(())
    }

    /// The time of a launch, roughly: what a planted slowdown is a share of.
    fn launch_us(&mut self) -> Result<f64, Fault> {
        const TRIES: usize = 7;
        let times: Result<Vec<f64>, Fault> = (0..TRIES).map(|_| Ok(self.problem.sample(0)?.launch_us)).collect();
        Ok(median(&times?))
    }

    /// A sample, or `None` from a competitor that has left, now or before.
    fn sample(&mut self, instance: usize) -> Result<Option<Sample>, Fault> {
        if self.left.is_some() {
            return Ok(None);
        }
        match self.problem.sample(instance) {
            Ok(sample) => Ok(Some(sample)),
            Err(fault) if self.is_competitor => {
                self.left = Some(fault);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The problem behind it.
    pub fn problem(&mut self) -> &mut (dyn Problem + 'd) {
        self.problem.as_mut()
    }
}

/// What a session measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The samples, a series a contestant.
    pub series: Vec<Series>,
    /// Which of them count.
    pub watch: ClockWatch,
    /// How many samples each instance gave.
    pub rounds: usize,
    /// Why it ended.
    pub ending: Ending,
}

impl Measurement {
    /// The statistics of contestant `i`.
    pub fn summary(&self, i: usize) -> Summary {
        self.series[i].summary(&self.watch)
    }

    /// The times of contestant `i` that count, by instance, µs.
    pub fn kept_us(&self, i: usize) -> Vec<Vec<f64>> {
        self.series[i].kept_us(&self.watch)
    }
}

/// Samples all contestants. Each round visits every instance of every contestant once, in an order that `seed` shuffles
/// anew: what ran just before a sample then has the same distribution for all, where a fixed alternation favours one
/// side by its position.
///
/// A competitor that fails leaves, with whatever samples it has given, and the others go on.
///
/// # Errors
/// The fault of whichever other contestant failed.
pub fn measure(
    contestants: &mut [Contestant<'_>],
    settings: &SessionSettings,
    seed: u64,
) -> Result<Measurement, Fault> {
    let turns: Vec<(usize, usize)> =
        contestants.iter().enumerate().flat_map(|(who, c)| (0..c.instances).map(move |i| (who, i))).collect();
    warm_up(contestants, &turns, settings.warm_up)?;

    let mut rng = rng(seed);
    let mut series: Vec<Series> = contestants.iter().map(|c| Series::with_instances(c.instances)).collect();
    let begun = Instant::now();
    let mut rounds = 0;
    loop {
        for at in permutation(&mut rng, turns.len()) {
            let (who, instance) = turns[at];
            if let Some(sample) = contestants[who].sample(instance)? {
                series[who].push(instance, sample);
            }
        }
        rounds += 1;
        let watch = ClockWatch::over(&series);
        let present = series.iter().zip(contestants.iter()).filter(|(_, contestant)| contestant.left.is_none());
        let widths = present.map(|(s, _)| s.summary(&watch).interval_us.relative_half_width());
        if let Some(ending) = settings.stopping.ending(rounds, begun.elapsed(), widths) {
            return Ok(Measurement { series, watch, rounds, ending });
        }
    }
}

/// Every instance at least once, and all of them until the time is over.
fn warm_up(contestants: &mut [Contestant<'_>], turns: &[(usize, usize)], time: Duration) -> Result<(), Fault> {
    let begun = Instant::now();
    loop {
        for &(who, instance) in turns {
            contestants[who].sample(instance)?;
        }
        if begun.elapsed() >= time || turns.is_empty() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tensor::Tensor;
    use crate::device::{Heat, Poison};
    use crate::measure::change::{Change, paired};
    use crate::measure::simulated::{Journal, Noise, SimulatedProblem};

    const PLAN: TimingPlan = TimingPlan {
        heat: Heat::Cold,
        chained: false,
        batch_us: 400.0,
        instances: 4,
        planted_us: 0.0,
        session: Duration::ZERO,
    };

    fn settings(max_rounds: usize) -> SessionSettings {
        SessionSettings {
            warm_up: Duration::ZERO,
            stopping: StoppingRule { half_width: 0.005, min_rounds: 3, max_rounds, budget: Duration::from_secs(3600) },
        }
    }

    fn contestant(
        who: usize,
        launch_us: f64,
        noise: Noise,
        journal: &Journal,
        plan: &TimingPlan,
    ) -> Contestant<'static> {
        let problem = SimulatedProblem::new(who, launch_us, noise, journal.clone());
        Contestant::arm(Box::new(problem), plan).unwrap()
    }

    #[test]
    fn every_round_visits_each_instance_once_in_an_order_of_its_own() {
        let journal = Journal::default();
        let noise = Noise { sample_sd: 0.2, ..Noise::default() };
        let mut contestants = [0, 1].map(|who| contestant(who, 10.0, noise, &journal, &PLAN));
        let measurement = measure(&mut contestants, &settings(20), 1).unwrap();
        assert_eq!((measurement.rounds, measurement.ending), (20, Ending::Rounds));
        let visits = journal.borrow();
        let (warm_up, rounds) = visits.split_at(8);
        assert_eq!(warm_up.len() + 20 * 8, visits.len());
        let orders: std::collections::BTreeSet<_> = rounds.chunks(8).collect();
        assert!(orders.len() > 15, "only {} different orders in 20 rounds", orders.len());
        for round in rounds.chunks(8) {
            let mut round = round.to_vec();
            round.sort_unstable();
            round.dedup();
            assert_eq!(round.len(), 8, "an instance was visited twice");
        }
        // Position bias would show as one side coming first more often than the other.
        let first = rounds.chunks(8).filter(|round| round[0].0 == 0).count();
        assert!((3..=17).contains(&first), "contestant 0 came first {first} times of 20");
    }

    #[test]
    fn it_stops_as_soon_as_the_medians_are_known() {
        let journal = Journal::default();
        let quiet = Noise { sample_sd: 0.001, ..Noise::default() };
        let measurement = measure(&mut [contestant(0, 10.0, quiet, &journal, &PLAN)], &settings(100), 1).unwrap();
        assert_eq!(measurement.ending, Ending::Precise);
        assert!(measurement.rounds <= 6, "{} rounds", measurement.rounds);
        assert!(measurement.summary(0).interval_us.relative_half_width() <= 0.005);
    }

    #[test]
    fn a_competitor_that_fails_leaves_and_the_others_go_on() {
        /// Fails at its third sample.
        struct Leaving(SimulatedProblem, usize);

        impl Problem for Leaving {
            fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault> {
                self.0.run(poison)
            }
            fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
                self.0.agrees_under(poison)
            }
            fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
                self.0.repeat(times)
            }
            fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
                self.0.arm(plan)
            }
            fn sample(&mut self, instance: usize) -> Result<Sample, Fault> {
                self.1 += 1;
                if self.1 < 3 { self.0.sample(instance) } else { Err(Fault::Peer("died".into())) }
            }
            fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
                Ok(true)
            }
        }

        let journal = Journal::default();
        let leaving = || {
            let problem = SimulatedProblem::new(1, 10.0, Noise::default(), journal.clone());
            Contestant::arm(Box::new(Leaving(problem, 0)), &PLAN).unwrap()
        };
        let stays = || contestant(0, 10.0, Noise::default(), &journal, &PLAN);
        let mut contestants = [stays(), leaving().as_competitor()];
        let measurement = measure(&mut contestants, &settings(20), 1).unwrap();
        assert_eq!(contestants[1].left(), Some(&Fault::Peer("died".into())));
        assert!(contestants[0].left().is_none() && measurement.summary(0).samples >= 12);
        // Whoever is no competitor ends the session.
        assert!(measure(&mut [stays(), leaving()], &settings(20), 1).is_err());
    }

    #[test]
    fn throttled_samples_are_dropped() {
        let journal = Journal::default();
        let noise = Noise { throttled_share: 0.2, ..Noise::default() };
        let measurement = measure(&mut [contestant(0, 10.0, noise, &journal, &PLAN)], &settings(25), 1).unwrap();
        let summary = measurement.summary(0);
        assert!(summary.dropped > 0);
        assert!(summary.p95_us < 10.2, "a throttled batch takes 1.6 times as long: {summary:?}");
        assert_eq!(summary.clock_mhz, Some(1980.0));
    }

    #[test]
    fn a_planted_slowdown_is_found_and_nothing_else() {
        let journal = Journal::default();
        let compare = |planted_us: f64| {
            let planted = TimingPlan { planted_us, ..PLAN };
            let mut contestants = [
                contestant(0, 5.0, Noise::default(), &journal, &PLAN),
                contestant(1, 5.0, Noise::default(), &journal, &planted),
            ];
            let measurement = measure(&mut contestants, &settings(10), 3).unwrap();
            paired(&measurement.kept_us(0), &measurement.kept_us(1), 0.01).change
        };
        assert_eq!(compare(0.0), Change::Same);
        assert_eq!(compare(0.1), Change::Slower);
    }
}
