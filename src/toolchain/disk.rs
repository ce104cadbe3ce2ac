//! Headers that the compiler would find on disk: beside the source, and in folders that the program's options name. What they
//! say is part of what its code depends on, like that of the headers it was given.

use crate::core::candidate::{Program, included};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files that a program includes, directly or through others, besides the headers that it was given and those of the toolkit:
/// their paths and texts, sorted. Conditions are not evaluated, and of an `#include` of a macro nothing is known.
pub fn headers(program: &Program) -> Vec<(String, String)> {
    let folders: Vec<PathBuf> = folders(&program.options).map(PathBuf::from).collect();
    let beside = Path::new(&program.file).parent().map(Path::to_owned).unwrap_or_default();
    let mut found: BTreeMap<PathBuf, String> = BTreeMap::new();
    let given = program.headers.iter().map(|(_, text)| (beside.clone(), text.clone()));
    let mut left: Vec<(PathBuf, String)> = given.chain([(beside.clone(), program.text.to_string())]).collect();
    while let Some((folder, text)) = left.pop() {
        for name in text.lines().filter_map(included) {
            if program.headers.iter().any(|(given, _)| given == name) {
                continue;
            }
            let places = [&folder, &beside].into_iter().chain(&folders).map(|folder| folder.join(name));
            let Some(file) = places.into_iter().find(|file| file.is_file()) else { continue };
            if found.contains_key(&file) {
                continue;
            }
            // What cannot be read the compiler will speak of.
            let Ok(text) = std::fs::read(&file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) else {
                continue;
            };
            left.push((file.parent().map(Path::to_owned).unwrap_or_default(), text.clone()));
            found.insert(file, text);
        }
    }
    found.into_iter().map(|(file, text)| (file.to_string_lossy().into_owned(), text)).collect()
}

/// The folders that options of NVRTC add to the search: `-Ilib`, `-I lib`, `--include-path=lib`, `--include-path lib`.
fn folders(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().enumerate().filter_map(|(at, option)| {
        let rest = ["--include-path", "-include-path", "-I"].iter().find_map(|name| option.strip_prefix(name))?;
        match rest.strip_prefix('=').unwrap_or(rest) {
            "" => options.get(at + 1).map(String::as_str),
            folder => Some(folder),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::toolchain::recipe::{Target, key};
    use rstest::rstest;
    use std::fs;

    #[rstest]
    #[case(&["-Ilib"], &["lib"])]
    #[case(&["-I", "lib", "-DX"], &["lib"])]
    #[case(&["--include-path=a b", "--include-path", "c"], &["a b", "c"])]
    #[case(&["-DX", "-I"], &[])]
    fn folders_are_found_in_options(#[case] options: &[&str], #[case] expected: &[&str]) {
        let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
        assert_eq!(folders(&options).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_included_from_disk_changes_the_key() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("lib/deep")).unwrap();
        for (name, text) in [
            ("beside.cuh", "#include \"deep/first.cuh\"\n#include \"given.cuh\""),
            ("given.cuh", "// hidden by the one that was given"),
            ("lib/deep/first.cuh", "#include \"second.cuh\"\n#include <cuda_fp16.h>"),
            ("lib/deep/second.cuh", "#include \"first.cuh\""),
            ("lib/other.cuh", ""),
        ] {
            fs::write(at(name), text).unwrap();
        }
        let program = Program {
            file: at("k.cu").display().to_string(),
            options: vec![format!("-I{}", at("lib").display())],
            headers: vec![("given.cuh".into(), "int given;".into())],
            ..Program::of_cuda("#include \"beside.cuh\"\n#include \"missing.cuh\"")
        };
        let paths: Vec<String> = headers(&program).into_iter().map(|(file, _)| file).collect();
        let expected = ["beside.cuh", "lib/deep/first.cuh", "lib/deep/second.cuh"];
        assert_eq!(paths, expected.map(|name| at(name).display().to_string()));
        let key = || key(&program, DType::F32, &Target::Cubin("sm_90a".into()));
        let before = key();
        fs::write(at("lib/other.cuh"), "int other;").unwrap();
        assert_eq!(key(), before, "it is not included");
        fs::write(at("lib/deep/second.cuh"), "int second;").unwrap();
        assert_ne!(key(), before);
    }
}
