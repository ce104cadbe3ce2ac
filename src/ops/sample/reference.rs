//! What is drawn in f64, and what may be drawn in its place where u, or the share that is kept, is as near to a boundary as
//! roundings of f32 reach.

use super::host::{MICRO, Rule};

/// Half an ulp of an f32 of size 1.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

/// The tokens of a row that may be kept.
pub struct Likely<'r> {
    row: &'r [f64],
    /// Those that `top_k` leaves out have none.
    weights: Vec<f64>,
    /// The logits that there are, the largest first, each with the weights of all tokens down to it.
    down_to: Vec<(f64, f64)>,
    /// The share of the weights that is kept.
    top_p: f64,
    /// What a sum of weights may be off by, as a share of the total. A weight collects four roundings of a difference of
    /// logits over the temperature, as large as that is, and eight of the exponential and its sums: those of weights in
    /// f32 count as none, for a sum of as many terms as there are tokens must be wider.
    off: f64,
}

impl<'r> Likely<'r> {
    /// Those of one row.
    pub fn of(row: &'r [f64], rule: &Rule) -> Self {
        let mut sorted: Vec<f64> = row.iter().copied().filter(|x| !x.is_nan()).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let most = sorted.first().copied().unwrap_or(f64::NAN);
        let last = if rule.top_k == 0 { sorted.len() } else { rule.top_k.min(sorted.len()) };
        let least = last.checked_sub(1).map_or(f64::NAN, |last| sorted[last]);
        let temperature = rule.temperature_micro as f64 / MICRO as f64;
        // Infinities have no difference.
        let exponent = |x: f64| if x == most { 0.0 } else { (x - most) / temperature };
        let weight = |x: f64| exponent(x).exp();
        let (mut down_to, mut total, mut off) = (Vec::<(f64, f64)>::new(), 0.0, 0.0);
        for &x in sorted.iter().take_while(|x| **x >= least) {
            total += weight(x);
            if weight(x) > 0.0 {
                off += weight(x) * (4.0 * exponent(x).abs() + 8.0) * ROUNDING;
            }
            match down_to.last_mut().filter(|(same, _)| *same == x) {
                Some((_, sum)) => *sum = total,
                None => down_to.push((x, total)),
            }
        }
        let weights = row.iter().map(|&x| if x >= least { weight(x) } else { 0.0 }).collect();
        Likely { row, weights, down_to, top_p: rule.top_p_micro as f64 / MICRO as f64, off: off / total }
    }

    /// The token that is drawn; 0 where there is none.
    pub fn token(&self, u: f64) -> usize {
        let Some(&(least, total)) = self.down_to.get(self.last_of(self.top_p)) else { return 0 };
        let mut sum = 0.0;
        let passes = |(_, weight): &(usize, f64)| {
            sum += weight;
            sum > u * total
        };
        let drawn = self.kept(least).find(passes).or_else(|| self.kept(least).last());
        drawn.map_or(0, |(token, _)| token)
    }

    /// The tokens that may be drawn as well: those that have a weight, are kept where the share is off by what it may be
    /// off by, and are drawn by a number that is.
    pub fn nearly(&self, u: f64) -> Vec<usize> {
        let (fewest, most) = (self.last_of(self.top_p - self.off), self.last_of(self.top_p + self.off));
        let several = if fewest == most { 1.0 } else { 2.0 };
        let mut found = Vec::new();
        let mut looked_at = f64::INFINITY;
        for &(least, total) in self.down_to.iter().take(most + 1).skip(fewest).rev() {
            // Those without a few tokens that have next to no weight are the ones that were looked at.
            if looked_at - total >= self.off * total {
                self.add_nearly(u, several * self.off, least, total, &mut found);
                looked_at = total;
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn add_nearly(&self, u: f64, off: f64, least: f64, total: f64, found: &mut Vec<usize>) {
        let mut sum = 0.0;
        for (token, weight) in self.kept(least) {
            let before = sum;
            sum += weight;
            if before <= (u + off) * total && sum >= (u - off) * total {
                found.push(token);
            }
        }
    }

    /// The tokens down to a logit that have a weight, by their number.
    fn kept(&self, least: f64) -> impl Iterator<Item = (usize, f64)> {
        let all = self.row.iter().zip(&self.weights).enumerate();
        all.filter(move |(_, (x, weight))| **x >= least && **weight > 0.0).map(|(token, (_, weight))| (token, *weight))
    }

    /// The last logit of those that have a share of the weights together.
    fn last_of(&self, share: f64) -> usize {
        let Some(last) = self.down_to.len().checked_sub(1) else { return 0 };
        // All of them is no question of roundings.
        if self.top_p >= 1.0 {
            return last;
        }
        let wanted = share * self.down_to[last].1;
        self.down_to.partition_point(|(_, sum)| *sum < wanted).min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: [f64; 5] = [0.0, 2.0, f64::NAN, 1.0, -1.0];

    fn likely(rule: &Rule) -> Likely<'static> {
        Likely::of(&ROW, rule)
    }

    #[test]
    fn tokens_have_their_share_of_the_numbers() {
        let all = likely(&Rule::of(1.0, 0, 1.0));
        let total: f64 = [0.0f64, 2.0, 1.0, -1.0].map(f64::exp).iter().sum();
        let first = 1.0 / total;
        assert_eq!([0.0, first - 1e-6, first + 1e-6, 1.0 - 1e-9].map(|u| all.token(u)), [0, 0, 1, 4]);
        assert_eq!(likely(&Rule::of(1.0, 2, 1.0)).token(0.0), 1);
        assert_eq!(likely(&Rule::of(1.0, 2, 1.0)).token(1.0 - 1e-9), 3);
        assert_eq!(Likely::of(&[f64::NAN], &Rule::of(1.0, 0, 1.0)).token(0.5), 0);
    }

    #[test]
    fn beside_a_boundary_there_are_two_tokens_and_elsewhere_one() {
        let all = likely(&Rule::of(1.0, 0, 1.0));
        let total: f64 = [0.0f64, 2.0, 1.0, -1.0].map(f64::exp).iter().sum();
        let first = 1.0 / total;
        assert_eq!(all.nearly(first), [0, 1]);
        assert_eq!(all.nearly(first + 1e-6), [1]);
        assert_eq!(all.nearly(first + 0.9 * all.off), [0, 1]);
        assert!((4.0 * ROUNDING..20.0 * ROUNDING).contains(&all.off), "{}", all.off);
    }

    /// e^2 of e^2 + e^1 is .7310586.
    #[test]
    fn a_share_at_a_boundary_keeps_the_tokens_of_either_side() {
        let share = 1.0 / (1.0 + f64::exp(-1.0));
        let with = |top_p: f64| Likely { top_p, ..likely(&Rule::of(1.0, 2, 0.5)) };
        // u is in the share of token 1 if it is alone, and in that of token 3 if both are kept.
        assert_eq!(with(share - 1e-6).nearly(0.9), [1]);
        assert_eq!(with(share).nearly(0.9), [1, 3]);
        assert_eq!(with(share + 1e-6).nearly(0.9), [3]);
    }

    #[test]
    fn tokens_without_a_weight_are_not_drawn_nearly() {
        let all = Likely::of(&[-1e4, f64::NEG_INFINITY, 0.0, -1e4], &Rule::of(1.0, 0, 1.0));
        assert_eq!((all.nearly(0.0), all.nearly(1.0)), (vec![2], vec![2]));
    }
}
