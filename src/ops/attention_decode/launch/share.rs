//! How the keys of a head are split, and which entry serves a shape.

use crate::core::launch::Launch;
use crate::ops::attention::Heads;

/// Rows that an entry serves at most, and elements of their dims.
pub const MOST_ROWS: usize = 8;
pub const MOST_DIM: usize = 128;

/// Rows of a head of keys: the queries of all its query heads.
pub(super) fn rows(s: &Heads) -> usize {
    s.group * s.queries
}

pub(super) fn key_heads(s: &Heads) -> usize {
    s.batch * s.heads
}

/// Dim and rows of the entry that serves the shape.
pub(super) fn entry(s: &Heads) -> (usize, usize) {
    let most_rows = [1, 4, MOST_ROWS].into_iter().find(|&most| rows(s) <= most).unwrap_or(MOST_ROWS);
    (if s.dim <= 64 { 64 } else { MOST_DIM }, most_rows)
}

pub(super) fn is_served(s: &Heads) -> bool {
    rows(s) <= MOST_ROWS && s.dim <= MOST_DIM && s.dim.is_multiple_of(8)
}

/// How the keys of a head are split.
pub(super) struct Share {
    pub(super) parts: usize,
    /// Keys of a split; the last may have fewer.
    pub(super) keys: usize,
}

impl Share {
    /// As many splits as fill `blocks` blocks, none of them shorter than a few KV blocks.
    pub(super) fn of(s: &Heads, blocks: usize, most_parts: usize) -> Share {
        const FEWEST_KEYS: usize = 64;
        let wanted = (blocks / key_heads(s).max(1)).clamp(1, most_parts);
        let keys = s.keys.div_ceil(wanted).next_multiple_of(FEWEST_KEYS);
        Share { parts: s.keys.div_ceil(keys), keys }
    }

    pub(super) fn launch(&self, s: &Heads, kernel: &str, threads: usize) -> Launch {
        let (dim, rows) = entry(s);
        let entry = format!("attention_decode_{kernel}_{dim}_{rows}");
        Launch::blocks(key_heads(s) * self.parts, threads).entry(entry).without_pointers()
    }

    pub(super) fn with_scalars(&self, s: &Heads, launch: Launch) -> Launch {
        let launch = launch.scalar(rows(s) as i32).scalar(s.queries as i32).scalar(s.keys as i32).scalar(s.dim as i32);
        let launch = launch.scalar(i32::from(s.causal)).scalar(s.scale() as f32);
        launch.scalar(self.parts as i32).scalar(self.keys as i32)
    }
}

pub(super) fn with_tensors(launch: Launch) -> Launch {
    ["q", "k", "v", "y"].into_iter().fold(launch, Launch::pointer)
}

/// Most splits of a head without a cluster.
pub(super) const MOST_PARTS: usize = 64;
