//! Arguments that hold for the kernels of rows, which share their thread groups and the way their warps meet.

use super::{NEAR, branch_and_test, definition, entry_around, name_of, operands, uses};

pub(super) const PACKS: &str =
    "The number compared is a multiple of the length of a pack on this path: it never equals the bound.";
pub(super) const PARTS: &str =
    "Chooses between adding the parts of few warps and of many: either is right, since parts that no warp wrote are 0.";
pub(super) const LANE_31: &str =
    "Only thread 31 is decided otherwise, and what it decides is for the first eight lanes of a warp.";
pub(super) const LEAST: &str =
    "The word 1 is the least number above 0: a few of it beside the parts of a mean or of a root change neither.";
pub(super) const LANES: &str = "The lanes of a row are a power of two, never so many.";
pub(super) const MORE_LEFT: &str = "Every row of this entry has more columns than that from each lane on.";
pub(super) const SPLIT: &str = "Where an exponent is split: what the whole part leaves goes to ex2, and its rounding, \
    2^-18 at most, is less than what a sum of more than 512 terms is allowed.";

/// The argument for a slip, where the text has one.
pub(super) fn argument(lines: &[&str], at: usize, slip: &str) -> Option<&'static str> {
    let arguments = [
        (is_bound_between_packs(lines, at, slip), PACKS),
        (chooses_how_many_parts(lines, at, slip), PARTS),
        (picks_lanes_that_fill_in(lines, at, slip), LANE_31),
        (fills_in_the_least_number(lines, at, slip), LEAST),
        (counts_lanes_of_a_row(lines, at, slip), LANES),
        (has_more_left(lines, at, slip), MORE_LEFT),
        (splits_an_exponent_of_long_rows(lines, at, slip), SPLIT),
    ];
    arguments.into_iter().find(|(holds, _)| *holds).map(|(_, argument)| argument)
}

fn is_off_by_one(slip: &str) -> bool {
    ["comparison off by one", "constant off by one"].contains(&slip)
}

/// Bounds of 288 threads, by which blocks choose how many warps have parts to add up.
fn chooses_how_many_parts(lines: &[&str], at: usize, slip: &str) -> bool {
    let slips = ["branch dropped", "guard negated", "guard dropped", "comparison off by one", "constant off by one"];
    slips.contains(&slip)
        && branch_and_test(lines, at).is_some_and(|(_, test)| operands(lines[test]).last() == Some(&"288"))
}

/// `thread + 31 > 62`, which is whether a thread is outside the first warp, or the sum in it, where all that comes of
/// it is whether a lane below eight stores.
fn picks_lanes_that_fill_in(lines: &[&str], at: usize, slip: &str) -> bool {
    let entry = entry_around(lines, at);
    let is_test = |line: &str| line.starts_with("setp.gt.u32") && operands(line).last() == Some(&"62");
    let test = match slip {
        "comparison off by one" => Some(lines[at]),
        "constant off by one" if lines[at].starts_with("add.s32") => {
            lines[at + 1..].iter().take(NEAR).find(|line| is_test(line)).copied()
        }
        _ => None,
    };
    let Some(test) = test.filter(|test| is_test(test)) else { return false };
    let sum = definition(entry, operands(test)[1]).filter(|line| operands(line).last() == Some(&"31"));
    let is_sum = sum.is_some_and(|sum| sum.starts_with("add.s32") && (test == lines[at] || sum == lines[at]));
    let Some(lane_too) = only_or(entry, operands(test)[0]).and_then(|or| only_or(entry, operands(or)[0])) else {
        return false;
    };
    let is_few = |register: &&str| {
        definition(entry, register).is_some_and(|line| {
            let of = operands(line);
            line.starts_with("setp.gt.s32") && of[2] == "7" && is_lane(entry, of[1])
        })
    };
    is_sum && uses(entry, operands(test)[1]).len() == 1 && operands(lane_too)[1..].iter().any(is_few)
}

/// The `or` that a predicate goes into, where that is all it does.
fn only_or<'a>(entry: &[&'a str], predicate: &str) -> Option<&'a str> {
    let uses = uses(entry, predicate);
    uses.first().copied().filter(|line| uses.len() == 1 && line.starts_with("or.pred"))
}

/// What whole warps leave of a thread's number.
fn is_lane(entry: &[&str], register: &str) -> bool {
    let Some(line) = definition(entry, register).filter(|line| line.starts_with("sub.s32")) else { return false };
    let warps = definition(entry, operands(line)[2]);
    warps.is_some_and(|line| line.starts_with("and.b32") && operands(line).last() == Some(&"-32"))
}

/// The 0 that stands for the sum of a warp that a block does not have, in a kernel that normalises.
fn fills_in_the_least_number(lines: &[&str], at: usize, slip: &str) -> bool {
    let [register, "0"] = *operands(lines[at]).as_slice() else { return false };
    let entry = entry_around(lines, at);
    let [store] = *uses(entry, register).as_slice() else { return false };
    let address = operands(store)[0].trim_matches(['[', ']']);
    let base = definition(entry, address).and_then(|line| definition(entry, operands(line)[1]));
    slip == "constant off by one"
        && lines[at].starts_with("mov.u32")
        && name_of(entry).contains("norm")
        && store.starts_with("st.shared.u32")
        && base.is_some_and(|line| line.starts_with("mov.u64") && line.contains("combine_warpsI3Sum"))
}

