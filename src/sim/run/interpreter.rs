//! The interpreter loop: one warp until it ends, stands still or has had its turn.

use crate::sim::ir::program::{Exec, Instr, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::grid::Grid;
use crate::sim::machine::warp::{Split, Turn, Wait};
use crate::sim::metrics::InstructionClass;
use crate::sim::report::Check;
use crate::sim::tier::tiers;

/// Why a warp came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Finished,
    /// Nothing of it can run now.
    Blocked,
    /// It could go on; others should run first.
    Yielded,
    Aborted,
}

/// Jumps backwards before lanes of the same warp get their turn: a lane may spin until another one acts.
const ROTATE_BACK_EDGES: u64 = 512;
/// Jumps backwards before other warps get their turn, or work, whichever is less; fewer where a warp may well wait for
/// another block.
const YIELD_BACK_EDGES: u64 = 4_096;
const YIELD_BACK_EDGES_IN_TURN: u64 = 1_024;
const YIELD_WORK: u64 = 1_000_000;
/// Work that an action and a turn count for: about as many additions take as long.
const ACTION_WORK: u64 = 24;
const TURN_WORK: u64 = 16;

/// How far a warp may go before others get their turn.
#[derive(Clone, Copy)]
struct Until {
    back_edges: u64,
    work: u64,
}

