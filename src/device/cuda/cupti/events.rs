//! CUDA events around each step, where there is no CUPTI: times of steps, not of kernels; of the launches of a batch the mean.

use super::super::driver::{Context, Event as Mark};
use crate::device::trace::{Event, Kind, RangeId, Source, Timeline, Track};
use std::time::{Duration, Instant};

/// How long work may take to end.
const LIMIT: Duration = Duration::from_secs(60);

/// Events as the source of a recording.
pub struct Events {
    context: Context,
    /// The first event, and when the host had seen it pass.
    base: Option<(Mark, Instant)>,
    /// From the outermost to the innermost range, with whether it has a range within.
    open: Vec<(RangeId, Option<Mark>, bool)>,
    /// The innermost ranges with their begin and end.
    marks: Vec<(RangeId, Mark, Mark)>,
    /// Why CUPTI is not used.
    why: String,
}

impl Events {
    /// Events on the stream of a context; `why` not CUPTI.
    pub fn new(context: &Context, why: String) -> Self {
        Events { context: context.clone(), base: None, open: Vec::new(), marks: Vec::new(), why }
    }

    fn mark(&self) -> Option<Mark> {
        let mark = self.context.event().ok()?;
        mark.record().ok()?;
        Some(mark)
    }
}

impl Source for Events {
    fn resume(&mut self) {
        if self.base.is_none()
            && let Some(mark) = self.mark()
            && self.context.wait(LIMIT).is_ok()
        {
            self.base = Some((mark, Instant::now()));
        }
    }

    fn pause(&mut self) {}

    fn enter(&mut self, range: RangeId) {
        if let Some((_, _, has_inner)) = self.open.last_mut() {
            *has_inner = true;
        }
        let mark = self.mark();
        self.open.push((range, mark, false));
    }

    fn leave(&mut self) {
        let Some((range, Some(from), false)) = self.open.pop() else { return };
        if let Some(to) = self.mark() {
            self.marks.push((range, from, to));
        }
    }

    fn finish(&mut self, begun: Instant, timeline: &mut Timeline) {
        let waited = self.context.wait(LIMIT);
        timeline.notes.push(format!("{}: events around each step in its place, no kernels or copies", self.why));
        let Some((base, seen)) = self.base.take().filter(|_| waited.is_ok()) else {
            timeline.notes.push("the GPU recorded no event".into());
            return;
        };
        let offset_ns = seen.saturating_duration_since(begun).as_nanos() as f64;
        for (range, from, to) in self.marks.drain(..) {
            let (Ok(start), Ok(end)) = (base.until_us(&from), base.until_us(&to)) else {
                timeline.lost += 1;
                continue;
            };
            let at = |us: f64| (offset_ns + us * 1e3).max(0.0) as u64;
            let step = Event {
                kind: Kind::Kernel,
                name: timeline.range(range).name,
                track: Track::Stream(0),
                start_ns: at(start),
                end_ns: at(end),
                correlation: 0,
                range: Some(range),
                node: 0,
                bytes: 0,
                shape: None,
            };
            timeline.events.extend(step.split(timeline.launches(range)));
        }
    }
}
