//! Which file imports which, and the cycles among them.
//!
//! A path is followed through re-exports to the file that defines what it names. `pub use` alone imports nothing: a
//! `mod.rs` that lists what its folder offers is in no cycle with it, unless it uses a name itself.

use crate::source::{code, tokens, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// A module in a file of its own.
struct Module {
    file: String,
    /// Every path that the file names, from the root of the crate, of imports and in expressions.
    paths: BTreeSet<Vec<String>>,
    /// Names that it hands on, with the paths that they stand for.
    exports: BTreeMap<String, Vec<String>>,
    /// Modules of which it hands on everything.
    globs: Vec<Vec<String>>,
    /// Names of items that it defines.
    items: BTreeSet<String>,
}

/// The modules of a crate by their paths from its root.
pub struct Graph {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Graph {
    /// `files`: texts by paths such as `src/sim/mod.rs`; those of modules that only tests see are left out.
    pub fn new(files: &BTreeMap<String, String>) -> Self {
        let codes: BTreeMap<&String, (String, Vec<String>)> =
            files.iter().map(|(file, text)| (file, without_tests(&code(text)))).collect();
        let test_only: Vec<Vec<String>> = codes
            .iter()
            .flat_map(|(file, (_, tests))| tests.iter().map(|name| [module_path(file), vec![name.clone()]].concat()))
            .collect();
        let paths: BTreeMap<Vec<String>, &String> = codes
            .keys()
            .map(|file| (module_path(file), *file))
            .filter(|(path, _)| !test_only.iter().any(|test| path.starts_with(test)))
            .collect();
        let read = |path: &Vec<String>, file: &String| {
            let is_child = |other: &&Vec<String>| other.len() == path.len() + 1 && other.starts_with(path);
            let children: Vec<String> = paths.keys().filter(is_child).map(|other| other[path.len()].clone()).collect();
            Module::read(path, file.clone(), &codes[file].0, &children)
        };
        Graph { modules: paths.iter().map(|(path, file)| (path.clone(), read(path, file))).collect() }
    }

    /// All files but those that only tests see.
    pub fn files(&self) -> BTreeSet<&str> {
        self.modules.values().map(|module| module.file.as_str()).collect()
    }

    /// The files that each file imports from.
    pub fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let of = |module: &'_ Module| -> BTreeSet<&str> {
            let mut targets = BTreeSet::new();
            for path in &module.paths {
                self.resolve(path, 0, &mut targets);
            }
            targets.remove(module.file.as_str());
            targets
        };
        self.modules.values().map(|module| (module.file.as_str(), of(module))).collect()
    }

    /// Adds the file that defines what a path from the root names.
    fn resolve<'a>(&'a self, path: &[String], depth: usize, targets: &mut BTreeSet<&'a str>) {
        let Some(length) = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length])) else {
            return;
        };
        let module = &self.modules[&path[..length]];
        let Some(name) = path.get(length) else {
            targets.insert(&module.file);
            return;
        };
        // Re-exports in a circle end here.
        if depth > 8 {
            return;
        }
        if name == "*" {
            targets.insert(&module.file);
            let handed_on = module.exports.values().cloned();
            let further = module.globs.iter().map(|glob| glob.iter().cloned().chain(["*".to_owned()]).collect());
            handed_on.chain(further).for_each(|path| self.resolve(&path, depth + 1, targets));
        } else if module.items.contains(name) {
            targets.insert(&module.file);
        } else if let Some(target) = module.exports.get(name) {
            let full: Vec<String> = target.iter().chain(&path[length + 1..]).cloned().collect();
            self.resolve(&full, depth + 1, targets);
        } else {
            for glob in &module.globs {
                let full: Vec<String> = glob.iter().chain(&path[length..]).cloned().collect();
                if self.defines(glob, name) {
                    self.resolve(&full, depth + 1, targets);
                }
            }
        }
    }

    fn defines(&self, module: &[String], name: &str) -> bool {
        let Some(found) = self.modules.get(module) else { return false };
        found.items.contains(name) || found.exports.contains_key(name)
    }

    /// Sets of files that import each other, directly or through others; the largest first.
    pub fn cycles(&self) -> Vec<BTreeSet<&str>> {
        let imports = self.imports();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            imports.keys().map(|file| (*file, reachable(&imports, file))).collect();
        let mut found: Vec<BTreeSet<&str>> = Vec::new();
        for file in imports.keys() {
            if found.iter().any(|cycle| cycle.contains(file)) {
                continue;
            }
            let mutual = reached[file].iter().copied().filter(|other| reached[other].contains(file));
            let cycle: BTreeSet<&str> = mutual.collect();
            if cycle.len() > 1 {
                found.push(cycle);
            }
        }
        found.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
        found
    }
}

