//! Why a changed kernel is as right as the kernel: arguments that hold for one mutant each, since each is held against the
//! text around the change.

use super::mutation::{Mutation, inside};
use std::collections::BTreeSet;

const SPANS: &str = "The offsets of the butterfly still span the warp: every lane is counted once.";
const SAME_STORE: &str = "All lanes hold the reduced value: whichever of them store it, the same bits lie there.";
const PACKS: &str =
    "The number compared is a multiple of the length of a pack on this path: it never equals the bound.";
const PARTS: &str =
    "Chooses between adding the parts of few warps and of many: either is right, since parts that no warp wrote are 0.";
const NOBODY_LOOKS: &str =
    "From there to the end of the kernel nothing touches shared memory: what is still in flight meets nobody.";

const SPLIT: &str =
    "Where an exponent is split: what the whole part leaves goes to ex2, which takes more than a fraction.";
const NO_COPIES: &str = "This entry copies nothing asynchronously: there is nothing to commit and nothing to wait for.";
const SQUARED: &str = "The difference is squared wherever it is used.";
const HALF: &str =
    "Takes the upper half of a word as a number in bf16: the bit that comes with it is worth 2^-16 of its last place.";

const ASKS_OTHERWISE: &str = "Decides only whether, and how much of it, the row of a later block is asked for ahead of time: no value depends on that.";
const NOTHING_BEFORE: &str = "Nothing before it in the entry touches shared memory: it orders nothing.";
const LONG_DIVISION: &str = "Always the long division, which is right for numbers that fit the short one too.";
const BELOW_A_SHIFT: &str = "The bit that the mask keeps in addition is 0 behind a shift to the left.";

/// Lines around a change that an argument looks at.
const NEAR: usize = 30;
/// Lines between a comparison and its branch.
const FAR: usize = 1500;

/// The argument for a mutant, where the text has one.
pub fn argument(ptx: &str, mutation: &Mutation) -> Option<&'static str> {
    let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
    let at = mutation.line;
    let spans = mutation.slip == "constant off by one" && is_butterfly_offset(&lines, at);
    let stores = ["branch dropped", "guard negated", "comparison off by one", "constant off by one"]
        .contains(&mutation.slip)
        && guards_a_store_of_what_all_lanes_hold(&lines, at);
    let packs =
        ["comparison off by one", "constant off by one"].contains(&mutation.slip) && is_bound_between_packs(lines[at]);
    let parts = ["branch dropped", "guard negated", "guard dropped", "comparison off by one", "constant off by one"]
        .contains(&mutation.slip)
        && chooses_how_many_parts(&lines, at);
    let waits = ["wait dropped", "waits for too little"].contains(&mutation.slip)
        && lines[at].starts_with("cp.async.wait")
        && nothing_shared_behind(&lines[at + 1..]);
    let split = mutation.slip == "constant wrong" && splits_an_exponent(&lines, at);
    let no_copies = ["commit dropped", "wait dropped", "waits for too little"].contains(&mutation.slip)
        && ["cp.async.commit", "cp.async.wait"].iter().any(|one| lines[at].starts_with(one))
        && !entry_around(&lines, at).iter().any(|line| line.contains("cp.async.c") && !line.contains("commit"));
    let squared = mutation.slip == "operands swapped" && is_squared(&lines, at);
    let half = mutation.slip == "constant off by one" && takes_the_upper_half(&lines, at);
    let asks_otherwise = decides_only_a_prefetch(&lines, at);
    let nothing_before = mutation.slip == "barrier dropped" && nothing_shared_before(&lines, at);
    let long_division = mutation.slip == "branch dropped" && skips_a_long_division(&lines, at);
    let below_a_shift = mutation.slip == "constant off by one" && masks_what_was_shifted(&lines, at);
    let arguments = [
        (half, HALF),
        (asks_otherwise, ASKS_OTHERWISE),
        (nothing_before, NOTHING_BEFORE),
        (long_division, LONG_DIVISION),
        (below_a_shift, BELOW_A_SHIFT),
        (spans, SPANS),
        (stores, SAME_STORE),
        (packs, PACKS),
        (waits, NOBODY_LOOKS),
        (parts, PARTS),
        (split, SPLIT),
        (no_copies, NO_COPIES),
        (squared, SQUARED),
    ];
    arguments.into_iter().find(|(holds, _)| *holds).map(|(_, argument)| argument)
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
    let inside = skipped(lines, at)?;
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

/// A branch around a division in 64 bits, to one in 32.
fn skips_a_long_division(lines: &[&str], at: usize) -> bool {
    let Some(long) = skipped(lines, at) else { return false };
    let divides = |lines: &[&str], ty: &str| {
        let mut near = lines.iter().filter(|line| !line.starts_with(".loc")).take(4);
        near.any(|line| ["div", "rem"].iter().any(|name| line.starts_with(&format!("{name}.{ty}"))))
    };
    divides(long, "s64") && divides(&lines[at + 1 + long.len()..], "u32")
}

