//! Models against what transformers computed, against themselves, and on files that are not as they must be.

use super::layout::Limits;
use super::session::Session;
use super::*;
use crate::core::dtype::DType;
use crate::core::seed::{below, rng};
use crate::device::arena::Arena;
use crate::device::sim::{SimArena, SimDevice};
use crate::toolchain::committed::FOLDER;
use rstest::rstest;
use std::path::{Path, PathBuf};

const TINY: [&str; 3] = ["llama-tiny", "llama3-tiny", "opt-tiny"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models").join(name)
}

fn golden_of(name: &str) -> Golden {
    Golden::read(&path(name).join("golden.json.xz")).unwrap()
}

fn open(name: &str) -> (Folder, Model) {
    let folder = Folder::open(&path(name)).unwrap();
    let model = Model::of(&folder.config).unwrap();
    (folder, model)
}

const LIMITS: Limits = Limits { batch: 1, capacity: 64, queries: 64, all_logits: true };

/// The largest difference, relative to the largest logit.
fn error(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let difference = got.iter().zip(want).map(|(got, want)| (got - want).abs());
    let largest = want.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    // NaN comes and stays.
    difference.fold(0.0f32, |max, x| if max.is_nan() || x <= max { max } else { x }) / largest
}

fn device() -> SimDevice {
    SimDevice::new(Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)))
}

#[rstest]
fn the_reference_has_the_logits_of_transformers(#[values(0, 1, 2)] which: usize) {
    let (folder, model) = open(TINY[which]);
    let golden = golden_of(TINY[which]);
    let mut executor = ReferenceExecutor::new(&model, &folder, golden.limits(), DType::F32).unwrap();
    let agreement = golden.hold(&mut executor, DType::F32).unwrap();
    // Transformers computes norms and angles in f32 whatever the dtype: as if each step rounded to it, at most.
    let allowed = golden::rounded_between(&model, DType::F32);
    assert!(agreement.error <= allowed && agreement.holds(), "{agreement:?}, {allowed}");
}

#[rstest]
fn the_cpu_has_the_logits_of_transformers(#[values(0, 1, 2)] which: usize) {
    let (folder, model) = open(TINY[which]);
    let golden = golden_of(TINY[which]);
    let mut executor = CpuExecutor::new(&model, &folder, golden.limits(), DType::F32).unwrap();
    let agreement = golden.hold(&mut executor, DType::F32).unwrap();
    assert!(agreement.holds(), "{agreement:?}");
}

#[rstest]
fn half_width_is_within_its_roundings(
    #[values(0, 1, 2)] which: usize,
    #[values(DType::BF16, DType::F16)] dtype: DType,
) {
    let (folder, model) = open(TINY[which]);
    let golden = golden_of(TINY[which]).rounded(&model, &folder, dtype).unwrap();
    let mut executor = CpuExecutor::new(&model, &folder, golden.limits(), dtype).unwrap();
    let agreement = golden.hold(&mut executor, dtype).unwrap();
    assert!(agreement.holds(), "{agreement:?}");
    // A tolerance that f32 would use up could not tell the dtypes apart.
    assert!(agreement.error > 1e-5, "{agreement:?}");
}

#[rstest]
fn the_simulator_has_the_logits_of_transformers(
    #[values(0, 1, 2)] which: usize,
    #[values(DType::F32, DType::BF16)] dtype: DType,
) {
    let (folder, model) = open(TINY[which]);
    let golden = golden_of(TINY[which]);
    let golden = if dtype == DType::F32 { golden } else { golden.rounded(&model, &folder, dtype).unwrap() };
    let device = device();
    let arena: Box<dyn Arena> = Box::new(SimArena::new(&device));
    let limits = golden.limits();
    let each = Launches::EachStep;
    let mut executor = LaunchedExecutor::new(&model, &folder, limits, dtype, each, arena, |_, _| {}).unwrap();
    let agreement = golden.hold(&mut executor, dtype).unwrap();
    assert!(agreement.holds(), "{agreement:?}");
}

