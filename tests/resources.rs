//! Every shipped kernel compiles for every architecture it is shipped for, and uses the registers, the shared memory
//! and the spills that were reviewed: a snapshot an operator and architecture, `snapshots/resources/<arch>/<op>.snap`.
//! Where the PTX of a kernel is committed, its compiler has said so when it made it, and `tests/ptx.rs` holds the files to
//! their sources; everything else is compiled. Where that takes NVRTC and there is none, the trial is ignored, with the
//! reason; `KERNELGATE_REQUIRE=nvrtc` makes that a failure.

use kernelgate::core::candidate::{Body, Language, Program};
use kernelgate::device::fault::Fault;
use kernelgate::models::suites;
use kernelgate::ops::catalogue;
use kernelgate::prelude::*;
use kernelgate::toolchain::committed::{Committed, FOLDER};
use kernelgate::toolchain::resources::Resources;
use kernelgate::toolchain::{Target, compile_afresh};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const ARCHS: [&str; 2] = ["sm_80", "sm_90a"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files of `kernels/` with this extension, of its folders too, in the order of their paths. The probes of a
/// calibration are not among them: what they take depends on what they are compiled to measure.
fn files(extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![root().join("kernels")], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                if !path.ends_with("calibrate") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The headers beside the kernels; the crate itself supplies `kernelgate.cuh`.
fn headers() -> Result<Vec<(String, String)>, Failed> {
    let mut headers = Vec::new();
    for path in files("cuh") {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != "kernelgate.cuh" {
            headers.push((name, std::fs::read_to_string(path)?));
        }
    }
    Ok(headers)
}

/// As the catalogue has it; what is in none stands beside all headers.
fn program(file: &Path) -> Result<Program, Failed> {
    let name = file.strip_prefix(root()).unwrap_or(file).to_string_lossy().into_owned();
    let mut candidates = catalogue().into_iter().chain(suites()).flat_map(|suite| suite.candidates);
    let known = candidates.find_map(|candidate| match candidate.body {
        Body::Cuda(kernel) => Some(kernel.program.clone()).filter(|program| program.file == name),
        _ => None,
    });
    if let Some(known) = known {
        return Ok(known);
    }
    Ok(Program {
        text: std::fs::read_to_string(file)?.into(),
        language: Language::Cuda,
        file: name,
        headers: headers()?,
        options: Vec::new(),
        needs: None,
    })
}

/// In the environment of a process that compiles one file: its name.
const FILE: &str = "KERNELGATE_RESOURCES_FILE";

/// The same in a process of its own: NVRTC compiles one program at a time in each.
fn table_elsewhere(file: &Path, arch: &str) -> Result<String, Fault> {
    let failed = |why: String| Fault::Compile { log: why };
    let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let ran = Command::new(program).arg(arch).env(FILE, file).output().map_err(|e| failed(e.to_string()))?;
    let (text, why) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    match ran.status.code() {
        Some(0) => Ok(text.into_owned()),
        Some(UNSUPPORTED) => Err(Fault::Unsupported(why.trim().into())),
        _ => Err(failed(format!("{}: {why}", ran.status))),
    }
}

/// What such a process ends with where there is no compiler.
const UNSUPPORTED: i32 = 3;

/// Such a process.
fn compile_here(file: &Path) -> ExitCode {
    match table(file, &std::env::args().nth(1).unwrap_or_default()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(Fault::Unsupported(why)) => {
            eprintln!("{why}");
            ExitCode::from(UNSUPPORTED as u8)
        }
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

/// What a program takes, and who says so.
fn resources(program: &Program, dtype: DType, arch: &str) -> Result<(Vec<Resources>, String), Fault> {
    let committed = Committed::new(root().join(FOLDER)).find(program, dtype);
    if let Some(ptx) = committed.filter(|ptx| ptx.arch.strip_prefix("compute") == arch.strip_prefix("sm")) {
        return Ok((ptx.resources, ptx.compiler));
    }
    let made = compile_afresh(program, dtype, &Target::Cubin(arch.into()), &["--ptxas-options=-v"])?;
    Ok((Resources::parse(&made.log), format!("NVRTC {}", made.compiler)))
}

/// The table of one file for one architecture.
fn table(file: &Path, arch: &str) -> Result<String, Fault> {
    use std::fmt::Write as _;
    let program = program(file).map_err(|e| Fault::Compile { log: format!("{e:?}") })?;
    let mut text = String::new();
    let mut compiler = String::new();
    for dtype in DType::FLOATS {
        let (resources, by) = resources(&program, dtype, arch)?;
        for r in resources {
            let _ = writeln!(
                text,
                "{:<28} {:<4} {:>9} {:>6} {:>6} {:>7} {:>8}",
                r.entry, dtype, r.registers, r.stack_bytes, r.spill_bytes, r.shared_bytes, r.barriers
            );
        }
        compiler = by;
    }
    let head = format!(
        "{compiler}, bytes but for registers and barriers\n{:<28} {:<4} {:>9} {:>6} {:>6} {:>7} {:>8}\n",
        "entry", "", "registers", "stack", "spills", "shared", "barriers"
    );
    Ok(head + &text)
}

fn hold(file: &Path, name: &str, arch: &str) -> Result<Completion, Failed> {
    let required = std::env::var("KERNELGATE_REQUIRE").is_ok_and(|list| list.split(',').any(|word| word == "nvrtc"));
    let text = match table_elsewhere(file, arch) {
        Ok(text) => text,
        Err(Fault::Unsupported(why)) if !required => return Ok(Completion::ignored_with(why)),
        Err(fault) => return Err(fault.to_string().into()),
    };
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/resources").join(arch));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
    Ok(Completion::Completed)
}

fn main() -> ExitCode {
    if let Some(file) = std::env::var_os(FILE) {
        return compile_here(Path::new(&file));
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for file in files("cu") {
        for arch in ARCHS {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let file = file.clone();
            trials.push(Trial::ignorable_test(format!("{name}::{arch}"), move || hold(&file, &name, arch)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
