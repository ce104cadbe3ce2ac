//! What an input holds before a run: a tensor, or a block of one that is repeated until the buffer is full.

use crate::core::tensor::Tensor;
use std::borrow::Cow;

/// The content of an input. What is timed alone is given blocks, so that hundreds of megabytes are drawn, kept on the host and
/// uploaded for no shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    block: Tensor,
    /// Bytes of the buffer.
    bytes: usize,
}

impl Content {
    /// `block` in a buffer of `bytes` bytes; a longer block makes the buffer longer.
    pub fn new(block: Tensor, bytes: usize) -> Self {
        let own = block.bytes().len();
        Content { bytes: if own == 0 { 0 } else { bytes.max(own) }, block }
    }

    /// Bytes of the buffer.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// What is repeated.
    pub fn block(&self) -> &Tensor {
        &self.block
    }

    /// All bytes.
    pub fn whole(&self) -> Cow<'_, [u8]> {
        if self.block.bytes().len() == self.bytes {
            return Cow::Borrowed(self.block.bytes());
        }
        let mut all = vec![0; self.bytes];
        self.put(&mut all, 0);
        Cow::Owned(all)
    }

    /// Fills a buffer, from element `shift` of the block on.
    pub fn put(&self, into: &mut [u8], shift: usize) {
        let (block, elements) = (self.block.bytes(), self.block.len().max(1));
        let (tail, head) = block.split_at(shift % elements * self.block.dtype().size());
        let first = head.len().min(into.len());
        into[..first].copy_from_slice(&head[..first]);
        let second = tail.len().min(into.len() - first);
        into[first..][..second].copy_from_slice(&tail[..second]);
        let (filled, rest) = into.split_at_mut(first + second);
        for part in rest.chunks_mut(filled.len().max(1)) {
            part.copy_from_slice(&filled[..part.len()]);
        }
    }

    /// The first byte of a buffer that is not what was put there.
    pub fn first_difference(&self, now: &[u8]) -> Option<usize> {
        let block = self.block.bytes();
        now.chunks(block.len().max(1)).enumerate().find_map(|(i, part)| {
            let expected = &block[..part.len().min(block.len())];
            let at = if part == expected { None } else { part.iter().zip(expected).position(|(a, b)| a != b) };
            at.map(|at| i * block.len() + at)
        })
    }

    /// Copies within the buffer that fill it once the block is at its beginning: to where, and how many bytes from the
    /// beginning.
    pub fn doublings(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (first, all) = (self.block.bytes().len(), self.bytes);
        std::iter::successors(Some(first), move |filled| Some(2 * filled))
            .take_while(move |filled| *filled > 0 && *filled < all)
            .map(move |filled| (filled, filled.min(all - filled)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::core::tensor::{Inputs, Outputs};
    use crate::device::cpu::CpuDevice;
    use crate::device::{Device, Heat, Job, Poison, TimingPlan};
    use rstest::rstest;
    use std::time::Duration;

    fn content(block: usize, all: usize) -> Content {
        let values: Vec<f64> = (0..block).map(|i| i as f64 + 1.0).collect();
        Content::new(Tensor::from_f64(DType::F32, &[block], &values), 4 * all)
    }

    fn values(bytes: &[u8]) -> Vec<f64> {
        Tensor::from_bytes(DType::F32, &[bytes.len() / 4], bytes).to_f64()
    }

    #[rstest]
    #[case(3, 3, 0, &[1.0, 2.0, 3.0])]
    #[case(3, 3, 4, &[2.0, 3.0, 1.0])]
    #[case(3, 8, 0, &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0])]
    #[case(3, 7, 2, &[3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0])]
    #[case(1, 4, 9, &[1.0; 4])]
    #[case(0, 4, 1, &[])]
    fn a_block_is_repeated(#[case] block: usize, #[case] all: usize, #[case] shift: usize, #[case] expected: &[f64]) {
        let content = content(block, all);
        let mut memory = vec![0; content.len()];
        content.put(&mut memory, shift);
        assert_eq!(values(&memory), expected);
    }

    /// What a GPU does with copies on the device.
    #[rstest]
    fn doublings_fill_what_is_behind_the_block(#[values(1, 3, 5)] block: usize, #[values(5, 8, 24, 25)] all: usize) {
        let content = content(block, all);
        let mut memory = vec![0; content.len()];
        memory[..4 * block].copy_from_slice(content.block().bytes());
        for (to, bytes) in content.doublings() {
            assert!(bytes <= to, "source and target are apart");
            memory.copy_within(0..bytes, to);
        }
        assert_eq!(memory, content.whole().as_ref());
    }

    crate::shape! { struct Vector { n: 0..=1024 } }

    /// As the CPU has it, when it is run and when it is timed.
    #[test]
    fn a_candidate_sees_a_block_in_full() {
        let op = Op::<Vector>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let copy = |_: &Vector, x: &Inputs<'_>, y: &mut Outputs<'_>| y.slice::<f32>(0).copy_from_slice(x.slice(0));
        let candidate: Candidate = Cpu::new::<f32>(copy).named("c");
        let inputs = [Tensor::from_f64(DType::F32, &[3], &[1.0, 2.0, 3.0])];
        let (point, dtype) = (&[7][..], DType::F32);
        let device = CpuDevice::new();
        let job = Job { operator: &op, candidate: &candidate, point, dtype, inputs: &inputs, offset_bytes: 0 };
        let mut problem = device.prepare(&job).unwrap();
        assert_eq!(problem.run(Poison::Nan).unwrap()[0].to_f64(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
        problem.run_unread().unwrap();
        let session = Duration::from_millis(1);
        let plan =
            TimingPlan { heat: Heat::Cold, chained: false, batch_us: 1.0, instances: 1, planted_us: 0.0, session };
        problem.arm(&plan).unwrap();
        (0..5).for_each(|_| assert!(problem.sample(0).unwrap().launch_us > 0.0));
        assert_eq!(problem.timed_outputs_agree(), Ok(true));
    }

    #[test]
    fn a_changed_byte_is_found_in_any_repetition() {
        let content = content(3, 10);
        let mut memory = content.whole().into_owned();
        assert_eq!(content.first_difference(&memory), None);
        memory[4 * 7 + 2] ^= 1;
        assert_eq!(content.first_difference(&memory), Some(4 * 7 + 2));
    }
}