#[rstest]
fn fused_steps_have_the_logits_of_transformers(
    #[values(0, 1, 2)] which: usize,
    #[values(DType::F32, DType::BF16)] dtype: DType,
) {
    let (folder, model) = open(TINY[which]);
    let golden = golden_of(TINY[which]);
    let golden = if dtype == DType::F32 { golden } else { golden.rounded(&model, &folder, dtype).unwrap() };
    let (model, device) = (Model::fused(&folder.config, 1).unwrap(), device());
    let arena: Box<dyn Arena> = Box::new(SimArena::new(&device));
    let (limits, each) = (golden.limits(), Launches::EachStep);
    let mut executor = LaunchedExecutor::new(&model, &folder, limits, dtype, each, arena, |_, _| {}).unwrap();
    let agreement = golden.hold(&mut executor, dtype).unwrap();
    assert!(agreement.holds(), "{agreement:?}");
}

/// Tokens that never leave the device, of several sequences, are those that every run computes anew.
#[rstest]
fn tokens_stay_on_the_device(
    #[values("llama-tiny", "opt-tiny")] name: &str,
    #[values(1, 3, 9)] batch: usize,
    #[values(Launches::EachStep, Launches::Recorded)] launches: Launches,
) {
    let (folder, _) = open(name);
    let golden = golden_of(name);
    let (model, device) = (Model::fused(&folder.config, batch).unwrap(), device());
    let arena: Box<dyn Arena> = Box::new(SimArena::new(&device));
    let limits = Limits { batch, ..golden.limits() };
    let progress = |_, _| {};
    let mut executor = LaunchedExecutor::new(&model, &folder, limits, DType::F32, launches, arena, progress).unwrap();
    let mut session = Session::new(&mut executor);
    let prompt: Vec<u32> = golden.prompt.iter().flat_map(|&token| vec![token; batch]).collect();
    let first = session.append_for_next(&prompt).unwrap();
    let mut written = vec![first.clone()];
    session
        .write(&first, 15, |tokens| {
            written.push(tokens.to_vec());
            written.len() < 12
        })
        .unwrap();
    let expected: Vec<Vec<u32>> = golden.tokens[..12].iter().map(|&token| vec![token; batch]).collect();
    assert_eq!(written, expected);
}

/// Tokens that are drawn on the device are those that the host draws from the logits there.
#[rstest]
fn tokens_are_drawn_on_the_device(
    #[values(1, 3)] batch: usize,
    #[values(Launches::EachStep, Launches::Recorded)] launches: Launches,
    #[values(DType::F32, DType::BF16)] dtype: DType,
) {
    let (folder, _) = open("llama-tiny");
    let golden = golden_of("llama-tiny");
    let sampler = Sampler::new(Sampling { temperature: 1.5, top_k: 40, top_p: 0.9 }, 5);
    let model = Model::fused(&folder.config, batch).unwrap().sampled(sampler);
    let limits = Limits { batch, ..golden.limits() };
    let device = device();
    let executor = || {
        let arena: Box<dyn Arena> = Box::new(SimArena::new(&device));
        LaunchedExecutor::new(&model, &folder, limits, dtype, launches, arena, |_, _| {}).unwrap()
    };
    let prompt: Vec<u32> = golden.prompt.iter().flat_map(|&token| vec![token; batch]).collect();
    let mut launched = executor();
    let mut session = Session::new(&mut launched);
    let first = session.append_for_next(&prompt).unwrap();
    let mut written = vec![first.clone()];
    session
        .write(&first, 7, |tokens| {
            written.push(tokens.to_vec());
            true
        })
        .unwrap();
    let mut by_host = executor();
    let mut session = Session::new(&mut by_host);
    let mut tokens = prompt;
    for (i, written) in written.iter().enumerate() {
        let logits = session.append(&tokens).unwrap();
        let rows = logits.chunks_exact(model.vocabulary).enumerate();
        let last = golden.prompt.len() - 1 + i;
        tokens = rows.map(|(sequence, row)| sampler.choose(row, last, sequence)).collect();
        assert_eq!(*written, tokens, "token {i}");
    }
    // Sequences of the same prompt go their own ways, and not the most likely one.
    assert!(batch == 1 || written.iter().any(|tokens| tokens[0] != tokens[1]), "{written:?}");
    assert!(written.iter().zip(&golden.tokens).any(|(tokens, likely)| tokens[0] != *likely), "{written:?}");
}

