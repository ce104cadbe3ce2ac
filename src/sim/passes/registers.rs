//! Where each PTX register lives: liveness over the control flow, then as few rows as the live ranges allow, so that a
//! warp's registers stay in the first-level cache.

use crate::sim::ir::assignment::{Assignment, class_of};
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::ptx::ast::{Base, Body, Instruction, Operand};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Bits of all live sets together, above which every register gets a row of its own: hostile input must not cost
/// gigabytes.
const MAX_LIVE_BITS: usize = 1 << 30;

pub(super) fn assign(body: &Body) -> Assignment {
    let blocks = blocks(body);
    let words = body.registers.len().div_ceil(64);
    if blocks.len().saturating_mul(words).saturating_mul(3 * 64) > MAX_LIVE_BITS {
        return one_each(body);
    }
    let live = liveness(body, &blocks, words);
    let ranges = ranges(body, &blocks, &live);
    let mut assignment = scan(body, ranges);
    if let Some(first) = live.first() {
        for register in members(&first.entry) {
            assignment.zeroed.extend(assignment.slots[register]);
        }
    }
    assignment
}

fn one_each(body: &Body) -> Assignment {
    let mut out = Assignment { slots: Vec::new(), words: 0, wides: 0, preds: 1, zeroed: Vec::new() };
    for register in &body.registers {
        let slot = fresh(&mut out, class_of(register.ty));
        out.slots.push(Some(slot));
        out.zeroed.push(slot);
    }
    out
}

fn fresh(out: &mut Assignment, class: Class) -> Slot {
    let count = match class {
        Class::Word => &mut out.words,
        Class::Wide => &mut out.wides,
        Class::Pred => &mut out.preds,
    };
    *count += 1;
    Slot { class, index: *count - 1 }
}

/// Instructions that run one after the other, and where they may lead.
pub(super) struct BasicBlock {
    pub start: usize,
    pub end: usize,
    pub next: Vec<usize>,
}

#[derive(Clone)]
struct Live {
    entry: Vec<u64>,
    exit: Vec<u64>,
}

