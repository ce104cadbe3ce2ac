//! What is classified, and the ways to do it.

use crate::core::dtype::DType;
use crate::core::suite::Suite;
use crate::device::DeviceKind;
use crate::models::{Classifier, LabelledDigits};
use clap::ValueEnum;

/// A way to compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// The tiers of the CPU
    Cpu,
    /// Own kernels
    Cuda,
    /// A library's kernels where the catalogue has one, own ones elsewhere
    Baseline,
    /// Own kernels, the activations by Triton
    Triton,
    /// Each of them
    All,
}

impl Variant {
    pub(super) const EACH: [Variant; 4] = [Variant::Cuda, Variant::Triton, Variant::Baseline, Variant::Cpu];

    /// In reports, and among the candidates of the operator.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Variant::Cpu => ("cpu", "tiers"),
            Variant::Cuda | Variant::All => ("cuda", "cuda"),
            Variant::Baseline => ("baseline", "baseline"),
            Variant::Triton => ("triton", "triton"),
        }
    }

    pub(super) fn kind(self) -> DeviceKind {
        if self == Variant::Cpu { DeviceKind::Cpu } else { DeviceKind::Cuda }
    }
}

/// What the variants share.
pub(super) struct Workload {
    pub(super) suite: Suite,
    pub(super) digits: LabelledDigits,
    pub(super) classifier: Classifier,
    pub(super) dtype: DType,
    pub(super) seed: u64,
}
