//! The project whose gate this is: its folders, and how a person runs one of its trials again.

use crate::core::environment;
use crate::device::fingerprint::Fingerprint;
use crate::predict::stored;
use crate::report::clock::{began, rfc3339};
use crate::report::summary::Run;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a gate comes from. `gate!` fills it in.
#[derive(Clone, Debug)]
pub struct Project {
    /// The folder of its manifest: snapshots and kept seeds live below it.
    pub folder: PathBuf,
    /// The name of its package.
    pub package: String,
    /// What starts its gate.
    launcher: Launcher,
    /// When this process began.
    begun: SystemTime,
}

/// How the gate was started.
#[derive(Clone, Debug, PartialEq)]
enum Launcher {
    /// `cargo test`, which built the binary.
    Cargo,
    /// The binary itself, with these arguments before the options.
    Direct(String),
}

impl Project {
    /// The project of a test target: both values come from cargo's variables at compile time.
    pub fn new(manifest_folder: &str, package: &str) -> Self {
        let folder = env::var_os(environment::ROOT).map_or_else(|| manifest_folder.into(), PathBuf::from);
        Project { folder, package: package.into(), launcher: Launcher::Cargo, begun: began() }
    }

    /// A project whose gate is run by a command rather than by cargo.
    pub fn run_by(self, command: &str) -> Self {
        Project { launcher: Launcher::Direct(command.into()), ..self }
    }

    /// `<target>/kernelgate/summary.json`.
    pub fn summary_path(&self) -> PathBuf {
        let built_in = env::current_exe().ok().and_then(|exe| target_folder(&exe));
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).or(built_in);
        target.unwrap_or_else(|| self.folder.join("target")).join("kernelgate/summary.json")
    }

    /// Where this machine's own measurements of a device go: `<target>/kernelgate/calibration/<device>.json`.
    pub fn made(&self, kind: &str, fingerprint: &Fingerprint) -> PathBuf {
        self.summary_path().with_file_name(kind).join(format!("{}.json", fingerprint.key()))
    }

    /// This machine's own file where there is one, else the one that the project keeps.
    pub fn newest(&self, kind: &str, fingerprint: &Fingerprint) -> PathBuf {
        let own = self.made(kind, fingerprint);
        if own.exists() { own } else { stored(&self.folder, kind, fingerprint) }
    }

    /// `<target>/kernelgate/references`, whatever the summary is called.
    pub fn references_folder(&self) -> PathBuf {
        self.summary_path().with_file_name("references")
    }

    /// Where the processes of one run of this test keep what is left of its time.
    pub fn budget_path(&self) -> PathBuf {
        let test = test_name(&env::current_exe().unwrap_or_default());
        self.summary_path().with_file_name(format!(".{test}.budget.json"))
    }

    /// The command that runs `trial` alone; `options` are further arguments.
    pub fn repeat_command(&self, trial: &str, options: &str) -> String {
        let gap = if options.is_empty() { "" } else { " " };
        match &self.launcher {
            Launcher::Direct(command) => format!("{command} --exact {trial}{gap}{options}"),
            Launcher::Cargo => {
                let exe = env::current_exe().unwrap_or_default();
                let profile = profile_flag(&exe).map_or_else(String::new, |flag| format!(" {flag}"));
                // In a workspace of several packages the test's name alone may not do.
                let package = match target_folder(&exe).and_then(|target| target.parent().map(Path::to_owned)) {
                    Some(root) if root != self.folder => format!(" -p {}", self.package),
                    _ => String::new(),
                };
                format!("cargo test{profile}{package} --test {} -- --exact {trial}{gap}{options}", test_name(&exe))
            }
        }
    }

    /// The head of a summary.
    pub fn describe_run(&self, seed: u64) -> Run {
        let exe = env::current_exe().unwrap_or_default();
        let mut command = vec![test_name(&exe)];
        command.extend(env::args().skip(1));
        Run {
            id: run_id(),
            started: rfc3339(self.begun),
            seed,
            command: command.join(" "),
            package: self.package.clone(),
            kernelgate: env!("CARGO_PKG_VERSION").into(),
            revision: self.revision(),
            os: env::consts::OS.into(),
            arch: env::consts::ARCH.into(),
            merged: Vec::new(),
        }
    }

    /// That of a bundle is in a file, as its folder is no checkout, or another one's.
    fn revision(&self) -> Option<String> {
        if let Ok(text) = std::fs::read_to_string(self.folder.join("revision")) {
            let hash = text.trim();
            return hash.get(..12).filter(|_| hash.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned);
        }
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.folder).args(["rev-parse", "--short=12", "HEAD"]);
        let output = git.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    }
}