pub(super) fn blocks(body: &Body) -> Vec<BasicBlock> {
    let count = body.instructions.len();
    let mut leads = vec![false; count + 1];
    leads[0] = true;
    for &label in &body.labels {
        leads[label] = true;
    }
    for (at, instruction) in body.instructions.iter().enumerate() {
        if ends_block(instruction) {
            leads[at + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..count).filter(|at| leads[*at]).collect();
    let index: HashMap<usize, usize> = starts.iter().enumerate().map(|(block, start)| (*start, block)).collect();
    let block_of_label = |label: &u32| body.labels.get(*label as usize).and_then(|at| index.get(at)).copied();
    starts
        .iter()
        .enumerate()
        .map(|(block, &start)| {
            let end = starts.get(block + 1).copied().unwrap_or(count);
            let last = &body.instructions[end - 1];
            let mut next = Vec::new();
            for operand in &last.operands {
                match operand {
                    Operand::Label(label) => next.extend(block_of_label(label)),
                    Operand::TargetList(list) => {
                        next.extend(body.target_lists[*list as usize].iter().filter_map(block_of_label))
                    }
                    _ => {}
                }
            }
            if (!ends_block(last) || last.guard.is_some()) && block + 1 < starts.len() {
                next.push(block + 1);
            }
            BasicBlock { start, end, next }
        })
        .collect()
}

fn ends_block(instruction: &Instruction) -> bool {
    matches!(instruction.name(), "bra" | "brx" | "ret" | "exit" | "trap")
}

/// Whether the first operand is a result. For the few where it is both, or where one cannot know, it counts as read
/// too.
fn first_is_result(instruction: &Instruction) -> bool {
    !matches!(
        instruction.name(),
        "st" | "red" | "bar" | "barrier" | "brx" | "bra" | "nanosleep" | "setmaxnreg" | "stmatrix"
    )
}

fn first_is_also_read(instruction: &Instruction) -> bool {
    matches!(instruction.name(), "wgmma" | "mbarrier" | "call" | "cp" | "tcgen05" | "discard" | "prefetch")
}

/// Calls `visit` for every register that the instruction reads (`false`) or writes (`true`).
pub(super) fn for_each_register(instruction: &Instruction, mut visit: impl FnMut(usize, bool)) {
    if let Some((guard, _)) = instruction.guard {
        visit(guard as usize, false);
    }
    for (at, operand) in instruction.operands.iter().enumerate() {
        let result = at == 0 && first_is_result(instruction);
        let read = !result || first_is_also_read(instruction);
        visit_operand(operand, &mut |register, always_read| {
            if read || always_read {
                visit(register, false);
            }
            if result && !always_read {
                visit(register, true);
            }
        });
    }
}

/// Registers of an operand; the flag marks those inside an address, which are read even in the place of a result.
fn visit_operand(operand: &Operand, visit: &mut dyn FnMut(usize, bool)) {
    match operand {
        Operand::Register(register) | Operand::Not(register) => visit(*register as usize, false),
        Operand::Pair(first, second) => {
            visit(*first as usize, false);
            if let Some(second) = second {
                visit(*second as usize, false);
            }
        }
        Operand::Address(Base::Register(register), _) => visit(*register as usize, true),
        Operand::Tensor(base, _, items) => {
            if let Base::Register(register) = base {
                visit(*register as usize, true);
            }
            items.iter().for_each(|item| visit_operand(item, &mut |register, _| visit(register, true)));
        }
        Operand::Vector(items) | Operand::Tuple(items) => items.iter().for_each(|item| visit_operand(item, visit)),
        _ => {}
    }
}

fn liveness(body: &Body, blocks: &[BasicBlock], words: usize) -> Vec<Live> {
    let empty = vec![0u64; words];
    let mut reads = vec![empty.clone(); blocks.len()];
    let mut writes = vec![empty.clone(); blocks.len()];
    for (at, block) in blocks.iter().enumerate() {
        for instruction in &body.instructions[block.start..block.end] {
            for_each_register(instruction, |register, write| {
                if !write && !has(&writes[at], register) {
                    set(&mut reads[at], register);
                }
            });
            // A guarded write leaves the old value in some threads: it ends nothing.
            if instruction.guard.is_none() {
                for_each_register(instruction, |register, write| {
                    if write {
                        set(&mut writes[at], register);
                    }
                });
            }
        }
    }
    let mut live: Vec<Live> = reads.iter().map(|reads| Live { entry: reads.clone(), exit: empty.clone() }).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for at in (0..blocks.len()).rev() {
            for &next in &blocks[at].next {
                for word in 0..words {
                    let more = live[next].entry[word];
                    live[at].exit[word] |= more;
                }
            }
            for word in 0..words {
                let entry = reads[at][word] | (live[at].exit[word] & !writes[at][word]);
                changed |= entry != live[at].entry[word];
                live[at].entry[word] = entry;
            }
        }
    }
    live
}

fn has(bits: &[u64], at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 != 0
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

fn members(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(word, &value)| {
        let mut rest = value;
        std::iter::from_fn(move || {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (bit < 64).then_some(word * 64 + bit)
        })
    })
}

/// First and last instruction where each register matters.
fn ranges(body: &Body, blocks: &[BasicBlock], live: &[Live]) -> Vec<Option<(usize, usize)>> {
    let mut ranges: Vec<Option<(usize, usize)>> = vec![None; body.registers.len()];
    let mut extend = |register: usize, at: usize| {
        let range = ranges[register].get_or_insert((at, at));
        *range = (range.0.min(at), range.1.max(at));
    };
    for (block, live) in blocks.iter().zip(live) {
        members(&live.entry).for_each(|register| extend(register, block.start));
        members(&live.exit).for_each(|register| extend(register, block.end - 1));
        for at in block.start..block.end {
            for_each_register(&body.instructions[at], |register, _| extend(register, at));
        }
    }
    ranges
}

/// Hands out rows in the order in which ranges start; a row is free after the last instruction of its register.
fn scan(body: &Body, ranges: Vec<Option<(usize, usize)>>) -> Assignment {
    let mut out = Assignment { slots: vec![None; ranges.len()], words: 0, wides: 0, preds: 1, zeroed: Vec::new() };
    let mut order: Vec<(usize, usize, usize)> = ranges
        .iter()
        .enumerate()
        .filter_map(|(register, range)| range.map(|(start, end)| (start, end, register)))
        .collect();
    order.sort_unstable();
    let mut busy: HashMap<Class, BinaryHeap<Reverse<(usize, u32)>>> = HashMap::new();
    let mut free: HashMap<Class, BinaryHeap<Reverse<u32>>> = HashMap::new();
    for (start, end, register) in order {
        let class = class_of(body.registers[register].ty);
        let busy = busy.entry(class).or_default();
        let free = free.entry(class).or_default();
        while let Some(&Reverse((last, row))) = busy.peek() {
            if last >= start {
                break;
            }
            busy.pop();
            free.push(Reverse(row));
        }
        let slot = match free.pop() {
            Some(Reverse(index)) => Slot { class, index },
            None => fresh(&mut out, class),
        };
        busy.push(Reverse((end, slot.index)));
        out.slots[register] = Some(slot);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::ptx::parse;

    fn body(text: &str) -> Body {
        let module = parse(&format!(".visible .entry k() {{ .reg .b32 %r<9>; .reg .pred %p<3>; {text} }}")).unwrap();
        module.functions[0].body.clone().unwrap()
    }

    #[test]
    fn ranges_that_do_not_overlap_share_a_row() {
        let found = assign(&body("mov.u32 %r1, 1; mov.u32 %r2, %r1; mov.u32 %r3, %r2; mov.u32 %r4, %r3; ret;"));
        assert_eq!(found.words, 2);
        assert!(found.zeroed.is_empty());
        assert_eq!(found.slots[8], None);
    }

    #[test]
    fn a_value_that_a_loop_needs_keeps_its_row_through_the_loop() {
        let found = assign(&body(
            "mov.u32 %r1, 1; L: mov.u32 %r2, 5; add.u32 %r3, %r2, %r1; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; ret;",
        ));
        let rows: Vec<_> = [1, 2, 3].iter().map(|r| found.slots[*r].unwrap().index).collect();
        assert!(rows[0] != rows[1] && rows[0] != rows[2]);
    }

    #[test]
    fn a_register_read_before_any_sure_write_is_zeroed() {
        let found = assign(&body("setp.eq.u32 %p1, 1, 1; @%p1 mov.u32 %r1, 1; mov.u32 %r2, %r1; ret;"));
        assert_eq!(found.zeroed, [found.slots[1].unwrap()]);
    }
}
