//! What `config.json` says of a model, in the words of the architectures here.

use super::error::Error;
use serde_json::Value;
use std::path::Path;

/// The classes of models there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// RMSNorm, rotary positions, SwiGLU.
    Llama,
    /// LayerNorm, learned positions, ReLU.
    Opt,
}

/// What is done to the frequencies of rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Nothing.
    None,
    /// All divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Long waves divided by a factor, short ones kept, those between in part.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Waves of fewer turns than this in the original context are long.
        low: f64,
        /// Waves of more turns are short.
        high: f64,
        /// The context before it was extended.
        original_context: f64,
    },
}

/// A model's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it is from, for messages.
    pub source: String,
    /// The class.
    pub architecture: Architecture,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Elements of a token between layers.
    pub hidden: usize,
    /// Elements in the middle of the feed-forward part.
    pub inner: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions.
    pub context: usize,
    /// ε of the norms.
    pub eps: f32,
    /// Whether logits use the embedding's weight.
    pub tied: bool,
    /// Whether the projections of attention have a bias (Llama class).
    pub attention_bias: bool,
    /// The same of the feed-forward part.
    pub mlp_bias: bool,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// What is done to them.
    pub rope_scaling: RopeScaling,
    /// The token that a text begins with.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

/// A JSON object with its file, for messages.
struct Object<'a> {
    file: &'a Path,
    value: &'a Value,
}

impl Object<'_> {
    fn wrong<T>(&self, key: &str, expected: &str) -> Result<T, Error> {
        let found = self.value.get(key).map_or("nothing".into(), Value::to_string);
        Err(Error::in_file(self.file, &format!("`{key}`"), expected, found))
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    fn count(&self, key: &str) -> Result<usize, Error> {
        match self.get(key).and_then(Value::as_u64) {
            Some(count) if count > 0 => Ok(count as usize),
            _ => self.wrong(key, "a positive number"),
        }
    }

    fn count_or(&self, key: &str, default: usize) -> Result<usize, Error> {
        if self.get(key).is_some() { self.count(key) } else { Ok(default) }
    }

    fn number_or(&self, key: &str, default: Option<f64>) -> Result<f64, Error> {
        match (self.get(key).map(Value::as_f64), default) {
            (Some(Some(number)), _) | (None, Some(number)) => Ok(number),
            _ => self.wrong(key, "a number"),
        }
    }

    fn flag_or(&self, key: &str, default: bool) -> Result<bool, Error> {
        match self.get(key).map(Value::as_bool) {
            Some(Some(flag)) => Ok(flag),
            None => Ok(default),
            Some(None) => self.wrong(key, "true or false"),
        }
    }

    /// Fails unless the key is absent or has this value.
    fn only(&self, key: &str, value: &Value) -> Result<(), Error> {
        if self.get(key).is_none_or(|found| found == value) { Ok(()) } else { self.wrong(key, &value.to_string()) }
    }

    fn tokens(&self, key: &str) -> Vec<u32> {
        let all = self.get(key).map(|value| value.as_array().cloned().unwrap_or(vec![value.clone()]));
        all.unwrap_or_default().iter().filter_map(|token| token.as_u64().map(|token| token as u32)).collect()
    }
}

impl Config {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// What is missing, malformed or not one of the architectures here.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file)
            .map_err(|why| Error::in_file(file, "", "the configuration of a model", why.to_string()))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|why| Error::in_file(file, "", "JSON", why.to_string()))?;
        Config::of(file, &value)
    }

    /// The configuration in a `config.json` that was parsed.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn of(file: &Path, value: &Value) -> Result<Self, Error> {
        let object = Object { file, value };
        let config = match value.get("model_type").and_then(Value::as_str) {
            Some("llama") => llama(&object),
            Some("opt") => opt(&object),
            _ => object.wrong("model_type", "\"llama\" or \"opt\""),
        }?;
        if config.heads.is_multiple_of(config.key_heads) {
            return Ok(config);
        }
        object.wrong("num_key_value_heads", &format!("a divisor of {} heads", config.heads))
    }

    /// The norms of the catalogue take one of two ε.
    pub(super) fn check_eps(&self) -> Result<(), Error> {
        if [1e-5, 1e-6].contains(&self.eps) {
            return Ok(());
        }
        Err(Error::input(format!("{}: ε of the norms", self.source), "1e-5 or 1e-6", format!("{:?}", self.eps)))
    }
}

