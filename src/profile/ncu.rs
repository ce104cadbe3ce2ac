//! Hardware counters by Nsight Compute, run as a child process: its CSV read, its class beside ours.

use super::child::{self, Said, Unheard};
use super::record::{Counted, Counters};
use crate::check::outcome::Bound;
use crate::core::environment::WITHIN_TURN;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What is asked of it, by the names of CUDA 12 and 13.
const TIME: &str = "gpu__time_duration.sum";
const COMPUTE: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
const MEMORY: &str = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";
const OCCUPANCY: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
const DRAM: &str = "dram__bytes.sum";
const TENSOR: &str = "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active";

/// All of them.
const METRICS: [&str; 6] = [TIME, COMPUTE, MEMORY, OCCUPANCY, DRAM, TENSOR];

/// A throughput from which on Nsight Compute's own rules call a kernel bound by it.
const BINDING: f64 = 0.6;

/// A kernel that is shorter does hardly more than be launched, µs.
const LAUNCH_US: f64 = 3.0;

/// Runs `ncu` over a command, for no longer than `limit`, and reads what it counted of at most so many kernels of these
/// names, after which the command is ended. It finds the machine held for it: the process that measures is this one.
///
/// # Errors
/// Why there are no counters, and what to do; the rest of a profile goes on without.
pub fn count(
    ncu: &Path,
    command: &[OsString],
    names: &[&str],
    kernels: usize,
    limit: Duration,
) -> Result<Vec<Counted>, String> {
    let mut counting = Command::new(ncu);
    counting
        .env(WITHIN_TURN, "1")
        // The clocks stay as they were when this process timed the same.
        .args(["--clock-control", "none"])
        .args(["--csv", "--page", "raw", "--print-units", "base", "--metrics", &METRICS.join(",")])
        .args(["--kernel-name", &filter(names), "--launch-count", &kernels.to_string(), "--kill", "yes"])
        .args(command);
    let name = ncu.display();
    let Said { out, errors } = child::run(&mut counting, limit).map_err(|unheard| match unheard {
        Unheard::Absent(e) if e.kind() == std::io::ErrorKind::NotFound => {
            format!("Nsight Compute is not there ({name}): it comes with the CUDA toolkit; name it by --ncu PATH")
        }
        Unheard::Absent(e) => format!("{name}: cannot be started: {e}"),
        Unheard::TooLong => {
            format!("{name}: ended after {} s, before it was done: --ncu-limit gives it longer", limit.as_secs_f64())
        }
    })?;
    if let Some(line) = out.lines().chain(errors.lines()).find(|line| line.contains("ERR_NVGPUCTRPERM")) {
        return Err(format!(
            "{}: this user may not read the GPU's counters. An administrator allows it with the module option \
             NVreg_RestrictProfilingToAdminUsers=0, or run as root",
            line.trim().trim_start_matches("==ERROR== ")
        ));
    }
    let counted = parse(&out).map_err(|why| {
        let last = out.lines().chain(errors.lines()).rfind(|line| line.starts_with("==ERROR==")).unwrap_or_default();
        format!("{name}: {why}{}{last}", if last.is_empty() { "" } else { "; it said: " })
    })?;
    if counted.is_empty() {
        return Err(format!("{name}: it saw no kernel"));
    }
    Ok(counted)
}

/// The kernels of these names, as the tool's filter has it: their functions, without templates and parameters.
fn filter(names: &[&str]) -> String {
    let mut functions: Vec<&str> = names.iter().map(|name| function(name)).collect();
    functions.sort_unstable();
    functions.dedup();
    format!("regex:^({})$", functions.join("|"))
}

/// The function of a kernel's name: `softmax` of `void rows::softmax<float, 4>(const float*)`.
pub fn function(name: &str) -> &str {
    let head = name.split(['(', '<']).next().unwrap_or(name);
    head.rsplit([' ', ':']).find(|word| !word.is_empty()).unwrap_or(head)
}

