//! Inputs for timing: random, and cheap to make at hundreds of megabytes.

use crate::core::distribution::{self, Distribution};
use crate::core::dtype::DType;
use crate::core::operator::{Operator, PARAMETER_DEVIATION, draw_indices, weight_deviation};
use crate::core::port::Role;
use crate::core::seed::{derive, rng};
use crate::core::tensor::Tensor;

/// Elements that are drawn; a larger tensor repeats them. A prime, so that neighbouring rows differ whatever the width.
const DRAWN: usize = 65_537;

/// Draws the inputs of a timed case: normal values and full-range indices. Timing does not depend on which values they
/// are, only on their not being constant (a GPU's power does depend on how many bits toggle).
pub fn draw(operator: &dyn Operator, point: &[usize], dtype: DType, seed: u64) -> Vec<Tensor> {
    let ports = operator.inputs().iter().enumerate();
    ports
        .map(|(i, port)| {
            let dims = operator.input_dims(i, point);
            let n: usize = dims.iter().product();
            let mut rng = rng(derive(seed, &["timing", operator.name(), port.name]));
            let dtype = port.dtype(dtype);
            let drawn = n.min(DRAWN);
            let values = match port.role {
                Role::Data => Distribution::Normal.draw(&mut rng, 1, drawn, dtype, operator.range()),
                Role::Parameter { mean } => distribution::normal(&mut rng, drawn, mean, PARAMETER_DEVIATION, dtype),
                Role::Weight => distribution::normal(&mut rng, drawn, 0.0, weight_deviation(operator, i, point), dtype),
                // All of them: repeated indices would be served from the cache.
                Role::Index => draw_indices(operator, Distribution::Normal, &mut rng, n, i, point),
            };
            repeat(&Tensor::from_f64(dtype, &[values.len()], &values), &dims)
        })
        .collect()
}

/// Normal values that are drawn once, for the inputs of all shapes of a sweep. What is timed alone needs no values of its own;
/// a perf trial [draws](draw) them.
pub struct Pool {
    normal: Vec<f64>,
    seed: u64,
}

impl Pool {
    /// Draws the values.
    pub fn new(seed: u64) -> Self {
        let mut rng = rng(derive(seed, &["pool"]));
        Pool { normal: distribution::normal(&mut rng, DRAWN, 0.0, 1.0, DType::F32), seed }
    }

    /// A block for each input of a case, from another place of the pool for each: a device repeats it until the buffer is
    /// full. Indices are there in full.
    pub fn blocks(&self, operator: &dyn Operator, point: &[usize], dtype: DType) -> Vec<Tensor> {
        let ports = operator.inputs().iter().enumerate();
        ports
            .map(|(i, port)| {
                let n: usize = operator.input_dims(i, point).iter().product();
                let dtype = port.dtype(dtype);
                let values: Vec<f64> = match port.role {
                    Role::Data if dtype.is_integer() => {
                        let mut rng = rng(derive(self.seed, &["timing", operator.name(), port.name]));
                        Distribution::Normal.draw(&mut rng, 1, n.min(DRAWN), dtype, operator.range())
                    }
                    Role::Data => self.scaled(i, n, 0.0, 1.0, dtype),
                    Role::Parameter { mean } => self.scaled(i, n, mean, PARAMETER_DEVIATION, dtype),
                    Role::Weight => self.scaled(i, n, 0.0, weight_deviation(operator, i, point), dtype),
                    Role::Index => {
                        let mut rng = rng(derive(self.seed, &["timing", operator.name(), port.name]));
                        draw_indices(operator, Distribution::Normal, &mut rng, n, i, point)
                    }
                };
                Tensor::from_f64(dtype, &[values.len()], &values)
            })
            .collect()
    }

    /// Up to `n` values of the pool, from its `port`th part on.
    fn scaled(&self, port: usize, n: usize, mean: f64, deviation: f64, dtype: DType) -> Vec<f64> {
        let first = port * DRAWN / 8;
        let values = self.normal.iter().cycle().skip(first % DRAWN).take(n.min(DRAWN));
        values.map(|value| dtype.round(mean + deviation * value)).collect()
    }
}

