//! Lengths, variance and noise of a process by the marginal likelihood of a sweep, and the weights of its cases.

use super::process::{Place, Process, matern};
use crate::core::stats::sorted;
use faer::linalg::solvers::{DenseSolveCore, Llt, Solve};
use faer::{Mat, Side};
use rayon::prelude::*;

/// Cases that lengths are fitted to at the most: more change them little, and cost by the cube.
const MOST: usize = 600;

/// And to so many for a fit that only says what is left out: it takes an eighth of the time.
const MOST_OF_FOLD: usize = 300;

/// Steps of that fit.
const STEPS: usize = 60;

/// Where the logarithms of what is fitted begin: lengths, distances, variance (which the values give), noise; and their bounds.
const BEGIN: [f64; 4] = [-2.3, -1.2, f64::NAN, -6.9];
const BOUNDS: [(f64, f64); 4] = [(-7.0, 3.0), (-7.0, 3.0), (-8.0, 4.0), (-12.0, 0.0)];

/// Parts of the cases, each told of by a process that was fitted to the others.
const FOLDS: usize = 10;

/// Fits a process: lengths, variance and noise by the marginal likelihood of some of the cases, weights to all of them.
/// Beside it what a fit to the others says of each value, lengths and all: the lengths themselves fit few cases too well.
pub fn fit(places: &[&Place], values: &[f64]) -> (Process, Vec<f64>) {
    let folds = FOLDS.min(places.len());
    let of_fold = |fold: usize| -> Vec<(usize, f64)> {
        let (held, others): (Vec<usize>, Vec<usize>) = (0..places.len()).partition(|i| i % folds == fold);
        let there: Vec<&Place> = others.iter().map(|&i| places[i]).collect();
        let process = fit_to(&there, &others.iter().map(|&i| values[i]).collect::<Vec<_>>(), MOST_OF_FOLD);
        held.into_iter().map(|i| (i, process.value(places[i], there.iter().copied()))).collect()
    };
    let mut said: Vec<(usize, f64)> = (0..folds).into_par_iter().flat_map_iter(of_fold).collect();
    said.sort_by_key(|(i, _)| *i);
    let said: Vec<f64> = said.into_iter().map(|(_, value)| value).collect();
    let misses: Vec<f64> = values.iter().zip(&said).map(|(value, said)| value - said).collect();
    (Process { spread: spread(&misses), ..fit_to(places, values, MOST) }, said)
}

/// A process without its spread, its lengths fitted to so many of the cases at the most. Where none fit, one that says the mean.
fn fit_to(places: &[&Place], values: &[f64], most: usize) -> Process {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let left: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let (numbers, deviations) = standardised(places);
    let all = Cases { numbers, names: places.iter().map(|place| place.names.as_slice()).collect() };
    let most = all.len().min(most);
    let chosen: Vec<usize> = (0..most).map(|i| i * all.len() / most).collect();
    let fitted = climb(&all.only(&chosen), &chosen.iter().map(|&i| left[i]).collect::<Vec<_>>());
    let squares = square_matrix(all.len(), |i, j| fitted.square(&all, i, j));
    let Some((_, weights)) = factors(&fitted, &squares, &left) else {
        return Process { mean, weights: vec![0.0; values.len()], ..Process::default() };
    };
    let scales = fitted.scales.iter().zip(&deviations).map(|(scale, deviation)| scale / deviation).collect();
    Process { scales, apart: fitted.apart, variance: fitted.variance, mean, spread: 0.0, weights }
}

/// The rank that covers nine of ten of what comes, not of what was seen.
fn spread(misses: &[f64]) -> f64 {
    let misses = sorted(&misses.iter().map(|miss| miss.abs()).collect::<Vec<_>>());
    let rank = (0.9 * (misses.len() + 1) as f64).ceil() as usize;
    misses.get(rank.clamp(1, misses.len().max(1)) - 1).copied().unwrap_or(0.0)
}

struct Cases<'p> {
    numbers: Vec<Vec<f64>>,
    names: Vec<&'p [String]>,
}

impl Cases<'_> {
    fn len(&self) -> usize {
        self.numbers.len()
    }

    fn only(&self, chosen: &[usize]) -> Self {
        let numbers = chosen.iter().map(|&i| self.numbers[i].clone()).collect();
        Cases { numbers, names: chosen.iter().map(|&i| self.names[i]).collect() }
    }
}

struct Hyper {
    scales: Vec<f64>,
    apart: Vec<f64>,
    variance: f64,
    noise: f64,
}

impl Hyper {
    fn of(logarithms: &[f64], numbers: usize) -> Self {
        let all: Vec<f64> = logarithms.iter().map(|x| x.exp()).collect();
        let (lengths, [variance, noise]) = all.split_last_chunk::<2>().expect("both are there");
        Hyper {
            scales: lengths[..numbers].to_vec(),
            apart: lengths[numbers..].to_vec(),
            variance: *variance,
            noise: *noise,
        }
    }

