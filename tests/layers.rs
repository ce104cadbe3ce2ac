//! The layers: imports only point down, and what has one home stays there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// From the top to the bottom; a layer may use what stands below it, and itself.
const LAYERS: [&str; 12] = [
    "cli",
    "harness",
    "report",
    "profile",
    "predict",
    "calibrate",
    "baseline",
    "check",
    "protocol",
    "measure",
    "device",
    "core",
];

/// Beside the layers: who may use what.
const ASIDE: [(&str, &[&str]); 3] =
    [("models", &["core", "device", "ops"]), ("ops", &["core", "device"]), ("sim", &[])];

/// Who, besides the layers' order, is allowed to know the catalogue.
const USES_OPS: [&str; 1] = ["cli"];

/// Who is allowed to know the language models.
const USES_MODELS: [&str; 1] = ["cli"];

/// Who is allowed to know the simulator: the device that adapts it, and the command that runs files in it.
const USES_SIM: [&str; 2] = ["device", "cli"];

/// A word, and the only places where it may stand.
const HOMES: [(&str, &[&str]); 3] =
    [("insta", &["src/baseline/"]), ("libtest_mimic", &["src/harness/"]), ("cudarc", &["src/device/cuda/"])];

/// Where `unsafe` may stand.
const UNSAFE_HOMES: [&str; 2] = ["src/device/cuda/", "src/ops/simd/"];

/// Every source file with its text, comments removed.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, files: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
                let text = fs::read_to_string(&path).unwrap();
                let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
                files.push((name, code.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    walk(&root.join("src"), root, &mut files);
    assert!(files.len() > 30, "only {} sources were found", files.len());
    // Files that only tests see may reach up for a device or an operator.
    let test_only: BTreeSet<String> = files.iter().flat_map(|(file, code)| test_modules(file, code)).collect();
    files.retain(|(file, _)| !test_only.contains(file));
    files
}

/// The files of the modules that `file` declares for tests only.
fn test_modules(file: &str, code: &str) -> Vec<String> {
    let folder = match file.rsplit_once('/') {
        Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
        _ => file.trim_end_matches(".rs"),
    };
    let declared = code.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let name = rest.trim_start().trim_start_matches("pub(super) ").strip_prefix("mod ")?.split_once(';')?.0;
        name.chars().all(|c| c.is_ascii_lowercase() || c == '_').then(|| format!("{folder}/{name}.rs"))
    });
    declared.collect()
}

/// The top-level module of a file: `src/check/case.rs` is in `check`.
fn module(file: &str) -> &str {
    file.strip_prefix("src/").and_then(|rest| rest.split(['/', '.']).next()).unwrap_or_default()
}

/// The top-level modules that a text names after `crate::`, in groups too.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        let word =
            |text: &str| text.trim().chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
        match part.strip_prefix('{') {
            // `crate::{check::case, device}`: what follows the brace or a comma at the first depth.
            Some(group) => {
                let mut depth = 0;
                let mut at_start = true;
                for (i, c) in group.char_indices() {
                    if at_start && !c.is_whitespace() {
                        found.insert(word(&group[i..]));
                        at_start = false;
                    }
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => at_start = true,
                        _ => {}
                    }
                }
            }
            None => {
                found.insert(word(part));
            }
        }
    }
    found.remove("");
    found
}

fn may_use(from: &str, to: &str) -> bool {
    let rank = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    if from == to {
        return true;
    }
    // The rest are macros at the crate's root.
    if rank(to).is_none() && !ASIDE.iter().any(|(name, _)| *name == to) {
        return true;
    }
    if let Some((_, allowed)) = ASIDE.iter().find(|(name, _)| *name == from) {
        return allowed.contains(&to);
    }
    match (rank(from), rank(to)) {
        (Some(from), Some(to)) => from < to,
        _ => {
            (to == "ops" && USES_OPS.contains(&from))
                || (to == "sim" && USES_SIM.contains(&from))
                || (to == "models" && USES_MODELS.contains(&from))
        }
    }
}

#[test]
fn imports_only_point_down() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        // Lists and re-exports.
        if matches!(file.as_str(), "src/lib.rs" | "src/prelude.rs" | "src/main.rs") {
            continue;
        }
        // So may the tests inside a file.
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let from = module(&file);
        wrong.extend(imports(code).iter().filter(|to| !may_use(from, to)).map(|to| format!("{file} uses crate::{to}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}\nthe layers, from the top: {LAYERS:?}; beside them: {ASIDE:?}");
}

#[test]
fn what_has_one_home_stays_there() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        for (word, homes) in HOMES {
            let used = code.contains(&format!("{word}::")) || code.contains(&format!("use {word}"));
            if used && !homes.iter().any(|home| file.starts_with(home)) {
                wrong.push(format!("{file} uses {word}, whose home is {homes:?}"));
            }
        }
        let is_unsafe =
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|word| code.contains(word));
        if is_unsafe && !UNSAFE_HOMES.iter().any(|home| file.starts_with(home)) {
            wrong.push(format!("{file} holds `unsafe`, whose homes are {UNSAFE_HOMES:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_wrong_import_would_be_seen() {
    let names = |code: &str| imports(code).into_iter().collect::<Vec<_>>();
    assert_eq!(
        names("use crate::check::case;\nuse crate::{device::{cpu, cuda},\n  harness};"),
        ["check", "device", "harness"]
    );
    assert_eq!(test_modules("src/a/mod.rs", "mod b;\n#[cfg(test)]\nmod c;\n#[cfg(test)]\nmod d { }"), ["src/a/c.rs"]);
    assert!(
        may_use("harness", "check")
            && may_use("device", "sim")
            && may_use("ops", "core")
            && may_use("cli", "ops")
            && may_use("ops", "shape")
    );
    assert!(!may_use("core", "device") && !may_use("check", "harness") && !may_use("ops", "check"));
    assert!(!may_use("sim", "core") && !may_use("check", "ops") && !may_use("check", "sim"));
}
