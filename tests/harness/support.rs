//! What the functional tests share: building a target with cargo, running a gate, reading what came out.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A finished process.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ran {
    /// Whether a line of the log says that `trial` ended with `result`.
    pub fn says(&self, trial: &str, result: &str) -> bool {
        let line = |line: &str| line.starts_with(&format!("test {trial} ")) && line.contains(&format!("... {result}"));
        self.stdout.lines().any(line)
    }

    /// What stands below the title of a failed trial.
    pub fn failure(&self, trial: &str) -> String {
        let mut lines = self.stdout.lines().skip_while(|line| *line != format!("---- {trial} ----"));
        lines.next();
        lines.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
    }
}

/// The gate of `tests/misbehaving.rs` in a folder of its own.
pub struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Fixture { folder: tempfile::tempdir().unwrap() }
    }

    pub fn summary_path(&self) -> PathBuf {
        self.folder.path().join("summary.json")
    }

    pub fn summary(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.summary_path()).unwrap()).unwrap()
    }

    /// Accepts the pending baseline of `<operator>.<candidate>.<dtype>`, as `cargo insta review` does.
    pub fn accept(&self, name: &str) {
        let devices = std::fs::read_dir(self.folder.path().join("snapshots/perf")).unwrap();
        let device = devices.map(|entry| entry.unwrap().path()).next().expect("a pending baseline");
        std::fs::rename(device.join(format!("{name}.snap.new")), device.join(format!("{name}.snap"))).unwrap();
    }

    /// A run with these candidates, not started yet.
    pub fn command(&self, candidates: &str, arguments: &[&str]) -> Command {
        let mut command = bare(gate());
        command.env("MISBEHAVE", candidates).env("KERNELGATE_ROOT", self.folder.path()).args(arguments);
        command.arg("--out").arg(self.summary_path());
        command
    }

    pub fn run(&self, candidates: &str, arguments: &[&str]) -> Ran {
        self.command(candidates, arguments).output().unwrap().into()
    }
}

/// A command without the variables that whoever runs these tests may have set.
pub fn bare(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("KERNELGATE_")
            || name.starts_with("NEXTEST")
            || name.starts_with("PROPTEST_")
            || name.starts_with("INSTA_")
        {
            command.env_remove(name);
        }
    }
    command
}

/// The gate of `tests/misbehaving.rs`.
pub fn gate() -> &'static Path {
    static GATE: OnceLock<PathBuf> = OnceLock::new();
    GATE.get_or_init(|| build(&root().join("Cargo.toml"), "misbehaving"))
}

/// The folder of this crate.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The target folder and the profile flag of this very build: what was built for it is used again.
pub fn target() -> (PathBuf, Option<&'static str>) {
    let exe = std::env::current_exe().unwrap();
    let mut folders = exe.ancestors().skip(2);
    let profile = folders.next().unwrap();
    let flag = profile.ends_with("release").then_some("--release");
    (folders.next().unwrap().to_owned(), flag)
}

/// How often something is tried that a busy machine may spoil.
pub const TRIES: usize = 8;

/// What `run` gives once that is clear, or for the last time.
pub fn tried<T>(mut run: impl FnMut() -> T, is_clear: impl Fn(&T) -> bool) -> T {
    let mut given = run();
    for _ in 1..TRIES {
        if is_clear(&given) {
            break;
        }
        given = run();
    }
    given
}

/// Builds a test target and returns its executable.
pub fn build(manifest: &Path, test: &str) -> PathBuf {
    let (target, flag) = target();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--no-run", "--offline", "--message-format=json", "--test", test]).args(flag);
    // From its folder, where its settings of cargo are found.
    cargo.current_dir(manifest.parent().unwrap()).arg("--target-dir").arg(target);
    let built = Ran::from(cargo.output().unwrap());
    assert_eq!(built.code, Some(0), "{} does not build:\n{}\n{}", manifest.display(), built.stdout, built.stderr);
    let artifacts = built.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = artifacts
        .filter(|artifact| artifact["target"]["name"] == test && artifact["target"]["kind"][0] == "test")
        .find_map(|artifact| Some(PathBuf::from(artifact["executable"].as_str()?)));
    executable.unwrap_or_else(|| panic!("cargo names no executable for the test `{test}`"))
}
