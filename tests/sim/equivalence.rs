//! Why a changed kernel is as right as the kernel: arguments that hold for one mutant each, since each is held against the
//! text around the change.

mod rows;
#[cfg(test)]
mod tests;

use super::mutation::{Mutation, inside};
use std::collections::BTreeSet;

const SPANS: &str = "The offsets of the butterfly still span the warp: every lane is counted once.";
const SAME_STORE: &str = "All lanes hold the reduced value: whichever of them store it, the same bits lie there.";
const NOBODY_LOOKS: &str =
    "From there to the end of the kernel nothing touches shared memory: what is still in flight meets nobody.";

const SPLIT: &str =
    "Where an exponent is split: what the whole part leaves goes to ex2, which takes more than a fraction.";
const NO_COPIES: &str = "This entry copies nothing asynchronously: there is nothing to commit and nothing to wait for.";
const SQUARED: &str = "The difference is squared wherever it is used.";
const ONLY_ITS_SIZE: &str = "Only the size of the difference is used.";
const PARITY: &str = "Only the lowest bit of the sum is used, which the sign of a term does not change.";
const HALF: &str =
    "Takes the upper half of a word as a number in bf16: the bit that comes with it is worth 2^-16 of its last place.";

const ASKS_OTHERWISE: &str = "Decides only whether, and how much of it, the row of a later block is asked for ahead of time: no value depends on that.";
const NOTHING_BEFORE: &str = "Nothing before it in the entry touches shared memory: it orders nothing.";
const LONG_DIVISION: &str = "Always the long division, which is right for numbers that fit the short one too.";
const LONG_BY_MASK: &str =
    "Never finds the upper halves to be 0: always the long division, which is right for all numbers.";
const BELOW_A_SHIFT: &str = "The bit that the mask keeps in addition is 0 behind a shift to the left.";

/// Lines around a change that an argument looks at.
const NEAR: usize = 30;
/// Lines between a comparison and its branch.
const FAR: usize = 1500;
/// Lines of the prefetches of a row.
const PREFETCHES: usize = 120;

/// The argument for a mutant, where the text has one.
pub fn argument(ptx: &str, mutation: &Mutation) -> Option<&'static str> {
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let at = mutation.line;
    let spans = mutation.slip == "constant off by one" && is_butterfly_offset(&lines, at);
    let stores = ["branch dropped", "guard negated", "comparison off by one", "constant off by one"]
        .contains(&mutation.slip)
        && guards_a_store_of_what_all_lanes_hold(&lines, at);
    let waits = ["wait dropped", "waits for too little"].contains(&mutation.slip)
        && lines[at].starts_with("cp.async.wait")
        && nothing_shared_behind(&lines[at + 1..]);
    let split = mutation.slip == "constant wrong" && splits_an_exponent(&lines, at);
    let no_copies = ["commit dropped", "wait dropped", "waits for too little"].contains(&mutation.slip)
        && ["cp.async.commit", "cp.async.wait"].iter().any(|one| lines[at].starts_with(one))
        && !entry_around(&lines, at).iter().any(|line| line.contains("cp.async.c") && !line.contains("commit"));
    let squared = mutation.slip == "operands swapped" && is_squared(&lines, at);
    let only_its_size = mutation.slip == "operands swapped" && counts_by_its_size(&lines, at);
    let parity = mutation.slip == "other operation" && counts_by_its_parity(&lines, at);
    let half = mutation.slip == "constant off by one" && takes_the_upper_half(&lines, at);
    let asks_otherwise = decides_only_a_prefetch(&lines, at);
    let nothing_before = mutation.slip == "barrier dropped" && nothing_shared_before(&lines, at);
    let long_division = mutation.slip == "branch dropped" && skips_a_long_division(&lines, at);
    let long_by_mask = mutation.slip == "other operation" && masks_for_a_long_division(&lines, at);
    let below_a_shift = mutation.slip == "constant off by one" && masks_what_was_shifted(&lines, at);
    let arguments = [
        (half, HALF),
        (asks_otherwise, ASKS_OTHERWISE),
        (nothing_before, NOTHING_BEFORE),
        (long_division, LONG_DIVISION),
        (below_a_shift, BELOW_A_SHIFT),
        (spans, SPANS),
        (stores, SAME_STORE),
        (waits, NOBODY_LOOKS),
        (split, SPLIT),
        (no_copies, NO_COPIES),
        (squared, SQUARED),
        (only_its_size, ONLY_ITS_SIZE),
        (parity, PARITY),
        (long_by_mask, LONG_BY_MASK),
    ];
    let general = arguments.into_iter().find(|(holds, _)| *holds).map(|(_, argument)| argument);
    general.or_else(|| rows::argument(&lines, at, mutation.slip))
}

