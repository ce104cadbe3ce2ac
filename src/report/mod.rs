//! The summary of a run and what is made from it. Every other output comes from the summary alone.

pub mod builds;
pub mod ceiling;
pub mod clock;
pub mod csv;
pub mod digest;
pub mod error;
pub mod failure;
#[cfg(feature = "reports")]
pub mod formats;
#[cfg(feature = "reports")]
pub mod history;
#[cfg(feature = "reports")]
pub mod html;
pub mod merge;
pub mod models;
pub mod peers;
#[cfg(feature = "reports")]
pub mod plot;
pub mod profiles;
pub mod record;
pub mod standing;
pub mod summary;
pub mod text;
pub mod workloads;

/// The JSON Schema (draft 2020-12) of the summary.
pub const SCHEMA: &str = include_str!("summary.schema.json");
