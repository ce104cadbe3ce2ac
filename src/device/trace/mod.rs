//! What ran when: events of a device, and the ranges of the host that they belong to.
//!
//! A [`Recording`] collects what the thread that it is [for](Recording::during), and threads that it is
//! [carried](Handle::carry) to, say of themselves: runs, layers, steps, memory. On the host a step is its own event. On a GPU a [`Source`] adds what the device
//! says of itself; its events name the range that they were launched in by a correlation id. Where nothing is recorded a
//! span costs a look at a thread-local variable.

mod recorder;
mod timeline;

pub use recorder::{HOST_SPANS, Handle, Layers, Recording, Source, Span, freed, handle, held, is_on, run, step};
pub use timeline::{Event, Kind, Level, Range, RangeId, Shape, Text, Texts, Timeline, Track, Work, WorkId};