/// A mask for all but the lowest bits, of a number that was shifted to the left by at least one.
fn masks_what_was_shifted(lines: &[&str], at: usize) -> bool {
    let [_, shifted, mask] = *operands(lines[at]).as_slice() else { return false };
    let is_mask = mask.parse::<i64>().is_ok_and(|mask| mask < -1 && mask.unsigned_abs().is_power_of_two());
    let sets = |line: &&&str| operands(line).first() == Some(&shifted);
    let set = lines[at.saturating_sub(NEAR)..at].iter().rev().find(sets);
    lines[at].starts_with("and.b32") && is_mask && set.is_some_and(|line| line.starts_with("shl.b32"))
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

/// Bounds of 288 threads, by which blocks choose how many warps have parts to add up.
fn chooses_how_many_parts(lines: &[&str], at: usize) -> bool {
    branch_and_test(lines, at).is_some_and(|(_, test)| operands(lines[test]).last() == Some(&"288"))
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
    let end = label(lines[at])?;
    let length = lines[at + 1..].iter().take(NEAR).position(|line| *line == end)?;
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
    let uses = lines[at + 1..].iter().take(NEAR).filter(|line| line.contains(register));
    let mut uses = uses.map(|line| line.starts_with("shfl.sync.bfly") && operands(line).get(2) == Some(&register));
    lines[at].starts_with("mov.u32") && is_power && uses.next() == Some(true)
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

/// Bounds that are multiples of 128 elements, or one more for `<`: the kernels that compare with them count packs of
/// four.
fn is_bound_between_packs(line: &str) -> bool {
    let bound = operands(line).last().and_then(|bound| bound.parse::<u32>().ok()).unwrap_or(0);
    let multiple = |bound: u32| bound >= 128 && bound.is_multiple_of(128);
    (line.starts_with("setp.lt.s32") && multiple(bound.saturating_sub(1)))
        || (line.starts_with("setp.gt.s32") && multiple(bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str, line: usize, slip: &'static str) -> Option<&'static str> {
        argument(text, &Mutation { slip, line, after: String::new() })
    }

    #[test]
    fn a_butterfly_is_told_from_other_shuffles() {
        let text = "mov.u32 %r1, 8;\nshfl.sync.bfly.b32 %r2|%p1, %r3, %r1, 31, -1;\nmov.u32 %r4, 8;\nshfl.sync.down.b32 %r2|%p1, %r3, %r4, 31, -1;";
        assert_eq!(why(text, 0, "constant off by one"), Some(SPANS));
        assert_eq!(why(text, 2, "constant off by one"), None);
        assert_eq!(why(&text.replace("8;", "1;"), 0, "constant off by one"), None);
    }

    #[test]
    fn only_a_single_store_may_stand_behind_the_branch() {
        let text = "bar.sync 0;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L;\nst.shared.f32 [%rd1], %f1;\n$L:";
        assert_eq!(why(text, 2, "branch dropped"), Some(SAME_STORE));
        assert_eq!(why(text, 1, "comparison off by one"), Some(SAME_STORE));
        assert_eq!(why(text, 1, "constant off by one"), Some(SAME_STORE));
        assert_eq!(why(&text.replace("st.shared", "atom.add"), 2, "branch dropped"), None);
        assert_eq!(why(&text.replace("bar.sync 0;", "ret;"), 2, "branch dropped"), None);
    }

    #[test]
    fn bounds_between_packs_are_those_of_128_elements() {
        assert_eq!(why("setp.lt.s32 %p1, %r1, 641;", 0, "comparison off by one"), Some(PACKS));
        assert_eq!(why("setp.lt.s32 %p1, %r1, 640;", 0, "comparison off by one"), None);
    }

    #[test]
    fn the_comparison_of_a_branch_may_stand_far_above() {
        let text = "setp.ne.s32 %p1, %r1, 0;\nadd.s32 %r2, %r1, 1;\nbar.sync 0;\n@%p1 bra $L;\nst.shared.f32 [%rd1], %f1;\n$L:";
        assert_eq!(why(text, 3, "guard negated"), Some(SAME_STORE));
        let text = text.replace("ne.s32 %p1, %r1, 0", "lt.s32 %p1, %r1, 288").replace("st.shared", "ld.shared");
        assert_eq!(why(&text, 3, "guard negated"), Some(PARTS));
        assert_eq!(why(&text.replace("288", "256"), 3, "guard negated"), None);
    }

    #[test]
    fn a_wait_may_go_where_nothing_shared_follows() {
        let text = "cp.async.ca.shared.global [%r1], [%rd1], 16;\ncp.async.wait_group 0;\nbra $L;\n$L:\nst.global.f32 [%rd1], %f1;\n}\nld.shared.f32 %f1, [%r1];";
        assert_eq!(why(text, 1, "wait dropped"), Some(NOBODY_LOOKS));
        assert_eq!(why(&text.replace("st.global", "st.shared"), 1, "wait dropped"), None);
        assert_eq!(why(&text.replace("bra $L", "bra $K"), 1, "wait dropped"), None);
    }

    #[test]
    fn a_wait_may_go_where_the_entry_copies_nothing() {
        let text = ".visible .entry a()\ncp.async.commit_group;\nld.shared.f32 %f1, [%r1];\n.visible .entry b()\ncp.async.ca.shared.global [%r1], [%rd1], 16;\ncp.async.commit_group;\nld.shared.f32 %f1, [%r1];";
        assert_eq!(why(text, 1, "commit dropped"), Some(NO_COPIES));
        assert_eq!(why(text, 5, "commit dropped"), None);
        assert_eq!(why(&text.replace("cp.async.commit", "cp.async.bulk.commit"), 1, "commit dropped"), None);
    }

    #[test]
    fn an_exponent_is_told_from_other_products() {
        let text = "mov.f32 %f1, 0f3F000000;\nmov.f32 %f2, 0f3BBB989D;\nfma.rn.f32 %f3, %f0, %f2, %f1;\ncvt.sat.f32.f32 %f4, %f3;\nmov.f32 %f5, 0f4B400001;\nmov.f32 %f6, 0f437C0000;\nfma.rm.f32 %f7, %f4, %f6, %f5;";
        assert_eq!(why(text, 0, "constant wrong"), Some(SPLIT));
        assert_eq!(why(text, 5, "constant wrong"), Some(SPLIT));
        assert_eq!(why(text, 1, "constant wrong"), None);
        assert_eq!(why(&text.replace("%f2, %f1;", "%f1, %f2;"), 0, "constant wrong"), None);
    }

    #[test]
    fn what_decides_only_a_prefetch_is_told_from_other_decisions() {
        let text = ".entry a()\nshl.b32 %r0, %r9, 2;\nsetp.lt.s32 %p1, %r0, 1;\n@%p1 bra $L;\nand.b64 %rd1, %rd2, -16;\ncp.async.bulk.prefetch.L2.global [%rd1], %r0;\n$L:\nst.global.u32 [%rd3], %r9;";
        for line in [1, 2, 3, 4] {
            assert_eq!(why(text, line, "guard dropped"), Some(ASKS_OTHERWISE), "line {line}");
        }
        assert_eq!(why(text, 7, "store dropped"), None);
        // A value comes of it.
        assert_eq!(why(&text.replace("%r9;", "%r0;"), 1, "constant off by one"), None);
        assert_eq!(why(&text.replace("[%rd3]", "[%rd1]"), 3, "guard dropped"), None);
        assert_eq!(
            why(&format!("{text}\n@%p1 bra $M;\nst.global.u32 [%rd4], %r9;\n$M:"), 2, "constant off by one"),
            None
        );
        // It loads, or is no prefetch.
        let loads = text.replace("and.b64 %rd1, %rd2, -16", "ld.global.u64 %rd1, [%rd2]");
        assert_eq!(why(&loads, 3, "guard dropped"), None);
        assert_eq!(why(&text.replace(".prefetch.L2", ""), 3, "guard dropped"), None);
    }

    #[test]
    fn a_first_barrier_orders_nothing() {
        let text = ".entry a()\n.shared .b8 s[4];\n$K:\nadd.s32 %r1, %r1, 1;\n@%p1 bra $K;\nbar.sync 0;\nst.shared.u32 [%r1], 0;";
        assert_eq!(why(text, 5, "barrier dropped"), Some(NOTHING_BEFORE));
        assert_eq!(why(&format!("{text}\n@%p1 bra $K;"), 5, "barrier dropped"), None);
        assert_eq!(why(&text.replace("add.s32 %r1, %r1, 1", "st.shared.u32 [%r1], 0"), 5, "barrier dropped"), None);
    }

    #[test]
    fn the_long_way_to_divide_is_right_for_all() {
        let text = "@%p1 bra $S;\ndiv.s64 %rd1, %rd2, %rd3;\nbra.uni $E;\n$S:\ncvt.u32.u64 %r1, %rd2;\ndiv.u32 %r3, %r1, %r2;\n$E:";
        assert_eq!(why(text, 0, "branch dropped"), Some(LONG_DIVISION));
        assert_eq!(why(text, 0, "guard dropped"), None);
        assert_eq!(why(&text.replace("div.s64", "add.s64"), 0, "branch dropped"), None);
    }

    #[test]
    fn a_mask_must_follow_a_shift() {
        let text = "shl.b32 %r1, %r0, 2;\nand.b32 %r2, %r1, -16;";
        assert_eq!(why(text, 1, "constant off by one"), Some(BELOW_A_SHIFT));
        assert_eq!(why(&text.replace("shl", "shr"), 1, "constant off by one"), None);
        assert_eq!(why(&text.replace("-16", "16"), 1, "constant off by one"), None);
    }

    #[test]
    fn a_difference_must_be_squared_everywhere() {
        let text = "sub.f32 %f3, %f1, %f2;\nfma.rn.f32 %f4, %f3, %f3, %f5;";
        assert_eq!(why(text, 0, "operands swapped"), Some(SQUARED));
        assert_eq!(why(&format!("{text}\nst.global.f32 [%rd1], %f3;"), 0, "operands swapped"), None);
    }
}
