//! One block of memory that holds every buffer of a case, each between guard bands, and what it must still hold after
//! a run. The host keeps the image; the CPU device runs in it, the GPU gets a copy of it.

use super::content::Content;
use super::fault::Fault;
use super::{Job, Poison};
use crate::core::dtype::DType;
use crate::core::tensor::Tensor;
use std::ops::Range;

/// Bytes between buffers. A read past the end finds the poison there, a write is seen afterwards.
pub const GUARD_BYTES: usize = 4096;

/// Every buffer starts this aligned, plus the offset of the job.
pub const BASE_ALIGNMENT: usize = 256;

/// What a buffer is for.
#[derive(Clone, Debug, PartialEq)]
enum Use {
    Input(Content),
    /// Holds this before a run, and the result afterwards.
    InPlace(Content),
    Output,
    Workspace,
}

/// In a chain of runs each finds those inputs in the cache that are at most this part of a case: as in a model, where the launch
/// ahead has just written them.
pub const PASSED_PART: usize = 8;

/// Where one buffer lies.
#[derive(Clone, Debug)]
struct Slot {
    name: String,
    range: Range<usize>,
    purpose: Use,
    zero: Tensor,
}

impl Slot {
    /// What it holds before a run, if that is not poison.
    fn content(&self) -> Option<&Content> {
        match &self.purpose {
            Use::Input(content) | Use::InPlace(content) => Some(content),
            Use::Output | Use::Workspace => None,
        }
    }

    fn is_output(&self) -> bool {
        matches!(self.purpose, Use::Output | Use::InPlace(_))
    }
}

/// The layout of a case in memory.
#[derive(Clone, Debug)]
pub struct Image {
    slots: Vec<Slot>,
    bytes: usize,
    touched_bytes: usize,
}

impl Image {
    /// Lays out the inputs, the outputs and the workspace of a job.
    pub fn of(job: &Job<'_>) -> Self {
        let mut image = Image { slots: Vec::new(), bytes: 0, touched_bytes: 0 };
        let operator = job.operator;
        for (i, (port, tensor)) in operator.inputs().iter().zip(job.inputs).enumerate() {
            let dims = operator.input_dims(i, job.point);
            let content = Content::new(tensor.clone(), dims.iter().product::<usize>() * tensor.dtype().size());
            let bytes = content.len();
            let zero = Tensor::zeros(tensor.dtype(), if port.in_place { &dims } else { &[0] });
            let purpose = if port.in_place { Use::InPlace(content) } else { Use::Input(content) };
            image.push(port.name, purpose, zero, bytes, job.offset_bytes);
        }
        // What is changed in place lies among the inputs already, before all other outputs.
        for (i, port) in operator.outputs().iter().enumerate().filter(|(_, port)| !port.in_place) {
            let zero = Tensor::zeros(port.dtype(job.dtype), &operator.output_dims(i, job.point));
            let bytes = zero.bytes().len();
            image.push(port.name, Use::Output, zero, bytes, job.offset_bytes);
        }
        let workspace_bytes = job.candidate.body.workspace_bytes(job.point);
        if workspace_bytes > 0 {
            let none = Tensor::zeros(job.dtype, &[0]);
            image.push("workspace", Use::Workspace, none, workspace_bytes, 0);
        }
        image.bytes = (image.bytes + GUARD_BYTES).next_multiple_of(BASE_ALIGNMENT);
        let all: usize = image.slots.iter().map(|slot| slot.range.len()).sum();
        let said = operator.cost(job.point, job.dtype).bytes;
        image.touched_bytes = if said == 0 { all } else { all.min(said + workspace_bytes) };
        image
    }

    /// Of an output only the dtype and the extents are needed later, which `zero` has; of others the dtype.
    fn push(&mut self, name: &str, purpose: Use, zero: Tensor, bytes: usize, offset: usize) {
        let start = (self.bytes + GUARD_BYTES).next_multiple_of(BASE_ALIGNMENT) + offset;
        self.slots.push(Slot { name: name.into(), range: start..start + bytes, purpose, zero });
        self.bytes = start + bytes;
    }

