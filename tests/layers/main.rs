//! The layers: imports only point down, and what has one home stays there.

mod graph;
mod source;

use graph::Graph;
use source::{below, code, files, kernels, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// From the top to the bottom; a layer may use what stands below it, and itself.
const LAYERS: [&str; 13] = [
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
    "toolchain",
    "core",
];

/// Beside the layers: who may use what.
const ASIDE: [(&str, &[&str]); 3] =
    [("models", &["core", "device", "ops"]), ("ops", &["core", "device", "toolchain"]), ("sim", &[])];

/// Who, besides the layers' order, is allowed to know the catalogue.
const USES_OPS: [&str; 1] = ["cli"];

/// Who is allowed to know the language models.
const USES_MODELS: [&str; 1] = ["cli"];

/// Who is allowed to know the simulator: the device that adapts it, and the command that runs files in it.
const USES_SIM: [&str; 2] = ["device", "cli"];

/// A word, and the only places where it may stand.
const HOMES: [(&str, &[&str]); 3] = [
    ("insta", &["src/baseline/"]),
    ("libtest_mimic", &["src/harness/"]),
    ("cudarc", &["src/device/cuda/", "src/toolchain/"]),
];

/// Where `unsafe` may stand.
const UNSAFE_HOMES: [&str; 3] = ["src/device/cuda/", "src/ops/simd/", "src/toolchain/"];

/// Inside the simulator, from the top to the bottom; what stands in `src/sim` itself is below all of them.
const SIM_LAYERS: [&str; 6] = ["run", "passes", "isa", "ir", "machine", "ptx"];

/// Files that may import each other in a circle: a type and the two that make and use it.
const MOST_FILES_OF_A_CYCLE: usize = 3;

/// Lines of the longest file.
const MOST_LINES: usize = 500;

/// Every source file with its code, without what only tests see: that may reach up for a device or an operator.
fn sources() -> Vec<(String, String)> {
    let files = files();
    let graph = Graph::new(&files);
    let seen = graph.files();
    let code = |text: &String| without_tests(&code(text)).0;
    files
        .iter()
        .filter(|(file, _)| seen.contains(file.as_str()))
        .map(|(file, text)| (file.clone(), code(text)))
        .collect()
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
        let from = module(&file);
        wrong
            .extend(imports(&code).iter().filter(|to| !may_use(from, to)).map(|to| format!("{file} uses crate::{to}")));
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

/// Where a file of the simulator stands; `None` for those outside of its folders.
fn sim_layer(file: &str) -> Option<usize> {
    let folder = file.strip_prefix("src/sim/")?.split_once('/')?.0;
    SIM_LAYERS.iter().position(|layer| *layer == folder)
}

/// What imports upwards inside the simulator, each as `file uses file`.
fn upwards_in_sim(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, targets) in graph.imports() {
        let inside = file.starts_with("src/sim/") && file != "src/sim/mod.rs";
        for target in targets.into_iter().filter(|_| inside) {
            // Lower is further down; files in no folder are the bottom.
            let [from, to] = [file, target].map(|file| sim_layer(file).unwrap_or(SIM_LAYERS.len()));
            if to < from {
                wrong.push(format!("{file} uses {target}"));
            }
        }
    }
    wrong
}

#[test]
fn inside_the_simulator_imports_only_point_down() {
    let files = files();
    let wrong = upwards_in_sim(&Graph::new(&files));
    assert!(wrong.is_empty(), "{wrong:#?}\nthe folders of src/sim, from the top: {SIM_LAYERS:?}");
    let folders: BTreeSet<&str> = files
        .keys()
        .filter_map(|file| file.strip_prefix("src/sim/")?.split_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    let known: BTreeSet<&str> = SIM_LAYERS.into_iter().chain(["tests"]).collect();
    assert_eq!(folders, known, "a folder of src/sim that has no place in SIM_LAYERS");
}

#[test]
fn no_large_cycle_of_files() {
    let files = files();
    let graph = Graph::new(&files);
    let large: Vec<_> = graph.cycles().into_iter().filter(|cycle| cycle.len() > MOST_FILES_OF_A_CYCLE).collect();
    assert!(
        large.is_empty(),
        "these files import each other in a circle: move what they share into a file below them\n{large:#?}"
    );
}

#[test]
fn no_file_is_long() {
    let long: Vec<_> = files()
        .into_iter()
        .chain(kernels())
        .map(|(file, text)| (text.lines().count(), file))
        .filter(|(lines, _)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "files of more than {MOST_LINES} lines: {long:?}");
}

/// A small crate with the files that are given.
fn planted(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(file, text)| (format!("src/{file}"), (*text).to_owned())).collect()
}

#[test]
fn a_planted_cycle_is_seen() {
    // b -> c -> d -> a by an import, a list of imports, an expression and a re-export; e only looks on.
    let mut files = planted(&[
        ("lib.rs", "mod a; mod e;"),
        ("a/mod.rs", "mod b; mod c; mod d; pub use b::{B, other}; pub struct A(B);"),
        ("a/b.rs", "use super::c::{self, C as Renamed}; pub struct B; pub fn other() {}"),
        ("a/c.rs", "pub struct C; fn f() { crate::a::d::g() }"),
        ("a/d.rs", "use crate::a::A; pub fn g() {}"),
        ("e.rs", "use crate::a::{A, B};"),
    ]);
    let cycles = |files: &BTreeMap<String, String>| -> Vec<Vec<String>> {
        let named = |cycle: BTreeSet<&str>| cycle.into_iter().map(str::to_owned).collect();
        Graph::new(files).cycles().into_iter().map(named).collect()
    };
    assert_eq!(cycles(&files), [["src/a/b.rs", "src/a/c.rs", "src/a/d.rs", "src/a/mod.rs"]]);
    let graph = Graph::new(&files);
    assert_eq!(graph.imports()["src/e.rs"], ["src/a/b.rs", "src/a/mod.rs"].into(), "a re-export leads to its home");
    // Nothing is left of it where the last import is of something else, in a comment, or in a test.
    for harmless in [
        "use crate::e::X; pub fn g() {}",
        "// use crate::a::A;\npub fn g() {}",
        "#[cfg(test)] mod tests { use crate::a::A; } pub fn g() {}",
    ] {
        files.insert("src/a/d.rs".into(), harmless.into());
        assert_eq!(cycles(&files), Vec::<Vec<String>>::new(), "{harmless}");
    }
}

#[test]
fn a_planted_import_upwards_in_the_simulator_is_seen() {
    let of = |machine: &str, error: &str| {
        upwards_in_sim(&Graph::new(&planted(&[
            ("lib.rs", "mod sim;"),
            ("sim/mod.rs", "mod error; mod isa; mod machine; pub use isa::run;"),
            ("sim/error.rs", error),
            ("sim/isa/mod.rs", "pub fn run() { crate::sim::machine::step() }"),
            ("sim/machine/mod.rs", machine),
        ])))
    };
    assert!(of("pub fn step() {}", "pub struct Error;").is_empty());
    assert_eq!(
        of("use crate::sim::isa::run; pub fn step() {}", ""),
        ["src/sim/machine/mod.rs uses src/sim/isa/mod.rs"]
    );
    assert_eq!(of("use crate::sim::run; pub fn step() {}", ""), ["src/sim/machine/mod.rs uses src/sim/isa/mod.rs"]);
    assert_eq!(of("pub fn step() {}", "use super::machine;"), ["src/sim/error.rs uses src/sim/machine/mod.rs"]);
}

/// Changes that `docs/design.md` says the place of.
const CHANGES: [&str; 12] = [
    "operator",
    "dtype",
    "PTX instruction",
    "check",
    "tolerance",
    "output format",
    "device",
    "subcommand",
    "perf protocol",
    "kernel fix",
    "peer",
    "baseline format",
];

/// What a table of `docs/design.md` names in back quotes that is a path, for some operator where it is one of each.
fn paths(text: &str) -> impl Iterator<Item = String> + '_ {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_path = |name: &&str| {
        name.contains('/')
            || name.ends_with(".md")
            || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name).is_dir()
    };
    quoted.filter(is_path).map(|name| name.replace("<op>", "gemm"))
}