/// A word without its lower half, which goes into a register of single precision before all else.
fn takes_the_upper_half(lines: &[&str], at: usize) -> bool {
    let [half, _, "-65536"] = *operands(lines[at]).as_slice() else { return false };
    let used = lines[at + 1..].iter().take(FAR).find(|line| operands(line).contains(&half));
    lines[at].starts_with("and.b32")
        && used.is_some_and(|line| line.starts_with("mov.b32") && operands(line)[0].starts_with("%f"))
}

/// Whether all that a line leads to are prefetches: as a branch around nothing but one and what its address takes, or as
/// an operation on registers whose results, and what comes of these, go to prefetches and such branches only.
fn decides_only_a_prefetch(lines: &[&str], at: usize) -> bool {
    let entry = entry_around(lines, at);
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    match skipped_prefetch(lines, at) {
        Some(inside) => reached.extend(inside.iter().filter_map(|line| result(line))),
        None if is_plain(lines[at]) => reached.extend(result(lines[at])),
        None => return false,
    }
    loop {
        let known = reached.len();
        for (here, line) in entry.iter().enumerate() {
            if sources(line).iter().any(|source| reached.contains(source)) && !is_prefetch(line) {
                let leads_on = is_plain(line) || skipped_prefetch(entry, here).is_some();
                if !leads_on {
                    return false;
                }
                reached.extend(result(line));
            }
        }
        if reached.len() == known {
            return entry.iter().any(|line| is_prefetch(line));
        }
    }
}

