//! What the model knows of a case: bytes by direction, operations, launches and blocks.

use crate::check::Subject;
use crate::core::candidate::Body;
use crate::core::dtype::DType;
use crate::measure::inputs::output_bytes;

/// Operations a byte from which a product in a narrow type runs on tensor cores.
const DENSE: f64 = 16.0;

/// The tile of an output that a library's block is taken to compute, rows and columns.
const LIBRARY_TILE: [usize; 2] = [128, 256];

/// What a time depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// Compulsory bytes that are read.
    pub read_bytes: f64,
    /// Compulsory bytes that are written.
    pub written_bytes: f64,
    /// Operations.
    pub flops: f64,
    /// Whether they run on tensor cores.
    pub on_tensor_cores: bool,
    /// The dtype of the case.
    pub dtype: DType,
    /// Kernel launches.
    pub launches: f64,
    /// Blocks of the largest launch.
    pub blocks: f64,
    /// The extents of the shape.
    pub extents: Vec<usize>,
    /// Its attributes.
    pub attributes: Vec<usize>,
}

impl Features {
    /// Those of a subject at a point inside its axes.
    pub fn of(subject: &Subject<'_>, point: &[usize]) -> Self {
        let (operator, dtype) = (subject.operator, subject.dtype);
        let cost = operator.cost(point, dtype);
        let written = output_bytes(operator, point, dtype).min(cost.bytes);
        let (launches, blocks) = match &subject.candidate.body {
            Body::Cuda(kernel) => {
                let plan = kernel.plan(point).0;
                let blocks = plan.iter().map(|launch| launch.grid.iter().product::<usize>());
                (plan.len(), blocks.max().unwrap_or(0))
            }
            Body::Cpu(_) => (1, 1),
            Body::Enqueue(_) => {
                let dims = operator.output_dims(0, point);
                let columns = dims.last().copied().unwrap_or(1).max(1);
                let rows = dims.iter().product::<usize>() / columns;
                (1, rows.div_ceil(LIBRARY_TILE[0]) * columns.div_ceil(LIBRARY_TILE[1]))
            }
        };
        let split = |is_extent: bool| {
            let axes = operator.axes().iter().zip(point);
            axes.filter(|(axis, _)| axis.is_extent() == is_extent).map(|(_, &at)| at).collect()
        };
        Features {
            read_bytes: (cost.bytes - written) as f64,
            written_bytes: written as f64,
            flops: cost.flops as f64,
            on_tensor_cores: !subject.candidate.body.is_host() && dtype != DType::F32 && cost.intensity() >= DENSE,
            dtype,
            launches: launches.max(1) as f64,
            blocks: blocks.max(1) as f64,
            extents: split(true),
            attributes: split(false),
        }
    }

    /// Compulsory bytes.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }

    /// Where the case lies among others of its family: logarithms of what times depend on.
    pub fn place(&self) -> Vec<f64> {
        let log = |x: f64| x.max(1.0).ln();
        let sizes = [log(self.bytes()), log(self.flops), log(self.blocks)];
        sizes.into_iter().chain(self.extents.iter().map(|&extent| log(extent as f64))).collect()
    }
}