/// The id of the run that this process has a part in, if it is one of several.
pub fn shared_run_id() -> Option<String> {
    let shared = env::var(environment::RUN_ID).or_else(|_| env::var("NEXTEST_RUN_ID"));
    shared.ok().filter(|id| !id.is_empty())
}

/// The id that processes of one run share. The binaries that one `cargo test` starts are a run; else, without an id, each
/// process is one of its own.
fn run_id() -> String {
    shared_run_id().or_else(run_of_cargo).unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{:x}-{:x}", since.as_nanos(), std::process::id())
    })
}

/// The id of the cargo that started this process: its number, and when it began.
#[cfg(target_os = "linux")]
fn run_of_cargo() -> Option<String> {
    let parent = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).ok()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    cargo_run(&stat, &boot)
}

#[cfg(not(target_os = "linux"))]
fn run_of_cargo() -> Option<String> {
    None
}

/// From the line that the system keeps of a process, if its program is cargo, and from the id of the system's start.
#[cfg(target_os = "linux")]
fn cargo_run(stat: &str, boot: &str) -> Option<String> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    // The 22nd value of the line; two stand before the rest.
    let began: u64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    let boot = boot.trim().split('-').next()?;
    (name == "cargo").then(|| format!("cargo-{boot}-{began:x}-{pid}"))
}

/// The folder above `exe` that cargo has marked as its own.
fn target_folder(exe: &Path) -> Option<PathBuf> {
    exe.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_owned)
}

/// `gate-0123456789abcdef` is the test `gate`.
fn test_name(exe: &Path) -> String {
    let stem = exe.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.chars().all(|c| c.is_ascii_hexdigit()) => name.to_owned(),
        _ => stem,
    }
}

/// The cargo flag of the profile that `exe` was built with, if it is not the default one.
fn profile_flag(exe: &Path) -> Option<String> {
    match exe.ancestors().nth(2)?.file_name()?.to_str()? {
        "release" => Some("--release".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case("/p/target/release/deps/gate-0123456789abcdef", "gate", Some("--release"))]
    #[case("/p/target/debug/deps/my-gate-0123456789abcdef", "my-gate", None)]
    #[case("/usr/bin/kernelgate", "kernelgate", None)]
    fn names_and_profiles(#[case] exe: &str, #[case] name: &str, #[case] flag: Option<&str>) {
        assert_eq!((test_name(Path::new(exe)).as_str(), profile_flag(Path::new(exe)).as_deref()), (name, flag));
    }

    #[test]
    fn a_bundle_says_which_revision_it_was_made_from() {
        let folder = tempfile::tempdir().unwrap();
        let revision = |text: &str| {
            std::fs::write(folder.path().join("revision"), text).unwrap();
            Project { folder: folder.path().into(), ..Project::new("", "p") }.revision()
        };
        assert_eq!(revision("0123456789abcdef0123456789abcdef01234567\n"), Some("0123456789ab".into()));
        assert_eq!(revision("no hash of a commit"), None);
        assert_eq!(revision(""), None);
    }

    #[test]
    fn a_run_began_when_its_process_did() {
        let project = Project { begun: UNIX_EPOCH + Duration::from_secs(86_400), ..Project::new("", "p") };
        assert_eq!(project.describe_run(0).started, "1970-01-02T00:00:00Z");
    }

    #[test]
    fn a_command_repeats_a_trial() {
        let project = Project::new("/p", "demo").run_by("kernelgate check");
        assert_eq!(project.repeat_command("a::b::f32::perf", ""), "kernelgate check --exact a::b::f32::perf");
        let ours = Project::new(env!("CARGO_MANIFEST_DIR"), "kernelgate").repeat_command("t", "--shape n=3");
        assert!(ours.starts_with("cargo test ") && ours.ends_with(" -- --exact t --shape n=3"), "{ours}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_run_of_cargo_has_an_id() {
        let stat = |name: &str| format!("4711 ({name}) S 1 4711 1 0 -1 4194304 9 0 0 0 1 2 0 0 20 0 3 0 255 1000 20");
        let boot = "0a1b2c3d-0000-0000-0000-000000000000\n";
        assert_eq!(cargo_run(&stat("cargo"), boot).as_deref(), Some("cargo-0a1b2c3d-ff-4711"));
        assert_eq!(cargo_run(&stat("bash) x ("), boot), None);
    }

    #[test]
    fn the_target_folder_is_the_marked_one() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("CACHEDIR.TAG"), "").unwrap();
        let exe = root.path().join("release/deps/gate");
        assert_eq!(target_folder(&exe), Some(root.path().to_owned()));
    }
}