/// What a branch leads around, where that is nothing but a prefetch and what its address takes.
fn skipped_prefetch<'a>(lines: &'a [&'a str], at: usize) -> Option<&'a [&'a str]> {
    let inside = skipped_within(lines, at, PREFETCHES)?;
    let stays = |line: &str| label(line).is_some() && label(line) == label(lines[at]);
    let is_harmless = |line: &&str| {
        is_prefetch(line) || is_plain(line) || stays(line) || line.starts_with(".loc") || line.starts_with("//")
    };
    (inside.iter().any(|line| is_prefetch(line)) && inside.iter().all(is_harmless)).then_some(inside)
}

fn is_prefetch(line: &str) -> bool {
    line.starts_with("cp.async.bulk.prefetch") || line.starts_with("prefetch")
}

/// Operations of a thread on registers that set one.
fn is_plain(line: &str) -> bool {
    let opcode = line.split([' ', '\t']).next().unwrap_or_default();
    let sets_one = operands(line).first().is_some_and(|first| first.starts_with('%') && !first.contains('|'));
    let names =
        ["mov", "shl", "shr", "add", "sub", "mul", "mad", "div", "cvt", "cvta", "and", "or", "setp", "min", "max"];
    let is_known = names.contains(&opcode.split('.').next().unwrap_or_default()) || opcode.starts_with("ld.param");
    is_known && sets_one
}

/// The register that an instruction sets.
fn result(line: &str) -> Option<&str> {
    operands(line).first().copied().filter(|_| is_plain(line))
}

/// What an instruction reads, its guard included.
fn sources(line: &str) -> Vec<&str> {
    let guard = line.strip_prefix('@').and_then(|rest| rest.split([' ', '\t']).next());
    let skipped = usize::from(is_plain(line));
    let words =
        operands(line).into_iter().skip(skipped).flat_map(|one| one.split(['[', ']', '{', '}', '+', ' ', '\t', ',']));
    words.chain(guard.map(|guard| guard.trim_start_matches('!'))).filter(|word| word.starts_with('%')).collect()
}

/// Whether an entry has left shared memory alone up to a line, and nothing behind leads back before it.
fn nothing_shared_before(lines: &[&str], at: usize) -> bool {
    let begin = lines[..at].iter().rposition(|line| line.contains(".entry ")).unwrap_or(0);
    let before = &lines[begin..at];
    let behind = &entry_around(lines, at)[at - begin..];
    let leads_back = |line: &&str| label(line).is_some_and(|label| before.contains(&label.as_str()));
    !before.iter().any(|line| touches_shared(line)) && !behind.iter().any(leads_back)
}

/// A branch around a division in 64 bits, to one in 32: either before the other.
fn goes_around_a_long_division(lines: &[&str], at: usize) -> bool {
    let falls_to = lines[at + 1..].iter().find(|line| !line.starts_with(".loc"));
    falls_to.is_some_and(|line| line.starts_with("div.s64") || line.starts_with("rem.s64"))
}

/// A branch around a division in 64 bits, to one in 32.
fn skips_a_long_division(lines: &[&str], at: usize) -> bool {
    let Some(long) = skipped(lines, at) else { return false };
    let divides = |lines: &[&str], ty: &str| {
        let mut near = lines.iter().filter(|line| !line.starts_with(".loc")).take(4);
        near.any(|line| ["div", "rem"].iter().any(|name| line.starts_with(&format!("{name}.{ty}"))))
    };
    divides(long, "s64") && divides(&lines[at + 1 + long.len()..], "u32")
}

/// A mask without the lowest bit, of a number that was shifted to the left by at least one.
fn masks_what_was_shifted(lines: &[&str], at: usize) -> bool {
    let [_, shifted, mask] = *operands(lines[at]).as_slice() else { return false };
    let is_mask = mask.parse::<i64>().is_ok_and(|mask| mask % 2 == 0);
    let entry = entry_around(lines, at);
    let widened = definition(entry, shifted).filter(|line| line.starts_with("cvt.u64.u32"));
    let source = widened.and_then(|line| operands(line).get(1).copied()).unwrap_or(shifted);
    let is_shift = |line: &str| line.starts_with("shl.b") && operands(line)[2].parse::<u32>().is_ok_and(|by| by > 0);
    lines[at].starts_with("and.b") && is_mask && definition(entry, source).is_some_and(is_shift)
}

/// A mask for the upper half of two numbers, which decides whether a division in 64 bits is needed.
fn masks_for_a_long_division(lines: &[&str], at: usize) -> bool {
    let [upper, _, "-4294967296"] = *operands(lines[at]).as_slice() else { return false };
    let entry = entry_around(lines, at);
    let tests = |line: &&&str| line.starts_with("setp.eq.s64") && operands(line)[1..] == [upper, "0"];
    let Some(test) = lines[at + 1..].iter().take(NEAR).find(tests) else { return false };
    let guard = format!("@{} bra", operands(test)[0]);
    let branch = lines[at + 1..].iter().take(NEAR).position(|line| line.starts_with(&guard));
    lines[at].starts_with("and.b64")
        && [upper, operands(test)[0]].iter().all(|register| uses(entry, register).len() == 1)
        && branch.is_some_and(|branch| goes_around_a_long_division(lines, at + 1 + branch))
}

/// The lines of the entry that a line stands in.
fn entry_around<'a>(lines: &'a [&'a str], at: usize) -> &'a [&'a str] {
    let begins = |line: &&str| line.contains(".entry ");
    let first = lines[..at].iter().rposition(begins).unwrap_or(0);
    let length = lines[at..].iter().position(begins).unwrap_or(lines.len() - at);
    &lines[first..at + length]
}

/// The half or the 252 of `expf` as the compiler writes it: x log2(e) / 252 + 1/2 within 0 and 1, times 252, rounded down to
/// a whole number, whose distance from x log2(e) goes to `ex2`.
fn splits_an_exponent(lines: &[&str], at: usize) -> bool {
    let [register, value] = *operands(lines[at]).as_slice() else { return false };
    let near = &lines[at.saturating_sub(NEAR)..lines.len().min(at + NEAR)];
    let is_exponential = ["0f3BBB989D", "0f4B400001"].iter().all(|one| near.iter().any(|line| line.contains(one)));
    let Some(used) = lines[at + 1..].iter().take(NEAR).find(|line| operands(line).contains(&register)) else {
        return false;
    };
    let place = operands(used).iter().position(|operand| *operand == register);
    match value {
        "0f3F000000" => is_exponential && used.starts_with("fma.rn.f32") && place == Some(3),
        "0f437C0000" => is_exponential && used.starts_with("fma.rm.f32") && place == Some(2),
        _ => false,
    }
}

/// A difference that every instruction of the entry takes as both factors of a product.
fn is_squared(lines: &[&str], at: usize) -> bool {
    let Some(&difference) = operands(lines[at]).first() else { return false };
    let uses: Vec<Vec<&str>> = entry_around(lines, at)
        .iter()
        .filter(|line| **line != lines[at] && operands(line).contains(&difference))
        .map(|line| operands(line))
        .collect();
    let is_square = |of: &Vec<&str>| of.len() >= 3 && of[1] == difference && of[2] == difference;
    lines[at].starts_with("sub.f32") && !uses.is_empty() && uses.iter().all(is_square)
}

/// A branch, and the comparison that it goes by: `at` is either of them.
fn branch_and_test(lines: &[&str], at: usize) -> Option<(usize, usize)> {
    let guard_of = |line: &str| {
        line.strip_prefix('@').and_then(|line| line.split_once(" bra ")).map(|(guard, _)| guard.to_owned())
    };
    if let Some(guard) = guard_of(lines[at]) {
        let defines = |line: &&str| line.starts_with("setp") && operands(line).first() == Some(&guard.as_str());
        let test = lines[..at].iter().rev().take(FAR).position(defines)?;
        return Some((at, at - 1 - test));
    }
    let guard = *operands(lines[at]).first()?;
    let branch = lines[at..].iter().take(FAR).position(|line| guard_of(line).as_deref() == Some(guard))?;
    Some((at + branch, at))
}

/// Whether the rest of an entry leaves shared memory alone and never goes back.
fn nothing_shared_behind(lines: &[&str]) -> bool {
    let rest = &lines[..inside(lines)];
    !rest.iter().any(|line| touches_shared(line) || label(line).is_some_and(|label| !rest.contains(&label.as_str())))
}

/// Whether a line uses shared memory; to declare it is no use.
fn touches_shared(line: &str) -> bool {
    let parts = ["shared", "ldmatrix", "stmatrix", "wgmma", "mbarrier"];
    !line.starts_with(".shared") && parts.iter().any(|part| line.contains(part))
}

/// The label that a branch leads to, as it stands before a line.
fn label(line: &str) -> Option<String> {
    let (_, label) = line.split_once("bra ").or_else(|| line.split_once("bra.uni "))?;
    Some(format!("{}:", label.trim().trim_end_matches(';')))
}

/// What a branch leads around, if that is short.
fn skipped<'a>(lines: &'a [&'a str], at: usize) -> Option<&'a [&'a str]> {
    skipped_within(lines, at, NEAR)
}

/// The same, if it is shorter than so many lines.
fn skipped_within<'a>(lines: &'a [&'a str], at: usize, limit: usize) -> Option<&'a [&'a str]> {
    let end = label(lines[at])?;
    let length = lines[at + 1..].iter().take(limit).position(|line| *line == end)?;
    Some(&lines[at + 1..at + 1 + length])
}

/// The operands of an instruction.
fn operands(line: &str) -> Vec<&str> {
    let text = line.trim_end_matches(';');
    let rest = text.split_once([' ', '\t']).map_or("", |(_, rest)| rest);
    rest.split(',').map(str::trim).collect()
}

/// `mov.u32 %r, 2^n` with n > 0 whose register is the offset of a butterfly: one more sets the lowest bit, and offsets with
/// different highest bits span the same lanes.
fn is_butterfly_offset(lines: &[&str], at: usize) -> bool {
    let [register, value] = *operands(lines[at]).as_slice() else { return false };
    let is_power = value.parse::<u32>().is_ok_and(|value| value > 1 && value.is_power_of_two());
    let uses = uses(entry_around(lines, at), register);
    let is_offset = |line: &&str| line.starts_with("shfl.sync.bfly") && operands(line).get(2) == Some(&register);
    lines[at].starts_with("mov.u32") && is_power && !uses.is_empty() && uses.iter().all(is_offset)
}

/// A branch by `number != 0`, or that comparison, behind a butterfly or a barrier, around nothing but a store of what
/// every lane has there.
fn guards_a_store_of_what_all_lanes_hold(lines: &[&str], at: usize) -> bool {
    let Some((branch, test)) = branch_and_test(lines, at) else { return false };
    let Some(inside) = skipped(lines, branch) else { return false };
    if !lines[test].starts_with("setp.ne.s32") || operands(lines[test]).last() != Some(&"0") {
        return false;
    }
    let is_harmless = |line: &&str| {
        let opcode = line.trim_start_matches(['{', ' ']).split([' ', '\t']).next().unwrap_or_default();
        let plain = ["mov", "shl", "shr", "add", "mul", "mad", "cvt", "cvta", "div", "fma", "sub", "and"];
        plain.contains(&opcode.split('.').next().unwrap_or_default())
            || opcode == ".loc"
            || opcode.starts_with("st.shared")
            || opcode.starts_with("st.global")
            || opcode.starts_with("ld.shared")
    };
    let stores = inside.iter().filter(|line| line.starts_with("st.")).count();
    let before = &lines[branch.saturating_sub(NEAR)..branch];
    let met = before.iter().any(|line| line.starts_with("shfl.sync.bfly") || line.starts_with("bar.sync"));
    stores == 1 && met && inside.iter().all(is_harmless)
}

/// A difference whose sign every instruction of the entry drops.
fn counts_by_its_size(lines: &[&str], at: usize) -> bool {
    let Some(&difference) = operands(lines[at]).first() else { return false };
    let uses = uses(entry_around(lines, at), difference);
    let drops = |line: &&str| {
        let of = operands(line);
        (line.starts_with("copysign.f32") && of[1] != difference && of[2] == difference) || line.starts_with("abs.f32")
    };
    lines[at].starts_with("sub.f32") && !uses.is_empty() && uses.iter().all(drops)
}

/// A sum or difference of which every instruction of the entry takes the lowest bit.
fn counts_by_its_parity(lines: &[&str], at: usize) -> bool {
    let Some(&sum) = operands(lines[at]).first() else { return false };
    let uses = uses(entry_around(lines, at), sum);
    let is_parity = |line: &&str| line.starts_with("and.b32") && operands(line)[1..] == [sum, "1"];
    let is_sum = ["add.s32", "sub.s32"].iter().any(|name| lines[at].starts_with(name));
    is_sum && !uses.is_empty() && uses.iter().all(is_parity)
}

/// Whether a register stands in a line.
fn names(line: &str, register: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && !"%_".contains(c)).any(|word| word == register)
}

/// Whether a line sets a register.
fn sets(line: &str, register: &str) -> bool {
    let line = line.trim_start_matches(['{', ' ']);
    let all = operands(line);
    let is_vector = line.starts_with("ld") || line.starts_with("mma") || line.starts_with("ldmatrix");
    let set =
        if is_vector { line.split('[').next().unwrap_or_default() } else { all.first().copied().unwrap_or_default() };
    !line.starts_with("st.") && names(set, register)
}

/// The only line of an entry that sets a register.
fn definition<'a>(entry: &[&'a str], register: &str) -> Option<&'a str> {
    let mut sets = entry.iter().filter(|line| sets(line, register));
    sets.next().filter(|_| sets.next().is_none()).copied()
}

/// The lines of an entry that name a register and do not set it.
fn uses<'a>(entry: &[&'a str], register: &str) -> Vec<&'a str> {
    entry.iter().filter(|line| names(line, register) && !sets(line, register)).copied().collect()
}

/// The name of the entry that these lines are.
fn name_of<'a>(entry: &[&'a str]) -> &'a str {
    let begun = entry.iter().find_map(|line| line.split_once(".entry "));
    begun.map_or("", |(_, name)| name.split('(').next().unwrap_or_default().trim())
}
