//! The classifier of digits: two convolutions, each with an activation and pooling behind it, and a linear layer.
//!
//! ```text
//! x = images                                   28 by 28 places, one channel
//! x = pool(activation(conv1(x)))               32 channels
//! x = pool(activation(conv2(x)))               64 channels
//! log_probabilities = log_softmax(linear(x))   10 classes
//! ```

use super::builder::Builder;
use super::description::Model;
use crate::ops::max_pool2d::Activation;

/// The classes: the digits.
pub const CLASSES: usize = 10;
/// Places of a digit of MNIST along each axis.
pub const SIDE: usize = 28;
const CHANNELS: [(&str, usize); 2] = [("conv1", 32), ("conv2", 64)];

crate::shape! {
    /// The shape of a run.
    pub struct Digits {
        /// Images.
        batch: 1..=1 << 16,
        /// Places of an image along each axis; those of MNIST have 28.
        side: 4..=28,
        /// What follows a convolution.
        activation: Activation = [Activation::Relu, Activation::Gelu, Activation::Silu],
    }
}

/// The steps. Convolution, activation and pooling are steps of their own, or one where `is_fused`.
pub fn cnn(side: usize, activation: Activation, is_fused: bool) -> Model {
    let mut m = Builder::default();
    let mut x = m.images(side, 1);
    for (name, filters) in CHANNELS {
        m.layer(name);
        if is_fused {
            x = m.pooled_convolution(x, name, filters, activation);
        } else {
            x = m.convolution(x, name, filters);
            x = m.activate(x, activation);
            x = m.pool(x);
        }
    }
    m.layer("classes");
    let x = m.linear(x.rows, "linear", CLASSES, true);
    let x = m.softmax("log_softmax", x);
    m.result(x)
}

/// The classifier of MNIST's digits as the fastest candidate runs it: ReLU, a layer of convolution a step.
pub fn classifier() -> Model {
    cnn(SIDE, Activation::Relu, true)
}
