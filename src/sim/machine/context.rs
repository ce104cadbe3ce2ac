//! What a handler reaches, and what it decides.

use crate::sim::machine::block::Block;
use crate::sim::machine::grid::Grid;
use crate::sim::machine::log::Log;
use crate::sim::machine::warp::{Wait, Warp};
use crate::sim::report::{Check, Place};
use std::fmt::Display;

/// What a handler decides about the active lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Go on with the next instruction.
    Next,
    /// Go on behind the next so many instructions: they were carried out too.
    Past(u32),
    /// Stop here until something happens.
    Wait(Wait),
    /// Go on, but let other warps run first.
    Yield,
    /// The lanes have gone to several places: `Warp::scattered`.
    Scatter,
    /// The launch cannot go on.
    Abort,
}

/// Everything that a handler can reach.
pub(crate) struct Context<'a> {
    pub warp: &'a mut Warp,
    /// The blocks of the cluster; one where there are no clusters.
    pub blocks: &'a mut [Block],
    /// Index of the own block.
    pub me: usize,
    pub grid: &'a Grid<'a>,
    pub log: &'a mut Log,
    /// The instruction that runs.
    pub pc: u32,
}

impl Context<'_> {
    pub fn block(&mut self) -> &mut Block {
        &mut self.blocks[self.me]
    }

    /// Records a defect of one lane at the running instruction.
    #[cold]
    pub fn report(&mut self, check: Check, lane: usize, address: Option<u64>, message: impl Display) {
        self.report_pair(check, lane, address, message, None);
    }

    /// The same, with the other access of a race.
    #[cold]
    pub fn report_pair(
        &mut self,
        check: Check,
        lane: usize,
        address: Option<u64>,
        message: impl Display,
        other: Option<Place>,
    ) {
        let block = &self.blocks[self.me];
        // Of millions of faults of one instruction only the first is told.
        if self.log.find_again(block.linear, self.pc, check) {
            return;
        }
        let thread = self.warp.index * 32 + lane as u32;
        let place = self.grid.place(block.linear, thread, Some(self.pc));
        self.log.find(block.linear, self.pc, check, place, address, message.to_string(), other);
    }

    /// Adds sectors of global memory to the running instruction; no fewer than `ideal` would have done.
    #[inline(always)]
    pub fn count_sectors(&mut self, sectors: u64, ideal: u64) {
        let count = &mut self.log.counters.by_pc[self.pc as usize];
        count.sectors += sectors;
        count.excess_sectors += sectors - ideal;
    }

    /// Adds wavefronts of shared memory to the running instruction; no fewer than `ideal` would have done.
    #[inline(always)]
    pub fn count_wavefronts(&mut self, wavefronts: u64, ideal: u64) {
        let count = &mut self.log.counters.by_pc[self.pc as usize];
        count.wavefronts += wavefronts;
        count.bank_conflicts += wavefronts - ideal;
    }
}
