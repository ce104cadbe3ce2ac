//! A planted slowdown in a downstream project, under each runner that is installed: `cargo test`, `cargo nextest run`
//! and `cargo insta test` are red until it is accepted, whatever insta is told.

use crate::support::{Ran, TRIES, bare, root, target, tried};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The runners, as arguments of cargo up to where those of the gate begin.
const RUNNERS: [&[&str]; 3] = [&["test"], &["nextest", "run"], &["insta", "test"]];

/// Every timed launch takes five times as long: beyond the noise of any machine that runs tests.
const PLANTED: (&str, &str) = ("KERNELGATE_PLANT", "4");

/// What would let a snapshot assertion pass, and what keeps it from writing.
const HIDING: [&[(&str, &str)]; 2] = [&[("INSTA_FORCE_PASS", "1")], &[("CI", "1")]];

/// What would overwrite the baseline. To `cargo insta test` itself this is `--accept`: it ends red and accepts.
const ACCEPTING: (&str, &str) = ("INSTA_UPDATE", "always");

/// What is replaced in the gate of `fixtures/user`: a small shape whose candidate takes its time by the clock, so that a machine at
/// work on other things says the same.
const BY_THE_CLOCK: [(&str, &str); 3] = [
    ("n: 1 << 20 }", "n: 1 << 14 }"),
    ("|_, x, y| y.slice(0)", "|_, x, y| lasts_2_ms(|| y.slice(0)"),
    ("*y = fast_gelu(x)));", "*y = fast_gelu(x))));"),
];
const LASTS: &str = "
fn lasts_2_ms(work: impl FnOnce()) {
    let ends = std::time::Instant::now() + std::time::Duration::from_millis(2);
    work();
    while std::time::Instant::now() < ends {
        std::hint::spin_loop();
    }
}
";