    /// Bytes of the whole image.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the image holds no buffer.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of the buffers that a launch touches: all of them, unless the operator's cost says less. A lookup leaves most of
    /// its table alone, and what it reads of it stays in a cache that the whole table would not fit in.
    pub fn touched_bytes(&self) -> usize {
        self.touched_bytes
    }

    /// Where each buffer lies, in argument order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.slots.iter().map(|slot| slot.range.clone())
    }

    /// The addresses of the buffers, in argument order, when the image lies at `base`; those of inputs that a chain passes on
    /// as if it lay at `passed`.
    pub fn addresses(&self, base: u64, passed: u64) -> impl Iterator<Item = u64> {
        let is_passed =
            |slot: &Slot| matches!(slot.purpose, Use::Input(_)) && slot.range.len() * PASSED_PART <= self.bytes;
        self.slots.iter().map(move |slot| if is_passed(slot) { passed } else { base } + slot.range.start as u64)
    }

    /// The names of the buffers, in argument order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// The dtypes of the buffers, in argument order; that of the case for the workspace.
    pub fn dtypes(&self) -> impl Iterator<Item = DType> + '_ {
        self.slots.iter().map(|slot| slot.zero.dtype())
    }

    /// Which buffers must be the same after a run, in argument order.
    pub fn are_read_only(&self) -> impl Iterator<Item = bool> + '_ {
        self.slots.iter().map(|slot| matches!(slot.purpose, Use::Input(_)))
    }

    /// Where the workspace lies, if there is one.
    pub fn workspace_range(&self) -> Option<Range<usize>> {
        self.slots.iter().find(|slot| slot.purpose == Use::Workspace).map(|slot| slot.range.clone())
    }

    /// Where each output lies.
    pub fn output_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.slots.iter().filter(|slot| slot.is_output()).map(|slot| slot.range.clone())
    }

    /// Where each output lies that holds poison before a run.
    pub fn poisoned_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.slots.iter().filter(|slot| slot.purpose == Use::Output).map(|slot| slot.range.clone())
    }

    /// What is changed in place: where it lies, and what it holds before a run.
    pub fn changed_in_place(&self) -> impl Iterator<Item = (Range<usize>, &Content)> {
        self.slots.iter().filter_map(|slot| match &slot.purpose {
            Use::InPlace(content) => Some((slot.range.clone(), content)),
            _ => None,
        })
    }

    /// Whether a launch leaves other inputs behind than it found.
    pub fn changes_inputs(&self) -> bool {
        self.changed_in_place().next().is_some()
    }

    /// The name of output `i`.
    pub fn output_name(&self, i: usize) -> String {
        let mut outputs = self.slots.iter().filter(|slot| slot.is_output());
        outputs.nth(i).map(|slot| slot.name.clone()).unwrap_or_default()
    }

    /// Fills `memory` as it must be before a run: inputs in place, poison everywhere else.
    pub fn fill(&self, memory: &mut [u8], poison: Poison) {
        let mut free = 0;
        for (range, content) in self.inputs() {
            memory[free..range.start].fill(poison.byte());
            content.put(&mut memory[range.clone()], 0);
            free = range.end;
        }
        memory[free..].fill(poison.byte());
    }

    /// Takes other inputs of the same extents for those of the case, from the next fill on.
    pub fn replace_inputs(&mut self, inputs: &[Tensor]) {
        let slots = self.slots.iter_mut().filter(|slot| slot.content().is_some());
        for (slot, tensor) in slots.zip(inputs) {
            assert_eq!(slot.range.len(), tensor.bytes().len(), "`{}` has other extents", slot.name);
            let is_in_place = matches!(slot.purpose, Use::InPlace(_));
            let content = Content::new(tensor.clone(), tensor.bytes().len());
            slot.purpose = if is_in_place { Use::InPlace(content) } else { Use::Input(content) };
        }
    }

    /// Puts the inputs into `memory` rotated by `shift` elements, which are then other ones of the same kind, and poisons
    /// the outputs and the workspace. Guards stay.
    pub fn refresh(&self, memory: &mut [u8], shift: usize, poison: Poison) {
        for slot in &self.slots {
            let into = &mut memory[slot.range.clone()];
            match slot.content() {
                Some(content) => content.put(into, shift),
                None => into.fill(poison.byte()),
            }
        }
    }

    /// Puts what is changed in place back as [`Image::refresh`] with this `shift` has left it.
    pub fn restore(&self, memory: &mut [u8], shift: usize) {
        for slot in &self.slots {
            if let Use::InPlace(content) = &slot.purpose {
                content.put(&mut memory[slot.range.clone()], shift);
            }
        }
    }

    /// Poisons the outputs alone.
    pub fn poison_outputs(&self, memory: &mut [u8], poison: Poison) {
        self.poisoned_ranges().for_each(|range| memory[range].fill(poison.byte()));
    }

    /// Where each input lies, and what it holds before a run.
    pub fn inputs(&self) -> impl Iterator<Item = (Range<usize>, &Content)> {
        self.slots.iter().filter_map(|slot| Some((slot.range.clone(), slot.content()?)))
    }

    /// Splits `memory` into the inputs (shared) and the outputs (exclusive), in argument order. What is changed in place is
    /// among the outputs, and empty among the inputs.
    pub fn split<'m>(&self, memory: &'m mut [u8]) -> (Vec<&'m [u8]>, Vec<&'m mut [u8]>) {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (mut rest, mut at) = (memory, 0);
        for slot in &self.slots {
            let (_, tail) = rest.split_at_mut(slot.range.start - at);
            let (buffer, tail) = tail.split_at_mut(slot.range.len());
            match slot.purpose {
                Use::Input(_) => inputs.push(&*buffer),
                Use::InPlace(_) => {
                    inputs.push(&[]);
                    outputs.push(buffer);
                }
                Use::Output => outputs.push(buffer),
                Use::Workspace => {}
            }
            (rest, at) = (tail, slot.range.end);
        }
        (inputs, outputs)
    }

    /// Reads the outputs out of `memory` after a run.
    ///
    /// # Errors
    /// If a guard band or an input has changed.
    pub fn collect(&self, memory: &[u8], poison: Poison) -> Result<Vec<Tensor>, Fault> {
        let mut free = 0;
        for (i, slot) in self.slots.iter().enumerate() {
            let gap = free..slot.range.start;
            if let Some(at) = first_other(&memory[gap.clone()], poison.byte()) {
                return Err(self.guard_fault(i, gap.start + at, gap));
            }
            if let Use::Input(content) = &slot.purpose
                && let Some(offset) = content.first_difference(&memory[slot.range.clone()])
            {
                return Err(Fault::InputModified { input: slot.name.clone(), offset });
            }
            free = slot.range.end;
        }
        let gap = free..self.bytes;
        if let Some(at) = first_other(&memory[gap.clone()], poison.byte()) {
            return Err(self.guard_fault(self.slots.len(), gap.start + at, gap));
        }
        Ok(self.outputs(memory))
    }

    /// The outputs alone.
    pub fn outputs(&self, memory: &[u8]) -> Vec<Tensor> {
        let outputs = self.slots.iter().filter(|slot| slot.is_output());
        outputs
            .map(|slot| Tensor::from_bytes(slot.zero.dtype(), slot.zero.dims(), &memory[slot.range.clone()]))
            .collect()
    }

    /// Whether `memory` holds the bits of `outputs`; values would call two NaN different.
    pub fn holds(&self, memory: &[u8], outputs: &[Tensor]) -> bool {
        self.output_ranges().map(|range| &memory[range]).eq(outputs.iter().map(Tensor::bytes))
    }

    /// A changed byte `at` in the gap before slot `next` belongs to whichever buffer is nearer.
    fn guard_fault(&self, next: usize, at: usize, gap: Range<usize>) -> Fault {
        let past_end = at - gap.start;
        let before_start = gap.end - at;
        match (next.checked_sub(1).map(|i| &self.slots[i]), self.slots.get(next)) {
            (Some(previous), _) if past_end <= before_start || next == self.slots.len() => {
                Fault::Guard { buffer: previous.name.clone(), offset: past_end as i64 + 1 }
            }
            (_, Some(slot)) => Fault::Guard { buffer: slot.name.clone(), offset: -(before_start as i64) },
            _ => Fault::Guard { buffer: "the case".into(), offset: at as i64 },
        }
    }
}