fn llama(o: &Object<'_>) -> Result<Config, Error> {
    o.only("hidden_act", &"silu".into())?;
    let (hidden, heads) = (o.count("hidden_size")?, o.count("num_attention_heads")?);
    // Older files have the base beside the scaling, newer ones in one object.
    let parameters = o.get("rope_parameters").or_else(|| o.get("rope_scaling")).cloned().unwrap_or(Value::Null);
    let rope = Object { file: o.file, value: &parameters };
    let theta = rope.number_or("rope_theta", Some(o.number_or("rope_theta", Some(10_000.0))?))?;
    let config = Config {
        source: o.file.display().to_string(),
        architecture: Architecture::Llama,
        vocabulary: o.count("vocab_size")?,
        hidden,
        inner: o.count("intermediate_size")?,
        layers: o.count("num_hidden_layers")?,
        heads,
        key_heads: o.count_or("num_key_value_heads", heads)?,
        head_dim: o.count_or("head_dim", hidden / heads)?,
        context: o.count("max_position_embeddings")?,
        eps: o.number_or("rms_norm_eps", Some(1e-6))? as f32,
        tied: o.flag_or("tie_word_embeddings", false)?,
        attention_bias: o.flag_or("attention_bias", false)?,
        mlp_bias: o.flag_or("mlp_bias", false)?,
        rope_theta: theta,
        rope_scaling: scaling(&rope)?,
        bos: o.tokens("bos_token_id").first().copied(),
        eos: o.tokens("eos_token_id"),
    };
    if config.head_dim.is_multiple_of(2) { Ok(config) } else { o.wrong("head_dim", "an even number") }
}

fn scaling(rope: &Object<'_>) -> Result<RopeScaling, Error> {
    let key = if rope.get("rope_type").is_some() { "rope_type" } else { "type" };
    match rope.get(key).and_then(Value::as_str) {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear { factor: rope.number_or("factor", None)? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: rope.number_or("factor", None)?,
            low: rope.number_or("low_freq_factor", None)?,
            high: rope.number_or("high_freq_factor", None)?,
            original_context: rope.number_or("original_max_position_embeddings", None)?,
        }),
        Some(_) => rope.wrong(key, "default, linear or llama3"),
    }
}

fn opt(o: &Object<'_>) -> Result<Config, Error> {
    o.only("activation_function", &"relu".into())?;
    o.only("do_layer_norm_before", &true.into())?;
    o.only("enable_bias", &true.into())?;
    o.only("_remove_final_layer_norm", &false.into())?;
    let (hidden, heads) = (o.count("hidden_size")?, o.count("num_attention_heads")?);
    o.only("word_embed_proj_dim", &hidden.into())?;
    Ok(Config {
        source: o.file.display().to_string(),
        architecture: Architecture::Opt,
        vocabulary: o.count("vocab_size")?,
        hidden,
        inner: o.count("ffn_dim")?,
        layers: o.count("num_hidden_layers")?,
        heads,
        key_heads: heads,
        head_dim: hidden / heads,
        context: o.count("max_position_embeddings")?,
        eps: 1e-5,
        tied: o.flag_or("tie_word_embeddings", true)?,
        attention_bias: true,
        mlp_bias: true,
        rope_theta: 0.0,
        rope_scaling: RopeScaling::None,
        bos: o.tokens("bos_token_id").first().copied(),
        eos: o.tokens("eos_token_id"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn changed(key: &str, value: Value) -> Result<Config, Error> {
        let mut config = json!({"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128, "rms_norm_eps": 1e-5});
        config[key] = value;
        Config::of(Path::new("m/config.json"), &config)
    }

    #[rstest]
    #[case("model_type", json!("mamba"), "`model_type`: expected \"llama\" or \"opt\", found \"mamba\"")]
    #[case("hidden_size", json!(null), "`hidden_size`: expected a positive number, found null")]
    #[case("num_key_value_heads", json!(3), "`num_key_value_heads`: expected a divisor of 4 heads, found 3")]
    #[case("hidden_act", json!("gelu"), "`hidden_act`: expected \"silu\", found \"gelu\"")]
    #[case("head_dim", json!(7), "`head_dim`: expected an even number, found 7")]
    #[case("rope_scaling", json!({"rope_type": "yarn"}), "`rope_type`: expected default, linear or llama3, found \"yarn\"")]
    #[case("rope_scaling", json!({"type": "llama3"}), "`factor`: expected a number, found nothing")]
    fn what_cannot_be_run_is_named(#[case] key: &str, #[case] value: Value, #[case] said: &str) {
        assert_eq!(changed(key, value).unwrap_err().to_string(), format!("m/config.json: {said}"));
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let config = changed("eos_token_id", json!([2, 5])).unwrap();
        assert_eq!((config.key_heads, config.head_dim, config.tied), (4, 16, false));
        assert_eq!((config.rope_theta, config.eos), (10_000.0, vec![2, 5]));
    }

    #[test]
    fn an_eps_that_no_norm_takes_is_an_error() {
        let error = changed("rms_norm_eps", json!(1e-3)).unwrap().check_eps().unwrap_err();
        assert_eq!(error.to_string(), "m/config.json: ε of the norms: expected 1e-5 or 1e-6, found 0.001");
    }
}