/// A tensor of `dims` that repeats the elements of `block`.
fn repeat(block: &Tensor, dims: &[usize]) -> Tensor {
    let mut tensor = Tensor::zeros(block.dtype(), dims);
    for part in tensor.bytes_mut().chunks_mut(block.bytes().len().max(1)) {
        part.copy_from_slice(&block.bytes()[..part.len()]);
    }
    tensor
}

/// Bytes of all inputs and outputs of a case.
pub fn footprint_bytes(operator: &dyn Operator, point: &[usize], dtype: DType) -> usize {
    let inputs = operator.inputs().iter().enumerate();
    let inputs = inputs.map(|(i, port)| size_bytes(&operator.input_dims(i, point), port.dtype(dtype)));
    inputs.sum::<usize>() + output_bytes(operator, point, dtype)
}

/// Bytes of all outputs of a case.
pub fn output_bytes(operator: &dyn Operator, point: &[usize], dtype: DType) -> usize {
    let outputs = operator.outputs().iter().enumerate();
    outputs.map(|(i, port)| size_bytes(&operator.output_dims(i, point), port.dtype(dtype))).sum()
}

fn size_bytes(dims: &[usize], dtype: DType) -> usize {
    dims.iter().product::<usize>() * dtype.size()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::operator::Op;

    crate::shape! { struct Lookup { rows: 1..=1 << 20, ids: 1..=1 << 20 } }

    fn lookup() -> Op<Lookup> {
        Op::<Lookup>::new("lookup")
            .input("table", |s| [s.rows, 8])
            .index("ids", |s| [s.ids], |s| s.rows)
            .output("y", |s| [s.ids, 8])
    }

    #[test]
    fn large_inputs_repeat_a_random_block() {
        let inputs = draw(&lookup(), &[100_000, 70_000], DType::BF16, 1);
        let table = &inputs[0];
        assert_eq!(table.dims(), [100_000, 8]);
        assert_eq!(table.get(3), table.get(DRAWN + 3));
        assert_ne!(table.get(0), table.get(8), "rows must differ");
        let sum: f64 = (0..DRAWN).map(|i| table.get(i).powi(2)).sum();
        approx::assert_abs_diff_eq!(sum / DRAWN as f64, 1.0, epsilon = 0.05);
    }

    #[test]
    fn a_pool_gives_blocks_that_are_random_and_of_the_dtype() {
        let pool = Pool::new(1);
        let point = [100_000, 70_000];
        let blocks = pool.blocks(&lookup(), &point, DType::BF16);
        assert_eq!((blocks[0].len(), blocks[0].dtype()), (DRAWN, DType::BF16));
        let values = blocks[0].to_f64();
        approx::assert_abs_diff_eq!(values.iter().map(|v| v * v).sum::<f64>() / DRAWN as f64, 1.0, epsilon = 0.05);
        assert!(blocks[1].len() == 70_000 && blocks[1].to_f64().contains(&99_999.0), "indices in full");
        assert_eq!(pool.blocks(&lookup(), &[10, 3], DType::F32)[0].len(), 80, "no more than the port has");
        let two = Op::<Lookup>::new("two").input("a", |s| [s.rows]).input("b", |s| [s.rows]).output("y", |s| [s.rows]);
        let blocks = pool.blocks(&two, &point, DType::F32);
        assert_ne!(blocks[0].to_f64(), blocks[1].to_f64(), "inputs differ");
    }

    #[test]
    fn indices_are_drawn_in_full() {
        let inputs = draw(&lookup(), &[100_000, 70_000], DType::F32, 1);
        let ids = inputs[1].to_f64();
        assert!(ids.contains(&99_999.0) && ids[DRAWN..] != ids[..70_000 - DRAWN]);
    }

    #[test]
    fn the_footprint_counts_every_tensor_in_its_own_dtype() {
        assert_eq!(footprint_bytes(&lookup(), &[10, 3], DType::F16), 2 * 80 + 4 * 3 + 2 * 24);
    }
}
