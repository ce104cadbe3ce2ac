//! Parameters from a sweep: those that make the median relative error small, found one by one in shrinking steps.

use super::features::Features;
use super::limits::Limits;
use super::model::Parameters;
use rayon::prelude::*;
use std::collections::BTreeSet;

/// A sweep has noise of its own below this; misses above it count in proportion, not in square.
const SMALL: f64 = 0.02;

/// How much the offset of a path is drawn to zero, in cases without a miss.
const PATH_PRIOR: f64 = 1.0;

/// Rounds over all parameters.
const ROUNDS: usize = 60;

/// The parameters that fit best to measured cases.
pub fn fit(cases: &[(Features, f64)], limits: &Limits) -> Parameters {
    // From several beginnings: bound by memory, by the pipe, by launches.
    let begins = [[1.0, 1.0, 1.0], [1.0, 1.1, 4.0], [4.0, 1.0, 0.2]];
    let begins = begins.map(|[launch, memory, pipe]| Parameters { launch, memory, pipe, ..Parameters::IDEAL });
    // And as products in tiles are, which stay far from the others.
    let tiled = Parameters {
        launch: 3.0,
        pipe: 1.05,
        wave: 0.5,
        quantisation: 0.8,
        overlap: 4.0,
        copy: 2.4,
        unaligned: 0.5,
        straddling: 0.2,
        ..Parameters::IDEAL
    };
    let all_on_tensor_cores = cases.iter().all(|(features, _)| features.on_tensor_cores);
    let bounds = if all_on_tensor_cores { Parameters::BOUNDS_ON_TENSOR_CORES } else { Parameters::BOUNDS };
    let paths = numbered(cases);
    let loss = |at| loss(&Parameters::from_array(at), cases, &paths, limits);
    let begins: Vec<Parameters> = begins.into_iter().chain([tiled]).collect();
    let fitted: Vec<_> = begins.par_iter().map(|begin| descend(begin.as_array(), &bounds, loss)).collect();
    let best = fitted.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(Parameters::IDEAL, |(at, _)| Parameters::from_array(at))
}

/// What the offset of a path costs beside the misses: as little as makes no path an excuse for the model.
const OFFSET: f64 = 0.05;

/// The mean of the misses, as logarithms of ratios, squares near zero (Huber). Each path, of which `paths` has the number of
/// every case, may be faster or slower as a whole: one candidate has several kernels.
fn loss(parameters: &Parameters, cases: &[(Features, f64)], paths: &[usize], limits: &Limits) -> f64 {
    let misses: Vec<f64> =
        cases.iter().map(|(features, us)| (parameters.time_us(features, limits) / us).ln()).collect();
    let mut of_path = vec![(0.0, PATH_PRIOR); paths.iter().max().map_or(0, |most| most + 1)];
    for (&path, miss) in paths.iter().zip(&misses) {
        of_path[path].0 += miss;
        of_path[path].1 += 1.0;
    }
    let offsets: Vec<f64> = of_path.into_iter().map(|(sum, count)| sum / count).collect();
    let of_case = paths.iter().zip(&misses).map(|(&path, miss)| {
        let left = (miss - offsets[path]).abs();
        let huber = if left < SMALL { left * left / (2.0 * SMALL) } else { left - SMALL / 2.0 };
        huber + OFFSET * offsets[path].abs()
    });
    of_case.sum::<f64>() / cases.len().max(1) as f64
}

/// The number of each case's path.
fn numbered(cases: &[(Features, f64)]) -> Vec<usize> {
    let names: BTreeSet<&str> = cases.iter().map(|(features, _)| features.path.as_str()).collect();
    let number = |path: &str| names.iter().position(|name| *name == path).unwrap_or(0);
    cases.iter().map(|(features, _)| number(&features.path)).collect()
}