/// The same seed gives the same tokens on the CPU, whose logits are all but the same.
#[test]
fn the_cpu_draws_the_tokens_of_the_device() {
    let (folder, model) = open("llama-tiny");
    let golden = golden_of("llama-tiny");
    let sampler = Sampler::new(Sampling { temperature: 0.8, top_k: 0, top_p: 0.95 }, 11);
    let (model, limits) = (model.sampled(sampler), golden.limits());
    let write = |executor: &mut dyn Executor| {
        let mut session = Session::new(executor);
        let first = session.append_for_next(&golden.prompt).unwrap();
        let mut written = first.clone();
        session
            .write(&first, 15, |tokens| {
                written.extend(tokens);
                true
            })
            .unwrap();
        written
    };
    let device = device();
    let (each, arena) = (Launches::EachStep, Box::new(SimArena::new(&device)));
    let mut on_device = LaunchedExecutor::new(&model, &folder, limits, DType::F32, each, arena, |_, _| {}).unwrap();
    let mut on_cpu = CpuExecutor::new(&model, &folder, limits, DType::F32).unwrap();
    let written = write(&mut on_device);
    assert_eq!(write(&mut on_cpu), written);
    assert_ne!(written, golden.tokens);
}

#[test]
fn what_has_no_fused_steps_is_named() {
    let said = |name: &str, change: fn(&mut Config)| {
        let mut config = open(name).0.config;
        change(&mut config);
        Model::fused(&config, 1).err().map(|error| error.to_string()).unwrap()
    };
    assert!(said("llama-tiny", |config| config.mlp_bias = true).contains("layers without biases"));
    let expected = "expected heads of an even number of elements up to 256, for the fused kernels, found";
    for name in ["llama-tiny", "opt-tiny"] {
        assert!(said(name, |config| config.head_dim = 17).ends_with(&format!("{expected} 17")));
        assert!(said(name, |config| config.head_dim = 258).ends_with(&format!("{expected} 258")));
    }
}

#[test]
fn what_is_not_as_the_golden_has_it_is_seen() {
    let (folder, model) = open("llama-tiny");
    let right = golden_of("llama-tiny");
    let mut executor = CpuExecutor::new(&model, &folder, right.limits(), DType::F32).unwrap();
    let mut hold = |change: &dyn Fn(&mut Golden)| {
        let mut golden = right.clone();
        change(&mut golden);
        golden.hold(&mut executor, DType::F32).unwrap()
    };
    assert!(hold(&|_| {}).holds());
    // An error just above the allowed one, in a single logit of the last step.
    assert!(!hold(&|golden| golden.decode[15][7] += 1.1e-4 * 6.0).holds());
    let nan = hold(&|golden| golden.prefill[3][0] = f64::NAN);
    assert!(nan.error.is_nan() && !nan.holds());
    // Another token, behind which all logits are others.
    let other = hold(&|golden| golden.tokens[4] += 1);
    assert!(other.same_tokens < other.tokens && other.error > 1e-2, "{other:?}");
}

#[test]
fn decoding_over_the_cache_is_computing_everything_anew() {
    // Random prompts, cut into parts at random places; sequences side by side are those alone.
    let mut rng = rng(11);
    for case in 0..200 {
        let (folder, model) = open(TINY[case % 3]);
        let batch = 1 + below(&mut rng, 3);
        let limits = Limits { batch, capacity: 40, queries: 1 + below(&mut rng, 40), all_logits: true };
        let length = 1 + below(&mut rng, 40);
        let tokens: Vec<u32> = (0..length * batch).map(|_| below(&mut rng, 256) as u32).collect();
        let mut executor = CpuExecutor::new(&model, &folder, limits, DType::F32).unwrap();
        let mut session = Session::new(&mut executor);
        let (mut got, mut at) = (Vec::new(), 0);
        while at < length {
            let part = 1 + below(&mut rng, length - at);
            got.extend(session.append_for_all(&tokens[at * batch..(at + part) * batch]).unwrap());
            at += part;
        }
        for sequence in 0..batch {
            let alone: Vec<u32> = tokens.iter().skip(sequence).step_by(batch).copied().collect();
            let mut executor = CpuExecutor::new(&model, &folder, LIMITS, DType::F32).unwrap();
            let want = Session::new(&mut executor).append_for_all(&alone).unwrap();
            let rows = got.chunks_exact(256).skip(sequence).step_by(batch);
            let got: Vec<f32> = rows.flatten().copied().collect();
            let error = error(&got, &want);
            assert!(error <= 2e-5, "case {case}: {error}, batch {batch}, length {length}, {limits:?}");
        }
    }
}