/// The path of a file's module: `sim::ptx` for `src/sim/ptx/mod.rs`.
fn module_path(file: &str) -> Vec<String> {
    let inside = file.trim_start_matches("src/").trim_end_matches(".rs");
    let path = inside.split('/').filter(|part| *part != "mod");
    path.filter(|_| inside != "lib").map(str::to_owned).collect()
}

fn reachable<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&str> = imports[from].iter().copied().collect();
    while let Some(file) = waiting.pop() {
        if seen.insert(file) {
            waiting.extend(imports[file].iter().copied());
        }
    }
    seen
}

impl Module {
    fn read(path: &[String], file: String, code: &str, children: &[String]) -> Self {
        let mut module = Module {
            file,
            paths: BTreeSet::new(),
            exports: BTreeMap::new(),
            globs: Vec::new(),
            items: BTreeSet::new(),
        };
        let words = tokens(code);
        let mut at = 0;
        let mut others: BTreeSet<&str> = BTreeSet::new();
        let mut handed_on: Vec<(String, Vec<String>)> = Vec::new();
        while at < words.len() {
            let before = at.checked_sub(1).map(|before| words[before]);
            match words[at] {
                "use" => {
                    let end = at + words[at..].iter().position(|word| *word == ";").unwrap_or(words.len() - at);
                    let is_public = before == Some("pub") || before == Some(")");
                    for (name, leaf) in leaves(&words[at + 1..end]) {
                        let Some(full) = absolute(path, children, &leaf) else { continue };
                        if !is_public {
                            module.paths.insert(full.clone());
                        }
                        // A private import is seen by the modules inside.
                        if name == "*" {
                            module.globs.push(full[..full.len() - 1].to_vec());
                        } else {
                            handed_on.push((name, full));
                        }
                    }
                    at = end;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" | "macro_rules" => {
                    let name = words[at + 1..].iter().find(|word| !matches!(**word, "!" | "mut" | "fn" | "unsafe"));
                    module.items.extend(name.map(|name| (*name).to_owned()));
                }
                "crate" | "super" | "self"
                    if words.get(at + 1) == Some(&"::") && before != Some("::") && !is_visibility(&words, at) =>
                {
                    let (leaf, end) = plain_path(&words, at);
                    module.paths.extend(absolute(path, children, &leaf));
                    at = end - 1;
                }
                word if before != Some("::") && before != Some(".") => {
                    others.insert(word);
                    let is_child = children.iter().any(|child| child == word) && words.get(at + 1) == Some(&"::");
                    if is_child && before != Some("mod") {
                        let (leaf, end) = plain_path(&words, at);
                        module.paths.extend(absolute(path, children, &leaf));
                        at = end - 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        for (name, full) in handed_on {
            if others.contains(name.as_str()) {
                module.paths.insert(full.clone());
            }
            module.exports.insert(name, full);
        }
        module
    }
}

/// Whether a word is that of `pub(in …)`.
fn is_visibility(words: &[&str], at: usize) -> bool {
    at >= 3 && words[at - 3..at] == ["pub", "(", "in"]
}

/// The path that starts at a word, and where it ends.
fn plain_path(words: &[&str], start: usize) -> (Vec<String>, usize) {
    let mut path = vec![words[start].to_owned()];
    let mut at = start + 1;
    while words.get(at) == Some(&"::") && words.get(at + 1).is_some_and(|word| is_name(word)) {
        path.push(words[at + 1].to_owned());
        at += 2;
    }
    (path, at)
}

fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The names that an import brings, with the path of each.
fn leaves(words: &[&str]) -> Vec<(String, Vec<String>)> {
    fn tree(words: &[&str], at: &mut usize, prefix: &[String], found: &mut Vec<(String, Vec<String>)>) {
        let mut path = prefix.to_vec();
        while let Some(word) = words.get(*at) {
            match *word {
                "::" => *at += 1,
                "{" => {
                    *at += 1;
                    while words.get(*at).is_some_and(|word| *word != "}") {
                        tree(words, at, &path, found);
                        *at += usize::from(words.get(*at) == Some(&","));
                    }
                    *at += 1;
                    return;
                }
                "as" => {
                    found.push((words.get(*at + 1).copied().unwrap_or_default().to_owned(), path));
                    *at += 2;
                    return;
                }
                "," | "}" => break,
                word => {
                    path.push(word.to_owned());
                    *at += 1;
                }
            }
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = path.last().cloned() {
            found.push((name, path));
        }
    }
    let mut found = Vec::new();
    tree(words, &mut 0, &[], &mut found);
    found
}

/// A path from the root of the crate; `None` for one of another crate.
fn absolute(module: &[String], children: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {}
        first if children.iter().any(|child| child == first) => {}
        _ => return None,
    }
    while rest.first().is_some_and(|word| word == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    Some(base)
}