/// The width of a block, where that is the lanes of a row, below a bound that is no power of two.
fn counts_lanes_of_a_row(lines: &[&str], at: usize, slip: &str) -> bool {
    let [_, lanes, bound] = *operands(lines[at]).as_slice() else { return false };
    let entry = entry_around(lines, at);
    let is_between = bound.parse::<u32>().is_ok_and(|bound| bound > 0 && !bound.is_power_of_two());
    is_off_by_one(slip)
        && name_of(entry).ends_with("_lanes_per_row")
        && lines[at].starts_with("setp.lt.s32")
        && is_between
        && definition(entry, lanes).is_some_and(|line| line.starts_with("mov.u32") && line.contains("%ntid.x"))
}

/// What a row has from a lane on, below a bound that is less: of the entries that go by elements.
fn has_more_left(lines: &[&str], at: usize, slip: &str) -> bool {
    // By the threads of a row: the entry, the last lane, and the columns of its shortest row.
    const OF_ENTRY: [(&str, &str, i64); 3] =
        [("_elements_warp", "31", 257), ("_elements_two_warps", "63", 385), ("_elements_four_warps", "127", 513)];
    let [_, left, bound] = *operands(lines[at]).as_slice() else { return false };
    let entry = entry_around(lines, at);
    let Some((_, last, columns)) = OF_ENTRY.into_iter().find(|(end, ..)| name_of(entry).ends_with(end)) else {
        return false;
    };
    let is_left = |line: &str| {
        let [_, of, lane] = *operands(line).as_slice() else { return false };
        let is_row = definition(entry, of).is_some_and(|line| line.starts_with("ld.param.u32"));
        let is_lane = |line: &str| line.starts_with("and.b32") && operands(line).last() == Some(&last);
        line.starts_with("sub.s32") && is_row && definition(entry, lane).is_some_and(is_lane)
    };
    let least = columns - last.parse::<i64>().unwrap_or(columns);
    is_off_by_one(slip)
        && lines[at].starts_with("setp.lt.s32")
        && bound.parse::<i64>().is_ok_and(|bound| bound < least)
        && definition(entry, left).is_some_and(is_left)
}

/// The names of the operators whose kernels hold a row in packs.
const IN_PACKS: [&str; 5] = ["layernorm_", "layernorm_gelu_", "rmsnorm_", "add_rmsnorm_", "softmax_"];

/// Bounds that are multiples of 128 elements, or one more for `<`, of a multiple of four.
fn is_bound_between_packs(lines: &[&str], at: usize, slip: &str) -> bool {
    let [_, compared, bound] = *operands(lines[at]).as_slice() else { return false };
    let Ok(bound) = bound.parse::<u32>() else { return false };
    let entry = entry_around(lines, at);
    let is_between = match slip {
        "comparison off by one" => lines[at].starts_with("setp.lt.s32") && bound % 128 == 1,
        "constant off by one" => {
            (lines[at].starts_with("setp.lt.s32") && bound % 128 == 1)
                || (lines[at].starts_with("setp.gt.s32") && bound.is_multiple_of(128))
        }
        _ => false,
    };
    is_between && IN_PACKS.iter().any(|name| name_of(entry).starts_with(name)) && is_left_in_packs(entry, compared)
}

/// The columns of a row, or of what it has in packs, less those before a thread's first pack.
fn is_left_in_packs(entry: &[&str], register: &str) -> bool {
    let Some(line) = definition(entry, register).filter(|line| line.starts_with("sub.s32")) else { return false };
    let [_, columns, before] = *operands(line).as_slice() else { return false };
    is_of_packs(entry, before) && (is_of_packs(entry, columns) || is_whole_row(entry, columns))
}

/// A number shifted to the left by two or more, or a choice between that and 0.
fn is_of_packs(entry: &[&str], register: &str) -> bool {
    let Some(line) = definition(entry, register) else { return false };
    match *operands(line).as_slice() {
        [_, _, by] if line.starts_with("shl.b32") => by.parse::<u32>().is_ok_and(|by| by >= 2),
        [_, number, "0", _] if line.starts_with("selp.b32") => {
            is_of_packs(entry, number) || is_whole_row(entry, number)
        }
        _ => false,
    }
}

/// The length of a row, in an entry that comes here with whole packs only.
fn is_whole_row(entry: &[&str], register: &str) -> bool {
    let starts_anywhere = ["_unaligned", "_line_", "_elements_"].iter().any(|part| name_of(entry).contains(part));
    !starts_anywhere && definition(entry, register).is_some_and(|line| line.starts_with("ld.param.u32"))
}

/// The first of an `expf`, x log2(e) / 252 + 1/2, in a block that adds up the exponentials of more than 512 columns.
fn splits_an_exponent_of_long_rows(lines: &[&str], at: usize, slip: &str) -> bool {
    let entry = entry_around(lines, at);
    let name = name_of(entry);
    let is_constant = |register: &str, value: &str| {
        definition(entry, register).is_some_and(|line| line.starts_with("mov.f32") && operands(line)[1] == value)
    };
    let [split, _, a, b] = *operands(lines[at]).as_slice() else { return false };
    let [cut] = *uses(entry, split).as_slice() else { return false };
    let [whole] = *uses(entry, operands(cut)[0]).as_slice() else { return false };
    ["addend forgotten", "operands swapped"].contains(&slip)
        && name.starts_with("softmax_")
        && name.contains("_block")
        && lines[at].starts_with("fma.rn.f32")
        && is_constant(a, "0f3BBB989D")
        && is_constant(b, "0f3F000000")
        && cut.starts_with("cvt.sat.f32.f32")
        && whole.starts_with("fma.rm.f32")
        && is_constant(operands(whole)[2], "0f437C0000")
        && is_constant(operands(whole)[3], "0f4B400001")
}
