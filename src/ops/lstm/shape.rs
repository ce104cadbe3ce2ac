//! The shape of a recurrent layer, or two.

crate::shape! {
    /// The shape of a recurrent layer, or two.
    pub struct Sequences {
        /// Steps in time, one after the other.
        steps: 1..=4096,
        /// Sequences beside each other.
        batch: 0..=4096,
        /// Elements of an input.
        inputs: 1..=8192,
        /// Elements of a state.
        hidden: 1..=8192,
        /// Layers, each reading the one below.
        layers: usize = [1, 2],
    }
}

/// Gates of a cell.
pub const GATES: usize = 4;

impl Sequences {
    /// Elements that a layer reads a step and sequence.
    pub fn width(&self, layer: usize) -> usize {
        if layer == 0 { self.inputs } else { self.hidden }
    }

    /// Cells of one layer at one step.
    pub fn cells(&self) -> usize {
        self.batch * self.hidden
    }

    /// Weights of all layers, biases among them.
    pub fn weights(&self) -> usize {
        (0..self.layers).map(|layer| GATES * self.hidden * (self.width(layer) + self.hidden + 1)).sum()
    }
}
