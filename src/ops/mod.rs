//! The catalogue: the operators that ship with the crate, each in a file of its own with its reference, its cases and
//! its candidates.
//!
//! To add one, write `ops/<op>/mod.rs` with a `pub fn suite() -> Suite`, write `kernels/<op>/<op>.cu`, and add the word to
//! the list below.
//!
//! ```
//! let names: Vec<_> = kernelgate::ops::catalogue().iter().map(|suite| suite.operator.name().to_owned()).collect();
//! assert!(names.contains(&"softmax".to_owned()));
//! ```

use crate::core::suite::Suite;

/// One function, generic over the float, as a candidate for all three dtypes.
macro_rules! every_float {
    ($function:ident) => {
        $crate::core::candidate::Cpu::new::<f32>($function::<f32>)
            .and::<half::f16>($function::<half::f16>)
            .and::<half::bf16>($function::<half::bf16>)
    };
}

/// A suite with the candidate of a vendor's library, where the crate is built with CUDA.
macro_rules! with_vendor {
    ($suite:expr, $name:literal, $candidate:path) => {{
        let suite = $suite;
        #[cfg(feature = "cuda")]
        let suite = suite.candidate($name, $candidate());
        suite.into()
    }};
}

/// A kernel of `kernels/`: its file, its entry, its launch rule. What it includes is found in the folders there.
macro_rules! kernel {
    ($file:literal, $entry:expr, $plan:expr $(,)?) => {
        $crate::core::candidate::Cuda::source(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $file)),
            $entry,
            $plan,
        )
        .file(concat!("kernels/", $file))
        .headers($crate::ops::HEADERS)
    };
}

macro_rules! catalogue {
    ($($op:ident),+ $(,)?) => {
        $(pub mod $op;)+

        /// Every operator of the catalogue with its candidates, in the order of the list.
        pub fn catalogue() -> Vec<Suite> {
            vec![$($op::suite()),+]
        }
    };
}

catalogue![
    add,
    relu,
    gelu,
    gelu_tanh,
    silu,
    swiglu,
    layernorm,
    layernorm_gelu,
    rmsnorm,
    add_rmsnorm,
    softmax,
    log_softmax,
    row_sum,
    row_mean,
    rope,
    rope_append,
    gemm,
    bmm,
    linear,
    gemv,
    gemv_add,
    rmsnorm_swiglu,
    rmsnorm_qkv_rope,
    attention,
    attention_decode,
    attention_cached,
    attention_kvcache,
    attention_paged,
    argmax,
    sample,
    conv2d,
    conv2d_pool,
    max_pool2d,
    lstm,
    embedding
];

/// The headers of `kernels/`, by the file name that `#include` has.
const HEADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

