//! What a launch tells: findings of the checks, printed text, metrics.

use crate::sim::metrics::Metrics;
use crate::sim::names::source_name;
use serde::Serialize;
use std::fmt;

/// Something a check found. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// An access outside any allocation, or past the end of one.
    OutOfBounds,
    /// An address that is no multiple of the size of the access.
    Misaligned,
    /// An access to freed memory.
    UseAfterFree,
    /// A write to constant memory, to the parameters, or to memory that was made read-only.
    ReadOnly,
    /// A read of global memory that nothing has written.
    UninitialisedGlobal,
    /// A read of shared memory that nothing in this block has written.
    UninitialisedShared,
    /// Two unordered accesses to global memory, one of them a write.
    RaceGlobal,
    /// Two unordered accesses to shared memory by different warps, one of them a write.
    RaceShared,
    /// Two lanes of one warp exchange data through memory without a synchronisation between.
    MissingSyncwarp,
    /// A flag was seen without a fence between it and what it stands for. Looked for only where it is asked for.
    MissingAcquire,
    /// A product of a warp group without a `wgmma.fence` before it, where its registers were used since the last one.
    MissingFence,
    /// The lanes of a warp, or the warps of a block, wait at different barriers.
    BarrierDivergence,
    /// Every warp waits for something that cannot happen.
    Deadlock,
    /// More jumps backwards than the budget allows.
    EndlessLoop,
    /// A lane takes part in a warp operation whose member mask leaves it out, or a member has gone.
    MemberMask,
    /// Data of an asynchronous copy is used before the wait for it, or overwritten while in flight.
    AsyncCopy,
    /// A barrier object is told of bytes that never come, or is used before it is made.
    BarrierObject,
    /// The device function `__assertfail` was called.
    Assert,
    /// `trap`, or an instruction whose operands break its rules.
    Trap,
}

impl Check {
    /// The name as in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Check::OutOfBounds => "out-of-bounds",
            Check::Misaligned => "misaligned",
            Check::UseAfterFree => "use-after-free",
            Check::ReadOnly => "read-only",
            Check::UninitialisedGlobal => "uninitialised-global",
            Check::UninitialisedShared => "uninitialised-shared",
            Check::RaceGlobal => "race-global",
            Check::RaceShared => "race-shared",
            Check::MissingSyncwarp => "missing-syncwarp",
            Check::MissingAcquire => "missing-acquire",
            Check::MissingFence => "missing-fence",
            Check::BarrierDivergence => "barrier-divergence",
            Check::Deadlock => "deadlock",
            Check::EndlessLoop => "endless-loop",
            Check::MemberMask => "member-mask",
            Check::AsyncCopy => "async-copy",
            Check::BarrierObject => "barrier-object",
            Check::Assert => "assert",
            Check::Trap => "trap",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A line of the source that the PTX was made from (`-lineinfo`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Path as the compiler wrote it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// Who did something, and where in the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// `blockIdx`.
    pub block: [u32; 3],
    /// `threadIdx`.
    pub thread: [u32; 3],
    /// Line of the PTX text; 0 where it is not known.
    pub ptx_line: u32,
    /// Source line, where the PTX has `.loc`.
    pub source: Option<Source>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "block ({bx},{by},{bz}) thread ({tx},{ty},{tz})")?;
        match (&self.source, self.ptx_line) {
            (Some(source), _) => write!(f, " at {}:{}", source.file, source.line),
            (None, 0) => Ok(()),
            (None, line) => write!(f, " at PTX line {line}"),
        }
    }
}

/// One defect: its first occurrence, and how often it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check found it.
    pub check: Check,
    /// The entry.
    pub kernel: String,
    /// Where it shows.
    pub place: Place,
    /// The address, where the defect is an access to memory.
    pub address: Option<u64>,
    /// The other access of a race.
    pub other: Option<Place>,
    /// What was expected and what was found.
    pub message: String,
    /// Occurrences at this instruction, in lanes.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in {}: {}", self.check, self.place, source_name(&self.kernel), self.message)?;
        if let Some(address) = self.address {
            write!(f, " (address {address:#x})")?;
        }
        if let Some(other) = &self.other {
            write!(f, "; the other access: {other}")?;
        }
        if self.count > 1 {
            write!(f, "; {} times", self.count)?;
        }
        Ok(())
    }
}

/// What one launch did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Defects, one a check and instruction, in the order of blocks.
    pub findings: Vec<Finding>,
    /// What the kernel printed, in the order of blocks.
    pub printf: String,
    /// Exact counts; the same for any number of threads.
    pub metrics: Metrics,
}
