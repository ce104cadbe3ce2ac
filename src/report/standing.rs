//! How a candidate stands beside its peers over many shapes: the mean, and what it hides.

use crate::check::outcome::{PeerTiming, Timing, Verdict};
use crate::core::stats::geometric_mean;

/// The name of the peer that is the fastest in each case.
pub const BEST: &str = "the best of them";

/// A ratio above which a case counts as slower, and as much slower.
pub const SLOWER: f64 = 1.05;
/// See [`SLOWER`].
pub const MUCH_SLOWER: f64 = 1.25;

/// A candidate beside one peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Beside whom: a peer, or [`BEST`].
    pub peer: String,
    /// The shapes that both were timed at, with candidate over peer.
    pub ratios: Vec<(String, f64)>,
    /// The geometric mean of the ratios.
    pub mean: f64,
}

impl Standing {
    /// Beside a peer with these ratios by shape; `None` without any.
    pub fn of(peer: &str, ratios: Vec<(String, f64)>) -> Option<Self> {
        let mean = geometric_mean(&ratios.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>());
        (!ratios.is_empty()).then(|| Standing { peer: peer.into(), ratios, mean })
    }

    /// The number of shapes with a ratio above `limit`.
    pub fn above(&self, limit: f64) -> usize {
        self.ratios.iter().filter(|(_, ratio)| *ratio > limit).count()
    }

    /// One line: `beside cublaslt: 0.83 of its time, the geometric mean over 70 shapes; …`.
    pub fn describe(&self) -> String {
        let worst = self.ratios.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let worst = worst.map_or_else(String::new, |(shape, ratio)| format!("; worst {ratio:.3} at {shape}"));
        format!(
            "beside {}: {:.3} of its time, the geometric mean over {} shapes; {} above {SLOWER}, {} above {MUCH_SLOWER}{worst}",
            self.peer,
            self.mean,
            self.ratios.len(),
            self.above(SLOWER),
            self.above(MUCH_SLOWER),
        )
    }
}

/// The standing beside each peer whose outputs were right, and beside the fastest of several at each shape.
pub fn standings(timings: &[Timing]) -> Vec<Standing> {
    let counts = |peer: &&PeerTiming| peer.verdict == Verdict::Pass && peer.ratio.is_finite() && peer.ratio > 0.0;
    let mut names: Vec<&str> = Vec::new();
    for peer in timings.iter().flat_map(|timing| &timing.peers).filter(counts) {
        if !names.contains(&peer.name.as_str()) {
            names.push(&peer.name);
        }
    }
    let beside = |name: &str| {
        let one = |timing: &Timing| {
            let peer = timing.peers.iter().filter(counts).find(|peer| peer.name == name)?;
            Some((timing.shape.clone(), peer.ratio))
        };
        Standing::of(name, timings.iter().filter_map(one).collect())
    };
    let best = || {
        let one = |timing: &Timing| {
            let ratios = timing.peers.iter().filter(counts).map(|peer| peer.ratio);
            Some((timing.shape.clone(), ratios.max_by(f64::total_cmp)?))
        };
        Standing::of(BEST, timings.iter().filter_map(one).collect())
    };
    let each = names.iter().filter_map(|name| beside(name));
    each.chain((names.len() > 1).then(best).flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(shape: &str, peers: &[(&str, f64, Verdict)]) -> Timing {
        let peers = peers.iter().map(|&(name, ratio, verdict)| PeerTiming {
            ratio,
            ..PeerTiming::untimed(name.into(), String::new(), verdict, String::new())
        });
        let times = ["median_us", "p5_us", "p95_us", "low_us", "high_us"].map(|field| (field.to_owned(), 1.0.into()));
        let mut value = serde_json::json!({
            "shape": shape, "heat": "cold", "samples": 1, "dropped": 0, "bytes": 1, "flops": 1, "verdict": "pass",
        });
        value.as_object_mut().unwrap().extend(times);
        Timing { peers: peers.collect(), ..serde_json::from_value(value).unwrap() }
    }

    #[test]
    fn the_best_peer_counts_at_each_shape_and_wrong_ones_never() {
        let timings = [
            timing("n=1", &[("a", 0.5, Verdict::Pass), ("b", 2.0, Verdict::Pass)]),
            timing("n=2", &[("a", 2.0, Verdict::Pass), ("b", 9.0, Verdict::Fail)]),
            timing("n=3", &[("a", f64::NAN, Verdict::Pass)]),
        ];
        let found = standings(&timings);
        assert_eq!(found.iter().map(|s| s.peer.as_str()).collect::<Vec<_>>(), ["a", "b", BEST]);
        assert!((found[0].mean - 1.0).abs() < 1e-12 && found[0].ratios.len() == 2);
        assert!((found[2].mean - 2.0).abs() < 1e-12 && found[2].above(SLOWER) == 2);
        assert_eq!(
            found[0].describe(),
            "beside a: 1.000 of its time, the geometric mean over 2 shapes; 1 above 1.05, 1 above 1.25; worst 2.000 at n=2"
        );
    }

    #[test]
    fn without_a_peer_there_is_no_standing() {
        assert_eq!(standings(&[timing("n=1", &[])]), []);
    }
}
