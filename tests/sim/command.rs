//! `kernelgate sim` as a person calls it: what it prints and how it exits.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

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

const WHOLE_PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/cuda/whole_program.cu");

/// Host code is no reason to edit a file. Kernels go by their names in the source, in what is asked for and in what is told.
#[test]
fn of_a_whole_program_the_kernels_are_run() {
    let run = |entry: &str, arguments: &[&str]| {
        let start = [WHOLE_PROGRAM, "--entry", entry, "--grid", "1", "--block", "32"];
        let output = kernelgate(&[&start, arguments].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, err) = run("scale<float,3>", &["--arg", "f32:iota:4", "--arg", "i32:4"]);
    if code == Some(3) {
        return assert!(err.contains("ci/setup-cuda.sh"), "{err}");
    }
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.starts_with("scale<float, 3> of "), "{out}");
    assert!(err.contains("left out: host_values, fill, main") && err.contains("helper_that_is_not_here.h"), "{err}");
    let (code, out, _) = run("scale<double, 5>", &["--arg", "f64:iota:4", "--arg", "i32:4"]);
    assert_eq!(code, Some(0), "an instance that the file does not ask for\n{out}");
    let four = ["--arg", "f32:iota:4", "--arg", "f32:iota:4", "--arg", "out:f32:4", "--arg", "i32:4"];
    let (code, out, _) = run("add", &four);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("whole_program.cu:26 in add: "), "{out}");
    let (code, _, err) = run("subtract", &four);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("scale<float, 3>") && err.contains("add"), "{err}");
}

pub fn subcommand(name: &str, arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelgate"));
    let streams = [Stdio::piped(), Stdio::piped(), Stdio::piped()];
    let [stdin, stdout, stderr] = streams;
    let mut child = command.arg(name).args(arguments).stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_stands_in_the_way_of_a_kernel_is_told_for_each() {
    let (code, out, err) = subcommand("ptx", &[GEMM], "");
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("2 of 2 kernels in 1 files"), "{out}");
    let folder = tempfile::tempdir().unwrap();
    let text = ".version 9.0\n.target sm_80\n.address_size 64\n.entry good() { ret; }\n\
                .entry bad() { tcgen05.fence::before_thread_sync; ret; }\n.entry worse() { add.s32 %r1, 1; }\n";
    std::fs::write(folder.path().join("some.ptx"), text).unwrap();
    std::fs::write(folder.path().join("other.ptx"), "nothing").unwrap();
    std::fs::write(folder.path().join("notes.txt"), "no PTX").unwrap();
    let (code, out, _) = subcommand("ptx", &[folder.path().to_str().unwrap(), "--json"], "");
    assert_eq!(code, Some(1), "{out}");
    let account: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&account["entries"], &account["loadable"], &account["unreadable"]), (&3.into(), &1.into(), &1.into()));
    assert_eq!(account["reasons"]["tcgen05.fence::before_thread_sync"], 1, "{out}");
    assert_eq!(account["files"][1]["refused"][1]["entry"], "worse");
    let (code, _, err) = subcommand("ptx", &["absent.ptx"], "");
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn launches_of_another_process_read_and_write_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry twice(.param .u64 x, .param .u32 n) {\n\
                .reg .b32 %r<4>; .reg .b64 %rd<4>;\nld.param.u64 %rd1, [x];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n\
                add.s64 %rd3, %rd1, %rd2;\nld.global.u32 %r2, [%rd3];\nadd.u32 %r3, %r2, %r2;\nst.global.u32 [%rd3], %r3;\nret; }\n";
    std::fs::write(file("k.ptx"), text).unwrap();
    std::fs::write(file("x.bin"), [1u32, 2, 3, 4].map(u32::to_le_bytes).concat()).unwrap();
    let request = |threads: u32, offset: u64| {
        serde_json::json!({"id": threads, "ptx": file("k.ptx"), "grid": [1, 1, 1], "block": [threads, 1, 1],
            "buffers": [file("x.bin")], "arguments": [{"buffer": {"index": 0, "offset": offset}}, {"bytes": [4, 0, 0, 0]}]})
    };
    let input = format!("{}\n{}\nnonsense\n{}\n", request(3, 4), request(5, 0), request(1, 3));
    let (code, out, err) = subcommand("sim-server", &[], &input);
    assert_eq!(code, Some(0), "{err}");
    let replies: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(replies.len(), 4, "{out}");
    assert_eq!((&replies[0]["id"], replies[0]["findings"].as_array().unwrap().len()), (&3.into(), 0), "{out}");
    assert!(replies[1]["findings"][0].as_str().unwrap().contains("out-of-bounds"), "{out}");
    assert!(replies[2]["error"].as_str().unwrap().contains("the request"), "{out}");
    assert!(replies[3]["findings"][0].as_str().unwrap().contains("misaligned"), "{out}");
    // The first launch doubled all but the first, the second all of them.
    let left = std::fs::read(file("x.bin")).unwrap();
    assert_eq!(left, [2u32, 8, 12, 16].map(u32::to_le_bytes).concat());
}
