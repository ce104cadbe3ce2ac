//! Random weights: a function of the seed, the tensor's name and the place alone, so that threads share the work and any
//! device can make the same.

use super::error::Error;
use super::weights::{Bytes, Weights};
use crate::core::dtype::DType;
use crate::core::seed::derive;
use half::{bf16, f16};
use rayon::prelude::*;

/// Weights drawn from a seed.
#[derive(Clone, Copy, Debug)]
pub struct RandomWeights {
    /// The seed.
    pub seed: u64,
}

/// Elements that a thread makes at a time.
const PIECE: usize = 1 << 16;

impl Weights for RandomWeights {
    fn tensor(&self, name: &str, dims: &[usize], dtype: DType) -> Result<Bytes, Error> {
        let n: usize = dims.iter().product();
        let key = derive(self.seed, &[name]);
        let (mean, deviation) = scale(name, dims);
        let mut made = Bytes::zeros(n * dtype.size());
        let value = |i: usize| mean + deviation * normal(key, i as u64);
        match dtype {
            DType::F16 => fill(&mut made, |i| f16::from_f32(value(i))),
            DType::BF16 => fill(&mut made, |i| bf16::from_f32(value(i))),
            _ => fill(&mut made, value),
        }
        Ok(made)
    }
}

fn fill<T: bytemuck::Pod + Send>(made: &mut Bytes, value: impl Fn(usize) -> T + Sync) {
    let elements: &mut [T] = bytemuck::cast_slice_mut(made.as_mut());
    elements.par_chunks_mut(PIECE).enumerate().for_each(|(piece, elements)| {
        elements.iter_mut().enumerate().for_each(|(i, element)| *element = value(piece * PIECE + i));
    });
}

/// Norms are near 1 and biases near 0; a row of a matrix keeps the size of what it multiplies, so that logits are near 1.
fn scale(name: &str, dims: &[usize]) -> (f32, f32) {
    match dims {
        [_, columns] => (0.0, 1.0 / (*columns as f32).sqrt()),
        _ if name.ends_with("bias") => (0.0, 0.02),
        _ => (1.0, 0.1),
    }
}

/// About normal: the sum of four uniform numbers, one multiplication of the counter each.
fn normal(key: u64, counter: u64) -> f32 {
    /// Of the sum of four uniform numbers of 16 bits: its mean, and one over its deviation.
    const MEAN: f32 = 2.0 * 65_535.0;
    const PER_DEVIATION: f32 = 1.0 / 37_836.9;
    let bits = mix(key.wrapping_add(counter.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let sum = (0..4).map(|part| (bits >> (16 * part)) as u16 as u32).sum::<u32>();
    (sum as f32 - MEAN) * PER_DEVIATION
}

/// The output function of SplitMix64.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::Element;

    #[test]
    fn they_have_the_mean_and_the_deviation_and_depend_on_the_seed() {
        let draw = |seed| {
            let made = RandomWeights { seed }.tensor("w", &[300, 400], DType::F32).unwrap();
            bytemuck::cast_slice::<u8, f32>(made.as_slice()).iter().map(|x| x.to_f64()).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        let n = drawn.len() as f64;
        let mean = drawn.iter().sum::<f64>() / n;
        let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!(mean.abs() < 3.0 * 0.05 / n.sqrt(), "{mean}");
        approx::assert_relative_eq!(deviation, 0.05, max_relative = 0.01);
        assert!(draw(1) == drawn && draw(2) != drawn);
    }
}
