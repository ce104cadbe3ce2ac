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

use super::builder::{Builder, Rows};
use super::config::Config;
use super::decode::{Caches, check_heads};
use super::description::{Model, Operand};
use super::error::Error;

/// Rows of the table of positions before the first one.
const POSITION_OFFSET: usize = 2;

/// Every product has a bias, but for the logits.
const BIAS: bool = true;

/// The steps of a configuration of the class.
///
/// # Errors
/// Where an operator does not have what the configuration asks for.
pub fn opt(c: &Config) -> Result<Model, Error> {
    c.check_eps()?;
    let mut m = Builder::default();
    steps(&mut m, c, |_, _| {});
    Ok(m.language(c.vocabulary, c.context))
}

/// The same with steps of their own for one new token of each of `batch` sequences.
///
/// # Errors
/// As [`opt`], and for heads that the fused kernels do not take.
pub fn fused(c: &Config, batch: usize) -> Result<Model, Error> {
    c.check_eps()?;
    check_heads(c)?;
    let mut m = Builder::default();
    let mut stacks = Vec::new();
    let caches = steps(&mut m, c, |m, layer| stacks.push(stack(m, c, layer)));
    m.decode(batch);
    let mut x = embedded(&mut m, c);
    let angles = m.zero_angles(c.head_dim / 2);
    for (layer, ([qkv, bias], caches)) in stacks.into_iter().zip(caches).enumerate() {
        m.layer(format!("layer {layer}"));
        let of = of_layer(layer);
        let h = m.layernorm(x, &of("self_attn_layer_norm"), c.eps);
        let q = m.project_by_linear(h, qkv, Some(bias), angles, caches, [c.heads, c.heads, c.head_dim]);
        let attended = m.attend(q, caches, c.heads, 1);
        x = m.add_linear(x, attended, &of("self_attn.out_proj"), BIAS);
        let h = inner(&mut m, c, x, layer);
        x = m.add_linear(x, h, &of("fc2"), BIAS);
    }
    logits(&mut m, c, x);
    Ok(m.language(c.vocabulary, c.context))
}

/// Weights and biases of queries, keys and values of a layer, which one product reads, in one buffer each.
fn stack(m: &mut Builder, c: &Config, layer: usize) -> [Operand; 2] {
    let of = of_layer(layer);
    let qkv = ["q", "k", "v"].map(|name| (of(&format!("self_attn.{name}_proj")), c.hidden));
    [m.stack(&of("qkv.weight"), c.hidden, &qkv), m.stack_biases(&of("qkv.bias"), &qkv)]
}

/// An operator a step; `before` is called ahead of each layer. Returns the caches.
fn steps(m: &mut Builder, c: &Config, mut before: impl FnMut(&mut Builder, usize)) -> Vec<Caches> {
    let mut x = embedded(m, c);
    let mut caches = Vec::new();
    for layer in 0..c.layers {
        before(m, layer);
        m.layer(format!("layer {layer}"));
        let of = of_layer(layer);
        let h = m.layernorm(x, &of("self_attn_layer_norm"), c.eps);
        let q = m.linear(h, &of("self_attn.q_proj"), c.hidden, BIAS);
        let k = m.append_linear(h, &of("self_attn.k_proj"), c.hidden, BIAS);
        let v = m.append_linear(h, &of("self_attn.v_proj"), c.hidden, BIAS);
        caches.push(Caches { keys: k, values: v });
        let attended = m.attention(q, k, v, c.heads, 1);
        let out = m.linear(attended, &of("self_attn.out_proj"), c.hidden, BIAS);
        x = m.add(x, out);
        let h = inner(m, c, x, layer);
        let h = m.linear(h, &of("fc2"), c.hidden, BIAS);
        x = m.add(x, h);
    }
    logits(m, c, x);
    caches
}

/// The name of a tensor of a layer.
fn of_layer(layer: usize) -> impl Fn(&str) -> String {
    move |name| format!("model.decoder.layers.{layer}.{name}")
}

/// Tokens and their positions.
fn embedded(m: &mut Builder, c: &Config) -> Rows {
    m.layer("embedding");
    let tokens = m.embedding("model.decoder.embed_tokens.weight", c.vocabulary, c.hidden);
    let rows = c.context + POSITION_OFFSET;
    let positions = m.positions("model.decoder.embed_positions.weight", rows, c.hidden, POSITION_OFFSET);
    m.add(tokens, positions)
}

/// What the last product of a layer takes: max(fc1(layernorm(x)), 0).
fn inner(m: &mut Builder, c: &Config, x: Rows, layer: usize) -> Rows {
    let of = of_layer(layer);
    let h = m.layernorm(x, &of("final_layer_norm"), c.eps);
    let h = m.linear(h, &of("fc1"), c.inner, BIAS);
    m.relu(h)
}

/// The last norm and the product with the vocabulary.
fn logits(m: &mut Builder, c: &Config, x: Rows) {
    m.layer("output");
    let x = m.layernorm(x.asked(), "model.decoder.final_layer_norm", c.eps);
    let output = if c.tied { "model.decoder.embed_tokens.weight" } else { "lm_head.weight" };
    m.logits(x, output, c.vocabulary);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::models::description::Extents;
    use crate::models::{Way, named, planned};
    use rstest::rstest;

    #[rstest]
    fn a_fused_token_has_nine_launches_a_layer(#[values(1, 4)] batch: usize) {
        let model = fused(&named("opt-125m").unwrap(), batch).unwrap();
        let e = Extents { batch, queries: 1, past: 100, all_logits: false, capacity: 200 };
        let found = planned(&model, &e, DType::BF16, &Way::Own("sm_90a".into())).unwrap();
        let names: Vec<&str> = found.iter().map(|step| step.operator.name()).collect();
        let layer = "layernorm linear rope_append attention_kvcache linear layernorm linear relu linear";
        let layers = [layer; 12].join(" ");
        assert_eq!(names.join(" "), format!("embedding embedding add {layers} layernorm gemv argmax"));
    }

    #[test]
    fn fused_steps_add_no_weights() {
        let config = named("opt-125m").unwrap();
        let [unfused, fused] = [opt(&config), fused(&config, 1)].map(Result::unwrap);
        let names = |model: &Model| {
            let mut names: Vec<_> = model.weights().map(|(_, name, dims)| (name.to_owned(), dims.to_vec())).collect();
            names.sort();
            names
        };
        assert_eq!(names(&fused), names(&unfused));
    }
}
