//! Moves loads of shared memory up to the first one from the same register, where nothing in between minds: one
//! instruction then carries them out together.

use crate::sim::passes::registers::for_each_register;
use crate::sim::ptx::ast::{Base, Body, Instruction, Operand};
use std::borrow::Cow;
use std::collections::HashMap;

/// Registers that the loads of a group fill: more would not stay in the first-level cache.
const MAX_FILLED: usize = 64;

/// The body with its loads gathered.
pub(super) fn gathered(mut body: Cow<'_, Body>) -> Cow<'_, Body> {
    let order = order(&body);
    if !order.is_sorted() {
        body.to_mut().instructions = order.iter().map(|at| body.instructions[*at].clone()).collect();
    }
    body
}

/// Loads that go together.
struct Group<'a> {
    base: u32,
    opcode: &'a str,
    members: Vec<usize>,
    filled: usize,
}

/// The instructions in the order in which they are to run.
fn order(body: &Body) -> Vec<usize> {
    let mut followers: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut open: Vec<Group<'_>> = Vec::new();
    let mut touched: HashMap<usize, usize> = HashMap::new();
    let mut labelled = vec![false; body.instructions.len() + 1];
    body.labels.iter().for_each(|at| labelled[*at] = true);
    let mut close = |groups: &mut dyn Iterator<Item = Group<'_>>| {
        for group in groups {
            followers.insert(group.members[0], group.members[1..].to_vec());
        }
    };
    for (at, instruction) in body.instructions.iter().enumerate() {
        if labelled[at] || !is_calm(instruction) {
            close(&mut open.drain(..));
        }
        if let Some((base, results)) = word_load(instruction) {
            let is_free = |since: usize| {
                let mut results = results.iter().filter_map(register);
                results.all(|register| touched.get(&register).is_none_or(|last| *last < since))
            };
            let joins = |group: &&mut Group<'_>| {
                group.base == base
                    && group.opcode == instruction.opcode
                    && group.filled + results.len() <= MAX_FILLED
                    && is_free(group.members[0])
            };
            if let Some(group) = open.iter_mut().find(joins) {
                group.members.push(at);
                group.filled += results.len();
            } else {
                close(&mut open.extract_if(.., |group| group.base == base));
                open.push(Group { base, opcode: &instruction.opcode, members: vec![at], filled: results.len() });
            }
        }
        for_each_register(instruction, |register, writes| {
            touched.insert(register, at);
            if writes {
                close(&mut open.extract_if(.., |group| group.base as usize == register));
            }
        });
    }
    close(&mut open.drain(..));
    let mut is_moved = vec![false; body.instructions.len()];
    followers.values().flatten().for_each(|at| is_moved[*at] = true);
    (0..body.instructions.len())
        .filter(|at| !is_moved[*at])
        .flat_map(|at| std::iter::once(at).chain(followers.remove(&at).unwrap_or_default()))
        .collect()
}

fn register(operand: &Operand) -> Option<usize> {
    match operand {
        Operand::Register(register) => Some(*register as usize),
        _ => None,
    }
}

