//! Source files as the checks read them: without comments, literals and what only tests see.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The text of every Rust file below `src`, by its path from the root of the project.
pub fn files() -> BTreeMap<String, String> {
    let files = below("src", &["rs"]);
    assert!(files.len() > 30, "only {} sources were found", files.len());
    files
}

/// The same of CUDA C++ below `kernels`.
pub fn kernels() -> BTreeMap<String, String> {
    let files = below("kernels", &["cu", "cuh"]);
    assert!(files.len() > 30, "only {} kernels were found", files.len());
    files
}

/// The text of every file with such an ending below a folder.
pub fn below(folder: &str, endings: &[&str]) -> BTreeMap<String, String> {
    fn walk(folder: &Path, root: &Path, endings: &[&str], files: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, endings, files);
            } else if path.extension().is_some_and(|extension| endings.iter().any(|ending| extension == *ending)) {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
                files.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    walk(&root.join(folder), root, endings, &mut files);
    files
}

/// What is left of a text without comments and without the insides of strings and characters.
pub fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut kept = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(text, at) {
            length
        } else if bytes[at] == b'"' {
            quoted(bytes, at)
        } else if bytes[at] == b'\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            kept.push(bytes[at]);
            at += 1;
            // The rest of a character that is longer than a byte.
            while at < bytes.len() && !text.is_char_boundary(at) {
                kept.push(bytes[at]);
                at += 1;
            }
        } else {
            kept.push(b' ');
            at += skipped;
        }
    }
    String::from_utf8(kept).unwrap()
}

/// The length of the raw string that starts here.
fn raw_string(text: &str, at: usize) -> Option<usize> {
    let before = text[..at].chars().next_back();
    if before.is_some_and(|c| c.is_alphanumeric() || c == '_') && before != Some('b') {
        return None;
    }
    let rest = text[at..].strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + inside.find(&close).map_or(inside.len(), |end| end + close.len()))
}

fn quoted(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len()) - start
}

/// The length of a character in quotes; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest.char_indices().skip(1);
    match (inside.next(), inside.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = at + escaped.len_utf8();
            rest[from..].find('\'').map_or(0, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// Where the group ends that opens at `open`, behind its closing bracket.
pub fn group_end(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => return open + at + 1,
            _ => {}
        }
        if c == '}' && depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

/// Takes the items that only tests see out of a code, and gives the names of the modules among them.
pub fn without_tests(code: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        kept.push_str(&rest[..at]);
        let item = &rest[at + MARK.len()..];
        let end = group_end(item, 0);
        if let Some(name) = declared_modules(&item[..end]).into_iter().next() {
            modules.push(name);
        }
        rest = &item[end..];
    }
    kept.push_str(rest);
    (kept, modules)
}

/// The modules that a code declares to be in files of their own.
fn declared_modules(code: &str) -> Vec<String> {
    let words = tokens(code);
    let declared = words.windows(3).filter(|words| words[0] == "mod" && words[2] == ";");
    declared.map(|words| words[1].to_owned()).collect()
}

/// Identifiers, `::`, and every other character that is no blank.
pub fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}

#[test]
fn comments_literals_and_tests_are_left_out() {
    assert_eq!(code("a \"crate::b // \\\" \" c // d\n'\"' 'x &'a e"), "a   c  \n  'x &'a e");
    assert_eq!(code("r#\"x \" y\"# z /* w */ '\\'' v"), "  z     v");
    assert_eq!(tokens("use a::{b, c_1};"), ["use", "a", "::", "{", "b", ",", "c_1", "}", ";"]);
    let (kept, modules) = without_tests("a #[cfg(test)] mod t { fn x() { } } b #[cfg(test)]\nmod u; c");
    assert_eq!((kept.as_str(), modules), ("a  b  c", vec!["u".to_owned()]));
}