/// Reads the raw page of its CSV: a header with the metrics, a line with their units, a line a kernel.
fn parse(text: &str) -> Result<Vec<Counted>, String> {
    // What the program and the tool print stands before and between.
    let start =
        text.lines().position(|line| line.contains("\"Kernel Name\"")).ok_or("its output has no table of kernels")?;
    let table: Vec<&str> = text.lines().skip(start).filter(|line| line.starts_with('"')).collect();
    let table = table.join("\n");
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(table.as_bytes());
    let header = reader.headers().map_err(|e| format!("its table cannot be read: {e}"))?.clone();
    let column = |name: &str| header.iter().position(|title| title == name);
    let name_at = column("Kernel Name").ok_or("its table has no names of kernels")?;
    let columns: BTreeMap<&str, usize> = METRICS.iter().filter_map(|name| Some((*name, column(name)?))).collect();
    for needed in [TIME, COMPUTE, MEMORY] {
        if !columns.contains_key(needed) {
            return Err(format!("its table lacks {needed}: this version calls it otherwise"));
        }
    }
    let mut rows = reader.records().filter_map(Result::ok).filter(|row| row.len() == header.len());
    let mut counted = Vec::new();
    let units = rows.next().ok_or("its table has no units")?;
    let unit_of = |metric: &str| columns.get(metric).and_then(|at| units.get(*at)).unwrap_or_default();
    let scale =
        time_scale(unit_of(TIME)).ok_or_else(|| format!("its times are in `{}`, expected ns", unit_of(TIME)))?;
    for row in rows {
        let number = |metric: &str| -> Option<f64> { row.get(*columns.get(metric)?)?.replace(',', "").parse().ok() };
        let (Some(time), Some(compute), Some(memory)) = (number(TIME), number(COMPUTE), number(MEMORY)) else {
            continue;
        };
        let (us, compute, memory) = (time * scale, compute / 100.0, memory / 100.0);
        counted.push(Counted {
            name: row.get(name_at).unwrap_or_default().to_owned(),
            us,
            compute,
            memory,
            occupancy: number(OCCUPANCY).unwrap_or(0.0) / 100.0,
            dram_bytes: number(DRAM).unwrap_or(0.0),
            tensor: number(TENSOR).unwrap_or(0.0) / 100.0,
            bound: bound(us, compute, memory),
            ours: None,
        });
    }
    Ok(counted)
}

/// What a unit of time is in µs.
fn time_scale(unit: &str) -> Option<f64> {
    match unit {
        "nsecond" | "ns" => Some(1e-3),
        "usecond" | "us" => Some(1.0),
        "msecond" | "ms" => Some(1e3),
        "second" | "s" => Some(1e6),
        _ => None,
    }
}

/// The class by throughputs, as the tool's own rules have it.
fn bound(us: f64, compute: f64, memory: f64) -> Bound {
    if compute.max(memory) >= BINDING {
        if memory >= compute { Bound::Memory } else { Bound::Compute }
    } else if us < LAUNCH_US {
        Bound::Launch
    } else {
        Bound::Latency
    }
}

/// Our class beside each; `ours` tells that of a kernel by its name.
pub fn beside(mut kernels: Vec<Counted>, ours: impl Fn(&str) -> Option<Bound>) -> Counters {
    for kernel in &mut kernels {
        kernel.ours = ours(&kernel.name);
    }
    let both = kernels.iter().filter(|kernel| kernel.ours.is_some());
    let (all, same) =
        both.fold((0, 0), |(all, same), kernel| (all + 1, same + usize::from(kernel.ours == Some(kernel.bound))));
    Counters { agreement: if all == 0 { 0.0 } else { same as f64 / f64::from(all) }, kernels }
}

