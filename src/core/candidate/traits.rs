//! What candidates declare about themselves.

use crate::core::constraint::Limit;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::tolerance::Override;

/// What every kind of candidate can declare about itself.
#[derive(Clone, Debug)]
pub struct Traits {
    /// Tile extents by axis; boundary shapes are made from them.
    pub tiles: Vec<(&'static str, usize)>,
    /// Base pointers are multiples of this many bytes, and the gate tries every such offset.
    pub alignment: usize,
    /// The same in single dtypes, where it is another.
    pub alignments: Vec<(DType, usize)>,
    /// Shapes that it takes, where they are fewer than the operator has.
    pub limits: Vec<Limit>,
    /// Two runs give the same bits.
    pub deterministic: bool,
    /// The dtypes it supports.
    pub dtypes: Vec<DType>,
    /// A tolerance of its own, with the reason.
    pub tolerance: Option<Override>,
    /// Inputs that are not tried, with the reason.
    pub exclude_distributions: Vec<(Distribution, &'static str)>,
    /// Whether its speed is held against a baseline.
    pub timed: bool,
    /// Whether it is a lesson: a step on the way to the best candidate, timed only on request.
    pub lesson: bool,
}

impl Traits {
    /// Whether it supports a dtype.
    pub fn computes(&self, dtype: DType) -> bool {
        self.dtypes.contains(&dtype)
    }

    /// Base pointers are multiples of this many bytes in a case of `dtype`.
    pub fn alignment_in(&self, dtype: DType) -> usize {
        self.alignments.iter().rev().find(|(own, _)| *own == dtype).map_or(self.alignment, |&(_, bytes)| bytes)
    }
}

impl Default for Traits {
    fn default() -> Self {
        Traits {
            tiles: Vec::new(),
            alignment: 16,
            alignments: Vec::new(),
            limits: Vec::new(),
            deterministic: true,
            dtypes: DType::FLOATS.to_vec(),
            tolerance: None,
            exclude_distributions: Vec::new(),
            timed: true,
            lesson: false,
        }
    }
}

/// Declarations shared by [`Cpu`](super::Cpu), [`Cuda`](super::Cuda) and [`CudaHost`](super::CudaHost).
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Matrix { rows: 1..=4096, cols: 1..=8192 } }
///
/// # const KERNEL: &str = "";
/// // What `Declare` gives every kind of candidate.
/// let kernel = Cuda::source(KERNEL, "row_sums", |s: &Matrix| Launch::blocks(s.rows, 128).scalar(s.cols as i32))
///     .dtypes([F32, BF16])
///     .tile("cols", 128) // shapes around the multiples of 128 columns
///     .multiples("cols", 4) // loads of four elements
///     .alignment(16) // of base pointers, in bytes
///     .tolerance(Tolerance::new(1.0, 16.0).because("sums in an order of its own"));
/// ```
pub trait Declare: Sized {
    /// The declarations so far.
    fn traits_mut(&mut self) -> &mut Traits;

    /// The candidate works in tiles of `extent` along `axis`: shapes around its multiples are tried.
    fn tile(mut self, axis: &'static str, extent: usize) -> Self {
        self.traits_mut().tiles.push((axis, extent));
        self
    }

    /// The same along several axes: `.tiles([("m", 128), ("n", 256)])`.
    fn tiles<const AXES: usize>(self, tiles: [(&'static str, usize); AXES]) -> Self {
        tiles.into_iter().fold(self, |candidate, (axis, extent)| candidate.tile(axis, extent))
    }

    /// Base pointers that are multiples of `bytes` suffice (default 16).
    fn alignment(mut self, bytes: usize) -> Self {
        self.traits_mut().alignment = bytes;
        self
    }

    /// The same in cases of one dtype: a kernel that reads pairs needs 8 bytes of f32 and 4 of f16.
    fn alignment_in(mut self, dtype: DType, bytes: usize) -> Self {
        self.traits_mut().alignments.push((dtype, bytes));
        self
    }

    /// Takes fewer extents along `axis` than the operator has: `.extents("cols", 1..=1024)`. Its other shapes are not tried;
    /// reports say what it takes.
    fn extents(mut self, axis: &'static str, extents: std::ops::RangeInclusive<usize>) -> Self {
        self.traits_mut().limits.push(Limit { axis, extents, multiple: 1 });
        self
    }

    /// Takes multiples of `step` alone along `axis`.
    fn multiples(mut self, axis: &'static str, step: usize) -> Self {
        self.traits_mut().limits.push(Limit { axis, extents: 0..=usize::MAX, multiple: step });
        self
    }

    /// Two runs may differ in the last bits (atomics); they must then agree within the tolerance.
    fn nondeterministic(mut self) -> Self {
        self.traits_mut().deterministic = false;
        self
    }

    /// Restricts the dtypes.
    fn dtypes(mut self, dtypes: impl IntoIterator<Item = DType>) -> Self {
        self.traits_mut().dtypes = dtypes.into_iter().collect();
        self
    }

    /// Leaves the candidate out of the perf check: it is kept for its clarity, not its speed.
    fn untimed(mut self) -> Self {
        self.traits_mut().timed = false;
        self
    }

    /// Marks a lesson: a step on the way to the best candidate. It is checked like any other, but timed only on request
    /// (`--lessons`).
    fn lesson(mut self) -> Self {
        self.traits_mut().lesson = true;
        self
    }

    /// Is not tried on such inputs, for code that cannot be changed; the reason is part of every report.
    fn exclude_distributions(mut self, distribution: Distribution, reason: &'static str) -> Self {
        self.traits_mut().exclude_distributions.push((distribution, reason));
        self
    }

    /// Replaces the derived tolerance; the reason is part of every report.
    fn tolerance(mut self, tolerance: Override) -> Self {
        self.traits_mut().tolerance = Some(tolerance);
        self
    }
}
