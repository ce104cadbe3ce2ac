//! Small changes to PTX as careless people make them: each turns one instruction of an entry into another.

use std::collections::BTreeSet;

/// One change of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// What kind of slip.
    pub slip: &'static str,
    /// Line of the text, from 0.
    pub line: usize,
    pub after: String,
}

impl Mutation {
    pub fn apply(&self, ptx: &str) -> String {
        let mut lines: Vec<&str> = ptx.lines().collect();
        lines[self.line] = &self.after;
        lines.join("\n")
    }
}

/// An instruction in its parts.
struct Instruction<'a> {
    /// `@%p1` or `@!%p1`, or nothing.
    guard: &'a str,
    opcode: &'a str,
    operands: Vec<&'a str>,
}

impl<'a> Instruction<'a> {
    /// `None` for labels, directives and what else is no instruction.
    fn parse(line: &'a str) -> Option<Self> {
        let text = line.split("//").next()?.trim();
        let text = text.strip_suffix(';')?.trim_start_matches(['{', ' ', '\t']);
        let (guard, rest) = match text.strip_prefix('@') {
            Some(rest) => {
                let end = rest.find(char::is_whitespace)?;
                (&text[..end + 1], rest[end..].trim_start())
            }
            None => ("", text),
        };
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let opcode = &rest[..end];
        if opcode.starts_with('.')
            || !opcode.starts_with(|c: char| c.is_ascii_lowercase())
            || text.contains(':') && !opcode.contains('.')
        {
            return None;
        }
        Some(Instruction { guard, opcode, operands: split(rest[end..].trim()) })
    }

    fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    fn has(&self, modifier: &str) -> bool {
        self.opcode.split('.').any(|part| part == modifier)
    }

    fn write(&self, opcode: &str, operands: &[String]) -> String {
        format!("\t{} {opcode} \t{};", self.guard, operands.join(", "))
    }

    fn with_opcode(&self, opcode: &str) -> String {
        self.write(opcode, &self.owned())
    }

    fn with_operand(&self, at: usize, operand: impl Into<String>) -> String {
        let mut operands = self.owned();
        operands[at] = operand.into();
        self.write(self.opcode, &operands)
    }

    fn with_swapped(&self, a: usize, b: usize) -> String {
        let mut operands = self.owned();
        operands.swap(a, b);
        self.write(self.opcode, &operands)
    }

    fn owned(&self) -> Vec<String> {
        self.operands.iter().map(|&operand| operand.to_owned()).collect()
    }
}

/// Operands at the commas outside brackets and braces.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

/// The lines of an entry's body.
pub fn body(ptx: &str, entry: &str) -> std::ops::Range<usize> {
    let lines: Vec<&str> = ptx.lines().collect();
    let Some(header) = lines.iter().position(|line| begun(line) == Some(entry)) else { return 0..0 };
    let Some(start) = lines[header..].iter().position(|line| line.starts_with('{')) else { return 0..0 };
    let start = header + start + 1;
    start..start + inside(&lines[start..])
}

/// How many lines come before the brace that closes what they stand in.
pub fn inside(lines: &[&str]) -> usize {
    let mut depth = 0;
    let is_last = |line: &&str| {
        depth += deeper(line);
        depth < 0
    };
    lines.iter().position(is_last).unwrap_or(lines.len())
}

/// The entry that a line begins.
fn begun(line: &str) -> Option<&str> {
    line.split_once(".entry")?.1.split(['(', ' ', '\t']).find(|word| !word.is_empty())
}

/// By how much a line goes deeper into braces.
fn deeper(line: &str) -> i32 {
    let code = line.split("//").next().unwrap_or_default();
    code.chars().map(|c| i32::from(c == '{') - i32::from(c == '}')).sum()
}