/// A copy of `fixtures/user` that nothing else looks at.
struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = root().join("fixtures/user");
        for file in ["src/lib.rs", "kernels/fast_gelu.cu", ".cargo/config.toml"] {
            let to = folder.path().join(file);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(from.join(file), to).unwrap();
        }
        let gate = std::fs::read_to_string(from.join("tests/gate.rs")).unwrap();
        let gate = BY_THE_CLOCK.iter().fold(gate, |gate, (plain, clocked)| {
            assert!(gate.contains(plain), "{plain}");
            gate.replace(plain, clocked)
        });
        std::fs::create_dir(folder.path().join("tests")).unwrap();
        std::fs::write(folder.path().join("tests/gate.rs"), gate + LASTS).unwrap();
        let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
        // Under a name of its own: cargo takes two copies of a project in one target folder for the same.
        let manifest =
            manifest.replace("\"fast-gelu\"", "\"planted-gelu\"").replace("../..", &root().to_string_lossy());
        let manifest = manifest + "\n[lib]\nname = \"fast_gelu\"\n";
        std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        // The lock file of this crate, so that nothing has to be fetched.
        std::fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
        Project { folder }
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = bare(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(arguments).current_dir(self.folder.path()).env_remove("CI").env("CARGO_NET_OFFLINE", "true");
        cargo
    }

    /// Runs the perf trial of the CPU candidate.
    fn run(&self, runner: &[&str], environment: &[(&str, &str)]) -> Ran {
        let (target, flag) = target();
        let mut cargo = self.cargo(runner);
        cargo.args(flag).args(["--test", "gate"]);
        // nextest takes the filter as its own; the others hand it on.
        cargo.args(if runner[0] == "nextest" { &["cpu::f32::perf"][..] } else { &["--", "cpu::f32::perf"] });
        cargo
            .env("CARGO_TARGET_DIR", target)
            .env("KERNELGATE_DEVICE", "cpu")
            .env("KERNELGATE_ROOT", self.folder.path());
        cargo.env("KERNELGATE_OUT", self.folder.path().join("summary.json"));
        cargo.envs(environment.iter().copied()).output().unwrap().into()
    }

    /// The verdict on the trial that was run last.
    fn verdict(&self) -> String {
        let summary = std::fs::read_to_string(self.folder.path().join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        summary["records"][0]["verdict"].as_str().unwrap_or_default().to_owned()
    }

    /// Runs until there is a verdict.
    fn judged(&self, runner: &[&str], environment: &[(&str, &str)]) -> (Ran, String) {
        tried(|| (self.run(runner, environment), self.verdict()), |(_, verdict)| verdict != "unclear")
    }

    /// Runs that must end well, with this verdict.
    fn green(&self, runner: &[&str], environment: &[(&str, &str)], wanted: &str) {
        let (ran, verdict) = self.judged(runner, environment);
        let is_good = ran.code == Some(0) && verdict == wanted;
        assert!(is_good, "{runner:?} {environment:?}: {verdict}\n{}{}", ran.stdout, ran.stderr);
    }

    /// Runs that must end badly, as slower.
    fn red(&self, runner: &[&str], environment: &[(&str, &str)]) {
        let (ran, verdict) = self.judged(runner, environment);
        let is_red = ran.code != Some(0) && verdict == "slower";
        assert!(is_red, "{runner:?} {environment:?}: {verdict}\n{}{}", ran.stdout, ran.stderr);
    }

    fn snapshots(&self, extension: &str) -> Vec<PathBuf> {
        fn below(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { below(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        below(&self.folder.path().join("snapshots"), &mut found);
        found.retain(|path| path.to_string_lossy().ends_with(extension));
        found
    }

    /// Accepts what is pending: with `cargo insta` where it is installed, else as it would.
    fn accept(&self) {
        let pending = self.snapshots(".snap.new");
        assert!(!pending.is_empty(), "nothing to accept");
        if is_installed("insta") {
            let accepted = Ran::from(self.cargo(&["insta", "accept"]).output().unwrap());
            assert_eq!(accepted.code, Some(0), "{}{}", accepted.stdout, accepted.stderr);
        } else {
            pending.iter().for_each(|path| std::fs::rename(path, path.with_extension("")).unwrap());
        }
        assert_eq!((self.snapshots(".snap.new").len(), self.snapshots(".snap").len()), (0, pending.len()));
    }
}

fn is_installed(subcommand: &str) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Command::new(cargo).args([subcommand, "-h"]).output().is_ok_and(|output| output.status.success())
}

/// On a machine that is busy with other things a time may be too noisy to judge, and a baseline too: a trial is then run
/// again, and the story told again, on which everything hangs but its chances.
#[test]
fn a_planted_slowdown_is_red_under_every_runner_until_it_is_accepted() {
    let (here, absent): (Vec<&[&str]>, Vec<_>) = RUNNERS.iter().partition(|runner| is_installed(runner[0]));
    absent.iter().for_each(|runner| println!("not tried: cargo-{} is not installed", runner[0]));
    let mut tries = (0..TRIES).map(|_| std::panic::catch_unwind(|| planted_and_accepted(&here)));
    assert!(tries.any(|told| told.is_ok()), "not once in {TRIES} tries");
}

fn planted_and_accepted(runners: &[&[&str]]) {
    let project = Project::new();
    project.green(RUNNERS[0], &[], "skip");
    project.accept();
    // A baseline that is too noisy to confirm would leave all that follows unclear.
    project.green(RUNNERS[0], &[], "same");
    let accepted = project.snapshots(".snap").iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    for runner in runners {
        project.red(runner, &[PLANTED]);
        for hiding in HIDING {
            project.red(runner, &[&[PLANTED], hiding].concat());
        }
        if runner[0] != "insta" {
            project.red(runner, &[PLANTED, ACCEPTING]);
        }
    }
    let now = project.snapshots(".snap").iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>();
    assert_eq!(now, accepted, "a baseline was overwritten");
    project.accept();
    for runner in runners {
        project.green(runner, &[PLANTED], "same");
    }
}
