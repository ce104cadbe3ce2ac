//! The OPT class: LayerNorm, learned positions, biases everywhere, ReLU.
//!
//! ```text
//! x = embedding[token] + positions[position + 2]
//! each layer:
//!   h = layernorm(x)
//!   x = x + out(attention(q(h), k(h), v(h)))
//!   h = layernorm(x)
//!   x = x + fc2(max(fc1(h), 0))
//! logits = embedding · layernorm(x)
//! ```

use super::builder::Builder;
use super::config::Config;
use super::description::Model;
use super::error::Error;

/// Rows of the table of positions before the first one.
const POSITION_OFFSET: usize = 2;

/// The steps of a configuration of the class.
///
/// # Errors
/// Where an operator does not have what the configuration asks for.
pub fn opt(c: &Config) -> Result<Model, Error> {
    c.check_eps()?;
    const BIAS: bool = true;
    let mut m = Builder::default();
    m.layer("embedding");
    let tokens = m.embedding("model.decoder.embed_tokens.weight", c.vocabulary, c.hidden);
    let rows = c.context + POSITION_OFFSET;
    let positions = m.positions("model.decoder.embed_positions.weight", rows, c.hidden, POSITION_OFFSET);
    let mut x = m.add(tokens, positions);
    for layer in 0..c.layers {
        m.layer(format!("layer {layer}"));
        let of = |name: &str| format!("model.decoder.layers.{layer}.{name}");
        let h = m.layernorm(x, &of("self_attn_layer_norm"), c.eps);
        let q = m.linear(h, &of("self_attn.q_proj"), c.hidden, BIAS);
        let k = m.append_linear(h, &of("self_attn.k_proj"), c.hidden, BIAS);
        let v = m.append_linear(h, &of("self_attn.v_proj"), c.hidden, BIAS);
        let attended = m.attention(q, k, v, c.heads, 1);
        let out = m.linear(attended, &of("self_attn.out_proj"), c.hidden, BIAS);
        x = m.add(x, out);
        let h = m.layernorm(x, &of("final_layer_norm"), c.eps);
        let h = m.linear(h, &of("fc1"), c.inner, BIAS);
        let h = m.relu(h);
        let h = m.linear(h, &of("fc2"), c.hidden, BIAS);
        x = m.add(x, h);
    }
    m.layer("output");
    let x = m.layernorm(x.asked(), "model.decoder.final_layer_norm", c.eps);
    let output = if c.tied { "model.decoder.embed_tokens.weight" } else { "lm_head.weight" };
    m.logits(x, output, c.vocabulary);
    Ok(m.language(c.vocabulary, c.context))
}
