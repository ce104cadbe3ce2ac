//! Which headers a source includes, directly or through others.

use std::collections::BTreeSet;

/// The file that a line includes, as it is spelt there. Of an `#include` of a macro nothing is known.
pub fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    let rest = rest.strip_prefix(['<', '"'])?;
    rest.find(['>', '"']).map(|end| &rest[..end])
}

/// Those of the available headers, names and texts, that a text reaches, in the order of `available`. Conditions are not
/// evaluated: what any of them would include is there.
pub fn reached<'a>(text: &'a str, available: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut names = BTreeSet::new();
    let mut texts = vec![text];
    while let Some(text) = texts.pop() {
        for name in text.lines().filter_map(included) {
            if let Some((_, text)) = available.iter().find(|(known, _)| *known == name)
                && names.insert(name)
            {
                texts.push(text);
            }
        }
    }
    available.iter().filter(|(name, _)| names.contains(name)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const HEADERS: [(&str, &str); 5] = [
        ("a.cuh", "#include \"b.cuh\"\n#include <cuda_fp16.h>"),
        ("b.cuh", "#pragma once\n#include \"a.cuh\"\nint b;"),
        ("c.cuh", "int c;"),
        ("lib/d.cuh", "#if 0\n  #  include <c.cuh>\n#endif"),
        ("e.cuh", ""),
    ];

    #[rstest]
    #[case::nothing("int x; // #include \"c.cuh\"", &[])]
    #[case::one("#include \"c.cuh\"\nint x;", &["c.cuh"])]
    #[case::each_other("#include \"b.cuh\"", &["a.cuh", "b.cuh"])]
    #[case::in_a_condition("#include \"lib/d.cuh\"", &["c.cuh", "lib/d.cuh"])]
    #[case::another_folder("#include \"d.cuh\"", &[])]
    #[case::twice("#include \"e.cuh\"\n#include \"c.cuh\"\n#include \"e.cuh\"", &["c.cuh", "e.cuh"])]
    #[case::a_macro("#include HEADER", &[])]
    fn what_a_source_includes_is_reached(#[case] text: &str, #[case] expected: &[&str]) {
        let names: Vec<&str> = reached(text, &HEADERS).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected);
    }
}
