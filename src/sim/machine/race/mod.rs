//! Happens-before: clocks of warps, what barriers and fences pass on, and the tables of accesses that are checked
//! against them.
//!
//! Each warp has an own clock that rises when it synchronises. An access carries the clock of its warp; it is ordered
//! before another one if the other warp has learnt of that clock through a barrier. `floor` is the cheap case of it:
//! every access of any warp up to there is known, which is what a barrier of the whole block gives.

mod accesses;
mod cell;
mod cells;
pub(crate) mod clock;
mod entry;
pub(crate) mod flight;
pub(crate) mod global;
pub(crate) mod message;
mod order;
mod passing;
pub(crate) mod shared;
mod track_flight;
mod track_global;
mod track_shared;
mod who;
