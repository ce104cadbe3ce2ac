//! What is made from a summary, read back by other programs' rules: every kind of record, and names that try to break out.

mod annotations;
mod browser;
mod documents;
mod history;
mod junit;
mod metrics;
mod plots;
mod serve;
mod shards;
mod support;
mod tables;
