//! How many bytes each buffer takes, and which activations share a place because they are never needed together.

use super::description::{BufferId, Kind, Model};
use crate::core::dtype::DType;

/// How large runs can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sequences.
    pub batch: usize,
    /// Positions of the cache.
    pub capacity: usize,
    /// New positions of one run.
    pub queries: usize,
    /// Whether logits of every new position may be asked for.
    pub all_logits: bool,
}

/// Bytes by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Memory {
    /// The model's tensors.
    pub weights_bytes: usize,
    /// Keys and values.
    pub cache_bytes: usize,
    /// Activations, logits, tables.
    pub activations_bytes: usize,
    /// Scratch of kernels.
    pub workspace_bytes: usize,
}

impl Memory {
    /// All of it.
    pub const fn total_bytes(&self) -> usize {
        self.weights_bytes + self.cache_bytes + self.activations_bytes + self.workspace_bytes
    }
}

/// Where every buffer is.
pub struct Layout {
    /// The place of each buffer.
    pub places: Vec<usize>,
    /// Bytes of each place.
    pub bytes: Vec<usize>,
    /// Bytes by what they are for; workspace is not known here.
    pub memory: Memory,
    /// The activations that nobody reads any more, behind each step.
    pub done: Vec<Vec<BufferId>>,
}

impl Layout {
    /// Gives every buffer a place: activations take one that an earlier activation has done with.
    pub fn of(model: &Model, limits: &Limits, dtype: DType) -> Layout {
        let mut layout = Layout { places: Vec::new(), bytes: Vec::new(), memory: Memory::default(), done: Vec::new() };
        let tokens = limits.batch * limits.queries;
        let asked = if limits.all_logits { tokens } else { limits.batch };
        let size = |id: BufferId| {
            let buffer = &model.buffers[id];
            let element = if buffer.is_index() { DType::I32.size() } else { dtype.size() };
            buffer.rows(limits.batch, limits.capacity, tokens, asked) * buffer.width * element
        };
        layout.places = vec![usize::MAX; model.buffers.len()];
        for (id, buffer) in model.buffers.iter().enumerate() {
            let bytes = size(id);
            match buffer.kind {
                Kind::Activation => continue,
                Kind::Weight { .. } | Kind::Stacked(_) => layout.memory.weights_bytes += bytes,
                Kind::Cache => layout.memory.cache_bytes += bytes,
                _ => layout.memory.activations_bytes += bytes,
            }
            layout.places[id] = layout.bytes.len();
            layout.bytes.push(bytes);
        }
        layout.place_activations(model, size);
        layout
    }

    fn place_activations(&mut self, model: &Model, size: impl Fn(BufferId) -> usize) {
        let is_activation = |id: BufferId| matches!(model.buffers[id].kind, Kind::Activation);
        let mut last_read = vec![0; model.buffers.len()];
        for (at, step) in model.every_step().enumerate() {
            step.reads().for_each(|operand| last_read[operand.buffer] = at);
        }
        let mut free: Vec<usize> = Vec::new();
        for (at, step) in model.every_step().enumerate() {
            let output = step.output.buffer;
            if is_activation(output) {
                let bytes = size(output);
                // The smallest free place that is large enough, else the largest, which grows.
                free.sort_by_key(|&place| self.bytes[place]);
                let fitting = free.iter().position(|&place| self.bytes[place] >= bytes);
                let place = match fitting.or(free.len().checked_sub(1)) {
                    Some(i) => free.remove(i),
                    None => {
                        self.bytes.push(0);
                        self.bytes.len() - 1
                    }
                };
                self.bytes[place] = self.bytes[place].max(bytes);
                self.places[output] = place;
            }
            let mut done: Vec<usize> = step.reads().map(|operand| operand.buffer).collect();
            done.sort_unstable();
            done.dedup();
            done.retain(|&id| is_activation(id) && last_read[id] == at);
            free.extend(done.iter().map(|&id| self.places[id]));
            self.done.push(done);
        }
        // One that no step writes has no place.
        let written = |place: &usize| *place != usize::MAX;
        let of_activations = model.buffers.iter().zip(&self.places).filter(|(b, _)| matches!(b.kind, Kind::Activation));
        let mut places: Vec<usize> = of_activations.map(|(_, &place)| place).filter(written).collect();
        places.sort_unstable();
        places.dedup();
        self.memory.activations_bytes += places.iter().map(|&place| self.bytes[place]).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Model, named};

    #[test]
    fn no_step_writes_what_is_still_read() {
        let model = Model::of(&named("smollm2-135m").unwrap()).unwrap();
        let limits = Limits { batch: 1, capacity: 64, queries: 32, all_logits: false };
        let layout = Layout::of(&model, &limits, DType::F32);
        let mut holds = vec![None; layout.bytes.len()];
        for step in &model.steps {
            for operand in step.reads().filter(|o| matches!(model.buffers[o.buffer].kind, Kind::Activation)) {
                assert_eq!(holds[layout.places[operand.buffer]], Some(operand.buffer));
                assert_ne!(layout.places[operand.buffer], layout.places[step.output.buffer]);
            }
            holds[layout.places[step.output.buffer]] = Some(step.output.buffer);
        }
        // A few rows of the widest kinds, not a row a step.
        assert!(
            layout.memory.activations_bytes
                < 32 * 4 * (8 * 576 + 3 * 1536) + 49_152 * 4 + 64 * 64 * 8 + (49_152 + 4 * 1536) * 4
        );
        assert_eq!(layout.memory.cache_bytes, 2 * 30 * 64 * 192 * 4);
    }
}