/// The base and the results of a load of words of shared memory that every lane carries out.
fn word_load(instruction: &Instruction) -> Option<(u32, &[Operand])> {
    let [to, Operand::Address(Base::Register(base), _)] = instruction.operands.as_slice() else { return None };
    let mut parts = instruction.opcode.split('.').skip(1);
    let is_shared = instruction.name() == "ld" && parts.next() == Some("shared");
    let are_words = parts.all(|part| matches!(part, "v2" | "v4" | "b32" | "u32" | "s32" | "f32"));
    let results = match to {
        Operand::Vector(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    (is_shared && are_words && instruction.guard.is_none()).then_some((*base, results))
}

/// Whether a load may just as well come before it, but for the registers: it changes no memory and waits for nobody.
fn is_calm(instruction: &Instruction) -> bool {
    match instruction.name() {
        "ld" => !instruction.opcode.split('.').any(|part| matches!(part, "volatile" | "relaxed" | "acquire" | "mmio")),
        "abs" | "add" | "and" | "bfe" | "bfi" | "cvt" | "cvta" | "ex2" | "fma" | "lg2" | "lop3" | "mad" | "max"
        | "min" | "mov" | "mul" | "neg" | "not" | "or" | "prmt" | "rcp" | "rsqrt" | "selp" | "setp" | "shf" | "shl"
        | "shr" | "sqrt" | "sub" | "tanh" | "xor" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::ptx::parse;
    use rstest::rstest;

    #[rstest]
    #[case::through_operations(
        "ld.shared.f32 %f1, [%r1]; fma.rn.f32 %f2, %f1, %f1, %f1; ld.shared.f32 %f3, [%r1+4]; ret;",
        &[0, 2, 1, 3]
    )]
    #[case::two_bases(
        "ld.shared.f32 %f1, [%r1]; ld.shared.f32 %f2, [%r2]; ld.shared.f32 %f3, [%r1+4]; ld.shared.f32 %f4, [%r2+4];",
        &[0, 2, 1, 3]
    )]
    #[case::a_result_that_is_read_before(
        "ld.shared.f32 %f1, [%r1]; fma.rn.f32 %f2, %f1, %f3, %f1; ld.shared.f32 %f3, [%r1+4];",
        &[0, 1, 2]
    )]
    #[case::a_result_that_is_written_before(
        "ld.shared.f32 %f1, [%r1]; mov.f32 %f3, %f1; ld.shared.f32 %f3, [%r1+4];",
        &[0, 1, 2]
    )]
    #[case::the_same_result(
        "ld.shared.f32 %f1, [%r1]; fma.rn.f32 %f2, %f1, %f1, %f1; ld.shared.f32 %f1, [%r1+4];",
        &[0, 1, 2]
    )]
    #[case::a_base_that_moves(
        "ld.shared.f32 %f1, [%r1]; add.s32 %r1, %r1, 4; ld.shared.f32 %f3, [%r1]; ret;",
        &[0, 1, 2, 3]
    )]
    #[case::a_base_that_is_the_result(
        "ld.shared.u32 %r2, [%r1]; mov.u32 %r3, 1; ld.shared.u32 %r1, [%r1]; ret;",
        &[0, 1, 2, 3]
    )]
    #[case::a_store_between(
        "ld.shared.f32 %f1, [%r1]; st.shared.f32 [%r2], %f1; ld.shared.f32 %f3, [%r1+4]; ret;",
        &[0, 1, 2, 3]
    )]
    #[case::a_barrier_between(
        "ld.shared.f32 %f1, [%r1]; bar.sync 0; ld.shared.f32 %f3, [%r1+4]; ret;",
        &[0, 1, 2, 3]
    )]
    #[case::a_strong_load_between(
        "ld.shared.f32 %f1, [%r1]; ld.volatile.shared.f32 %f2, [%r2]; ld.shared.f32 %f3, [%r1+4]; ret;",
        &[0, 1, 2, 3]
    )]
    #[case::a_label_between(
        "ld.shared.f32 %f1, [%r1]; mov.f32 %f2, %f1; L: ld.shared.f32 %f3, [%r1+4]; bra L;",
        &[0, 1, 2, 3]
    )]
    #[case::a_guarded_load(
        "ld.shared.f32 %f1, [%r1]; mov.f32 %f2, %f1; @%p1 ld.shared.f32 %f3, [%r1+4]; ret;",
        &[0, 1, 2, 3]
    )]
    #[case::another_size(
        "ld.shared.f32 %f1, [%r1]; mov.f32 %f2, %f1; ld.shared.v2.f32 {%f3, %f4}, [%r1+8]; ret;",
        &[0, 1, 2, 3]
    )]
    fn loads_move_up_where_nothing_minds(#[case] text: &str, #[case] expected: &[usize]) {
        let registers = ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<3>;";
        let module = parse(&format!(".visible .entry k() {{ {registers} {text} }}")).unwrap();
        assert_eq!(order(module.functions[0].body.as_ref().unwrap()), expected);
    }

    #[test]
    fn a_group_fills_no_more_registers_than_stay_near() {
        let loads: String =
            (0..70).map(|at| format!("ld.shared.f32 %f{at}, [%r1+{}]; mov.u32 %r2, 1;", 4 * at)).collect();
        let text = format!(".visible .entry k() {{ .reg .b32 %r<9>; .reg .f32 %f<99>; {loads} ret; }}");
        let found = order(parse(&text).unwrap().functions[0].body.as_ref().unwrap());
        assert!(found[..64].iter().eq((0..64).map(|at| 2 * at).collect::<Vec<_>>().iter()));
        assert_eq!(found[64], 1);
    }
}
