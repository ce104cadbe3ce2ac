//! PTX text to tokens, each with its line.

use crate::sim::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind<'a> {
    /// Identifiers, opcodes with their modifiers, registers, directives.
    Word(&'a str),
    Integer(u64),
    Float32(u32),
    Float64(u64),
    Text(&'a str),
    Mark(char),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub kind: Kind<'a>,
    pub line: u32,
}

/// Splits the text; comments vanish.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1u32);
    while at < bytes.len() {
        let byte = bytes[at];
        let start = at;
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' | 0 => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = text[at..].find('\n').map_or(bytes.len(), |n| at + n);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let len = text[at..].find("*/").ok_or_else(|| Error::parse(line, "comment without its `*/`"))?;
                line += text[at..at + len].matches('\n').count() as u32;
                at += len + 2;
            }
            b'"' => {
                let len =
                    text[at + 1..].find('"').ok_or_else(|| Error::parse(line, "string without its closing quote"))?;
                out.push(Token { kind: Kind::Text(&text[at + 1..at + 1 + len]), line });
                line += text[at + 1..at + 1 + len].matches('\n').count() as u32;
                at += len + 2;
            }
            b'0'..=b'9' => {
                while at < bytes.len() && is_number_byte(bytes, start, at) {
                    at += 1;
                }
                out.push(Token { kind: number(&text[start..at], line)?, line });
            }
            _ if is_word_byte(byte) || byte == b'.' || byte == b'%' => {
                at = directive_end(text, at).unwrap_or_else(|| word_end(bytes, at));
                out.push(Token { kind: Kind::Word(&text[start..at]), line });
            }
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b',' | b';' | b':' | b'+' | b'-' | b'!' | b'|' | b'=' | b'<'
            | b'>' | b'@' => {
                out.push(Token { kind: Kind::Mark(byte as char), line });
                at += 1;
            }
            _ => {
                let found = text[at..].chars().next().unwrap_or('?');
                return Err(Error::parse(line, format!("character {found:?} has no place in PTX")));
            }
        }
    }
    Ok(out)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// Where the state space ends that a declaration begins with: `.reg.b32` is `.reg .b32`.
fn directive_end(text: &str, start: usize) -> Option<usize> {
    const SPACES: [&str; 6] = [".reg", ".param", ".local", ".shared", ".global", ".const"];
    let found =
        SPACES.iter().find(|space| text[start..].strip_prefix(**space).is_some_and(|rest| rest.starts_with('.')));
    found.map(|space| start + space.len())
}

/// A word may hold dots and double colons (`shared::cluster`), not a single colon, which ends a label.
fn word_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        if is_word_byte(bytes[at]) || bytes[at] == b'.' {
            at += 1;
        } else if bytes[at] == b':'
            && bytes.get(at + 1) == Some(&b':')
            && bytes.get(at + 2).is_some_and(|b| is_word_byte(*b))
        {
            at += 2;
        } else {
            break;
        }
    }
    at
}

/// Letters and digits, a dot, and a sign right after the exponent of a decimal.
fn is_number_byte(bytes: &[u8], start: usize, at: usize) -> bool {
    let byte = bytes[at];
    let sign_of_exponent =
        (byte == b'+' || byte == b'-') && matches!(bytes[at - 1], b'e' | b'E') && bytes[start..at].contains(&b'.');
    byte.is_ascii_alphanumeric() || byte == b'.' || sign_of_exponent
}

fn number(text: &str, line: u32) -> Result<Kind<'static>> {
    let bad = || Error::parse(line, format!("`{text}` is not a number"));
    let radix =
        |digits: &str, radix| u64::from_str_radix(digits.trim_end_matches(['u', 'U']), radix).map_err(|_| bad());
    let lower = text.get(..2).map(str::to_ascii_lowercase);
    let rest = text.get(2..).unwrap_or("");
    Ok(match lower.as_deref() {
        Some("0f") => match rest.len() {
            8 => Kind::Float32(radix(rest, 16)? as u32),
            _ => return Err(bad()),
        },
        Some("0d") => match rest.len() {
            16 => Kind::Float64(radix(rest, 16)?),
            _ => return Err(bad()),
        },
        Some("0x") => Kind::Integer(radix(rest, 16)?),
        Some("0b") => Kind::Integer(radix(rest, 2)?),
        _ if text.contains('.') => Kind::Float64(text.parse::<f64>().map_err(|_| bad())?.to_bits()),
        _ if text.len() > 1 && text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()) => {
            Kind::Integer(radix(text, 8)?)
        }
        _ => Kind::Integer(radix(text, 10)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("0f3F800000", Kind::Float32(0x3f80_0000))]
    #[case("0d3FF0000000000000", Kind::Float64(0x3ff0_0000_0000_0000))]
    #[case("0x1FU", Kind::Integer(31))]
    #[case("017", Kind::Integer(15))]
    #[case("0b101", Kind::Integer(5))]
    #[case("1.5", Kind::Float64(0x3ff8_0000_0000_0000))]
    #[case("shfl.sync.bfly.b32", Kind::Word("shfl.sync.bfly.b32"))]
    #[case(".shared::cluster", Kind::Word(".shared::cluster"))]
    #[case("%tid.x", Kind::Word("%tid.x"))]
    #[case("$L__BB0_4", Kind::Word("$L__BB0_4"))]
    fn one_token(#[case] text: &str, #[case] kind: Kind<'_>) {
        let found = tokens(text).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].kind, kind);
    }

    #[test]
    fn a_declaration_needs_no_blank_behind_its_space() {
        let found = tokens(".reg.b32 f; .shared.align 4 .b8 s; ld.global.b32").unwrap();
        let word = |token: &Token<'_>| if let Kind::Word(word) = token.kind { Some(word.to_owned()) } else { None };
        let words: Vec<String> = found.iter().filter_map(word).collect();
        assert_eq!(words, [".reg", ".b32", "f", ".shared", ".align", ".b8", "s", "ld.global.b32"]);
    }

    #[test]
    fn a_label_keeps_its_colon_apart_and_lines_count_through_comments() {
        let found = tokens("/* a\nb */ $L1: // c\nret;").unwrap();
        let kinds: Vec<_> = found.iter().map(|t| (t.kind, t.line)).collect();
        assert_eq!(kinds, [(Kind::Word("$L1"), 2), (Kind::Mark(':'), 2), (Kind::Word("ret"), 3), (Kind::Mark(';'), 3)]);
    }

    #[rstest]
    #[case("0x")]
    #[case("0f123")]
    #[case("99999999999999999999999")]
    #[case("\"open")]
    #[case("/* open")]
    #[case("é")]
    fn refused(#[case] text: &str) {
        assert!(matches!(tokens(text), Err(Error::Parse { line: 1, .. })));
    }
}
