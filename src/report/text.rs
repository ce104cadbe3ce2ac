//! Text from outside in reports: what a kernel, a peer or a person wrote must not steer a terminal, break a table, or be
//! taken for a formula.

/// For a terminal: control characters are written out, line ends stay.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => plain.push(c),
            '\t' => plain.push_str("    "),
            c if is_hidden(c) => plain.extend(c.escape_default()),
            c => plain.push(c),
        }
    }
    plain
}

/// For one line of a terminal.
pub fn line(text: &str) -> String {
    plain(&text.lines().map(str::trim_end).collect::<Vec<_>>().join(" "))
}

/// For a cell of a Markdown table: one line, in which nothing is markup.
pub fn markdown(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in line(text).chars() {
        match c {
            '<' => cell.push_str("&lt;"),
            '>' => cell.push_str("&gt;"),
            '&' => cell.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '[' | ']' => cell.extend(['\\', c]),
            c => cell.push(c),
        }
    }
    cell
}

/// For a cell of a spreadsheet: text that would be read as a formula begins with an apostrophe. Numbers stay.
pub fn csv(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let text = plain(text);
    if is_formula { format!("'{text}") } else { text }
}

/// Control characters, and those that turn the direction of writing.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn a_terminal_is_not_steered() {
        assert_eq!(plain("a\u{1b}[2J\r\u{202e}b\nc\td"), "a\\u{1b}[2J\\r\\u{202e}b\nc    d");
        assert_eq!(line("a  \nb\r\nc"), "a b c");
    }

    #[test]
    fn a_table_keeps_its_cells() {
        assert_eq!(markdown("a|b\n<script>&`x` [1]*"), "a\\|b &lt;script&gt;&amp;\\`x\\` \\[1\\]\\*");
        assert_eq!(markdown("rms_norm v5"), "rms_norm v5");
    }

    #[rstest]
    #[case("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0")]
    #[case("@SUM(1)", "'@SUM(1)")]
    #[case("-x", "'-x")]
    #[case("-1.5e3", "-1.5e3")]
    #[case("+0.5", "+0.5")]
    #[case("n=4096", "n=4096")]
    #[case("\r=1", "'\\r=1")]
    fn a_cell_is_no_formula(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(csv(text), expected);
    }
}