#[test]
fn a_cache_row_too_early_is_seen() {
    // The same tokens over a cache that is one position further: what the property above would catch.
    let (folder, model) = open("llama-tiny");
    let golden = golden_of("llama-tiny");
    let mut executor = CpuExecutor::new(&model, &folder, LIMITS, DType::F32).unwrap();
    let mut session = Session::new(&mut executor);
    session.append(&golden.prompt).unwrap();
    session.append(&golden.tokens[..1]).unwrap();
    let wrong = session.append(&golden.tokens[..1]).unwrap();
    let right: Vec<f32> = golden.decode[0].iter().map(|&logit| logit as f32).collect();
    assert!(error(&wrong, &right) > 1e-2);
}

#[test]
fn random_weights_give_sane_logits() {
    for which in TINY {
        let (_, model) = open(which);
        let mut executor = CpuExecutor::new(&model, &RandomWeights { seed: 5 }, LIMITS, DType::F32).unwrap();
        let logits = Session::new(&mut executor).append(&[3, 1, 4, 1, 5]).unwrap();
        let size = (logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32).sqrt();
        assert!((0.3..3.0).contains(&size), "{which}: {size}");
    }
}

#[test]
fn perplexity_does_not_depend_on_how_windows_are_cut_while_one_holds_all() {
    let (folder, model) = open("opt-tiny");
    let golden = golden_of("opt-tiny");
    let tokens = [golden.prompt.clone(), golden.tokens.clone()].concat();
    let mut executor = CpuExecutor::new(&model, &folder, LIMITS, DType::F32).unwrap();
    let whole = perplexity(&mut executor, &tokens, 64, 64, |_| {}).unwrap();
    assert_eq!(whole.tokens, tokens.len() - 1);
    // By the golden's own logits.
    let logits = [golden.prefill, golden.decode].concat();
    let nll: f64 = tokens[1..]
        .iter()
        .zip(&logits)
        .map(|(&token, row)| {
            let total: f64 = row.iter().map(|&x| x.exp()).sum();
            total.ln() - row[token as usize]
        })
        .sum();
    approx::assert_relative_eq!(whole.nll, nll / whole.tokens as f64, max_relative = 1e-5);
    let overlapping = perplexity(&mut executor, &tokens, 16, 4, |_| {}).unwrap();
    assert!(overlapping.tokens == whole.tokens && overlapping.nll != whole.nll);
    assert!(perplexity(&mut executor, &tokens, 16, 17, |_| {}).is_err());
    assert!(perplexity(&mut executor, &tokens[..1], 16, 4, |_| {}).is_err());
}

