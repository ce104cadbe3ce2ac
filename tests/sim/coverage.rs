//! Every opcode of every kernel at hand, and whether the simulator runs it.
//!
//! `KERNELGATE_WRITE=docs cargo test --release --test sim coverage` writes the table that the documentation shows.

use super::mutation::opcodes;
use kernelgate::core::packed;
use kernelgate::sim::Module;
use kernelgate::toolchain::committed::{Committed, FOLDER};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// PTX by the name of its file: all of `fixtures/ptx`, and the catalogue in every dtype.
fn texts() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["fixtures/ptx", "fixtures/ptx/triton"] {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let files = entries.flatten().map(|entry| entry.path());
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_text = |path: &PathBuf| name(path).trim_end_matches(".xz").ends_with(".ptx");
        let mut files: Vec<_> = files.filter(is_text).collect();
        files.sort();
        for path in files {
            let text = std::fs::read(&path).and_then(packed::text).expect("a PTX file");
            all.push((format!("{folder}/{}", name(&path)), text));
        }
    }
    let committed = Committed::new(root.join(FOLDER));
    let texts = committed.texts().expect("packed texts");
    all.extend(texts.into_iter().map(|(name, text)| (format!("{FOLDER}/{name}"), text)));
    all
}

#[test]
fn every_opcode_of_every_kernel_is_modelled() {
    let texts = texts();
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    let mut refused: BTreeMap<String, String> = BTreeMap::new();
    let mut kernels = 0;
    for (name, text) in &texts {
        let module = Module::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for entry in module.entries() {
            kernels += 1;
            if let Err(error) = module.check(entry) {
                refused.insert(format!("{name}, {entry}"), error.to_string());
            }
        }
        let of_text: BTreeSet<String> = opcodes(text).map(str::to_owned).collect();
        of_text.into_iter().for_each(|opcode| *users.entry(opcode).or_default() += 1);
    }
    let mut by_base: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for (opcode, count) in &users {
        let (base, modifiers) = opcode.split_once('.').unwrap_or((opcode, ""));
        by_base.entry(base).or_default().push((modifiers, *count));
    }
    let mut report = format!(
        "{} texts, {kernels} kernels, {} opcodes with their modifiers: {} kernels use one that is not modelled.\n\n| opcode | with modifiers (texts that use it) | modelled |\n|---|---|---|\n",
        texts.len(),
        users.len(),
        refused.len()
    );
    for (base, forms) in by_base {
        let list: Vec<String> = forms.iter().map(|(modifiers, count)| format!("`{modifiers}` ({count})")).collect();
        let opcode = |modifiers: &str| format!("`{}`", [base, modifiers].join("."));
        let is_refused =
            forms.iter().any(|(modifiers, _)| refused.values().any(|why| why.contains(&opcode(modifiers))));
        let _ = writeln!(report, "| `{base}` | {} | {} |", list.join(", "), if is_refused { "no" } else { "yes" });
    }
    super::evidence::write("simulator-coverage.md", "Opcodes of all kernels", &report);
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(users.len() > 150, "{} opcodes", users.len());
}
