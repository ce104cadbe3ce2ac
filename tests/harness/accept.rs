//! `ci/accept.sh`: what comes home from another machine is taken in whole or refused, and lands nowhere else.

use crate::support::{Ran, root};
use rstest::rstest;
use std::path::Path;
use std::process::Command;

/// Runs a shell script in a folder.
fn sh(folder: &Path, script: &str) {
    let ran = Ran::from(Command::new("bash").args(["-euc", script]).current_dir(folder).output().unwrap());
    assert_eq!(ran.code, Some(0), "{script}: {}{}", ran.stdout, ran.stderr);
}

/// A project and an archive beside it: `make` fills the folder that is packed.
fn archive(make: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    sh(folder.path(), "mkdir project pack");
    sh(&folder.path().join("pack"), make);
    sh(folder.path(), "tar -czf results.tar.gz -C pack $(ls -A pack)");
    folder
}

fn accept(folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new("bash");
    command.arg(root().join("ci/accept.sh")).arg(folder.join("results.tar.gz")).args(arguments);
    command.env("ACCEPT_ROOT", folder.join("project")).output().unwrap().into()
}

/// A pending snapshot and a failed case.
const GOOD: &str = "mkdir -p snapshots/perf/gpu regressions; echo new > snapshots/perf/gpu/a.f32.snap.new;
    printf 'one\\ntwo\\n' > regressions/a.txt";

#[test]
fn a_good_archive_is_taken_in() {
    let folder = archive(GOOD);
    let project = folder.path().join("project");
    sh(&project, "mkdir regressions; echo two > regressions/a.txt");
    let ran = accept(folder.path(), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(project.join("regressions/a.txt")).unwrap(), "two\none\n");
    assert_eq!(std::fs::read_to_string(project.join("snapshots/perf/gpu/a.f32.snap.new")).unwrap(), "new\n");
    assert_eq!(accept(folder.path(), &["--all"]).code, Some(0));
    assert!(project.join("snapshots/perf/gpu/a.f32.snap").is_file());
}

#[rstest]
#[case::link("ln -s /etc/passwd snapshots/perf/gpu/b.f32.snap.new", "")]
#[case::hard_link("ln regressions/a.txt regressions/b.txt", "")]
#[case::pipe("mkfifo regressions/b.txt", "")]
#[case::folder_link("rm -r snapshots; ln -s /tmp snapshots", "")]
#[case::link_in_the_way("true", "mkdir snapshots; ln -s /tmp snapshots/perf")]
#[case::file_link_in_the_way("true", "mkdir -p regressions; ln -s ../other regressions/a.txt")]
#[case::pipe_in_the_way("true", "mkdir -p regressions; mkfifo regressions/a.txt")]
fn links_and_pipes_are_refused(#[case] packed: &str, #[case] there: &str) {
    let folder = archive(&format!("{GOOD}; {packed}"));
    sh(&folder.path().join("project"), there);
    let ran = accept(folder.path(), &["--all"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("nothing was changed"), "{}{}", ran.stdout, ran.stderr);
    assert!(!folder.path().join("project/snapshots/perf/gpu/a.f32.snap").exists());
    assert!(!folder.path().join("project/other").exists());
}

#[rstest]
#[case::cut("head -c 150 results.tar.gz > cut; mv cut results.tar.gz")]
#[case::no_archive("echo text > results.tar.gz")]
#[case::empty(": > results.tar.gz")]
#[case::pipe("rm results.tar.gz; mkfifo results.tar.gz")]
fn a_damaged_archive_is_refused(#[case] damage: &str) {
    let folder = archive(GOOD);
    sh(folder.path(), damage);
    let ran = accept(folder.path(), &["--all"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("nothing was changed"), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(std::fs::read_dir(folder.path().join("project")).unwrap().count(), 0);
}

#[test]
fn what_lies_elsewhere_is_left_there() {
    let folder = archive(&format!("{GOOD}; echo x > Cargo.toml; mkdir -p snapshots/.. src; echo x > src/lib.rs"));
    assert_eq!(accept(folder.path(), &["--all"]).code, Some(0));
    assert!(!folder.path().join("project/Cargo.toml").exists() && !folder.path().join("project/src").exists());
}
