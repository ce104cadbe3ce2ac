//! What all warps of a launch read: extents, memory, options, and where each instruction comes from.

use crate::sim::machine::memory::Memory;
use crate::sim::machine::memory::bundle::Bundle;
use crate::sim::machine::race::global::GlobalRaces;
use crate::sim::metrics::InstructionClass;
use crate::sim::options::Options;
use crate::sim::ptx::ast::SourceLine;
use crate::sim::report::{Place, Source};
use std::collections::BTreeMap;

/// Where an instruction comes from and what it counts as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub ptx_line: u32,
    pub source: Option<SourceLine>,
    pub class: InstructionClass,
    /// A further step of the instruction before: it counts for nothing.
    pub is_step: bool,
}

/// Where all instructions of a program come from.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    pub each: Vec<Origin>,
    /// `.file` numbers and their paths.
    pub files: BTreeMap<u32, String>,
}

impl Origins {
    /// The source line of an instruction with the path of its file.
    pub fn source(&self, origin: &Origin) -> Option<Source> {
        let source = origin.source?;
        let file = self.files.get(&source.file).cloned().unwrap_or_else(|| format!("file {}", source.file));
        Some(Source { file, line: source.line })
    }
}

/// What all warps of a launch read.
pub(crate) struct Grid<'a> {
    pub memory: &'a Memory,
    pub options: &'a Options,
    pub params: &'a [u8],
    pub grid_dim: [u32; 3],
    pub block_dim: [u32; 3],
    pub cluster_dim: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    pub shared_bytes: u32,
    pub dynamic_shared_start: u32,
    /// Addresses of the module's variables.
    pub symbols: &'a [u64],
    /// Zeroed words for the barrier of a whole grid; 0 where the kernel has none.
    pub workspace: u64,
    pub races: GlobalRaces,
    /// Blocks have to run one after the other.
    pub in_order: bool,
    /// Of local memory of a thread.
    pub local_bytes: u32,
    pub bundles: &'a [Bundle],
    pub origins: &'a Origins,
}

impl Grid<'_> {
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster_dim.iter().product()
    }

    pub fn clusters(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid_dim[axis] / self.cluster_dim[axis])
    }

    /// What runs as one.
    pub fn unit(&self) -> &'static str {
        if self.cluster_blocks() == 1 { "block" } else { "cluster" }
    }

    /// Whether what one block reads may change because another one runs at the same time.
    pub fn blocks_overlap(&self) -> bool {
        !self.in_order && self.cluster_count() > 1
    }

    /// Whether one of several clusters may wait for another: then they take turns.
    pub fn clusters_take_turns(&self) -> bool {
        self.in_order && self.cluster_count() > 1
    }

    pub fn cluster_count(&self) -> u64 {
        self.clusters().iter().map(|extent| u64::from(*extent)).product()
    }

    pub fn thread_index(&self, thread: u32) -> [u32; 3] {
        split(u64::from(thread), self.block_dim)
    }

    pub fn position(&self, cluster: u64, rank: u32) -> Position {
        let cluster = split(cluster, self.clusters());
        let in_cluster = split(u64::from(rank), self.cluster_dim);
        let block = std::array::from_fn(|axis| cluster[axis] * self.cluster_dim[axis] + in_cluster[axis]);
        let [gx, gy, _] = self.grid_dim.map(u64::from);
        let linear = (u64::from(block[2]) * gy + u64::from(block[1])) * gx + u64::from(block[0]);
        Position { linear, block, cluster, in_cluster, rank }
    }

    /// Names a thread and, if known, an instruction.
    pub fn place(&self, block: u64, thread: u32, pc: Option<u32>) -> Place {
        let origin = pc.and_then(|pc| self.origins.each.get(pc as usize));
        Place {
            block: split(block, self.grid_dim),
            thread: self.thread_index(thread),
            ptx_line: origin.map_or(0, |origin| origin.ptx_line),
            source: origin.and_then(|origin| self.origins.source(origin)),
        }
    }
}

/// A linear number as coordinates, x fastest.
fn split(linear: u64, extent: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extent.map(|extent| u64::from(extent).max(1));
    [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
}

/// Where a block stands in the grid.
pub(crate) struct Position {
    pub linear: u64,
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub in_cluster: [u32; 3],
    pub rank: u32,
}
