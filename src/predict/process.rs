//! A Gaussian process over the cases of a sweep: what a model leaves over, from the cases that are like the one asked for.

use serde::{Deserialize, Serialize};

/// Where a case lies among the others of its family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// What its time depends on, as numbers whose differences count.
    pub numbers: Vec<f64>,
    /// And as names, which are the same or not.
    pub names: Vec<String>,
}

/// A process whose covariance is Matérn's of order 5/2, with a length a number and a distance a name (automatic relevance
/// determination), fitted to the values of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// One over the length of each number: 0 for those that do not matter.
    pub scales: Vec<f64>,
    /// How far apart cases are that have another name in this place.
    pub apart: Vec<f64>,
    /// The variance of the values far from any case.
    pub variance: f64,
    /// Their mean.
    pub mean: f64,
    /// Nine of ten values are this near to what the others say of them.
    pub spread: f64,
    /// What each case of the sweep counts, in its order.
    pub weights: Vec<f64>,
}

/// Cases that a process is asked for to see whether it is theirs.
const ASKED: usize = 64;

impl Process {
    /// Whether it was fitted to as many cases, of as many numbers and names; one that says nothing is of any.
    pub fn is_of<'p>(&self, mut places: impl ExactSizeIterator<Item = &'p Place>) -> bool {
        let fits = |place: &Place| {
            self.says_nothing() || (place.numbers.len(), place.names.len()) == (self.scales.len(), self.apart.len())
        };
        places.len() == self.weights.len() && places.all(fits)
    }

    /// The value at a place; `places` are those of the sweep.
    pub fn value<'p>(&self, at: &Place, places: impl Iterator<Item = &'p Place>) -> f64 {
        let of_cases = places.zip(&self.weights).map(|(place, weight)| weight * self.covariance(at, place));
        self.mean + of_cases.sum::<f64>()
    }

    fn says_nothing(&self) -> bool {
        self.scales.is_empty() && self.apart.is_empty()
    }

    /// Whether it says of its own cases about what was measured there: what their values are, in the order of the places. It does
    /// not where the places have moved since it was fitted, whose weights then belong to others. One that says nothing does.
    pub fn recalls(&self, places: &[&Place], values: &[f64]) -> bool {
        let step = places.len().div_ceil(ASKED).max(1);
        let asked = places.iter().zip(values).step_by(step);
        let near = |(at, value): (&&Place, &f64)| (self.value(at, places.iter().copied()) - value).abs() <= self.spread;
        let count = asked.len();
        self.says_nothing() || 4 * asked.filter(|&case| near(case)).count() >= 3 * count
    }

    pub(super) fn covariance(&self, a: &Place, b: &Place) -> f64 {
        let numbers = a.numbers.iter().zip(&b.numbers).zip(&self.scales).map(|((a, b), scale)| (a - b) * scale);
        let names = a.names.iter().zip(&b.names).zip(&self.apart);
        let names = names.map(|((a, b), apart)| if a == b { 0.0 } else { *apart });
        self.variance * matern(numbers.chain(names).map(|apart| apart * apart).sum())
    }
}

/// Matérn's correlation of order 5/2, by the square of a distance.
pub(super) fn matern(square: f64) -> f64 {
    let far = (5.0 * square).sqrt();
    (1.0 + far + 5.0 / 3.0 * square) * (-far).exp()
}
