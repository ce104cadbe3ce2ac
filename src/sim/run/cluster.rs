//! A cluster of blocks (mostly one): turns of its warps until all are done, until it waits for another cluster, or until
//! none can go on, and what that means.

use crate::sim::isa::{barrier_object, bulk};
use crate::sim::machine::block::Block;
use crate::sim::machine::context::Context;
use crate::sim::machine::log::Log;
use crate::sim::machine::warp::{Wait, Warp};
use crate::sim::options::WarpOrder;
use crate::sim::report::Check;
use crate::sim::rng::Rng;
use crate::sim::run::interpreter::{Runner, Stop, hint_at_grid_barrier, runner};
use crate::sim::run::job::Job;
use crate::sim::run::setup;
use crate::sim::run::standstill::{Standstill, Watch};

/// Work of a cluster before the others get their turn, where it may be waiting for one of them; and before it is looked
/// at whether it does nothing else.
const STINT: u64 = 3_000_000;
const LOOK: u64 = 200_000;

/// How a cluster left off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// The launch cannot go on.
    Stopped,
    /// It polls global memory and does nothing else: others have to go first.
    Waits,
    /// It could go on, but has had its turn.
    Pauses,
}

/// The state of one cluster; a worker uses it again for the next one.
pub(super) struct Cluster {
    pub number: u64,
    warps: Vec<Vec<Warp>>,
    blocks: Vec<Block>,
    /// Warps that have not ended.
    order: Vec<(usize, usize)>,
    rng: Rng,
    watch: Watch,
    /// Work so far, without that of waiting.
    work: u64,
    run: Runner,
}

impl Cluster {
    pub fn new(grid: &Job<'_>) -> Self {
        let blocks = grid.cluster_blocks() as usize;
        Cluster {
            number: 0,
            warps: (0..blocks).map(|_| setup::warps(grid)).collect(),
            blocks: (0..blocks).map(|_| setup::block(grid)).collect(),
            order: Vec::new(),
            rng: Rng::new(0),
            watch: Watch::new(),
            work: 0,
            run: runner(),
        }
    }

    /// Runs the cluster with that number, where none waits for another; `false` when the launch cannot go on.
    pub fn run(&mut self, grid: &Job<'_>, log: &mut Log, number: u64) -> bool {
        self.start(grid, number);
        self.go_on(grid, log) == Progress::Done
    }