    fn square(&self, cases: &Cases<'_>, i: usize, j: usize) -> f64 {
        let numbers = cases.numbers[i].iter().zip(&cases.numbers[j]).zip(&self.scales);
        let numbers: f64 = numbers.map(|((a, b), scale)| ((a - b) * scale).powi(2)).sum();
        let names = cases.names[i].iter().zip(cases.names[j]).zip(&self.apart);
        numbers + names.map(|((a, b), apart)| if a == b { 0.0 } else { apart * apart }).sum::<f64>()
    }
}

/// Numbers over their standard deviations, and those; of a number that is always the same 0.
fn standardised(places: &[&Place]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let count = places.len().max(1) as f64;
    let width = places.first().map_or(0, |place| place.numbers.len());
    let deviation = |j: usize| {
        let column = || places.iter().map(|place| place.numbers[j]);
        let mean = column().sum::<f64>() / count;
        (column().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt()
    };
    let deviations: Vec<f64> = (0..width).map(deviation).collect();
    let deviations: Vec<f64> = deviations.into_iter().map(|d| if d > 1e-9 { d } else { f64::INFINITY }).collect();
    let scaled = |place: &&Place| place.numbers.iter().zip(&deviations).map(|(x, d)| x / d).collect();
    (places.iter().map(scaled).collect(), deviations)
}

fn square_matrix(n: usize, of: impl Fn(usize, usize) -> f64 + Sync) -> Mat<f64> {
    let rows: Vec<Vec<f64>> = (0..n).into_par_iter().map(|i| (0..=i).map(|j| of(i, j)).collect()).collect();
    Mat::from_fn(n, n, |i, j| rows[i.max(j)][i.min(j)])
}

/// The factors of the covariances of cases whose distances have these squares, and the weights of their values; `None` where
/// the covariances are not positive.
fn factors(hyper: &Hyper, squares: &Mat<f64>, values: &[f64]) -> Option<(Llt<f64>, Vec<f64>)> {
    let n = values.len();
    let noise = |i: usize, j: usize| if i == j { hyper.noise } else { 0.0 };
    let covariances = Mat::from_fn(n, n, |i, j| hyper.variance * matern(squares[(i, j)]) + noise(i, j));
    let factors = covariances.llt(Side::Lower).ok()?;
    let weights = factors.solve(Mat::from_fn(n, 1, |i, _| values[i]));
    Some((factors, (0..n).map(|i| weights[(i, 0)]).collect()))
}

/// Up the marginal likelihood, by steps that grow while a slope keeps its sign and shrink where it does not (Rprop).
fn climb(cases: &Cases<'_>, values: &[f64]) -> Hyper {
    let numbers = cases.numbers.first().map_or(0, Vec::len);
    let names = cases.names.first().map_or(0, |names| names.len());
    let kind = |i: usize| [numbers, numbers + names, numbers + names + 1].iter().filter(|&&end| i >= end).count();
    let variance = values.iter().map(|x| x * x).sum::<f64>() / values.len().max(1) as f64;
    let begin = |i: usize| if kind(i) == 2 { variance.max(1e-3).ln() } else { BEGIN[kind(i)] };
    let mut at: Vec<f64> = (0..numbers + names + 2).map(begin).collect();
    let (mut steps, mut before) = (vec![0.3f64; at.len()], vec![0.0; at.len()]);
    let mut best = (f64::INFINITY, at.clone());
    for _ in 0..STEPS {
        let Some((loss, slopes)) = slopes(cases, values, &Hyper::of(&at, numbers)) else { break };
        if loss < best.0 {
            best = (loss, at.clone());
        }
        for (i, &slope) in slopes.iter().enumerate() {
            let flipped = slope * before[i] < 0.0;
            let grown = if slope * before[i] > 0.0 { 1.2 * steps[i] } else { steps[i] };
            steps[i] = if flipped { 0.5 * steps[i] } else { grown }.clamp(1e-3, 1.0);
            before[i] = if flipped { 0.0 } else { slope };
            if before[i] != 0.0 {
                let (low, high) = BOUNDS[kind(i)];
                at[i] = (at[i] - slope.signum() * steps[i]).clamp(low, high);
            }
        }
    }
    Hyper::of(&best.1, numbers)
}

/// The negative logarithm of the likelihood, and its slopes along the logarithms of what is fitted.
fn slopes(cases: &Cases<'_>, values: &[f64], hyper: &Hyper) -> Option<(f64, Vec<f64>)> {
    let n = cases.len();
    let squares = square_matrix(n, |i, j| hyper.square(cases, i, j));
    let (factors, weights) = factors(hyper, &squares, values)?;
    let inverse = factors.inverse();
    let determinant: f64 = (0..n).map(|i| factors.L()[(i, i)].ln()).sum();
    let fitted: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
    // Of each pair: how the loss changes with its covariance, and with the square of its distance.
    let of_covariance = |i: usize, j: usize| 0.5 * (inverse[(i, j)] - weights[i] * weights[j]);
    let row = |i: usize| {
        let mut sums = vec![0.0; hyper.scales.len() + hyper.apart.len() + 2];
        let (lengths, [variance, noise]) = sums.split_last_chunk_mut::<2>().expect("both are there");
        *noise = of_covariance(i, i) * hyper.noise;
        for j in 0..n {
            let slope = of_covariance(i, j);
            let far = (5.0 * squares[(i, j)]).sqrt();
            *variance += slope * hyper.variance * matern(squares[(i, j)]);
            let of_square = slope * hyper.variance * -5.0 / 6.0 * (1.0 + far) * (-far).exp();
            let (numbers, names) = lengths.split_at_mut(hyper.scales.len());
            for (sum, (a, b)) in numbers.iter_mut().zip(cases.numbers[i].iter().zip(&cases.numbers[j])) {
                *sum += of_square * (a - b) * (a - b);
            }
            for (sum, (a, b)) in names.iter_mut().zip(cases.names[i].iter().zip(cases.names[j])) {
                *sum += if a == b { 0.0 } else { of_square };
            }
        }
        sums
    };
    let zero = || vec![0.0; hyper.scales.len() + hyper.apart.len() + 2];
    let add = |mut a: Vec<f64>, b: Vec<f64>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    // In the order of the cases, so that a fit is the same every time.
    let rows: Vec<Vec<f64>> = (0..n).into_par_iter().map(row).collect();
    let mut slopes = rows.into_iter().fold(zero(), add);
    let lengths = hyper.scales.iter().chain(&hyper.apart);
    slopes.iter_mut().zip(lengths).for_each(|(slope, length)| *slope *= 2.0 * length * length);
    Some((0.5 * fitted + determinant, slopes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::{rng, unit};

    /// Values that depend on the first number and the name, with noise, and not on the second number.
    fn sampled(count: usize, noise: f64, seed: u64) -> (Vec<Place>, Vec<f64>) {
        let mut rng = rng(seed);
        let one = |_| {
            let [x, y, miss] = [(); 3].map(|()| unit(&mut rng));
            let is_other = unit(&mut rng) < 0.5;
            let place = Place { numbers: vec![10.0 * x, y, 7.0], names: vec![is_other.to_string()] };
            let value = (3.0 * x).sin() + if is_other { 0.5 } else { 0.0 } + noise * (miss - 0.5);
            (place, value)
        };
        (0..count).map(one).unzip()
    }

    #[test]
    fn values_between_the_cases_are_found_and_what_does_not_matter_is_left_out() {
        let (places, values) = sampled(150, 0.0, 1);
        let (process, said) = fit(&places.iter().collect::<Vec<_>>(), &values);
        assert!(process.is_of(places.iter()));
        // The second number varies a tenth as much as the first.
        assert!(process.scales[1] < process.scales[0] && process.scales[2] == 0.0, "{process:?}");
        let (unseen, truth) = sampled(100, 0.0, 2);
        for (place, truth) in unseen.iter().zip(&truth) {
            approx::assert_abs_diff_eq!(process.value(place, places.iter()), truth, epsilon = 0.02);
        }
        for (said, value) in said.iter().zip(&values) {
            approx::assert_abs_diff_eq!(said, value, epsilon = 0.05);
        }
    }

    #[test]
    fn a_case_is_told_of_by_the_others_alone() {
        let (places, mut values) = sampled(60, 0.1, 3);
        let places: Vec<&Place> = places.iter().collect();
        let (_, before) = fit(&places, &values);
        values[17] += 1000.0;
        let (_, after) = fit(&places, &values);
        // Its own value changes what is said of others, not what is said of it and of those left out with it.
        for i in 0..60 {
            assert_eq!(before[i].to_bits() == after[i].to_bits(), i % FOLDS == 7, "{i}: {} {}", before[i], after[i]);
        }
    }

    #[test]
    fn values_without_an_order_leave_the_mean() {
        let (places, _) = sampled(3, 0.0, 1);
        let (process, _) = fit(&places.iter().collect::<Vec<_>>(), &[f64::NAN; 3]);
        assert!(process.is_of(places.iter()) && process.value(&places[0], places.iter()).is_nan());
    }

    #[test]
    fn noise_widens_the_spread_and_few_cases_are_no_panic() {
        let of = |noise| {
            let (places, values) = sampled(200, noise, 4);
            fit(&places.iter().collect::<Vec<_>>(), &values).0.spread
        };
        assert!(of(0.4) > 3.0 * of(0.0), "{} {}", of(0.4), of(0.0));
        for count in 0..3 {
            let (places, values) = sampled(count, 0.0, 5);
            assert!(
                fit(&places.iter().collect::<Vec<_>>(), &values).0.value(&Place::default(), places.iter()).is_finite()
            );
        }
    }
}
