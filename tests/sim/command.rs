//! `kernelgate sim` as a person calls it: what it prints and how it exits.

use std::process::{Command, Output};

const GEMM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/ptx/wgmma_tma.ptx");

/// 64 x 64 matrices: one block, one step.
const SMALL: [&str; 12] = [
    "--grid",
    "1",
    "--block",
    "128",
    "--arg",
    "map:bf16:random:64x64:64x64:128",
    "--arg",
    "map:bf16:random:64x64:64x64:128",
    "--arg",
    "out:f32:4096",
    "--arg",
    "i32:64",
];

fn kernelgate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kernelgate")).arg("sim").args(arguments).output().unwrap()
}

fn gemm(further: &[&str]) -> (Option<i32>, String, String) {
    let output = kernelgate(&[&[GEMM], SMALL.as_slice(), further].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_right_kernel_is_silent_in_all_modes() {
    let (code, out, err) = gemm(&["--arg", "i32:64", "--entry", "k_major", "--mode", "all", "--seeds", "2"]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(out.matches("nothing found").count(), 9, "{out}");
    assert!(out.contains("st.global.f32"), "the table names the stores:\n{out}");
}

#[test]
fn a_finding_is_exit_code_1_and_named() {
    let (code, out, _) = gemm(&["--arg", "i32:64", "--entry", "k_major", "--arg", "i32:1"]);
    assert_eq!(code, Some(2), "an argument too many is an input error\n{out}");
    let short: Vec<&str> =
        SMALL.iter().map(|word| if *word == "out:f32:4096" { "out:f32:4000" } else { word }).collect();
    let output =
        kernelgate(&[&[GEMM], short.as_slice(), &["--arg", "i32:64", "--entry", "k_major", "--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["runs"][0]["findings"][0]["check"], "out-of-bounds");
    assert_eq!(json["entry"], "gemm_k_major");
    assert!(json["runs"][0]["metrics"]["lines"].as_array().unwrap().iter().any(|line| line["sectors"] == 32));
}

#[test]
fn wrong_input_is_exit_code_2_and_says_what_to_write() {
    for (further, word) in [
        (&["--arg", "i32:64"][..], "gemm_n_major"),
        (&["--entry", "k_major"], "takes 5 arguments"),
        (&["--entry", "k_major", "--arg", "i64:64"], "takes 4"),
        (&["--entry", "k_major", "--arg", "i32:64", "--arg", "f32:fish:3"], "no content"),
        (&["--entry", "k_major", "--arg", "i32:64", "--mode", "late"], "late-copies"),
        (&["--entry", "k_major", "--arg", "i32:64", "--save", "3=/dev/null"], "no buffer"),
    ] {
        let (code, out, err) = gemm(further);
        assert_eq!(code, Some(2), "{further:?}: {out}{err}");
        assert!(err.contains(word), "{further:?}: {err}");
    }
    let absent = kernelgate(&["absent.ptx", "--grid", "1", "--block", "1"]);
    assert_eq!(absent.status.code(), Some(2));
}

/// NVRTC is not everywhere: with it a CUDA source runs with its own lines in the table, without it the exit code is 3.
#[test]
fn a_cuda_source_is_compiled_or_the_compiler_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("double.cu");
    let source = "extern \"C\" __global__ void twice(const float* x, float* y, int n) {\n    \
                  int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = x[i] + x[i];\n}\n";
    std::fs::write(&file, source).unwrap();
    let input = folder.path().join("x.bin");
    std::fs::write(&input, [1.5f32, -2.0, 4.0].map(f32::to_le_bytes).concat()).unwrap();
    let array = format!("f32:file:{}", input.display());
    let path = file.display().to_string();
    let output =
        kernelgate(&[&path, "--grid", "1", "--block", "32", "--arg", &array, "--arg", "out:f32:3", "--arg", "i32:3"]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => {
            assert!(out.contains("3, -4, 8"), "{out}");
            assert!(out.contains("double.cu:3") && out.contains("y[i] = x[i] + x[i]"), "{out}");
        }
        Some(3) => assert!(err.contains("ci/setup-cuda.sh"), "{err}"),
        code => panic!("{code:?}: {out}{err}"),
    }
}