/// Runs the warp of the context. The flag tells whether any instruction ran.
pub(super) type Runner = fn(&mut Context<'_>, &Program) -> (Stop, bool);

/// The loop in the build for this machine.
pub(super) fn runner() -> Runner {
    tiers!(run: fn(ctx: &mut Context<'_>, program: &Program) -> (Stop, bool)).widest
}

#[inline(always)]
fn run(ctx: &mut Context<'_>, program: &Program) -> (Stop, bool) {
    let mut ran = false;
    let jumps = if ctx.grid.clusters_take_turns() { YIELD_BACK_EDGES_IN_TURN } else { YIELD_BACK_EDGES };
    let until = Until { back_edges: ctx.warp.back_edges + jumps, work: ctx.log.work + YIELD_WORK };
    wake(ctx);
    loop {
        let Some(turn) = ctx.warp.next_turn() else {
            let stop = if ctx.warp.splits.is_empty() { Stop::Finished } else { Stop::Blocked };
            return (stop, ran);
        };
        ran = true;
        match take_turn(ctx, program, turn, until) {
            Some(stop) => return (stop, ran),
            None => wake(ctx),
        }
    }
}

/// Releases lanes whose barrier has opened or whose event has come.
fn wake(ctx: &mut Context<'_>) {
    for at in 0..ctx.warp.splits.len() {
        let split = ctx.warp.splits[at];
        match split.wait {
            Some(Wait::Barrier { id, generation }) => {
                let barrier = &ctx.blocks[ctx.me].barriers[id as usize];
                if barrier.generation != generation {
                    ctx.warp.race.join(&barrier.released_clock);
                    ctx.warp.race.shown.join(&barrier.released_shown);
                    ctx.note_clock();
                    ctx.warp.splits[at] = Split { pc: split.pc + 1, mask: split.mask, wait: None };
                }
            }
            Some(Wait::Cluster { generation }) => {
                let barrier = &ctx.blocks[0].cluster_barrier;
                if barrier.generation != generation {
                    ctx.warp.race.join(&barrier.released_clock);
                    ctx.warp.race.shown.join(&barrier.released_shown);
                    ctx.note_clock();
                    ctx.warp.splits[at] = Split { pc: split.pc + 1, mask: split.mask, wait: None };
                }
            }
            Some(Wait::Event { seen }) if ctx.blocks[ctx.me].events != seen => ctx.warp.splits[at].wait = None,
            _ => {}
        }
    }
}

/// Runs lanes that are together until they part, meet others, stop or have jumped back often.
#[inline(always)]
fn take_turn(ctx: &mut Context<'_>, program: &Program, turn: Turn, until: Until) -> Option<Stop> {
    let Turn { mut pc, mut mask, mut stop } = turn;
    let mut rotate_at = ctx.warp.back_edges + ROTATE_BACK_EDGES;
    ctx.log.work += TURN_WORK;
    ctx.log.repeats.next_turn();
    if ctx.log.work > ctx.grid.options.work_budget {
        return Some(report_endless(ctx, pc, pc, mask));
    }
    loop {
        let begun = pc;
        let mut parting = None;
        let code = &program.code[..program.code.len().min(stop as usize)];
        while let Some(instr) = code.get(pc as usize) {
            if instr.straight > 0 {
                let next = pc + instr.straight;
                for instr in &code[pc as usize..next as usize] {
                    if let Exec::Alu(handler) = instr.exec {
                        handler(&mut ctx.warp.registers, instr, mask);
                    }
                }
                pc = next;
                continue;
            }
            let active = ctx.warp.registers.guarded(instr.guard, mask);
            if active != mask {
                ctx.log.counters.by_pc[pc as usize].idle += u64::from((mask & !active).count_ones());
            }
            match instr.exec {
                Exec::Alu(handler) => {
                    if active != 0 {
                        handler(&mut ctx.warp.registers, instr, active);
                    }
                }
                Exec::Run(handler) => {
                    handler(&mut ctx.warp.registers, &code[pc as usize..][..instr.x as usize], mask);
                    pc += instr.x - 1;
                }
                Exec::Action(_) if active == 0 => {}
                Exec::Action(handler) => {
                    ctx.pc = pc;
                    ctx.log.work += ACTION_WORK;
                    match handler(ctx, program, instr, active) {
                        Outcome::Next => {}
                        Outcome::Past(more) => {
                            ctx.log.work += u64::from(more) * ACTION_WORK;
                            pc += more;
                        }
                        outcome => {
                            ctx.log.counters.ran(begun..pc + 1, mask.count_ones());
                            return leave(ctx, outcome, pc, active, mask);
                        }
                    }
                }
                Exec::Branch | Exec::Exit => {
                    parting = Some((instr, active));
                    break;
                }
            }
            pc += 1;
        }
        ctx.log.counters.ran(begun..pc + u32::from(parting.is_some()), mask.count_ones());
        match parting {
            Some((instr, active)) if matches!(instr.exec, Exec::Branch) => {
                let before = pc;
                match branch(ctx, instr, active, &mut pc, &mut mask, &mut stop) {
                    Jump::Forward => {}
                    Jump::Back => {
                        ctx.warp.back_edges += 1;
                        ctx.log.work += u64::from(before - pc) + 1;
                        let made = ctx.warp.back_edges;
                        if made >= rotate_at {
                            rotate_at = made + ROTATE_BACK_EDGES;
                            let yields = made >= until.back_edges || ctx.log.work >= until.work;
                            if let Some(result) = spinning(ctx, before, pc, mask, yields) {
                                return result;
                            }
                        }
                    }
                }
            }
            Some((_, active)) => {
                if active != 0 {
                    ctx.warp.exited |= active;
                    ctx.warp.forget_waits_for_lanes();
                    ctx.blocks[ctx.me].alive -= active.count_ones();
                    ctx.warp_exits();
                }
                mask &= !active;
                pc += 1;
                if mask == 0 {
                    return None;
                }
            }
            None => {}
        }
        if pc >= stop {
            ctx.warp.splits.push(Split { pc, mask, wait: None });
            return None;
        }
    }
}

/// Leaves the turn as a handler demands.
fn leave(ctx: &mut Context<'_>, outcome: Outcome, pc: u32, active: u32, mask: u32) -> Option<Stop> {
    if outcome == Outcome::Abort {
        return Some(Stop::Aborted);
    }
    park(ctx, outcome, pc, active, mask);
    match outcome {
        Outcome::Yield => Some(Stop::Yielded),
        // A barrier opens between the turns of warps: where all lanes wait for it, nothing is left to look at.
        Outcome::Wait(Wait::Barrier { .. } | Wait::Cluster { .. }) if ctx.warp.splits.len() == 1 => Some(Stop::Blocked),
        _ => None,
    }
}

enum Jump {
    Forward,
    Back,
}

/// Moves to the target, to the next instruction, or both: then the lower one goes on and the other waits its turn.
#[inline(always)]
fn branch(ctx: &mut Context<'_>, instr: &Instr, taken: u32, pc: &mut u32, mask: &mut u32, stop: &mut u32) -> Jump {
    let (here, target) = (*pc, instr.x);
    let jump = if taken != 0 && target <= here { Jump::Back } else { Jump::Forward };
    if taken == *mask {
        *pc = target;
        // Lanes that wait below the target or between are met by `stop`; a jump back may go below others, which then
        // come later.
        if target <= here {
            *stop = ctx.warp.splits.iter().map(|other| other.pc).filter(|pc| *pc > target).min().unwrap_or(u32::MAX);
        }
    } else if taken == 0 {
        *pc += 1;
    } else {
        ctx.log.counters.divergent_branches += 1;
        let (near, far) = if target <= here { (target, here + 1) } else { (here + 1, target) };
        let (near_mask, far_mask) = if target <= here { (taken, *mask & !taken) } else { (*mask & !taken, taken) };
        ctx.warp.splits.push(Split { pc: far, mask: far_mask, wait: None });
        *pc = near;
        *mask = near_mask;
        *stop = ctx.warp.splits.iter().map(|other| other.pc).filter(|pc| *pc > near).min().unwrap_or(u32::MAX);
        if ctx.warp.splits.iter().any(|other| other.pc == near) {
            *stop = near;
        }
    }
    jump
}

/// After many jumps back: ends an endless loop, or lets other lanes and warps run. `Some(None)` means a new turn in
/// this warp.
#[cold]
fn spinning(ctx: &mut Context<'_>, at: u32, pc: u32, mask: u32, yields: bool) -> Option<Option<Stop>> {
    if ctx.log.work > ctx.grid.options.work_budget {
        return Some(Some(report_endless(ctx, pc, at, mask)));
    }
    let others = ctx.warp.splits.iter().any(|split| split.wait.is_none());
    if yields || others {
        ctx.warp.splits.push(Split { pc, mask, wait: None });
        ctx.warp.rotate = others;
        return Some(yields.then_some(Stop::Yielded));
    }
    None
}

/// The budget is spent. `first` to `last` is the loop, as far as it is known.
#[cold]
fn report_endless(ctx: &mut Context<'_>, first: u32, last: u32, mask: u32) -> Stop {
    ctx.pc = last;
    let grid = ctx.grid;
    let polls = grid.origins.each[first as usize..=last as usize]
        .iter()
        .any(|origin| matches!(origin.class, InstructionClass::Global | InstructionClass::Atomic));
    let message = format!(
        "the {} is still running after {} units of work, its budget (about one a warp instruction){}",
        grid.unit(),
        grid.options.work_budget,
        hint_at_grid_barrier(grid, polls)
    );
    ctx.report(Check::EndlessLoop, mask.trailing_zeros() as usize & 31, None, message);
    Stop::Aborted
}

/// What to say of a block that polls global memory for ever.
pub(super) fn hint_at_grid_barrier(grid: &Grid<'_>, polls_global_memory: bool) -> String {
    if !polls_global_memory || !grid.in_order || grid.clusters() == [1; 3] {
        return String::new();
    }
    format!("; it polls global memory, and no other {} that is left writes there", grid.unit())
}

/// Puts the active lanes where the outcome says; lanes that the guard left out go on.
fn park(ctx: &mut Context<'_>, outcome: Outcome, pc: u32, active: u32, mask: u32) {
    match outcome {
        Outcome::Wait(wait) => ctx.warp.splits.push(Split { pc, mask: active, wait: Some(wait) }),
        Outcome::Scatter => {
            let mut scattered = std::mem::take(&mut ctx.warp.scattered);
            ctx.warp.splits.append(&mut scattered);
        }
        _ => ctx.warp.splits.push(Split { pc: pc + 1, mask: active, wait: None }),
    }
    if mask & !active != 0 {
        ctx.warp.splits.push(Split { pc: pc + 1, mask: mask & !active, wait: None });
    }
}
