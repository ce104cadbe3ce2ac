//! What changes between timed batches, outside the clock: inputs that no launch has seen, poison in the outputs, nothing of
//! either in the caches. A kernel that keeps state in device memory, that remembers an answer or finds it in place, then
//! gains nothing, and one that did the work of later launches beforehand has done it in vain.

use super::device::CudaDevice;
use super::driver::{Buffer, Error, forget_persisting};
use super::support::{fault, run_support};
use crate::core::launch::Launch;
use crate::device::fault::Fault;
use crate::device::image::Image;
use crate::device::{Device, Poison};

/// Memory is read this many times the L2 to have nothing else there.
const SWEPT_L2_TIMES: usize = 2;

/// Bytes that a block writes, about: enough blocks for any case, few for a small one.
const BLOCK_BYTES: usize = 1 << 16;
const MOST_BLOCKS: usize = 512;
const THREADS: usize = 256;

/// Words a buffer in the table of the kernel.
const SLOT_WORDS: usize = 3;

/// Rotated inputs move by units of so many bytes where they consist of such: copies are then as wide as can be.
const WIDE: usize = 16;

/// What a refresh needs on the device.
pub struct Refresh {
    slots: Buffer,
    count: usize,
    swept: Buffer,
    blocks: usize,
    /// Sets that were refreshed so far.
    turn: u64,
}

/// Which sets of a placement get the inputs of the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfCase {
    /// This one; the others get inputs that were never there.
    One(usize),
    /// All of them.
    All,
}

impl Refresh {
    /// Makes room for it.
    pub fn new(device: &CudaDevice, image: &Image) -> Result<Self, Error> {
        let words = slots(image);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let table = device.context.allocate(bytes.len().max(SLOT_WORDS))?;
        table.upload(0, &bytes)?;
        let swept = (SWEPT_L2_TIMES * device.fingerprint().cache_bytes).next_multiple_of(WIDE).max(WIDE);
        let swept_buffer = device.context.allocate(swept)?;
        swept_buffer.fill(0, swept, 0)?;
        let largest = image.ranges().map(|range| range.len()).max().unwrap_or(0);
        let blocks = largest.div_ceil(BLOCK_BYTES).clamp(1, MOST_BLOCKS);
        Ok(Refresh { slots: table, count: words.len() / SLOT_WORDS, swept: swept_buffer, blocks, turn: 0 })
    }

    /// Gives `sets` images, `stride` bytes apart from `base` on, other inputs and poisoned outputs. `source` is an image
    /// with the inputs of the case. First of all the L2 forgets what a kernel or its host code asked it to keep: what is
    /// written here would be kept too.
    pub fn run(
        &mut self,
        device: &CudaDevice,
        (base, stride, sets): (u64, usize, usize),
        source: &Buffer,
        of_case: OfCase,
        poison: Poison,
    ) -> Result<(), Fault> {
        forget_persisting(&device.context).map_err(|e| fault(device, e))?;
        // All sets are those of the case where every set is a grid of its own.
        let (rounds, rows, special) = match of_case {
            OfCase::One(set) => (1, sets, set as i32),
            OfCase::All => (sets, 1, 0),
        };
        for round in 0..rounds {
            let launch = Launch::grid([self.blocks, rows, 1], [THREADS, 1, 1])
                .scalar(self.slots.address())
                .scalar(self.count as i32)
                .scalar(base + (round * stride) as u64)
                .scalar(stride as u64)
                .scalar(source.address())
                .scalar(self.turn)
                .scalar(special)
                .scalar(u32::from_le_bytes([poison.byte(); 4]));
            run_support(device, "kernelgate_refresh", &launch)?;
        }
        self.turn += sets as u64;
        Ok(())
    }

    /// Leaves nothing of the case in the caches.
    pub fn sweep(&self, device: &CudaDevice) -> Result<(), Fault> {
        let words = SWEPT_L2_TIMES * device.fingerprint().cache_bytes / WIDE;
        let launch = Launch::blocks(4 * device.fingerprint().units, THREADS);
        let launch = launch.scalar(self.swept.address()).scalar(words as u64).scalar(self.swept.address());
        run_support(device, "kernelgate_sweep", &launch)
    }
}

