//! Operations on registers, without a guard and with no label between: nothing has to be asked between them. Those of one
//! operation in a row are a run, which one handler carries out; other stretches are gone through without a look at more.

use crate::sim::ir::lanes::RunFn;
use crate::sim::ir::program::{Exec, Instr};

/// Marks the runs and the stretches; `in_rows` are the instructions whose operation comes in rows, upwards.
pub(super) fn mark(code: &mut [Instr], in_rows: &[(usize, RunFn)], labels: impl Iterator<Item = usize>) {
    let mut labelled = vec![false; code.len() + 1];
    labels.for_each(|at| labelled[at] = true);
    let follows = |(before, of_before): &(usize, RunFn), (pc, handler): &(usize, RunFn)| {
        before + 1 == *pc && !labelled[*pc] && std::ptr::fn_addr_eq(*of_before, *handler)
    };
    for run in in_rows.chunk_by(follows).filter(|run| run.len() > 1) {
        let (first, handler) = run[0];
        code[first].exec = Exec::Run(handler);
        code[first].x = run.len() as u32;
    }
    let mut length = 0;
    for (at, instr) in code.iter_mut().enumerate().rev() {
        let is_plain = matches!(instr.exec, Exec::Alu(_)) && instr.guard.is_always();
        length = if !is_plain {
            0
        } else if labelled[at + 1] {
            1
        } else {
            length + 1
        };
        instr.straight = if length > 1 { length } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::machine::registers::{Guard, Registers};

    fn one(_: &mut Registers, _: &Instr, _: u32) {
        unreachable!("an operation");
    }

    fn add(_: &mut Registers, _: &[Instr], _: u32) {
        unreachable!("additions");
    }

    fn multiply(_: &mut Registers, _: &[Instr], _: u32) {
        unreachable!("multiplications");
    }

    fn instr(exec: Exec, guard: Guard) -> Instr {
        Instr { exec, guard, d: 0, a: 0, b: 0, c: 0, x: 0, straight: 0 }
    }

    #[test]
    fn stretches_end_at_guards_labels_and_whatever_is_no_operation() {
        let (plain, exit) = (instr(Exec::Alu(one), Guard::ALWAYS), instr(Exec::Exit, Guard::ALWAYS));
        let guarded = instr(Exec::Alu(one), Guard::new(3, false));
        let mut code = [plain, plain, plain, exit, plain, guarded, plain, plain, plain, plain, plain];
        mark(&mut code, &[], [8].into_iter());
        assert_eq!(code.map(|instr| instr.straight), [3, 2, 0, 0, 0, 0, 2, 0, 3, 2, 0]);
    }

    #[test]
    fn runs_end_at_other_operations_gaps_and_labels() {
        let add: RunFn = add;
        let mut code = [instr(Exec::Alu(one), Guard::ALWAYS); 8];
        let in_rows = [(0, add), (1, add), (2, add), (3, multiply), (5, multiply), (6, multiply), (7, multiply)];
        mark(&mut code, &in_rows, [7].into_iter());
        let marked = code.map(|instr| if matches!(instr.exec, Exec::Run(_)) { instr.x } else { 0 });
        assert_eq!(marked, [3, 0, 0, 0, 0, 2, 0, 0]);
    }
}