/// The first byte that is not `byte`; compares words, since guards are checked on every run.
fn first_other(bytes: &[u8], byte: u8) -> Option<usize> {
    const BLOCK: usize = 64;
    let expected = [byte; BLOCK];
    let block = bytes.chunks(BLOCK).position(|chunk| chunk != &expected[..chunk.len()])?;
    bytes[block * BLOCK..].iter().position(|&b| b != byte).map(|i| block * BLOCK + i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::operator::Op;
    use rstest::rstest;

    crate::shape! { struct Vector { n: 0..=1024 } }

    fn image(n: usize, offset_bytes: usize) -> (Image, Vec<u8>) {
        let op = Op::<Vector>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let inputs = [Tensor::from_f64(DType::F32, &[n], &vec![1.5; n])];
        let point = [n];
        let job = Job {
            operator: &op,
            candidate: &candidate,
            point: &point,
            dtype: DType::F32,
            inputs: &inputs,
            offset_bytes,
        };
        let image = Image::of(&job);
        let mut memory = vec![0; image.len()];
        image.fill(&mut memory, Poison::Nan);
        (image, memory)
    }

    #[rstest]
    fn an_untouched_image_collects(#[values(0, 1, 7, 1024)] n: usize, #[values(0, 16)] offset: usize) {
        let (image, memory) = image(n, offset);
        let outputs = image.collect(&memory, Poison::Nan).unwrap();
        assert_eq!(outputs[0].len(), n);
        assert!(outputs[0].to_f64().iter().all(|v| v.is_nan()));
        assert!(image.ranges().all(|range| range.start % BASE_ALIGNMENT == offset));
    }

    #[rstest]
    #[case(1, 0, "y", 1)] // the byte just past the output
    #[case(1, 99, "y", 100)]
    #[case(0, 0, "x", 1)]
    fn a_write_past_the_end_is_seen(
        #[case] slot: usize,
        #[case] distance: usize,
        #[case] name: &str,
        #[case] expected: i64,
    ) {
        let (image, mut memory) = image(7, 0);
        let end = image.ranges().nth(slot).unwrap().end;
        memory[end + distance] = 0;
        let fault = image.collect(&memory, Poison::Nan).unwrap_err();
        assert_eq!(fault, Fault::Guard { buffer: name.into(), offset: expected });
    }

    #[test]
    fn a_chain_passes_on_inputs_that_are_small_beside_the_rest() {
        let op = Op::<Vector>::new("f").input("w", |s| [s.n]).input("x", |_| [4]).in_place("sum", |_| [4]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let inputs = [1000, 4, 4].map(|n| Tensor::zeros(DType::F32, &[n]));
        let (operator, point, dtype) = (&op, &[1000][..], DType::F32);
        let image = Image::of(&Job { operator, candidate: &candidate, point, dtype, inputs: &inputs, offset_bytes: 0 });
        let starts: Vec<u64> = image.ranges().map(|range| range.start as u64).collect();
        let (base, passed) = (1 << 20, 1 << 40);
        let at: Vec<u64> = image.addresses(base, passed).collect();
        assert_eq!(at, [base + starts[0], passed + starts[1], base + starts[2]], "and what is changed stays");
        assert!(image.addresses(base, base).eq(starts.iter().map(|start| base + start)));
    }

    #[test]
    fn refreshed_inputs_are_the_same_values_elsewhere() {
        let op = Op::<Vector>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let inputs = [Tensor::from_f64(DType::F32, &[3], &[1.0, 2.0, 3.0])];
        let (operator, point, dtype) = (&op, &[3][..], DType::F32);
        let image = Image::of(&Job { operator, candidate: &candidate, point, dtype, inputs: &inputs, offset_bytes: 0 });
        let mut memory = vec![0; image.len()];
        image.fill(&mut memory, Poison::Nan);
        let x = image.ranges().next().unwrap();
        image.refresh(&mut memory, 4, Poison::Huge);
        assert_eq!(Tensor::from_bytes(DType::F32, &[3], &memory[x]).to_f64(), [2.0, 3.0, 1.0]);
        let y = image.output_ranges().next().unwrap();
        assert!(memory[y].iter().all(|&byte| byte == Poison::Huge.byte()));
        image.refresh(&mut memory, 0, Poison::Nan);
        assert!(image.collect(&memory, Poison::Nan).is_ok(), "inputs and guards are as they were");
    }

    #[test]
    fn what_is_changed_in_place_is_there_before_and_is_an_output_afterwards() {
        let op = Op::<Vector>::new("add").input("x", |s| [s.n]).in_place("sum", |s| [s.n]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let tensor = |first: f64| Tensor::from_f64(DType::F32, &[3], &[first, 2.0, 3.0]);
        let inputs = [tensor(0.0), tensor(7.0)];
        let (operator, point, dtype) = (&op, &[3][..], DType::F32);
        let image = Image::of(&Job { operator, candidate: &candidate, point, dtype, inputs: &inputs, offset_bytes: 0 });
        let mut memory = vec![0; image.len()];
        image.fill(&mut memory, Poison::Nan);
        assert_eq!(image.names().collect::<Vec<_>>(), ["x", "sum", "y"]);
        assert_eq!(image.are_read_only().collect::<Vec<_>>(), [true, false, false]);
        let (shared, mut outputs) = image.split(&mut memory);
        assert_eq!((shared.len(), shared[1].len(), outputs.len()), (2, 0, 2));
        outputs[0][..4].copy_from_slice(&9f32.to_le_bytes());
        let left = image.collect(&memory, Poison::Nan).unwrap();
        assert_eq!(left[0].to_f64(), [9.0, 2.0, 3.0]);
        image.restore(&mut memory, 1);
        assert_eq!(image.outputs(&memory)[0].to_f64(), [2.0, 3.0, 7.0]);
        image.poison_outputs(&mut memory, Poison::Huge);
        assert_eq!(image.outputs(&memory)[0].to_f64(), [2.0, 3.0, 7.0], "no poison in what is restored");
    }

    #[test]
    fn what_is_touched_is_all_or_what_the_operator_says() {
        let op = |bytes| {
            let op = Op::<Vector>::new("gather").input("table", |_| [100]).output("y", |s| [s.n]);
            op.cost(move |_, _| Cost { bytes, flops: 0 })
        };
        let touched = |bytes| {
            let (operator, candidate) = (op(bytes), Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c"));
            let inputs = [Tensor::zeros(DType::F32, &[100])];
            let job = Job {
                operator: &operator,
                candidate: &candidate,
                point: &[3],
                dtype: DType::F32,
                inputs: &inputs,
                offset_bytes: 0,
            };
            Image::of(&job).touched_bytes()
        };
        assert_eq!([0, 24, 4000].map(touched), [412, 24, 412]);
    }

    #[test]
    fn a_write_before_the_start_is_seen() {
        let (image, mut memory) = image(7, 0);
        let start = image.ranges().next().unwrap().start;
        memory[start - 4] = 0;
        let fault = image.collect(&memory, Poison::Nan).unwrap_err();
        assert_eq!(fault, Fault::Guard { buffer: "x".into(), offset: -4 });
    }

    #[test]
    fn a_changed_input_is_seen() {
        let (image, mut memory) = image(7, 0);
        let at = image.ranges().next().unwrap().start + 9;
        memory[at] ^= 1;
        let fault = image.collect(&memory, Poison::Nan).unwrap_err();
        assert_eq!(fault, Fault::InputModified { input: "x".into(), offset: 9 });
    }
}
