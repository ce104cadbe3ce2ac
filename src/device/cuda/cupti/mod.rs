//! What a GPU says of its own work: CUPTI's activity records, or where there is no CUPTI, events around each step.
//!
//! | file | owns |
//! |---|---|
//! | `layout` | where records hold their fields |
//! | `records` | records as events, and the ranges that they belong to |
//! | `library` | the calls into CUPTI |
//! | `events` | CUDA events in its place |

mod events;
mod layout;
mod library;
mod records;

pub use events::Events;

use crate::device::trace::{RangeId, Source, Timeline};
use library::Cupti;
use records::{Name, add, external_of, read};
use std::time::Instant;

/// CUPTI as the source of a recording.
pub struct Activities {
    cupti: &'static Cupti,
    /// CUPTI's time and ours, taken together.
    together: (u64, Instant),
    /// What could not be recorded.
    refused: Option<String>,
}

impl Activities {
    /// The source, if CUPTI is there and lets itself be used.
    ///
    /// # Errors
    /// Why not.
    pub fn open() -> Result<Self, String> {
        let cupti = Cupti::open()?;
        // Whatever an earlier recording left is not of this one.
        cupti.resume()?;
        cupti.pause();
        cupti.collect();
        Ok(Activities { cupti, together: (cupti.now_ns(), Instant::now()), refused: None })
    }

    /// `CUPTI 26`.
    pub fn describe(&self) -> String {
        format!("CUPTI, interface {}", self.cupti.version())
    }
}

impl Source for Activities {
    fn resume(&mut self) {
        if let Err(why) = self.cupti.resume() {
            self.refused = Some(why);
        }
    }

    fn pause(&mut self) {
        self.cupti.pause();
    }

    fn enter(&mut self, range: RangeId) {
        self.cupti.push(external_of(range));
    }

    fn leave(&mut self) {
        self.cupti.pop();
    }

    fn finish(&mut self, begun: Instant, timeline: &mut Timeline) {
        let collected = self.cupti.collect();
        // Our time 0 on CUPTI's clock: the source was opened before the recording began.
        let (cupti_ns, at) = self.together;
        let offset_ns = cupti_ns + begun.saturating_duration_since(at).as_nanos() as u64;
        let records = collected.records.iter().filter_map(|bytes| read(bytes)).collect();
        add(records, timeline, offset_ns, |name| match name {
            Name::Address(at) => collected.names.get(&at).cloned().unwrap_or_else(|| "kernel without a name".into()),
            Name::Call(number) => self.cupti.call_name(number),
            Name::Word(word) => word.into(),
        });
        timeline.lost += collected.lost;
        timeline.notes.push(self.describe());
        timeline.notes.extend(self.refused.take());
    }
}
