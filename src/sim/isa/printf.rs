//! The format strings of a kernel's `printf`.

/// What one call printed, and how many values it used.
pub(crate) struct Printed {
    pub text: String,
    pub values: u32,
}

/// Formats with values from a buffer: `read(offset, bytes)`. Integers and characters take 4 bytes, everything else 8,
/// aligned.
pub(crate) fn format(format: &str, read: impl Fn(u64, u64) -> u64, string: impl Fn(u64) -> String) -> Printed {
    let mut out = Printed { text: String::new(), values: 0 };
    let mut offset = 0u64;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.text.push('%');
            rest = after;
            continue;
        }
        let end = rest
            .find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'h' | 'l' | 'z' | 'j' | 't'))
            .unwrap_or(rest.len());
        let (spec, conversion) = (&rest[..end], rest[end..].chars().next());
        rest = rest.get(end + 1..).unwrap_or("");
        let Some(conversion) = conversion else { break };
        let is_long = spec.contains(['l', 'z', 'j', 't']);
        let bytes = if is_long || matches!(conversion, 's' | 'p' | 'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A') {
            8
        } else {
            4
        };
        offset = offset.next_multiple_of(bytes);
        let value = read(offset, bytes);
        offset += bytes;
        out.values += 1;
        let body = match conversion {
            'd' | 'i' if is_long => (value as i64).to_string(),
            'd' | 'i' => (value as u32 as i32).to_string(),
            'u' => value.to_string(),
            'x' => format!("{value:x}"),
            'X' => format!("{value:X}"),
            'o' => format!("{value:o}"),
            'c' => char::from(value as u8).to_string(),
            's' => string(value),
            'p' => format!("{value:#x}"),
            'e' | 'E' => scientific(f64::from_bits(value), precision(spec)),
            'g' | 'G' => format!("{}", f64::from_bits(value)),
            _ => format!("{:.*}", precision(spec), f64::from_bits(value)),
        };
        pad(&mut out.text, spec, &body);
    }
    out.text.push_str(rest);
    out
}

/// Digits after the point; C's default is 6.
fn precision(spec: &str) -> usize {
    spec.split_once('.')
        .map_or(6, |(_, digits)| digits.trim_end_matches(char::is_alphabetic).parse().unwrap_or(0))
        .min(64)
}

fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let number: i32 = exponent.parse().unwrap_or(0);
            format!("{mantissa}e{}{:02}", if number < 0 { '-' } else { '+' }, number.abs())
        }
        None => text,
    }
}

fn pad(out: &mut String, spec: &str, body: &str) {
    let flags: String = spec.chars().take_while(|c| matches!(c, '-' | '+' | ' ' | '0' | '#')).collect();
    let width: usize =
        spec[flags.len()..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let sign = if flags.contains('+') && !body.starts_with('-') { "+" } else { "" };
    let fill = width.min(1024).saturating_sub(body.chars().count() + sign.len());
    if flags.contains('-') {
        out.push_str(&format!("{sign}{body}{}", " ".repeat(fill)));
    } else if flags.contains('0') {
        let (minus, digits) = body.strip_prefix('-').map_or(("", body), |digits| ("-", digits));
        out.push_str(&format!("{sign}{minus}{}{digits}", "0".repeat(fill)));
    } else {
        out.push_str(&format!("{}{sign}{body}", " ".repeat(fill)));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[rstest]
    #[case("a %d b", &[7], "a 7 b")]
    #[case("%5d|%-5d|%05d", &[42, 42, 0xFFFF_FFFF_FFFF_FFD6], "   42|42   |-0042")]
    #[case("%lld %llu", &[u64::MAX, u64::MAX], "-1 18446744073709551615")]
    #[case("%.2f", &[0x3FF8_0000_0000_0000], "1.50")]
    #[case("%e", &[0x40C8_1C80_0000_0000], "1.234500e+04")]
    #[case("100%%", &[], "100%")]
    #[case("%x %c", &[255, 65], "ff A")]
    #[case("%", &[], "")]
    fn formats(#[case] format: &str, #[case] values: &[u64], #[case] expected: &str) {
        let next = std::cell::Cell::new(0);
        let read = |_: u64, bytes: u64| {
            let value = values.get(next.replace(next.get() + 1)).copied().unwrap_or(0);
            if bytes == 4 { value & 0xFFFF_FFFF } else { value }
        };
        assert_eq!(super::format(format, read, |_| String::new()).text, expected);
    }
}
