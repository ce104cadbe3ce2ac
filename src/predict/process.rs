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

impl Process {
    /// Whether it was fitted to as many cases, of as many numbers and names; one that says nothing is of any.
    pub fn is_of<'p>(&self, mut places: impl ExactSizeIterator<Item = &'p Place>) -> bool {
        let says_nothing = self.scales.is_empty() && self.apart.is_empty();
        let fits = |place: &Place| {
            says_nothing || (place.numbers.len(), place.names.len()) == (self.scales.len(), self.apart.len())
        };
        places.len() == self.weights.len() && places.all(fits)
    }

    /// The value at a place; `places` are those of the sweep.
    pub fn value<'p>(&self, at: &Place, places: impl Iterator<Item = &'p Place>) -> f64 {
        let of_cases = places.zip(&self.weights).map(|(place, weight)| weight * self.covariance(at, place));
        self.mean + of_cases.sum::<f64>()
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
