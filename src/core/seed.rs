//! Seeds: every random choice derives from one run seed and the name of what it is for.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

/// The seed of a run when none is given.
pub const DEFAULT_SEED: u64 = 0x6b65_726e_656c;

/// A generator that yields the same values on every platform for one seed.
pub type Rng = Pcg64Mcg;

/// The generator of `seed`.
pub fn rng(seed: u64) -> Rng {
    Pcg64Mcg::seed_from_u64(seed)
}

/// A seed that depends on `seed` and on every part of a name, so that streams do not overlap.
pub fn derive(seed: u64, parts: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    u64::from_le_bytes(digest[..8].try_into().expect("a SHA-256 digest has 32 bytes"))
}

/// A number in `0..bound`, without modulo bias worth speaking of (bound far below 2⁶⁴).
pub fn below(rng: &mut Rng, bound: usize) -> usize {
    use rand_pcg::rand_core::Rng as _;
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

/// A number in [0, 1) with 53 random bits.
pub fn unit(rng: &mut Rng) -> f64 {
    use rand_pcg::rand_core::Rng as _;
    (rng.next_u64() >> 11) as f64 * 2f64.powi(-53)
}

/// A shuffled copy of `0..n`.
pub fn permutation(rng: &mut Rng, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, below(rng, i + 1));
    }
    order
}

/// Seeds in files: `"0x2a"`. Files of earlier versions hold numbers, which are read too.
pub mod text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a seed.
    ///
    /// # Errors
    /// As the serializer.
    pub fn serialize<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{seed:#x}"))
    }

    /// Reads a seed.
    ///
    /// # Errors
    /// If it is neither text nor a number, or does not fit 64 bits.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Seed {
            Number(u64),
            Text(String),
        }
        match Seed::deserialize(deserializer)? {
            Seed::Number(seed) => Ok(seed),
            Seed::Text(text) => super::parse(&text).map_err(Error::custom),
        }
    }
}

/// `42` or `0x2a`.
///
/// # Errors
/// If it is neither.
pub fn parse(text: &str) -> Result<u64, String> {
    let hex = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16));
    hex.unwrap_or_else(|| text.parse()).map_err(|_| format!("`{text}` is no seed; use 42 or 0x2a"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_not_concatenated() {
        assert_ne!(derive(1, &["ab", "c"]), derive(1, &["a", "bc"]));
        assert_ne!(derive(1, &["a"]), derive(2, &["a"]));
    }

    #[test]
    fn a_permutation_holds_every_index_once() {
        let mut order = permutation(&mut rng(7), 100);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
