//! Measuring: warm-up, random order, stopping, throttle watch, statistics, and the rule that tells a change from noise.
//! It knows problems that a device has prepared, and nothing of checks or baselines.

pub mod change;
pub mod clock;
pub mod inputs;
pub mod lock;
pub mod noise;
pub mod series;
pub mod session;
pub mod shapes;
pub mod stopping;
pub mod stored;
pub mod threshold;
pub mod yardstick;

#[cfg(test)]
pub(crate) mod simulated;

pub use change::{Change, Comparison, Estimate, paired};
pub use session::{Contestant, Measurement, SessionSettings};
pub use stored::Stored;
