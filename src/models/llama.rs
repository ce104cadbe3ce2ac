//! The Llama class: RMSNorm, rotary positions, grouped heads, SwiGLU.
//!
//! ```text
//! x = embedding[token]
//! each layer:
//!   h = rmsnorm(x)
//!   x = x + o(attention(rotate(q(h)), rotate(k(h)), v(h)))
//!   h = rmsnorm(x)
//!   x = x + down(silu(gate(h)) · up(h))
//! logits = output(rmsnorm(x))
//! ```

use super::builder::{Builder, Rows};
use super::config::{Config, RopeScaling};
use super::decode::{Caches, check_heads};
use super::description::{Model, Operand};
use super::error::Error;
use std::f64::consts::TAU;

/// The steps of a configuration of the class.
///
/// # Errors
/// Where an operator does not have what the configuration asks for.
pub fn llama(c: &Config) -> Result<Model, Error> {
    c.check_eps()?;
    let mut m = Builder::default();
    steps(&mut m, c, |_, _| {});
    Ok(output(m, c))
}

/// The same with steps of their own for one new token of each of `batch` sequences.
///
/// # Errors
/// As [`llama`], for biases, and for heads that the fused kernels do not take.
pub fn fused(c: &Config, batch: usize) -> Result<Model, Error> {
    const BIAS: bool = false;
    c.check_eps()?;
    check_heads(c)?;
    if c.attention_bias || c.mlp_bias {
        let expected = "layers without biases, for the fused kernels";
        return Err(Error::input(c.source.clone(), expected, "`attention_bias` or `mlp_bias`"));
    }
    let mut m = Builder::default();
    let mut stacks = Vec::new();
    let (angles, caches) = steps(&mut m, c, |m, layer| stacks.push(stack(m, c, layer)));
    m.decode(batch);
    m.layer("embedding");
    let mut x = m.embedding("model.embed_tokens.weight", c.vocabulary, c.hidden);
    for (layer, ([qkv, gate_up], caches)) in stacks.into_iter().zip(caches).enumerate() {
        m.layer(format!("layer {layer}"));
        let of = |name: &str| format!("model.layers.{layer}.{name}");
        let norm = of("input_layernorm.weight");
        let q = m.project(x, (&norm, c.eps), qkv, angles, caches, [c.heads, c.key_heads, c.head_dim]);
        let attended = m.attend(q, caches, c.key_heads, c.heads / c.key_heads);
        x = m.add_linear(x, attended, &of("self_attn.o_proj"), BIAS);
        let h = m.gated(x, (&of("post_attention_layernorm.weight"), c.eps), gate_up, c.inner);
        x = m.add_linear(x, h, &of("mlp.down_proj"), BIAS);
    }
    logits(&mut m, c, x);
    Ok(output(m, c))
}

/// Weights of a layer that one kernel reads, in one buffer each: queries, keys and values; gate and up.
fn stack(m: &mut Builder, c: &Config, layer: usize) -> [Operand; 2] {
    let of = |name: &str| format!("model.layers.{layer}.{name}");
    let keys = c.key_heads * c.head_dim;
    let qkv = [("q", c.heads * c.head_dim), ("k", keys), ("v", keys)];
    let qkv = qkv.map(|(name, rows)| (of(&format!("self_attn.{name}_proj")), rows));
    let gate_up = ["gate", "up"].map(|name| (of(&format!("mlp.{name}_proj")), c.inner));
    [m.stack(&of("qkv"), c.hidden, &qkv), m.stack(&of("gate_up"), c.hidden, &gate_up)]
}

/// An operator a step; `before` is called ahead of each layer. Returns the angles and the caches.
fn steps(m: &mut Builder, c: &Config, mut before: impl FnMut(&mut Builder, usize)) -> ([Operand; 2], Vec<Caches>) {
    let (queries, keys) = (c.heads * c.head_dim, c.key_heads * c.head_dim);
    m.layer("embedding");
    let mut x = m.embedding("model.embed_tokens.weight", c.vocabulary, c.hidden);
    let angles = m.angles(c.head_dim / 2, frequencies(c));
    let mut caches = Vec::new();
    for layer in 0..c.layers {
        before(m, layer);
        m.layer(format!("layer {layer}"));
        let of = |name: &str| format!("model.layers.{layer}.{name}");
        let h = m.rmsnorm(x, &of("input_layernorm.weight"), c.eps);
        let q = m.linear(h, &of("self_attn.q_proj"), queries, c.attention_bias);
        let k = m.linear(h, &of("self_attn.k_proj"), keys, c.attention_bias);
        let q = m.rotate(q, angles, c.heads);
        let k = m.append_rotated(k, angles, c.key_heads);
        let v = m.append_linear(h, &of("self_attn.v_proj"), keys, c.attention_bias);
        caches.push(Caches { keys: k, values: v });
        let attended = m.attention(q, k, v, c.key_heads, c.heads / c.key_heads);
        let o = m.linear(attended, &of("self_attn.o_proj"), c.hidden, c.attention_bias);
        x = m.add(x, o);
        let h = m.rmsnorm(x, &of("post_attention_layernorm.weight"), c.eps);
        let gate = m.linear(h, &of("mlp.gate_proj"), c.inner, c.mlp_bias);
        let up = m.linear(h, &of("mlp.up_proj"), c.inner, c.mlp_bias);
        let h = m.swiglu(gate, up);
        let down = m.linear(h, &of("mlp.down_proj"), c.hidden, c.mlp_bias);
        x = m.add(x, down);
    }
    logits(m, c, x);
    (angles, caches)
}

/// The last norm and the product with the vocabulary.
fn logits(m: &mut Builder, c: &Config, x: Rows) {
    m.layer("output");
    let x = m.rmsnorm(x.asked(), "model.norm.weight", c.eps);
    let output = if c.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
    m.logits(x, output, c.vocabulary);
}

fn output(m: Builder, c: &Config) -> Model {
    m.language(c.vocabulary, c.context)
}

/// The angle of pair `i` at a position: θ^(−i / half) a position, scaled.
fn frequencies(c: &Config) -> impl Fn(usize, usize) -> f64 + Send + Sync + 'static {
    let half = (c.head_dim / 2) as f64;
    let (theta, scaling) = (c.rope_theta, c.rope_scaling.clone());
    // Frameworks compute angles in f32; at position 8191 the first of them is then off by 2⁻¹¹.
    move |position, i| {
        let frequency = scaled(theta.powf(-(i as f64) / half), &scaling);
        f64::from(position as f32 * frequency as f32)
    }
}

/// What long contexts do to a frequency.
fn scaled(frequency: f64, scaling: &RopeScaling) -> f64 {
    match *scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 { factor, low, high, original_context } => {
            let turns = original_context * frequency / TAU;
            // From all of the scaling, for waves longer than the original context, to none of it.
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 - kept) * frequency / factor + kept * frequency
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(1.0, 1.0)] // short waves stay
    #[case(1e-6, 1e-6 / 8.0)] // long ones are stretched
    fn waves_are_stretched_by_their_length(#[case] frequency: f64, #[case] expected: f64) {
        let scaling = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };
        approx::assert_relative_eq!(scaled(frequency, &scaling), expected);
    }
}
