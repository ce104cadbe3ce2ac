//! Clusters one after the other, where their order can show in the result or one may wait for another: whoever polls
//! global memory in vain leaves off, and the others go on.

use crate::sim::error::{Error, Result};
use crate::sim::machine::log::Log;
use crate::sim::run::cluster::{Cluster, Progress};
use crate::sim::run::job::Job;
use crate::sim::run::standstill::memory_changes;
use std::collections::VecDeque;

/// Bytes that the clusters under way may take together.
const MOST_BYTES: u64 = 1 << 30;
/// Of the race table for a byte of shared memory, and the byte itself.
const BYTES_OF_SHARED: u64 = 10;

/// Runs the clusters in that order to their end, or to the first that cannot go on.
///
/// # Errors
/// [`Error::Unsupported`] when all clusters that fit wait, and others have not started.
pub(super) fn run(grid: &Job<'_>, order: Vec<u64>) -> Result<Log> {
    let mut log = grid.program.log();
    let mut order = order.into_iter().peekable();
    let room = (MOST_BYTES / state_bytes(grid)).max(2) as usize;
    let mut spare = vec![Cluster::new(grid)];
    // Those that left off, each with what memory was like if it waits for another value.
    let mut waiting: VecDeque<(Cluster, Option<u64>)> = VecDeque::new();
    loop {
        let mut cluster = if order.peek().is_some() && waiting.len() < room {
            let mut cluster = spare.pop().unwrap_or_else(|| Cluster::new(grid));
            cluster.start(grid, order.next().unwrap_or_default());
            cluster
        } else {
            let Some((mut cluster, seen)) = waiting.pop_front() else { break };
            let sees_nothing_new = |seen: Option<u64>| seen == Some(memory_changes(grid, &log));
            if sees_nothing_new(seen) {
                if let Some(other) = waiting.iter().position(|(_, seen)| !sees_nothing_new(*seen)) {
                    waiting.push_back((cluster, seen));
                    waiting.rotate_left(other);
                    continue;
                }
                if order.peek().is_some() {
                    return Err(too_many(grid, room));
                }
                cluster.report_waiting(grid, &mut log);
                stop(grid, &mut log, cluster.number);
                break;
            }
            cluster
        };
        match cluster.go_on(grid, &mut log) {
            Progress::Done => spare.push(cluster),
            Progress::Waits => {
                let seen = memory_changes(grid, &log);
                waiting.push_back((cluster, Some(seen)));
            }
            Progress::Pauses => waiting.push_back((cluster, None)),
            Progress::Stopped => {
                stop(grid, &mut log, cluster.number);
                break;
            }
        }
    }
    Ok(log)
}

/// Nothing of later blocks counts.
fn stop(grid: &Job<'_>, log: &mut Log, number: u64) {
    log.aborted = Some(grid.position(number, grid.cluster_blocks() - 1).linear);
}

fn too_many(grid: &Job<'_>, room: usize) -> Error {
    let unit = grid.unit();
    let of = grid.cluster_count();
    Error::unsupported(0, format!("{room} {unit}s wait for others of {of}, which do not fit beside them"))
}

/// About what one cluster takes while it is under way.
fn state_bytes(grid: &Job<'_>) -> u64 {
    let program = grid.program;
    let of_warp = 128 * u64::from(program.word_rows)
        + 256 * u64::from(program.wide_rows)
        + 32 * u64::from(program.local_bytes)
        + 4096;
    let warps = u64::from(grid.threads.div_ceil(32));
    u64::from(grid.cluster_blocks()) * (warps * of_warp + BYTES_OF_SHARED * u64::from(grid.shared_bytes) + 4096)
}