#[test]
fn the_place_of_every_change_is_said_and_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let design = std::fs::read_to_string(root.join("docs/design.md")).unwrap();
    let (_, behind) = design.split_once("## Where a change goes").expect("a section of that name");
    let rows =
        || behind.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|')).skip(2);
    let said: Vec<&str> = rows().filter_map(|row| row.strip_prefix("| ")?.split(" |").next()).collect();
    assert_eq!(said, CHANGES);
    let named: Vec<String> = rows().flat_map(paths).collect();
    let absent: Vec<&String> = named.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(named.len() > 40 && absent.is_empty(), "docs/design.md names what is not there: {absent:?}");
}

#[test]
fn a_path_that_is_not_there_is_seen() {
    let named: Vec<String> = paths("`src/ops/<op>/mod.rs`, `Device` in `src/nowhere.rs`, `peers`").collect();
    assert_eq!(named, ["src/ops/gemm/mod.rs", "src/nowhere.rs", "peers"]);
}

/// Modules of the crate that its documentation shows.
const PUBLIC: [&str; 3] = ["prelude", "sim", "summary"];

#[test]
fn what_is_not_public_is_hidden() {
    let files = below("src", &["rs"]);
    let lines: Vec<&str> = files["src/lib.rs"].lines().collect();
    let modules = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("pub mod ")?.trim_end_matches([';', ' ', '{']);
        (lines[at - 1] != "#[doc(hidden)]").then_some(name)
    });
    assert_eq!(modules.collect::<Vec<_>>(), PUBLIC);
}
