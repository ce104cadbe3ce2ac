//! A planted slowdown: how much, and in which trials. What a gate must find can be put there.

use std::str::FromStr;

/// `0.02` for all trials, `softmax::cuda::f32=0.02` for those with such a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Plant {
    /// A part of the names of the trials; all where there is none.
    pub filter: Option<String>,
    /// The slowdown, as a share of the time of a launch.
    pub share: f64,
}

impl Plant {
    /// The slowdown of a trial.
    pub fn share_of(&self, trial: &str) -> f64 {
        let hit = self.filter.as_ref().is_none_or(|filter| trial.contains(filter));
        if hit { self.share } else { 0.0 }
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (filter, share) = match text.rsplit_once('=') {
            Some((filter, share)) => (Some(filter.to_owned()), share),
            None => (None, text),
        };
        let share = share.parse().ok().filter(|share| (0.0..=10.0).contains(share));
        let share = share.ok_or_else(|| {
            format!("`{text}` plants nothing; 0.05 stands for 5 % in every trial, softmax=0.05 in those of that name")
        })?;
        Ok(Plant { filter, share })
    }
}

impl std::fmt::Display for Plant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.filter {
            Some(filter) => write!(f, "{filter}={}", self.share),
            None => write!(f, "{}", self.share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0.05", 0.05, 0.05)]
    #[case("gelu::a=0.02", 0.02, 0.0)]
    #[case("=0.5", 0.5, 0.5)]
    fn it_grows_where_it_was_planted(#[case] text: &str, #[case] here: f64, #[case] there: f64) {
        let plant: Plant = text.parse().unwrap();
        assert_eq!((plant.share_of("gelu::a::f32::perf"), plant.share_of("silu::a::f32::perf")), (here, there));
        assert_eq!(plant.to_string().parse(), Ok(plant));
    }

    #[rstest]
    #[case("x")]
    #[case("gelu=-1")]
    #[case("gelu=NaN")]
    fn nonsense_is_refused(#[case] text: &str) {
        assert!(text.parse::<Plant>().unwrap_err().contains("plants nothing"));
    }
}
