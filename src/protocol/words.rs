//! A command line split into words as a shell splits it, without a shell: nothing is expanded, nothing is run.

/// Splits at blanks; quotes and backslashes keep blanks and each other.
///
/// # Errors
/// If a quote is not closed, or there is no word.
pub fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => loop {
                match characters.next() {
                    Some('\'') => break word.get_or_insert_default().push_str(""),
                    Some(c) => word.get_or_insert_default().push(c),
                    None => return Err(format!("`{text}`: a ' is not closed")),
                }
            },
            '"' => loop {
                match characters.next() {
                    Some('"') => break word.get_or_insert_default().push_str(""),
                    Some('\\') => match characters.next() {
                        Some(c @ ('"' | '\\' | '$' | '`')) => word.get_or_insert_default().push(c),
                        Some(c) => word.get_or_insert_default().extend(['\\', c]),
                        None => return Err(format!("`{text}`: a \" is not closed")),
                    },
                    Some(c) => word.get_or_insert_default().push(c),
                    None => return Err(format!("`{text}`: a \" is not closed")),
                }
            },
            '\\' => match characters.next() {
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err(format!("`{text}`: nothing follows the last \\")),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.is_empty() { Err("the command is empty".into()) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("python3 peer.py --mode eager", &["python3", "peer.py", "--mode", "eager"])]
    #[case("  a  'b c' \"d e\"\tf\\ g ", &["a", "b c", "d e", "f g"])]
    #[case(r#"a"b"'c' '' "\"\n""#, &["abc", "", "\"\\n"])]
    #[case("$HOME `x` *; y", &["$HOME", "`x`", "*;", "y"])]
    fn words_as_a_shell_has_them(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(split(text).unwrap(), expected);
    }

    #[rstest]
    #[case("a 'b", "a ' is not closed")]
    #[case("a \"b", "a \" is not closed")]
    #[case("a \\", "nothing follows")]
    #[case("  ", "empty")]
    fn a_slip_is_named(#[case] text: &str, #[case] part: &str) {
        let error = split(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