/// The command line with which Nsight Systems records the same.
pub fn nsys(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    format!("nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --output=kernelgate {}", words.join(" "))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::predict::BINDING;
    use crate::profile::ProfileRun;
    use std::os::unix::fs::PermissionsExt as _;

    /// A program that prints this and ends with this code.
    fn stub(says: &str, code: i32) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ncu");
        std::fs::write(folder.path().join("said"), says).unwrap();
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" > {0}/asked\ncat {0}/said\nexit {code}\n",
            folder.path().display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    fn run(path: &Path) -> Result<Vec<Counted>, String> {
        run_for(path, Duration::from_secs(60))
    }

    fn run_for(path: &Path, limit: Duration) -> Result<Vec<Counted>, String> {
        // A file that was just written may still be open for writing in a child that another test forks.
        (0..50)
            .find_map(|_| {
                match count(
                    path,
                    &["kernelgate".into(), "profile".into()],
                    &["softmax_f32(int)", "void a::gemm_bf16<4>(int)"],
                    7,
                    limit,
                ) {
                    Err(why) if why.contains("Text file busy") => {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        None
                    }
                    other => Some(other),
                }
            })
            .unwrap()
    }

    const GOOD: &str = include_str!("../../fixtures/ncu/raw.csv");

    #[test]
    fn a_table_is_read_and_the_agreement_told() {
        let (folder, path) = stub(GOOD, 0);
        let counted = run(&path).unwrap();
        let seen: Vec<_> = counted.iter().map(|k| (k.name.as_str(), k.us, k.bound)).collect();
        assert_eq!(
            seen,
            [
                ("softmax_f32(const float *, float *, int)", 34.56, Bound::Memory),
                ("gemm_bf16", 1234.5, Bound::Compute),
                ("gather", 12.0, Bound::Latency),
                ("empty", 1.5, Bound::Launch),
            ]
        );
        approx::assert_relative_eq!(counted[0].dram_bytes, 134_217_728.0);
        approx::assert_relative_eq!(counted[1].tensor, 0.8125);
        let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
        assert!(
            asked.contains("--launch-count\n7\n")
                && asked.contains("\nregex:^(gemm_bf16|softmax_f32)$\n")
                && asked.ends_with("kernelgate\nprofile\n"),
            "{asked}"
        );
        let counters = beside(counted, |name| match name {
            "gather" => Some(Bound::Memory),
            "empty" => None,
            _ if name.starts_with("softmax") => Some(Bound::Memory),
            _ => Some(Bound::Compute),
        });
        approx::assert_relative_eq!(counters.agreement, 2.0 / 3.0);
    }

    #[test]
    fn refused_counters_say_who_can_allow_them() {
        let says = "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access \
                    NVIDIA GPU Performance Counters on the target device 0.";
        let (_folder, path) = stub(says, 1);
        let why = run(&path).unwrap_err();
        assert!(why.contains("NVreg_RestrictProfilingToAdminUsers=0") && why.starts_with("ERR_NVGPUCTRPERM"), "{why}");
    }

    #[test]
    fn a_tool_that_takes_too_long_is_ended_with_its_children() {
        let (folder, path) = stub(GOOD, 0);
        let place = folder.path().display();
        // What it runs keeps its streams open, as a program under it does.
        let script = format!(
            "#!/bin/sh\necho \"$KERNELGATE_WITHIN_TURN\" > {place}/turn\nsleep 600 & echo $! > {place}/child\nwait\n"
        );
        std::fs::write(&path, script).unwrap();
        let begun = std::time::Instant::now();
        let why = run_for(&path, Duration::from_millis(2500)).unwrap_err();
        assert!(why.contains("ended after 2.5 s") && why.contains("--ncu-limit"), "{why}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(
            std::fs::read_to_string(folder.path().join("turn")).unwrap(),
            "1\n",
            "it would wait for this process"
        );
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        // A signal takes a moment to arrive.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        let is_gone = || state().is_empty() || state().contains(") Z ");
        let waited = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            is_gone()
        });
        assert!(waited, "the child lives on: {}", state());
    }

    #[test]
    fn what_is_missing_is_said() {
        let why = count(Path::new("/nowhere/ncu"), &[], &[], 1, Duration::from_secs(1)).unwrap_err();
        assert!(why.contains("/nowhere/ncu") && why.contains("--ncu PATH"), "{why}");
        let (_folder, path) = stub("==ERROR== the driver is too old", 3);
        let why = run(&path).unwrap_err();
        assert!(why.contains("no table") && why.contains("the driver is too old"), "{why}");
        let (_folder, path) = stub(&GOOD.replace(MEMORY, "memory__other"), 0);
        assert!(run(&path).unwrap_err().contains(&format!("lacks {MEMORY}")));
        let (_folder, path) = stub(GOOD.lines().take(3).collect::<Vec<_>>().join("\n").as_str(), 0);
        assert!(run(&path).unwrap_err().contains("no kernel"), "a table without a row");
    }

    #[test]
    fn the_command_line_of_nsight_systems_can_be_pasted() {
        let line = nsys(&["target/kernelgate".into(), "profile".into(), "it's".into()]);
        assert!(line.ends_with(" target/kernelgate profile 'it'\\''s'"), "{line}");
    }

    /// What docs/profile.md says of the catalogue. The file was written when half of the time was enough to bind.
    #[test]
    fn classes_agree_with_the_counters_of_an_h200() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/h200-counters.json.xz");
        let text = std::fs::read(path).and_then(crate::core::packed::text).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let runs: Vec<ProfileRun> = serde_json::from_value(file["profiles"].clone()).unwrap();
        let mut by_kernel = BTreeMap::new();
        for run in &runs {
            for counted in &run.counters.as_ref().expect("counters").kernels {
                let name = function(&counted.name);
                let mut rows = run.kernels.iter();
                let row = rows.clone().find(|row| row.name.contains(name)).or_else(|| rows.next());
                let Some((row, ours)) = row.zip(counted.ours) else { continue };
                let binds = row.of_ceiling.is_none_or(|share| share >= BINDING);
                let ours = if binds || ours == Bound::Launch { ours } else { Bound::Latency };
                by_kernel.insert((&run.subject, &run.way, &run.dtype, name.to_owned()), (counted.bound, ours));
            }
        }
        let same = by_kernel.values().filter(|(theirs, ours)| theirs == ours).count();
        assert_eq!((same, by_kernel.len()), (100, 106));
    }
}
