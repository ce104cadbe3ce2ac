//! The convolution by cuDNN, as the vendor's candidate.

use super::{Convolution, Layout};
use crate::core::candidate::{CudaHost, Declare};
use crate::core::tolerance::Tolerance;
use crate::device::cuda::cudnn_conv;

fn described(s: &Convolution) -> cudnn_conv::Convolution {
    let (down, across) = s.places();
    cudnn_conv::Convolution {
        images: [s.batch, s.channels, s.height, s.width],
        filters: [s.filters, s.channels, s.tall, s.wide],
        places: [down, across],
        stride: s.stride,
        padding: s.padding,
        dilation: s.dilation,
        channels_inside: s.layout == Layout::Nhwc,
    }
}

/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn cudnn() -> CudaHost<Convolution> {
    /// Of partial sums: 1 image of 2x5 with 1032 channels to 9 filters in bf16 is off by as much (cuDNN 9.19, H200).
    const ROUNDINGS: f64 = 4.0;
    let rounded = Tolerance::default().intermediate(ROUNDINGS);
    CudaHost::new(|s: &Convolution, call| cudnn_conv::enqueue(described(s), call))
        .prepare(|s, dtype| cudnn_conv::prepare(described(s), dtype))
        .describe(|s, dtype| cudnn_conv::describe(described(s), dtype))
        .workspace(|s| cudnn_conv::workspace_bytes(described(s)))
        .tolerance(rounded.because("cuDNN adds up some sums over many channels in the dtype"))
        .nondeterministic()
}