/// Coordinate descent with a step for each parameter, which grows while it helps and shrinks when it does not.
fn descend(
    begin: [f64; Parameters::COUNT],
    bounds: &[(f64, f64); Parameters::COUNT],
    loss: impl Fn([f64; Parameters::COUNT]) -> f64,
) -> ([f64; Parameters::COUNT], f64) {
    let mut at: [f64; Parameters::COUNT] = std::array::from_fn(|i| begin[i].clamp(bounds[i].0, bounds[i].1));
    let mut steps = at.map(|value| 0.3 * value.max(0.1));
    let mut best = loss(at);
    for _ in 0..ROUNDS {
        for (i, step) in steps.iter_mut().enumerate() {
            let (low, high) = bounds[i];
            let tried = [*step, -*step].map(|step| {
                let mut there = at;
                there[i] = (at[i] + step).clamp(low, high);
                (there, loss(there))
            });
            let better = tried.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, found)| *found < best);
            match better {
                Some((there, found)) => (at, best, *step) = (there, found, 1.6 * *step),
                None => *step *= 0.5,
            }
        }
    }
    (at, best)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::family::Family;
    use super::super::tiling::Tiling;
    use super::*;
    use crate::calibrate::Calibration;
    use crate::core::dtype::DType;
    use crate::core::seed::{rng, unit};

    /// The limits of the shipped H200 calibration.
    pub fn h200() -> Limits {
        calibrated("nvidia-h200-132")
    }

    pub fn calibrated(device: &str) -> Limits {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/calibration");
        Limits::of(&Calibration::read(&folder.join(format!("{device}.json"))).unwrap()).unwrap()
    }

    /// Products of random shapes, as a model with these parameters would time them, each off by up to `noise`.
    pub fn products(truth: &Parameters, count: usize, noise: f64, seed: u64) -> Vec<(Features, f64)> {
        let mut rng = rng(seed);
        let mut extent = || (2f64.powf(6.0 + 7.0 * unit(&mut rng))) as usize;
        let shapes: Vec<[usize; 3]> = (0..count).map(|_| [extent(), extent(), extent()]).collect();
        let cases = shapes.into_iter().map(|[m, n, k]| {
            let features = Features {
                read_bytes: 2.0 * (m * k + k * n) as f64,
                written_bytes: 2.0 * (m * n) as f64,
                flops: 2.0 * (m * n * k) as f64,
                on_tensor_cores: true,
                dtype: DType::BF16,
                launches: 1.0,
                blocks: (m.div_ceil(128) * n.div_ceil(256)) as f64,
                path: String::new(),
                tilings: vec![Tiling::of_blocks(m.div_ceil(128) * n.div_ceil(256), 2.0 * (m * n * k) as f64)],
                of_library: Vec::new(),
                copied_bytes: 0.0,
                cached: 0.0,
                unaligned: 0.0,
                straddling: 0.0,
                algorithm: Default::default(),
                extents: vec![m, n, k],
                attributes: Vec::new(),
            };
            let us = truth.time_us(&features, &h200()) * (1.0 + noise * (2.0 * unit(&mut rng) - 1.0));
            (features, us)
        });
        cases.collect()
    }

    pub const TRUTH: Parameters = Parameters {
        launch: 3.0,
        memory: 1.08,
        pipe: 1.3,
        wave: 0.05,
        quantisation: 0.8,
        overlap: 4.0,
        ..Parameters::IDEAL
    };

    /// Half of the cases run a kernel that is eight times as slow: that is no property of the other one.
    #[test]
    fn a_slow_path_leaves_the_others_alone() {
        let limits = h200();
        let of = |count, seed| {
            let cases = products(&TRUTH, count, 0.0, seed).into_iter().enumerate();
            cases.map(|(i, (features, us))| {
                let is_slow = i % 2 == 0;
                let path = if is_slow { "naive" } else { "tiled" };
                (Features { path: path.into(), ..features }, if is_slow { 8.0 * us } else { us })
            })
        };
        let family = Family::fitted(("gemm", "cuda", DType::BF16), of(60, 1).collect(), &limits).unwrap();
        let misses = of(100, 2).map(|(features, us)| (family.time_us(&features, None) / us - 1.0).abs());
        let mean = misses.sum::<f64>() / 100.0;
        assert!(mean < 0.06, "{mean} with {:?}", family.parameters);
    }

    #[test]
    fn a_fit_predicts_what_it_has_not_seen() {
        let limits = h200();
        let found = fit(&products(&TRUTH, 120, 0.01, 1), &limits);
        let unseen = products(&TRUTH, 200, 0.0, 2);
        let miss = |p: &Parameters| {
            let all = unseen.iter().map(|(features, us)| (p.time_us(features, &limits) / us - 1.0).abs());
            all.sum::<f64>() / unseen.len() as f64
        };
        assert!(miss(&found) < 0.02, "{:.3} with {found:?}", miss(&found));
        assert!(miss(&Parameters::IDEAL) > 0.15, "the truth is not what a fit begins with");
    }
}