/// A text in which the lines of all other entries are empty: it is read in a fraction of the time.
pub fn alone(ptx: &str, entries: &BTreeSet<&str>) -> String {
    let (mut is_other, mut has_begun, mut depth) = (false, false, 0);
    let kept = ptx.lines().map(|line| {
        if let Some(entry) = begun(line) {
            (is_other, has_begun, depth) = (!entries.contains(entry), false, 0);
        }
        let is_kept = !is_other;
        depth += deeper(line);
        has_begun |= depth > 0;
        is_other &= !has_begun || depth > 0;
        if is_kept { line } else { "" }
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// The opcode of every instruction of a text.
pub fn opcodes(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(Instruction::parse).map(|instruction| instruction.opcode)
}

/// All changes that the operators below know for an entry.
pub fn all(ptx: &str, entry: &str) -> Vec<Mutation> {
    let range = body(ptx, entry);
    let lines = ptx.lines().enumerate().skip(range.start).take(range.len());
    let rounding = rounding_terms(ptx, range.clone());
    let of_line = |(line, text): (usize, &str)| {
        let instruction = Instruction::parse(text)
            .filter(|i| !(i.base() == "add" && i.operands.iter().any(|o| rounding.contains(o))));
        let changes = instruction.map(|instruction| changes(&instruction)).unwrap_or_default();
        let changes =
            changes.into_iter().filter(move |(_, after)| !after.split_whitespace().eq(text.split_whitespace()));
        changes.map(move |(slip, after)| Mutation { slip, line, after }).collect::<Vec<_>>()
    };
    lines.flat_map(of_line).collect()
}

/// Registers that hold what a compiler adds to round quotients of negative numbers: 0, for thread numbers and extents.
fn rounding_terms(ptx: &str, range: std::ops::Range<usize>) -> BTreeSet<&str> {
    let lines = ptx.lines().skip(range.start).take(range.len());
    let rounds = lines.filter_map(Instruction::parse).filter(|i| i.base() == "shr" && i.has("u32") && is_idle(i));
    rounds.filter_map(|i| i.operands.first().copied()).collect()
}

/// What cannot matter: terms of zero, and the shifts by which a compiler rounds quotients of negative numbers.
fn is_idle(i: &Instruction<'_>) -> bool {
    let bits = if i.has("u64") || i.has("s64") { 64 } else { 32 };
    let shift = i.operands.last().and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
    let rounds = i.base() == "shr" && (bits - 6..bits).contains(&shift);
    rounds || (i.operands.len() > 2 && i.operands.contains(&"0f00000000"))
}

fn changes(instruction: &Instruction<'_>) -> Vec<(&'static str, String)> {
    if is_idle(instruction) {
        return Vec::new();
    }
    let mut out = control(instruction);
    out.extend(synchronisation(instruction));
    out.extend(arithmetic(instruction));
    out.extend(constants(instruction));
    out.extend(memory(instruction));
    out
}

/// Guards and comparisons.
fn control(i: &Instruction<'_>) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    if !i.guard.is_empty() {
        let flipped = match i.guard.strip_prefix("@!") {
            Some(name) => format!("@{name}"),
            None => format!("@!{}", &i.guard[1..]),
        };
        let rest = format!("{} \t{};", i.opcode, i.operands.join(", "));
        out.push(("guard negated", format!("\t{flipped} {rest}")));
        out.push(("guard dropped", format!("\t{rest}")));
        if i.base() == "bra" {
            out.push(("branch dropped", String::new()));
        }
    }
    if i.base() == "setp" {
        // A threshold between two formulas for a float holds on both sides.
        let is_float = i.has("f32") || i.has("f64");
        let pairs = [("lt", "le"), ("le", "lt"), ("gt", "ge"), ("ge", "gt"), ("eq", "ne"), ("ne", "eq")];
        for (from, to) in pairs.iter().filter(|(from, _)| !is_float && i.has(from)) {
            out.push((
                "comparison off by one",
                i.with_opcode(&i.opcode.replacen(&format!(".{from}"), &format!(".{to}"), 1)),
            ));
        }
    }
    if i.base() == "selp" {
        out.push(("choices swapped", i.with_swapped(1, 2)));
    }
    out
}

/// Barriers, fences, waits, barrier objects.
fn synchronisation(i: &Instruction<'_>) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let (base, opcode) = (i.base(), i.opcode);
    let dropped = match base {
        "bar" | "barrier" if i.has("cluster") => Some("cluster barrier dropped"),
        "bar" | "barrier" if !i.has("red") => Some("barrier dropped"),
        "membar" | "fence" => Some("fence dropped"),
        "mbarrier" if i.has("init") || i.has("arrive") => Some("barrier object forgotten"),
        "cp" if i.has("wait_group") || i.has("wait_all") => Some("wait dropped"),
        "cp" if i.has("commit_group") => Some("commit dropped"),
        "wgmma" if !i.has("mma_async") => Some("warp-group step dropped"),
        _ => None,
    };
    if let Some(slip) = dropped {
        out.push((slip, String::new()));
    }
    if (i.has("wait_group") || i.has("read"))
        && let Some(count) = i.operands.first().and_then(|count| count.parse::<u32>().ok())
    {
        out.push(("waits for too little", i.with_operand(0, (count + 1).to_string())));
    }
    if base == "mbarrier" && i.has("expect_tx") && i.operands.len() == 3 {
        let plain = opcode.replace(".expect_tx", "");
        out.push(("expected bytes forgotten", i.write(&plain, &i.owned()[..2])));
    }
    if base == "mbarrier" && i.has("init") {
        let count = i.operands[1].parse::<u32>().map(|count| (count + 1).to_string());
        out.extend(count.map(|count| ("count of arrivals off by one", i.with_operand(1, count))));
    }
    if base == "mbarrier" && i.has("parity") {
        out.push(("parity fixed", i.with_operand(2, if i.operands[2] == "0" { "1" } else { "0" })));
    }
    if base == "bar" && i.has("sync") && i.operands.len() == 2 {
        out.push(("barrier of the wrong number", i.with_operand(0, "7")));
    }
    if base == "mapa" {
        out.push(("wrong block of the cluster", i.with_operand(2, "0")));
    }
    if base == "shfl" {
        if let Ok(offset) = i.operands[2].parse::<u32>() {
            out.push(("shuffle by half", i.with_operand(2, (offset / 2).to_string())));
        }
        out.push(("member mask too small", i.with_operand(4, "2147483647")));
    }
    out
}

/// Opcodes and the order of operands.
fn arithmetic(i: &Instruction<'_>) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let replace = |from: &str, to: &str| i.with_opcode(&i.opcode.replacen(from, to, 1));
    let is_pointer = i.has("s64") || i.has("u64");
    match i.base() {
        "sub" => {
            out.push(("operands swapped", i.with_swapped(1, 2)));
            out.push(("other operation", replace("sub", "add")));
        }
        "div" => out.push(("operands swapped", i.with_swapped(1, 2))),
        "add" if !is_pointer => out.push(("other operation", replace("add", "sub"))),
        "mul" if i.has("f32") || i.has("f64") || i.has("lo") => {
            out.push(("other operation", i.with_opcode(&i.opcode.replacen("mul", "add", 1).replace(".lo", ""))));
        }
        "min" => out.push(("other operation", replace("min", "max"))),
        "max" => out.push(("other operation", replace("max", "min"))),
        "and" if !i.has("pred") => out.push(("other operation", replace("and", "or"))),
        "or" if !i.has("pred") => out.push(("other operation", replace("or", "and"))),
        "xor" if i.has("b32") => out.push(("swizzle forgotten", i.write("mov.b32", &i.owned()[..2]))),
        "shr" => out.push(("other operation", i.with_opcode(&format!("shl.b{}", if is_pointer { 64 } else { 32 })))),
        "fma" => {
            out.push(("addend forgotten", i.write(&i.opcode.replacen("fma", "mul", 1), &i.owned()[..3])));
            out.push(("operands swapped", i.with_swapped(2, 3)));
        }
        "mad" if i.has("lo") => out.push(("operands swapped", i.with_swapped(2, 3))),
        "rsqrt" => out.push(("other operation", replace("rsqrt", "sqrt"))),
        "ex2" => out.push(("other operation", replace("ex2", "lg2"))),
        "neg" => out
            .push(("sign forgotten", i.with_opcode(&format!("mov.{}", i.opcode.rsplit('.').next().unwrap_or("b32"))))),
        "mma" => out.push(("operands swapped", {
            let mut operands = i.owned();
            if let Some((first, second)) = operands[2].trim_matches(['{', '}']).split_once(',') {
                operands[2] = format!("{{{}, {}}}", second.trim(), first.trim());
            }
            i.write(i.opcode, &operands)
        })),
        _ => {}
    }
    out
}

/// Integers off by one, floats off by half.
fn constants(i: &Instruction<'_>) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let is_threshold = i.base() == "setp" && i.has("f32");
    let counts = ["add", "sub", "mul", "mad", "and", "or", "shl", "shr", "setp", "mov"];
    if !counts.contains(&i.base()) {
        return out;
    }
    for at in 1..i.operands.len() {
        if let Ok(value) = i.operands[at].parse::<i64>() {
            out.push(("constant off by one", i.with_operand(at, (value.wrapping_add(1)).to_string())));
        }
        if !is_threshold
            && let Some(Ok(bits)) = i.operands[at].strip_prefix("0f").map(|digits| u32::from_str_radix(digits, 16))
        {
            let other = if bits == 0 { 0x3F80_0000 } else { bits ^ (1 << 22) };
            out.push(("constant wrong", i.with_operand(at, format!("0f{other:08X}"))));
        }
    }
    out
}

/// Addresses, stores, copies.
fn memory(i: &Instruction<'_>) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    let base = i.base();
    let is_access = matches!(base, "ld" | "st" | "atom" | "red" | "ldmatrix" | "stmatrix") && !i.has("param");
    let is_copy = base == "cp" && i.operands.len() > 1;
    if is_access || is_copy {
        let at = i.operands.iter().position(|operand| operand.starts_with('[') && !operand.contains('{'));
        if let Some(at) = at {
            let inner = i.operands[at].trim_matches(['[', ']']);
            let moved =
                match inner.rsplit_once('+').and_then(|(base, offset)| Some((base, offset.parse::<i64>().ok()?))) {
                    Some((base, offset)) => format!("[{base}+{}]", offset + 16),
                    None => format!("[{inner}+16]"),
                };
            out.push(("address off", i.with_operand(at, moved)));
        }
    }
    if matches!(base, "st" | "red") || is_copy {
        out.push(("store dropped", String::new()));
    }
    if is_copy && i.operands.last() == Some(&"16") {
        out.push(("half of the copy", format!("\t{} {} \t{}, 8;", i.guard, i.opcode, i.operands.join(", "))));
    }
    if is_copy && let Some(at) = i.operands.iter().position(|operand| operand.contains('{')) {
        let operand = i.operands[at];
        if let Some((start, rest)) = operand.split_once('{')
            && let Some((list, end)) = rest.split_once('}')
            && let Some((x, y)) = list.split_once(',')
        {
            out.push((
                "coordinates swapped",
                i.with_operand(at, format!("{start}{{{}, {}}}{end}", y.trim(), x.trim())),
            ));
        }
    }
    if base == "ldmatrix" {
        let opcode =
            if i.has("trans") { i.opcode.replace(".trans", "") } else { i.opcode.replace(".shared", ".trans.shared") };
        out.push(("tile not transposed", i.with_opcode(&opcode)));
    }
    if base == "wgmma"
        && i.has("mma_async")
        && let Some(last) = i.operands.len().checked_sub(1)
    {
        out.push(("tile not transposed", i.with_operand(last, if i.operands[last] == "0" { "1" } else { "0" })));
        out.push(("operands swapped", i.with_swapped(1, 2)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_taken_apart() {
        let i = Instruction::parse("\t@!%p1 st.shared.v2.f32 \t[%r1+8], {%f1, %f2}; // x").unwrap();
        assert_eq!((i.guard, i.opcode, i.operands), ("@!%p1", "st.shared.v2.f32", vec!["[%r1+8]", "{%f1, %f2}"]));
        assert!(Instruction::parse("\t.reg .b32 %r<4>;").is_none());
        assert!(Instruction::parse("$L__BB0_2:").is_none());
    }

    #[test]
    fn other_entries_are_left_out_to_their_last_brace() {
        let entry = |name: &str| format!(".visible .entry {name}(\n)\n{{\nadd.s32 %r1, %r2, %r3;\n{{\nret;\n}}\n}}");
        let text = ["// begins", &entry("a"), "between", &entry("b"), "end"].join("\n");
        let left = alone(&text, &BTreeSet::from(["b"]));
        assert_eq!(left.lines().count(), text.lines().count());
        assert_eq!(left.replace("\n\n", ""), ["// begins\nbetween", &entry("b"), "end"].join("\n"));
    }

    #[test]
    fn changes_are_those_of_the_entry() {
        let ptx = ".visible .entry a(\n)\n{\n\tadd.s32 \t%r1, %r2, 1;\n\tret;\n}\n.visible .entry b(\n)\n{\n\tbar.sync \t0;\n}";
        let slips = |entry| all(ptx, entry).iter().map(|m| m.slip).collect::<Vec<_>>();
        assert_eq!(slips("a"), ["other operation", "constant off by one"]);
        assert_eq!(slips("b"), ["barrier dropped"]);
        assert!(all(ptx, "a")[1].apply(ptx).contains("%r1, %r2, 2;"));
        let with_a_block = ptx.replacen("{\n", "{\n{\n\tbar.sync \t0;\n}\n", 1);
        let slips = all(&with_a_block, "a").iter().map(|m| m.slip).collect::<Vec<_>>();
        assert_eq!(slips, ["barrier dropped", "other operation", "constant off by one"]);
    }
}
