//! Which products of warp groups need a `wgmma.fence` of their own: those whose registers something else may use between
//! the product before and them.

use crate::sim::passes::registers::{BasicBlock, blocks, for_each_register};
use crate::sim::ptx::ast::{Body, Instruction, Operand};
use std::collections::HashSet;

/// For every `wgmma.mma_async` of a body, in its order. Products into the same sums follow each other without a fence, and
/// what a compiler copies from register to register is nothing that a thread does.
pub(super) fn exposed(body: &Body) -> Vec<bool> {
    let products: Vec<usize> = (0..body.instructions.len()).filter(|at| is_product(&body.instructions[*at])).collect();
    if products.is_empty() {
        return Vec::new();
    }
    let blocks = blocks(body);
    let mut before = vec![Vec::new(); blocks.len()];
    for (at, block) in blocks.iter().enumerate() {
        block.next.iter().for_each(|next| before[*next].push(at));
    }
    products.into_iter().map(|product| is_exposed(body, &blocks, &before, product)).collect()
}

fn is_exposed(body: &Body, blocks: &[BasicBlock], before: &[Vec<usize>], product: usize) -> bool {
    let instruction = &body.instructions[product];
    let own = fragments(instruction);
    let home = blocks.partition_point(|block| block.start <= product) - 1;
    let mut seen = vec![false; blocks.len()];
    let mut ways = vec![(home, product)];
    while let Some((block, end)) = ways.pop() {
        let mut instructions = body.instructions[blocks[block].start..end].iter().rev();
        match instructions.find_map(|one| Meeting::with(one, instruction, &own)) {
            Some(Meeting::Use) => return true,
            Some(Meeting::Order) => {}
            None => {
                for &from in &before[block] {
                    if !std::mem::replace(&mut seen[from], true) {
                        ways.push((from, blocks[from].end));
                    }
                }
            }
        }
    }
    false
}

/// Registers of the sums, and of a factor that is in registers; descriptors and the flag are read when a product is issued.
fn fragments(product: &Instruction) -> HashSet<usize> {
    let lists = product.operands.iter().filter_map(|operand| match operand {
        Operand::Vector(items) => Some(items),
        _ => None,
    });
    let register = |item: &Operand| match item {
        Operand::Register(register) => Some(*register as usize),
        _ => None,
    };
    lists.flatten().filter_map(register).collect()
}

/// What a way backwards from a product meets.
enum Meeting {
    /// A use of its registers.
    Use,
    /// What orders it behind all before.
    Order,
}

impl Meeting {
    fn with(one: &Instruction, product: &Instruction, own: &HashSet<usize>) -> Option<Meeting> {
        if is_product(one) {
            return (one.operands.first() == product.operands.first()).then_some(Meeting::Order);
        }
        if one.opcode.starts_with("wgmma.fence") {
            return Some(Meeting::Order);
        }
        let is_copy = one.name() == "mov" && matches!(one.operands.get(1), Some(Operand::Register(_)));
        let mut uses = false;
        for_each_register(one, |register, _| uses |= own.contains(&register));
        (uses && !is_copy).then_some(Meeting::Use)
    }
}

fn is_product(instruction: &Instruction) -> bool {
    instruction.opcode.starts_with("wgmma.mma_async")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const D: &str =
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd0, %rd1, %p0, 1, 1, 0, 0;";

    #[rstest]
    #[case::alone("D", &[false])]
    #[case::behind_another("D D", &[false, false])]
    #[case::used_between("D add.f32 %f4, %f0, %f1; D", &[false, true])]
    #[case::fenced("D add.f32 %f4, %f0, %f1; F D", &[false, false])]
    #[case::descriptors_are_no_sums("D add.u64 %rd0, %rd0, 1; D", &[false, false])]
    #[case::guards_are_no_sums("D setp.eq.u64 %p1, %rd0, 0; @%p1 D", &[false, false])]
    #[case::copied("D mov.f32 %f4, %f0; D", &[false, false])]
    #[case::in_a_loop("L: F D add.f32 %f4, %f0, %f1; @%p0 bra L;", &[false])]
    #[case::in_a_loop_without("F L: D add.f32 %f4, %f0, %f1; @%p0 bra L;", &[true])]
    #[case::on_one_of_two_ways("F D @%p0 bra L; mul.f32 %f0, %f0, %f1; L: D", &[false, true])]
    fn uses_between_products_are_seen(#[case] text: &str, #[case] expected: &[bool]) {
        let text = text.replace('F', "wgmma.fence.sync.aligned;").replace('D', D);
        let text =
            format!(".visible .entry k() {{ .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .pred %p<2>; {text} ret; }}");
        let module = crate::sim::ptx::parse(&text).unwrap();
        assert_eq!(exposed(module.functions[0].body.as_ref().unwrap()), expected);
    }
}
