//! How long a launch will take, before it is run.
//!
//! The time of a case is made of what the device was measured to do ([`crate::calibrate`]) and of a few parameters that a
//! family (one candidate of an operator in one dtype) has of its own: how well it uses the memory and its pipe, what a launch
//! and a wave of blocks cost beside that. They are fitted to a sweep over random shapes; what the model leaves over is
//! corrected by a Gaussian process over the shapes of the sweep, whose spread is the interval of a prediction.
//!
//! | file | owns |
//! |---|---|
//! | `features` | what the model knows of a case |
//! | `tiling` | the tiles that it is computed in, as its launch says or as a library may choose |
//! | `limits` | time on the memory and on a pipe, from a calibration |
//! | `model` | parameters, and the time that they give |
//! | `fit` | parameters from a sweep |
//! | `likelihood` | a process from the values of a sweep |
//! | `process` | what the model leaves over, from the cases that are like the one asked for |
//! | `family` | a fitted family: prediction, interval, domain |
//! | `observation`, `swept` | a measured time; a family as its file has it |
//! | `fitted` | the file of a device's families |
//! | `sweep` | shapes that are drawn, and measured |
//! | `validation` | how far predictions were off, beside a roofline and a regression |
//! | `class` | what binds a measured time |
//! | `composition` | steps one behind the other: a chain, a model |
//! | `annotate` | what the records of the gate say of it |

mod annotate;
mod class;
mod composition;
mod family;
mod features;
#[cfg(feature = "catalogue")]
mod fit;
mod fitted;
#[cfg(feature = "catalogue")]
mod likelihood;
mod limits;
mod model;
mod observation;
mod process;
mod sweep;
mod swept;
mod tiling;
mod validation;

pub use annotate::Predictor;
pub use class::{BINDING, classify, classify_beside};
pub use composition::{Basis, Composed, Composer, Step, StepTime};
pub use family::{Family, Prediction};
pub use features::Features;
pub use fitted::{Fitted, VERSION, stored};
pub use limits::Limits;
pub use model::Parameters;
pub use observation::Observation;
pub use process::{Place, Process};
pub use sweep::{Sweep, known, sweep, time_shape, with_features};
pub use swept::Swept;
pub use tiling::Tiling;
pub use validation::{Errors, Validation};