/// A copy of a tiny model's folder that a test may damage.
fn damaged(name: &str, damage: impl FnOnce(&Path)) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(path(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    damage(folder.path());
    let said = |error: Error| error.to_string().replace(folder.path().to_str().unwrap(), "m");
    let opened = Folder::open(folder.path()).map_err(said)?;
    let model = Model::of(&opened.config).map_err(said)?;
    CpuExecutor::new(&model, &opened, LIMITS, DType::F32).map_err(said)?;
    Text::open(folder.path(), &opened.config).map_err(said)?;
    Ok("opened".into())
}

fn edit(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{from} in {text}");
    std::fs::write(file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_truncated_file_is_named() {
    let said = damaged("llama-tiny", |m| {
        let file = m.join("model.safetensors");
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    });
    let said = said.unwrap_err();
    assert!(said.starts_with("m/model.safetensors: expected a complete safetensors file, found "), "{said}");
    assert!(said.ends_with("in 190128 bytes"), "{said}");
}

#[test]
fn a_missing_shard_is_named() {
    let said = damaged("opt-tiny", |m| std::fs::remove_file(m.join("model-00003-of-00008.safetensors")).unwrap());
    let said = said.unwrap_err();
    assert!(said.starts_with("m/model-00003-of-00008.safetensors: expected a file that can be read"), "{said}");
}

#[test]
fn a_missing_tensor_is_named() {
    let said =
        damaged("llama-tiny", |m| edit(&m.join("config.json"), "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"));
    let expected = "m: tensor `model.layers.2.input_layernorm.weight`: expected it in the safetensors files, found 21 \
                    tensors without it, such as `lm_head.weight`";
    assert_eq!(said.unwrap_err(), expected);
}

#[test]
fn a_tensor_of_other_extents_is_named() {
    let said = damaged("llama-tiny", |m| edit(&m.join("config.json"), "\"vocab_size\": 256", "\"vocab_size\": 250"));
    let said = said.unwrap_err();
    assert!(said.starts_with("m/model.safetensors: tensor `model.embed_tokens.weight` at offset "), "{said}");
    assert!(said.ends_with(": expected extents [250, 64], found [256, 64]"), "{said}");
}

#[test]
fn an_unknown_architecture_is_named() {
    let said =
        damaged("opt-tiny", |m| edit(&m.join("config.json"), "\"model_type\": \"opt\"", "\"model_type\": \"bert\""));
    assert_eq!(said.unwrap_err(), "m/config.json: `model_type`: expected \"llama\" or \"opt\", found \"bert\"");
}

/// A word-level tokenizer of `words` words.
fn tokenizer(words: usize) -> String {
    let vocabulary: Vec<String> = (0..words).map(|i| format!("\"w{i}\": {i}")).collect();
    format!(
        r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {{"type": "Whitespace"}}, "post_processor": null, "decoder": null,
            "model": {{"type": "WordLevel", "vocab": {{{}}}, "unk_token": "w0"}}}}"#,
        vocabulary.join(", ")
    )
}

#[test]
fn a_tokenizer_that_does_not_fit_is_named() {
    let said = damaged("llama-tiny", |m| std::fs::write(m.join("tokenizer.json"), tokenizer(257)).unwrap());
    let expected = "m/tokenizer.json: expected tokens below the model's vocabulary of 256, found `w256` as 256";
    assert_eq!(said.unwrap_err(), expected);
    let said = damaged("llama-tiny", |m| std::fs::write(m.join("tokenizer.json"), tokenizer(256)).unwrap());
    assert_eq!(said.unwrap(), "opened");
    assert!(damaged("llama-tiny", |_| {}).unwrap_err().starts_with("m/tokenizer.json: expected a tokenizer"));
}

#[test]
fn a_prompt_past_the_cache_or_the_vocabulary_is_named() {
    let (folder, model) = open("llama-tiny");
    let mut executor = CpuExecutor::new(&model, &folder, LIMITS, DType::F32).unwrap();
    let mut session = Session::new(&mut executor);
    session.append(&[1; 60]).unwrap();
    let said = |error: Error| error.to_string();
    assert_eq!(
        said(session.append(&[1; 5]).unwrap_err()),
        "the prompt: expected at most 64 positions in the cache, found 65"
    );
    assert_eq!(
        said(session.append(&[256]).unwrap_err()),
        "the prompt: expected tokens below the model's vocabulary of 256, found token 256"
    );
    assert_eq!(session.past(), 60);
}

#[test]
fn a_chat_is_rendered_by_its_template() {
    let folder = tempfile::tempdir().unwrap();
    let m = folder.path();
    std::fs::copy(path("llama-tiny").join("config.json"), m.join("config.json")).unwrap();
    std::fs::write(m.join("tokenizer.json"), tokenizer(9)).unwrap();
    let config = Config::read(&m.join("config.json")).unwrap();
    let none = Text::open(m, &config).unwrap().chat("w1").unwrap_err().to_string();
    assert!(none.ends_with("`chat_template`: expected a chat template, found none"), "{none}");
    let template = "{{ bos_token }}{% for message in messages %}{{ message['role'] + ' w2 ' + message.content }}\
                    {% endfor %}{% if add_generation_prompt %} w3{% endif %}";
    let settings = serde_json::json!({"chat_template": template, "bos_token": {"content": "w4 "}});
    std::fs::write(m.join("tokenizer_config.json"), settings.to_string()).unwrap();
    let text = Text::open(m, &config).unwrap();
    assert_eq!(text.chat("w1").unwrap(), "w4 user w2 w1 w3");
    assert_eq!(text.encode("w1 w3", false).unwrap(), [1, 3]);
    assert_eq!(text.decode(&[1, 3]).unwrap(), "w1 w3");
}
