//! The `KERNELGATE_*` variables: one constant and one line of meaning each. A flag always wins over its variable.

/// Where kernels run: `cpu`, `sim`, `cuda` or `cuda:<n>`.
pub const DEVICE: &str = "KERNELGATE_DEVICE";
/// What must be there, separated by commas: `cuda`, `baseline`.
pub const REQUIRE: &str = "KERNELGATE_REQUIRE";
/// Where the summary goes.
pub const OUT: &str = "KERNELGATE_OUT";
/// The seed of the run.
pub const SEED: &str = "KERNELGATE_SEED";
/// Seconds that a trial may spend on starting new cases.
pub const BUDGET: &str = "KERNELGATE_BUDGET";
/// Seconds that all trials together may take.
pub const RUN_BUDGET: &str = "KERNELGATE_RUN_BUDGET";
/// A slowdown to add to timed launches, as a share of their time: of all, or of trials of some name.
pub const PLANT: &str = "KERNELGATE_PLANT";
/// Processes with one run id share one summary.
pub const RUN_ID: &str = "KERNELGATE_RUN_ID";
/// The project's folder, where it is not that of the build.
pub const ROOT: &str = "KERNELGATE_ROOT";
/// Runs all trials in one worker process, whose output is not captured.
pub const IN_PROCESS: &str = "KERNELGATE_IN_PROCESS";
/// Where compiled kernels are kept.
pub const CACHE: &str = "KERNELGATE_CACHE";
/// A CUDA toolkit to take the headers and NVRTC from.
pub const CUDA_HOME: &str = "KERNELGATE_CUDA_HOME";
/// Set by a gate for its worker processes; not for people.
pub const WORKER: &str = "KERNELGATE_WORKER";

/// Set by a gate for the processes that compile for it: `PART/PARTS`; not for people.
pub const COMPILE_SHARE: &str = "KERNELGATE_COMPILE_SHARE";

/// Set by a profile for the process that Nsight Compute runs for it, while it holds the machine itself; not for people.
pub const WITHIN_TURN: &str = "KERNELGATE_WITHIN_TURN";

/// Every variable that a person may set, with its meaning, for help texts.
pub const TABLE: &[(&str, &str)] = &[
    (
        DEVICE,
        "where kernels run: cpu, sim, cuda, cuda:<n> or cuda:slot (--device); default the GPU, else the simulator",
    ),
    (
        REQUIRE,
        "cuda, nvrtc, baseline, several with commas: what must be there; its lack is then a failure, not a skip (--require)",
    ),
    (OUT, "path of the summary (--out); default target/kernelgate/summary.json"),
    (SEED, "seed of the run (--seed)"),
    (BUDGET, "seconds after which a trial starts no new case; what is cut is said (--budget); default none"),
    (RUN_BUDGET, "the same for all trials together; 0 plans every case and has no limit (--run-budget)"),
    (
        PLANT,
        "0.05 adds 5 % to every timed launch, softmax=0.05 to those of such trials, to see the gate find it (--plant)",
    ),
    (RUN_ID, "processes with one run id share one summary; NEXTEST_RUN_ID counts as one"),
    (ROOT, "the project's folder on a machine other than that of the build"),
    (IN_PROCESS, "1: run all trials in one child process (--in-process)"),
    (CACHE, "folder for compiled kernels; default kernels in the user's cache folder"),
    (CUDA_HOME, "a CUDA toolkit to take NVRTC and the headers from, before CUDA_HOME and CUDA_PATH"),
];

/// The table as aligned text.
pub fn describe() -> String {
    let width = TABLE.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    TABLE.iter().map(|(name, meaning)| format!("  {name:width$}  {meaning}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_every_variable_with_its_meaning() {
        let page = include_str!("../../docs/guide/reference.md");
        for (name, meaning) in TABLE {
            let row = format!("| `{name}` | {meaning} |");
            assert!(page.contains(&row), "docs/guide/reference.md lacks: {row}");
        }
    }
}