pub(crate) mod family;
mod float;
pub mod simd;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod other_gpus;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod relations;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::boundary::points;
    use crate::core::candidate::{Body, Language, Program};
    use crate::core::dtype::DType;
    use crate::core::seed::rng;
    use crate::toolchain::committed::{Committed, FOLDER};
    use std::collections::{BTreeMap, BTreeSet};

    /// Limits of every device of compute capability 8.0 and up.
    const MAX_GRID: [usize; 3] = [(1 << 31) - 1, 65_535, 65_535];
    const MAX_THREADS: usize = 1024;

    /// What the compiler made of a program: macros make the names of some entries, which the source does not spell out.
    fn compiled(program: &Program, dtype: DType) -> String {
        if program.language == Language::Ptx {
            return program.text.to_string();
        }
        let committed = Committed::new(format!("{}/{FOLDER}", env!("CARGO_MANIFEST_DIR")).into());
        committed.find(program, dtype).unwrap_or_else(|| panic!("{}: stale {dtype}", program.file)).text
    }

    /// The gate judges them.
    #[test]
    fn every_operator_has_both_tiers_on_the_cpu() {
        for suite in catalogue() {
            let names: Vec<&str> = suite.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
            assert_eq!(names[..2], ["naive", "tiled"], "{}", suite.operator.name());
        }
    }

    #[test]
    fn every_launch_names_an_entry_of_its_file_within_the_limits() {
        let mut launches = 0;
        for suite in catalogue() {
            for candidate in &suite.candidates {
                let Body::Cuda(kernel) = &candidate.body else { continue };
                let dtype = candidate.traits.dtypes[0];
                let own = compiled(&kernel.program, dtype);
                let boundary = points(&*suite.operator, &candidate.traits, 0, &mut rng(0));
                let listed = suite.operator.shapes().iter().chain(suite.operator.perf_shapes());
                let all = boundary.iter().chain(listed);
                for (point, launch) in all.flat_map(|p| kernel.plan(p).0.into_iter().map(move |launch| (p, launch))) {
                    let entry = kernel.entry_of(&launch, dtype);
                    let place = format!("{entry} at {point:?}");
                    let other = launch.program.as_ref().map(|other| compiled(other, dtype));
                    let code = other.as_ref().unwrap_or(&own);
                    assert!(code.contains(&format!(".entry {entry}(")), "{place}: not in {}", kernel.program.file);
                    assert!(
                        launch.grid.iter().zip(MAX_GRID).all(|(&blocks, max)| blocks <= max),
                        "{place}: {launch:?}"
                    );
                    assert!(launch.block.iter().product::<usize>() <= MAX_THREADS, "{place}: {launch:?}");
                    launches += 1;
                }
            }
        }
        assert!(launches > 1000, "{launches}");
    }

    /// The names behind `.entry` in a PTX text.
    fn entries(ptx: &str) -> BTreeSet<String> {
        let names = ptx.split(".entry ").skip(1).filter_map(|rest| rest.split_once('('));
        names.map(|(name, _)| name.trim().to_owned()).collect()
    }

    /// The entries of the suites' programs in a dtype that no correctness case launches, by file. The cases are those that
    /// the check plans for a device which takes any number of elements; the launch rules are evaluated, nothing is run.
    fn unreached(suites: &[Suite], dtype: DType, entries: impl Fn(&Program) -> BTreeSet<String>) -> Vec<String> {
        let mut left: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut launched = Vec::new();
        for suite in suites {
            for candidate in suite.candidates.iter().filter(|candidate| candidate.traits.computes(dtype)) {
                let Body::Cuda(kernel) = &candidate.body else { continue };
                let file = &kernel.program.file;
                left.entry(file.clone()).or_insert_with(|| entries(&kernel.program));
                let boundary = points(&*suite.operator, &candidate.traits, 0, &mut rng(0));
                for launch in boundary.iter().chain(suite.operator.shapes()).flat_map(|point| kernel.plan(point).0) {
                    let file = launch.program.as_ref().map_or(file, |other| &other.file).clone();
                    launched.push((file, kernel.entry_of(&launch, dtype)));
                }
            }
        }
        for (file, entry) in &launched {
            left.get_mut(file).expect("a file above").remove(entry);
        }
        left.into_iter()
            .flat_map(|(file, left)| left.into_iter().map(move |entry| format!("{file}: {entry}")))
            .collect()
    }

    /// Entries that only large shapes, or many rows, launch, by their dtype and file and a part of their name: the tests beside their
    /// launch rules run each of them in the simulator.
    const ONLY_AT_LARGE_SHAPES: [(&str, &str); 17] = [
        ("gemm/gemm_wgmma.cu", "gemm_"),
        ("linear/linear_wgmma.cu", "linear_"),
        ("bmm/bmm_wgmma.cu", "_cluster2"),
        ("bmm/bmm_wgmma.cu", "_swap_ab_128x128"),
        ("conv2d/conv2d_wgmma.cu", "conv2d_wgmma_"),
        ("conv2d/conv2d_simt.cu", "conv2d_simt_"),
        ("attention_decode/attention_decode_tma.cu", "attention_decode_wgmma_"),
        ("16 kernels/layernorm/layernorm.cu", "_block"),
        ("16 kernels/layernorm/layernorm.cu", "_wide_warp"),
        ("16 kernels/layernorm_gelu/layernorm_gelu.cu", "_block"),
        ("16 kernels/layernorm_gelu/layernorm_gelu.cu", "_wide_warp"),
        ("16 kernels/rmsnorm/rmsnorm.cu", "_small_block"),
        ("16 kernels/rmsnorm/rmsnorm.cu", "_wide_warp"),
        ("16 kernels/softmax/softmax.cu", "_block"),
        ("16 kernels/softmax/softmax.cu", "_wide_warp"),
        ("16 kernels/log_softmax/log_softmax.cu", "_block"),
        ("16 kernels/log_softmax/log_softmax.cu", "_wide_warp"),
    ];

    #[test]
    fn every_compiled_entry_has_a_correctness_case() {
        let mut suites = catalogue();
        for suite in &mut suites {
            suite.candidates.retain(
                |candidate| matches!(&candidate.body, Body::Cuda(kernel) if kernel.program.language == Language::Cuda),
            );
        }
        let of = |dtype| {
            let left = unreached(&suites, dtype, |program| entries(&compiled(program, dtype)));
            left.into_iter().map(move |entry| format!("{dtype} {entry}"))
        };
        let left: Vec<String> = DType::FLOATS.into_iter().flat_map(of).collect();
        let is_one = |entry: &str, (file, part): &(&str, &str)| entry.contains(file) && entry.contains(part);
        let is_large = |entry: &&String| ONLY_AT_LARGE_SHAPES.iter().any(|one| is_one(entry, one));
        let (large, left): (Vec<&String>, Vec<&String>) = left.iter().partition(is_large);
        assert!(left.is_empty(), "no shape of a correctness case launches {left:#?}");
        let is_needed = |one: &&(&str, &str)| large.iter().any(|entry| is_one(entry, one));
        let unneeded: Vec<_> = ONLY_AT_LARGE_SHAPES.iter().filter(|one| !is_needed(one)).collect();
        assert!(unneeded.is_empty(), "small shapes launch them: {unneeded:?}");
    }

    #[test]
    fn an_entry_without_a_case_is_seen() {
        let suites: Vec<Suite> = catalogue().into_iter().filter(|suite| suite.operator.name() == "rope").collect();
        let text =
            ".visible .entry rope_naive(\n.visible .entry rope_pack_per_thread(\n.visible .entry rope_forgotten(";
        assert_eq!(unreached(&suites, DType::F32, |_| entries(text)), ["kernels/rope/rope.cu: rope_forgotten"]);
    }

    #[test]
    fn every_operator_can_be_timed_in_every_dtype() {
        for suite in catalogue() {
            let (operator, first) = (&suite.operator, &suite.candidates[0]);
            assert_eq!((first.name.as_str(), &first.traits.dtypes), ("naive", &suite.dtypes), "{}", operator.name());
            assert!(!operator.perf_shapes().is_empty(), "{}", operator.name());
            for &dtype in &suite.dtypes {
                let sizes = operator.perf_shapes().iter().map(|point| operator.cost(point, dtype).bytes);
                assert!(sizes.min() > Some(1 << 20), "{} {dtype}", operator.name());
            }
        }
    }
}