/// The table of the kernel: offset, bytes and unit of every buffer, a unit of 0 for what gets poison.
fn slots(image: &Image) -> Vec<u64> {
    let inputs = image.inputs().count();
    let buffers = image.ranges().zip(image.dtypes()).enumerate();
    buffers
        .flat_map(|(i, (range, dtype))| {
            let is_wide = range.len().is_multiple_of(WIDE) && range.start.is_multiple_of(WIDE);
            let unit = if is_wide { WIDE } else { dtype.size() };
            [range.start as u64, range.len() as u64, if i < inputs { unit as u64 } else { 0 }]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::device::support;
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::core::tensor::Tensor;
    use crate::device::Job;
    use crate::sim;
    use crate::toolchain::committed::ARCH;
    use crate::toolchain::{self, compile_ptx};

    crate::shape! { struct Vector { n: 1..=1024 } }

    /// In the simulator: the kernel is the gate's own, and no GPU is needed to see what it leaves behind.
    #[test]
    fn sets_get_inputs_of_their_own_and_poisoned_outputs() {
        let op = Op::<Vector>::new("f").input("a", |s| [s.n]).input("b", |_| [3]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let values: Vec<f64> = (0..32).map(f64::from).collect();
        let inputs =
            [Tensor::from_f64(DType::F32, &[32], &values), Tensor::from_f64(DType::F32, &[3], &[1.0, 2.0, 3.0])];
        let (point, dtype) = (&[32][..], DType::F32);
        let image =
            Image::of(&Job { operator: &op, candidate: &candidate, point, dtype, inputs: &inputs, offset_bytes: 0 });
        let mut source = vec![0; image.len()];
        image.fill(&mut source, Poison::Nan);

        let ptx = match compile_ptx(&support(), DType::F32, ARCH) {
            Ok(ptx) => ptx,
            Err(toolchain::Error::NoCompiler(why)) => {
                let is_required = std::env::var("KERNELGATE_REQUIRE").is_ok_and(|all| all.contains("nvrtc"));
                assert!(!is_required, "{why}");
                eprintln!("not run: {why}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let module = sim::Module::parse(&ptx.text).unwrap();
        let mut memory = sim::Memory::new();
        let words = slots(&image);
        let table: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        const SETS: usize = 3;
        let mut place = |bytes: &[u8]| {
            let at = memory.alloc(bytes.len() as u64, None).unwrap();
            memory.write(at, bytes).unwrap();
            at
        };
        let (slots, from, to) = (place(&table), place(&source), place(&source.repeat(SETS)));
        let arguments: [Vec<u8>; 8] = [
            slots.address().to_le_bytes().to_vec(),
            (words.len() as i32 / 3).to_le_bytes().to_vec(),
            to.address().to_le_bytes().to_vec(),
            (image.len() as u64).to_le_bytes().to_vec(),
            from.address().to_le_bytes().to_vec(),
            7u64.to_le_bytes().to_vec(),
            1i32.to_le_bytes().to_vec(),
            u32::from_le_bytes([Poison::Huge.byte(); 4]).to_le_bytes().to_vec(),
        ];
        let mut launch =
            sim::Launch::new("kernelgate_refresh", sim::Dim::new(2, SETS as u32, 1), sim::Dim::new(32, 1, 1));
        for bytes in &arguments {
            launch = launch.arg(sim::Arg::bytes(bytes));
        }
        let report = sim::launch(&module, &launch, &mut memory, &sim::Options::default()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let mut left = vec![0; SETS * image.len()];
        memory.read(to, &mut left).unwrap();

        let mut seen = std::collections::BTreeSet::new();
        for (set, memory) in left.chunks(image.len()).enumerate() {
            let read =
                |range: std::ops::Range<usize>| Tensor::from_bytes(DType::F32, &[range.len() / 4], &memory[range]);
            let mut ranges = image.ranges();
            let (a, b) = (read(ranges.next().unwrap()).to_f64(), read(ranges.next().unwrap()).to_f64());
            let mut sorted = a.clone();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(sorted, values, "the values of set {set} are those of the case");
            assert_eq!(a == values && b == [1.0, 2.0, 3.0], set == 1, "set 1 alone has the inputs of the case: {a:?}");
            seen.insert(a.iter().map(|&v| v as u32).collect::<Vec<_>>());
            let y = image.output_ranges().next().unwrap();
            assert!(memory[y].iter().all(|&byte| byte == Poison::Huge.byte()));
        }
        assert!(seen.len() > 1);
    }
}
