//! Through which parameters a kernel may read and write global memory: a flow of pointers through registers, blind to
//! branches.

use crate::sim::ir::program::Reach;
use crate::sim::ptx::ast::{Base, Body, Instruction, Operand, Symbol};
use crate::sim::ptx::types::Type;

/// A pointer that came from anywhere.
const ANYWHERE: u64 = 1 << 63;
/// A word loaded from memory: two of them may make a pointer.
const LOADED_WORD: u64 = 1 << 62;
/// Parameters beyond are not told apart.
const MAX_PARAMS: usize = 62;

/// What addresses of loads and of stores can come from.
pub(super) fn reach(body: &Body) -> (Reach, Reach) {
    let mut origin = vec![0u64; body.registers.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for instruction in &body.instructions {
            changed |= flow(body, instruction, &mut origin);
        }
    }
    let (mut read, mut written) = (0, 0);
    for instruction in &body.instructions {
        let name = instruction.name();
        let has = |part: &str| instruction.opcode.split('.').any(|found| found == part);
        let elsewhere =
            (has("shared") || has("shared::cta") || has("local") || has("param") || has("const")) && name != "cp";
        if elsewhere {
            continue;
        }
        let address = instruction.operands.iter().filter_map(|operand| match operand {
            Operand::Address(base, _) | Operand::Tensor(base, _, _) => Some(base_origin(*base, &origin)),
            _ => None,
        });
        let origins = address.fold(0, |all, one| all | one);
        match name {
            "ld" | "ldu" => read |= origins,
            "st" => written |= origins,
            "wmma" if has("store") => written |= origins,
            "wmma" => read |= origins,
            // A handle says by itself where its texels are, a multicast address where its replicas are.
            "tex" | "tld4" | "suld" => read |= ANYWHERE,
            "sust" => written |= ANYWHERE,
            "multimem" => {
                read |= ANYWHERE;
                written |= ANYWHERE;
            }
            "atom" | "red" => {
                read |= origins;
                written |= origins;
            }
            "cp" => {
                // A tensor map says by itself where its tensor is.
                let of_copy = if has("bulk") { origins | ANYWHERE } else { origins };
                // The target is named first.
                let mut spaces =
                    instruction.opcode.split('.').filter(|part| *part == "global" || part.starts_with("shared"));
                read |= of_copy;
                if spaces.next() == Some("global") {
                    written |= of_copy;
                }
            }
            _ => {}
        }
    }
    (summary(read), summary(written))
}

fn summary(origins: u64) -> Reach {
    if origins & ANYWHERE != 0 {
        return Reach::Anything;
    }
    Reach::Params((0..MAX_PARAMS).filter(|param| origins >> param & 1 != 0).collect())
}

fn symbol_origin(symbol: Symbol) -> u64 {
    match symbol {
        Symbol::Param(at) if at < MAX_PARAMS => 1 << at,
        // Module variables are allocations of their own, made for its module.
        Symbol::Param(_) | Symbol::Module(_) => ANYWHERE,
        Symbol::Body(_) => 0,
    }
}

fn base_origin(base: Base, origin: &[u64]) -> u64 {
    match base {
        Base::Register(register) => origin[register as usize] & !LOADED_WORD,
        Base::Symbol(symbol) => symbol_origin(symbol),
        Base::Absolute => ANYWHERE,
    }
}

/// Passes origins from sources to results; `true` if any register learnt something.
fn flow(body: &Body, instruction: &Instruction, origin: &mut [u64]) -> bool {
    let Some(target) = instruction.operands.first() else { return false };
    let name = instruction.name();
    let loads = matches!(name, "ld" | "ldu" | "atom" | "wmma");
    let from_param = matches!(instruction.operands.get(1), Some(Operand::Address(Base::Symbol(Symbol::Param(_)), _)));
    let mut sources = 0;
    if loads && !from_param {
        sources = LOADED_WORD;
    } else {
        for operand in &instruction.operands[1..] {
            sources |= operand_origin(operand, origin);
        }
        let packs = matches!(instruction.operands.get(1), Some(Operand::Vector(_)));
        if packs && sources & LOADED_WORD != 0 {
            sources |= ANYWHERE;
        }
    }
    let mut changed = false;
    let mut learn = |register: u32| {
        let wide =
            body.registers[register as usize].ty.bytes() == 8 && body.registers[register as usize].ty != Type::F64;
        let more = if loads && !from_param && wide { ANYWHERE } else { sources };
        let known = &mut origin[register as usize];
        changed |= *known | more != *known;
        *known |= more;
    };
    match target {
        Operand::Register(register) => learn(*register),
        Operand::Pair(register, _) => learn(*register),
        Operand::Vector(items) => items.iter().for_each(|item| {
            if let Operand::Register(register) = item {
                learn(*register);
            }
        }),
        _ => {}
    }
    changed
}

fn operand_origin(operand: &Operand, origin: &[u64]) -> u64 {
    match operand {
        Operand::Register(register) => origin[*register as usize],
        Operand::Symbol(symbol, _) => symbol_origin(*symbol),
        Operand::Address(Base::Symbol(symbol), _) => symbol_origin(*symbol),
        Operand::Vector(items) => items.iter().fold(0, |all, item| all | operand_origin(item, origin)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; add.s64 %rd3, %rd1, 8; ld.global.u32 %r1, [%rd3]; st.global.u32 [%rd2], %r1;", Reach::Params(vec![0]), Reach::Params(vec![1]))]
    #[case("ld.param.u64 %rd1, [a]; ld.global.u64 %rd2, [%rd1]; st.global.u32 [%rd2], 0;", Reach::Params(vec![0]), Reach::Anything)]
    #[case("ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.global.s32 %r1, [%rd1]; mad.wide.s32 %rd3, %r1, 4, %rd2; st.global.u32 [%rd3], 0;", Reach::Params(vec![0]), Reach::Params(vec![1]))]
    #[case("ld.param.u64 %rd1, [a]; ld.global.v2.u32 {%r1, %r2}, [%rd1]; mov.b64 %rd2, {%r1, %r2}; st.global.u32 [%rd2], 0;", Reach::Params(vec![0]), Reach::Anything)]
    #[case("ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2]; st.global.u32 [%rd2], 0;", Reach::Anything, Reach::Params(vec![1]))]
    #[case(
        "ld.param.u64 %rd1, [a]; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;",
        Reach::Anything,
        Reach::Anything
    )]
    #[case("ld.param.u64 %rd1, [a]; cp.async.cg.shared.global [%r1], [%rd1], 16;", Reach::Params(vec![0]), Reach::Params(vec![]))]
    #[case("mov.u32 %r1, 0; st.shared.u32 [%r1], 0; ld.shared.u32 %r2, [%r1];", Reach::Params(vec![]), Reach::Params(vec![]))]
    fn pointers_are_followed(#[case] text: &str, #[case] read: Reach, #[case] written: Reach) {
        let text =
            format!(".visible .entry k(.param .u64 a, .param .u64 b) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; {text} }}");
        let module = crate::sim::ptx::parse(&text).unwrap();
        assert_eq!(reach(module.functions[0].body.as_ref().unwrap()), (read, written));
    }
}