    /// Makes the cluster with that number ready.
    pub fn start(&mut self, grid: &Job<'_>, number: u64) {
        self.number = number;
        // All blocks of a cluster share one scale of clocks, since they reach each other's memory.
        let races = grid.options.checks.races;
        let readers = grid.program.traits.has_async_readers;
        let bases = self.blocks.iter_mut().map(|block| block.races.restart(races, block.shared.bytes(), readers));
        let base = bases.max().unwrap_or(1);
        for (rank, (warps, block)) in self.warps.iter_mut().zip(&mut self.blocks).enumerate() {
            setup::start_block(grid, number, rank as u32, base, warps, block);
        }
        self.work = 0;
        self.rng = Rng::new(grid.options.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let warps = self.warps.iter().enumerate();
        self.order = warps.flat_map(|(block, warps)| (0..warps.len()).map(move |warp| (block, warp))).collect();
        if grid.options.warp_order == WarpOrder::Descending {
            self.order.reverse();
        }
        self.watch = if grid.clusters_take_turns() { Watch::from(LOOK) } else { Watch::new() };
    }

    /// Turns of the warps until the cluster is done or leaves off.
    pub fn go_on(&mut self, grid: &Job<'_>, log: &mut Log) -> Progress {
        log.work = self.work;
        let takes_turns = grid.clusters_take_turns();
        let mut done = Vec::with_capacity(self.order.len());
        while !self.order.is_empty() {
            if grid.options.warp_order == WarpOrder::Seeded {
                self.rng.shuffle(&mut self.order);
            }
            let mut progress = false;
            for &(block, warp) in &self.order {
                let mut ctx = Context {
                    warp: &mut self.warps[block][warp],
                    blocks: &mut self.blocks,
                    me: block,
                    grid: &grid.grid,
                    log,
                    pc: 0,
                };
                let (stop, ran) = (self.run)(&mut ctx, grid.program);
                progress |= ran;
                done.push(stop == Stop::Finished);
                if stop == Stop::Aborted {
                    return Progress::Stopped;
                }
                progress |= self.blocks[block].open_barriers();
                progress |= crate::sim::machine::block::open_cluster_barrier(&mut self.blocks);
            }
            let mut ended = done.drain(..);
            self.order.retain(|_| !ended.next().unwrap_or(true));
            drop(ended);
            if !progress && !self.order.is_empty() && !self.land_one(grid, log) {
                self.report_deadlock(grid, log);
                return Progress::Stopped;
            }
            if let Some(found) = self.watch.look(grid, log, &self.warps, &self.blocks) {
                if takes_turns && found.polls_global_memory {
                    self.watch = Watch::from(self.work + LOOK);
                    return Progress::Waits;
                }
                self.report_standstill(grid, log, found);
                return Progress::Stopped;
            }
            if takes_turns && log.work - self.work > STINT && !self.order.is_empty() {
                self.work = log.work;
                return Progress::Pauses;
            }
        }
        self.end_copies(grid, log);
        for block in &self.blocks {
            barrier_object::report_unfinished(block, |check, pc, thread, message| {
                let place = grid.place(block.linear, thread, Some(pc));
                log.find(block.linear, pc, check, place, None, message, None);
            });
        }
        Progress::Done
    }

    /// All clusters that are left wait for each other, and nothing in memory changes any more.
    pub fn report_waiting(&mut self, grid: &Job<'_>, log: &mut Log) {
        self.report_standstill(grid, log, Standstill { polls_global_memory: true });
    }

    /// What nobody waited for still moves before the kernel ends.
    fn end_copies(&mut self, grid: &Job<'_>, log: &mut Log) {
        while self.land_one(grid, log) {}
        for (me, warps) in self.warps.iter_mut().enumerate() {
            for warp in warps {
                let mut ctx = Context { warp, blocks: &mut self.blocks, me, grid: &grid.grid, log, pc: 0 };
                bulk::end_stores(&mut ctx);
            }
        }
    }

    /// In late mode a copy lands when nothing else can run; which one, is drawn.
    fn land_one(&mut self, grid: &Job<'_>, log: &mut Log) -> bool {
        let Some(me) = self.blocks.iter().position(|block| !block.in_flight.is_empty()) else { return false };
        let pick = self.rng.below(self.blocks[me].in_flight.len());
        let flight = self.blocks[me].in_flight.swap_remove(pick);
        let warp = &mut self.warps[me][flight.warp as usize];
        let mut ctx = Context { warp, blocks: &mut self.blocks, me, grid: &grid.grid, log, pc: flight.pc };
        bulk::land(&mut ctx, &flight);
        true
    }

    /// The same state has come back: names the first lanes that go round.
    fn report_standstill(&mut self, grid: &Job<'_>, log: &mut Log, found: Standstill) {
        let of_warp = |&(block, warp): &(usize, usize)| {
            self.warps[block][warp].splits.iter().map(move |split| (block, warp, *split))
        };
        let Some((block, warp, split)) = self
            .order
            .iter()
            .flat_map(of_warp)
            .min_by_key(|(block, warp, split)| (split.wait.is_some(), *block, *warp, split.pc))
        else {
            return;
        };
        let message = format!(
            "the {} goes round without end: everything that decides its branches is as it was before, and so is the memory that it depends on{}",
            grid.unit(),
            hint_at_grid_barrier(grid, found.polls_global_memory)
        );
        let (warp, blocks) = (&mut self.warps[block][warp], &mut self.blocks);
        let mut ctx = Context { warp, blocks, me: block, grid: &grid.grid, log, pc: split.pc };
        ctx.report(Check::EndlessLoop, split.mask.trailing_zeros() as usize & 31, None, message);
    }

    /// Nothing can run: names the reason by what the first waiting warp waits for.
    fn report_deadlock(&mut self, grid: &Job<'_>, log: &mut Log) {
        let waiting: Vec<(usize, usize, u32, u32, Wait)> = self
            .order
            .iter()
            .flat_map(|&(block, warp)| {
                let splits = &self.warps[block][warp].splits;
                splits.iter().filter_map(move |split| split.wait.map(|wait| (block, warp, split.pc, split.mask, wait)))
            })
            .collect();
        let pick = waiting
            .iter()
            .min_by_key(|(block, warp, pc, _, wait)| (!matches!(wait, Wait::Lanes { .. }), *block, *warp, *pc));
        let Some(&(block, warp, pc, mask, wait)) = pick else { return };
        let others = waiting.iter().find(|other| (other.0, other.1, other.2) != (block, warp, pc));
        let alive = self.warps[block][warp].alive();
        let mut ctx = Context {
            warp: &mut self.warps[block][warp],
            blocks: &mut self.blocks,
            me: block,
            grid: &grid.grid,
            log,
            pc,
        };
        let (check, message) = match wait {
            Wait::Lanes { members, is_barrier: false } => (
                Check::MemberMask,
                format!(
                    "lanes {mask:#010x} wait for lanes {:#010x}, which do not come to this instruction",
                    members & !mask
                ),
            ),
            Wait::Lanes { .. } => (
                Check::BarrierDivergence,
                format!("lanes {mask:#010x} of the warp are at this barrier, lanes {:#010x} are not", alive & !mask),
            ),
            Wait::Barrier { id, .. } => {
                let state = &ctx.blocks[block].barriers[id as usize];
                let text = format!(
                    "barrier {id} has {} of {} threads, and no warp can go on",
                    state.arrived,
                    state.expected.unwrap_or(ctx.blocks[block].alive)
                );
                let elsewhere =
                    waiting.iter().any(|other| !matches!(other.4, Wait::Barrier { id: other, .. } if other == id));
                (if elsewhere { Check::BarrierDivergence } else { Check::Deadlock }, text)
            }
            Wait::Cluster { .. } => {
                (Check::Deadlock, "the cluster barrier never opens, and no warp can go on".to_owned())
            }
            Wait::Event { .. } => {
                (Check::Deadlock, "the barrier object never completes its phase, and no warp can go on".to_owned())
            }
        };
        let other = others.map(|other| {
            let linear = ctx.blocks[other.0].linear;
            grid.place(linear, other.1 as u32 * 32 + other.3.trailing_zeros(), Some(other.2))
        });
        ctx.report_pair(check, mask.trailing_zeros() as usize, None, message, other);
    }
}
