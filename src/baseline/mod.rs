//! Baselines: accepted times as reviewed snapshots, and what a new time means against them.
//!
//! The verdict is computed here from the accepted text, before anything is written, and what is written is only ever a
//! pending `.snap.new`: no setting of the snapshot tool can hide a regression or accept one without a person.

mod gate;
mod judge;
mod metrics;
mod metrics_table;
mod row;
mod standing;
mod store;

#[cfg(test)]
pub(crate) mod simulated;

pub use gate::gate;
pub use judge::judge;
pub use metrics::gate as count_gate;
pub use row::{Row, Table, Unit};
pub use standing::{Standing, stand};
pub use store::{Document, Metadata, pending_path, read, write_pending};

use crate::check::Subject;
use crate::device::fingerprint::Fingerprint;
use std::path::{Path, PathBuf};

/// Where baselines are and how strictly they are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct BaselineSettings {
    /// The folder of the user's crate, or of a bundle; baselines are in `snapshots/perf` below it.
    pub root: PathBuf,
    /// Whether a missing baseline is a failure instead of a skip.
    pub require: bool,
    /// The relative change that counts, in place of the one from the noise of the device.
    pub threshold: Option<f64>,
    /// Whether to write pending snapshots.
    pub write_pending: bool,
}

impl BaselineSettings {
    /// Baselines below `root`. Pending snapshots are written unless `INSTA_UPDATE=no` forbids it: also under `CI`,
    /// since a GPU machine is often nothing else, and its pending snapshots are what a person then reviews.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let write_pending = std::env::var("INSTA_UPDATE").as_deref() != Ok("no");
        BaselineSettings { root: root.into(), require: false, threshold: None, write_pending }
    }

    /// The snapshot of a subject on a device: `snapshots/perf/<device>/<operator>.<candidate>.<dtype>.snap`.
    pub fn snapshot_path(&self, subject: &Subject<'_>, fingerprint: &Fingerprint) -> PathBuf {
        let (operator, candidate) = (plain(subject.operator.name()), plain(&subject.candidate.name));
        let file = format!("{operator}.{candidate}.{}.snap", subject.dtype);
        self.root.join("snapshots/perf").join(fingerprint.key()).join(file)
    }

    /// The snapshot of a subject's counts for an architecture: `snapshots/metrics/<arch>/<operator>.<candidate>.<dtype>.snap`.
    pub fn metrics_path(&self, subject: &Subject<'_>, arch: &str) -> PathBuf {
        let (operator, candidate) = (plain(subject.operator.name()), plain(&subject.candidate.name));
        self.root.join("snapshots/metrics").join(arch).join(format!("{operator}.{candidate}.{}.snap", subject.dtype))
    }

    /// The folder of the noise tables, a file a device.
    pub fn noise_folder(&self) -> PathBuf {
        self.root.join("snapshots/noise")
    }

    /// Leaves what is proposed for review, unless it is accepted already, and returns what a record says of that. It names the
    /// file from the root: records are read on other machines.
    fn propose<D: Document + PartialEq>(
        &self,
        snapshot: &Path,
        accepted: Option<&D>,
        proposed: &D,
        metadata: &Metadata,
    ) -> Option<String> {
        if accepted == Some(proposed) {
            store::remove_pending(snapshot);
            return None;
        }
        let below = |path: &Path| path.strip_prefix(&self.root).unwrap_or(path).display().to_string();
        Some(match write_pending(snapshot, metadata, proposed) {
            Ok(pending) => format!("pending snapshot: {}", below(&pending)),
            Err(error) => format!("the pending snapshot of {} could not be written: {error}", below(snapshot)),
        })
    }
}

/// A name as part of a file name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' }).collect()
}
