//! Configurations that need no folder: the shapes of published models, for measuring speed with random weights.

use super::config::{Architecture, Config, RopeScaling};

/// The names that [`named`] knows.
pub const NAMES: [&str; 5] = ["tinyllama", "llama-3.2-1b", "smollm2-135m", "opt-125m", "opt-1.3b"];

/// The configuration of that name.
pub fn named(name: &str) -> Option<Config> {
    let config = match name {
        "tinyllama" => Config { vocabulary: 32_000, ..llama(2048, 5632, 22, (32, 4), 2048) },
        "llama-3.2-1b" => Config {
            vocabulary: 128_256,
            tied: true,
            rope_theta: 500_000.0,
            rope_scaling: RopeScaling::Llama3 { factor: 32.0, low: 1.0, high: 4.0, original_context: 8192.0 },
            ..llama(2048, 8192, 16, (32, 8), 131_072)
        },
        "smollm2-135m" => {
            Config { vocabulary: 49_152, tied: true, rope_theta: 100_000.0, ..llama(576, 1536, 30, (9, 3), 8192) }
        }
        "opt-125m" => opt(768, 3072, 12, 12),
        "opt-1.3b" => opt(2048, 8192, 24, 32),
        _ => return None,
    };
    Some(Config { source: name.into(), ..config })
}

/// A configuration that is small enough for the simulator: grouped heads of 16, so that a row of any tensor is a multiple of
/// 16 bytes in every dtype. Of the Llama class one layer, whose launches start as many threads as the simulator searches among.
pub(super) fn tiny(architecture: Architecture) -> Config {
    match architecture {
        Architecture::Llama => Config { vocabulary: 64, ..llama(32, 48, 1, (2, 1), 64) },
        Architecture::Opt => Config { vocabulary: 64, context: 64, ..opt(32, 48, 2, 2) },
    }
}

fn llama(hidden: usize, inner: usize, layers: usize, (heads, key_heads): (usize, usize), context: usize) -> Config {
    Config {
        source: String::new(),
        architecture: Architecture::Llama,
        vocabulary: 0,
        hidden,
        inner,
        layers,
        heads,
        key_heads,
        head_dim: hidden / heads,
        context,
        eps: 1e-5,
        tied: false,
        attention_bias: false,
        mlp_bias: false,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        bos: None,
        eos: Vec::new(),
    }
}

fn opt(hidden: usize, inner: usize, layers: usize, heads: usize) -> Config {
    Config {
        architecture: Architecture::Opt,
        vocabulary: 50_272,
        tied: true,
        attention_bias: true,
        mlp_bias: true,
        ..llama(hidden, inner, layers, (heads, heads), 2048)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Model;
    use rstest::rstest;

    /// As the publishers count them.
    #[rstest]
    #[case("tinyllama", 1_100_048_384)]
    #[case("llama-3.2-1b", 1_235_814_400)]
    #[case("smollm2-135m", 134_515_008)]
    #[case("opt-125m", 125_239_296)]
    #[case("opt-1.3b", 1_315_758_080)]
    fn the_models_have_their_parameters(#[case] name: &str, #[case] parameters: usize) {
        assert_eq!(Model::of(&named(name).unwrap()).unwrap().parameters(), parameters);
    }

    #[test]
    fn every_name_is_known() {
        assert!(NAMES.iter().all(|name| named(name).is_some()) && named("gpt").is_none());
    }
}
