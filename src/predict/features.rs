//! What the model knows of a case: bytes by direction, operations, launches, tiles.

use super::observation::Observation;
use super::process::Place;
use super::tiling::Tiling;
use crate::check::Subject;
use crate::core::candidate::Body;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Operator;
use crate::core::work::Work;
use crate::measure::inputs::output_bytes;

/// Operations a byte from which a product in a narrow type runs on tensor cores, where its tiles do not tell.
const DENSE: f64 = 16.0;

/// Rows that begin at multiples of it are read in whole vectors.
const VECTOR_BYTES: usize = 16;

/// A row of a tile that begins at a multiple of it touches no line more than it has.
const LINE_BYTES: usize = 128;

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
    /// Which of its kernels a candidate takes: the entry of the launch with the most work.
    pub path: String,
    /// How the work may be cut into tiles: one way where a launch says it, several where a library chooses.
    pub tilings: Vec<Tiling>,
    /// The ways of a library, if it is one: those that a prediction has to choose from where the library is not asked.
    pub of_library: Vec<Tiling>,
    /// Bytes that are read and written besides: copies in the workspace.
    pub copied_bytes: f64,
    /// The share of the compulsory bytes that the last cache holds before the launch, or takes from it: 0 for a cold one.
    pub cached: f64,
    /// The share of the compulsory bytes that lie in rows which begin off a 16-byte boundary.
    pub unaligned: f64,
    /// The share that lies in rows which begin off a line of 128 bytes, but not off that boundary.
    pub straddling: f64,
    /// The numbers of the algorithm that a library said to have, in its order; 0 where it did not say.
    pub algorithm: [f64; NUMBERS],
    /// The extents of the shape.
    pub extents: Vec<usize>,
    /// Its attributes.
    pub attributes: Vec<usize>,
}

impl Features {
    /// Those of a subject at a point inside its axes.
    pub fn of(subject: &Subject<'_>, point: &[usize]) -> Self {
        Self::with(subject, point, None)
    }

    /// Those of a measured case: of a library with the algorithm and the tiles that it said to have, where it did.
    pub fn observed(subject: &Subject<'_>, point: &[usize], observation: &Observation) -> Self {
        Self::with(subject, point, Some(observation))
    }

    fn with(subject: &Subject<'_>, point: &[usize], observation: Option<&Observation>) -> Self {
        let (operator, dtype) = (subject.operator, subject.dtype);
        let cost = operator.cost(point, dtype);
        let written = output_bytes(operator, point, dtype).min(cost.bytes);
        let flops = cost.flops as f64;
        let mut features = Features {
            read_bytes: (cost.bytes - written) as f64,
            written_bytes: written as f64,
            flops,
            on_tensor_cores: false,
            dtype,
            launches: 1.0,
            blocks: 1.0,
            path: String::new(),
            tilings: vec![Tiling::of_blocks(1, flops)],
            of_library: Vec::new(),
            copied_bytes: 0.0,
            cached: 0.0,
            unaligned: 0.0,
            straddling: 0.0,
            algorithm: [0.0; NUMBERS],
            extents: of_axes(operator, point, true),
            attributes: of_axes(operator, point, false),
        };
        match &subject.candidate.body {
            Body::Cuda(kernel) => features.take_launches(&kernel.plan(point).0),
            Body::Cpu(body) => {
                if let Some(work) = body.shares(point) {
                    features.path = work.path.into();
                    features.tilings = vec![Tiling::of_host(&work, flops)];
                }
            }
            Body::Enqueue(body) => {
                let algorithm = observation.and_then(|observation| observation.algorithm.as_deref());
                let said = algorithm.and_then(|algorithm| body.work(point, dtype, algorithm));
                features.path = algorithm.map_or_else(String::new, kernel_of);
                features.algorithm = algorithm.map_or([0.0; NUMBERS], numbers_of);
                features.take_library(operator, point, said);
            }
        }
        // What says its tiles, and a library's product, is made for tensor cores, however short the sums are.
        let is_tiled = features.tilings.iter().any(|tiling| tiling.cache_bytes > 0.0);
        let is_narrow = !subject.candidate.body.is_host() && dtype != DType::F32;
        features.on_tensor_cores = is_narrow && (is_tiled || cost.intensity() >= DENSE);
        // What is copied first is aligned in its copy.
        let copies = features.copied_bytes > 0.0;
        let [unaligned, straddling] = apart_bytes(operator, point, dtype, copies);
        let all = cost.bytes.max(1) as f64;
        (features.unaligned, features.straddling) = (unaligned / all, straddling / all);
        features
    }

    fn take_launches(&mut self, plan: &[Launch]) {
        let blocks = |launch: &Launch| launch.grid.iter().product::<usize>();
        let most_blocks = plan.iter().map(blocks).max().unwrap_or(0);
        self.launches = plan.len().max(1) as f64;
        self.blocks = most_blocks.max(1) as f64;
        self.copied_bytes = plan.iter().filter_map(|launch| launch.work).map(|work| work.copied_bytes as f64).sum();
        let tiled = plan.iter().filter_map(|launch| Some((launch, launch.work.filter(|work| work.tiles > 0)?)));
        let tiled = tiled.max_by_key(|(_, work)| work.tiles * work.flops);
        let main = tiled.map_or_else(|| plan.iter().max_by_key(|launch| blocks(launch)), |(launch, _)| Some(launch));
        self.path = main.and_then(|launch| launch.entry.clone()).unwrap_or_default();
        let of_blocks = || Tiling::of_blocks(most_blocks, self.flops);
        self.tilings = vec![tiled.map_or_else(of_blocks, |(_, work)| Tiling::of(&work))];
    }

    fn take_library(&mut self, operator: &dyn Operator, point: &[usize], said: Option<Work>) {
        let dims = operator.output_dims(0, point);
        let columns = dims.last().copied().unwrap_or(1).max(1);
        let rows = (dims.iter().product::<usize>() / columns).max(1);
        let depth = (self.flops / (2 * rows * columns) as f64).round().max(1.0) as usize;
        self.of_library = Tiling::of_library([rows, columns, depth], self.dtype.size());
        self.tilings = said.map_or_else(|| self.of_library.clone(), |work| vec![Tiling::of(&work)]);
        // The same whatever was said: it is a part of the place.
        let fewest = self.of_library.iter().map(|tiling| tiling.tiles).fold(f64::INFINITY, f64::min);
        self.blocks = if fewest.is_finite() { fewest } else { 1.0 };
    }

    /// The same where a library was not asked for its tiles; `None` of anything else.
    pub fn unasked(&self) -> Option<Self> {
        (!self.of_library.is_empty()).then(|| {
            let (tilings, path) = (self.of_library.clone(), String::new());
            Features { tilings, path, algorithm: [0.0; NUMBERS], ..self.clone() }
        })
    }

    /// Whether the tiles are a guess.
    pub fn is_unasked(&self) -> bool {
        !self.of_library.is_empty() && self.tilings == self.of_library
    }

    /// Compulsory bytes.
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }

    /// Where the case lies among the others of its family, on a device of so many units, where the model gives it so many µs.
    pub fn place(&self, units: f64, modelled_us: f64) -> Place {
        let log = |x: f64| x.max(1.0).ln();
        let tiling = self.tilings.first().filter(|_| self.tilings.len() == 1);
        let of_blocks = Tiling::of_blocks(self.blocks as usize, self.flops);
        let tiling = tiling.unwrap_or(&of_blocks);
        let (waves, whole) = (tiling.waves(units), tiling.whole_waves(units));
        let [flops, cache_bytes] = [tiling.flops, tiling.cache_bytes].map(|of_all| of_all / tiling.tiles.max(1.0));
        let of_tiles = [
            log(self.written_bytes),
            log(flops),
            log(cache_bytes),
            log(whole * flops),
            log(whole * cache_bytes),
            // Beyond so many waves the last one is lost among them.
            if waves < MANY_WAVES && !tiling.fits_units { waves.fract() } else { 0.0 },
            waves.min(1.0),
            log(tiling.resident),
            log(tiling.extents[0]),
            log(tiling.extents[1]),
        ];
        let of_rows = [log(self.copied_bytes), self.unaligned, self.straddling, self.launches, modelled_us.ln()];
        let extents = self.extents.iter().flat_map(|&extent| [log(extent as f64), alignment(extent)]);
        let algorithm = self.algorithm.iter().map(|number| number.ln_1p());
        let names = std::iter::once(self.path.clone()).chain(self.attributes.iter().map(ToString::to_string));
        Place {
            numbers: of_tiles.into_iter().chain(of_rows).chain(extents).chain(algorithm).collect(),
            names: names.collect(),
        }
    }
}

/// Waves from which on a partial one hardly counts.
const MANY_WAVES: f64 = 50.0;

/// Numbers of an algorithm that are looked at.
pub const NUMBERS: usize = 8;

/// The power of two that an extent is a multiple of, up to 64: what vectors, tiles and tensor maps ask for.
fn alignment(extent: usize) -> f64 {
    f64::from(extent.trailing_zeros().min(6))
}

/// The numbers in what a library says of its algorithm.
fn numbers_of(algorithm: &str) -> [f64; NUMBERS] {
    let mut numbers = [0.0; NUMBERS];
    let said = algorithm.split(", ").map(|part| part.rsplit_once(' ').and_then(|(_, number)| number.parse().ok()));
    numbers.iter_mut().zip(said).for_each(|(number, said)| *number = said.unwrap_or(0.0));
    numbers
}

/// What a library says of its algorithm, less its tiles, their order and the parts of k: the tiling has those.
fn kernel_of(algorithm: &str) -> String {
    let of_tiling = ["tile ", "split_k ", "swizzle "];
    let parts = algorithm.split(", ").filter(|part| !of_tiling.iter().any(|name| part.starts_with(name)));
    parts.collect::<Vec<_>>().join(", ")
}

fn of_axes(operator: &dyn Operator, point: &[usize], is_extent: bool) -> Vec<usize> {
    let axes = operator.axes().iter().zip(point);
    axes.filter(|(axis, _)| axis.is_extent() == is_extent).map(|(_, &at)| at).collect()
}

/// Bytes of the tensors whose rows begin off a boundary of vectors, and off one of lines alone. Inputs that are copied first
/// are of the latter kind then: copies are made for vectors.
fn apart_bytes(operator: &dyn Operator, point: &[usize], dtype: DType, copies: bool) -> [f64; 2] {
    let mut apart = [0.0; 2];
    let mut count = |dims: Vec<usize>, dtype: DType, is_copied: bool| {
        let row = dims.last().copied().unwrap_or(1) * dtype.size();
        let bytes = (dims.iter().product::<usize>() * dtype.size()) as f64;
        if dims.len() < 2 || row.is_multiple_of(LINE_BYTES) {
            return;
        }
        apart[usize::from(is_copied || row.is_multiple_of(VECTOR_BYTES))] += bytes;
    };
    for (i, port) in operator.inputs().iter().enumerate() {
        count(operator.input_dims(i, point), port.dtype(dtype), copies);
    }
    for (i, port) in operator.outputs().iter().enumerate() {
        count(operator.output_dims(i, point), port.dtype(dtype), false);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cuda, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::operator::Op;

    crate::shape! { struct Matrix { rows: 1..=1 << 20, cols: 1..=1 << 16 } }

    fn features(launches: impl Fn(&Matrix) -> Vec<Launch> + Send + Sync + 'static, point: [usize; 2]) -> Features {
        let operator = Op::<Matrix>::new("scale")
            .input("x", |s| [s.rows, s.cols])
            .input("scale", |s| [s.cols])
            .output("y", |s| [s.rows, s.cols])
            .cost(|s, t| Cost { bytes: (2 * s.rows + 1) * s.cols * t.size(), flops: s.rows * s.cols });
        let candidate: Candidate = Cuda::source("", "scale", launches).named("cuda");
        Features::of(&Subject { operator: &operator, candidate: &candidate, dtype: DType::BF16 }, &point)
    }

    #[test]
    fn a_persistent_kernel_has_the_tiles_that_it_says_and_not_its_blocks() {
        let work = Work { tiles: 500, resident: 2, flops: 7, cache_bytes: 3, ..Work::default() };
        let found = features(
            move |_| {
                vec![
                    Launch::blocks(9, 32).shares(Work::copy(10, 20)),
                    Launch::blocks(132, 256).entry("main").shares(work),
                ]
            },
            [64, 64],
        );
        let tiling =
            Tiling { tiles: 500.0, resident: 2.0, flops: 3500.0, cache_bytes: 1500.0, ..Tiling::of_blocks(1, 0.0) };
        assert_eq!(found.tilings, [tiling]);
        assert_eq!((found.launches, found.blocks, found.copied_bytes), (2.0, 132.0, 30.0));
        assert_eq!(found.path, "main");
        let plain = features(|s| vec![Launch::blocks(s.rows, 256)], [64, 64]);
        assert_eq!(plain.tilings, [Tiling::of_blocks(64, 64.0 * 64.0)]);
    }

    #[test]
    fn what_a_library_says_of_its_algorithm_is_read() {
        let said = "algorithm 66, tile 20, stages 35, split_k 2, swizzle 0, custom 3, inner_shape ?, cluster_shape ?";
        assert_eq!(kernel_of(said), "algorithm 66, stages 35, custom 3, inner_shape ?, cluster_shape ?");
        assert_eq!(numbers_of(said), [66.0, 20.0, 35.0, 2.0, 0.0, 3.0, 0.0, 0.0]);
        assert_eq!(numbers_of("cuDNN 9.14.0: engine 2"), [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn rows_off_a_boundary_are_counted() {
        let aligned = features(|s| vec![Launch::blocks(s.rows, 256)], [64, 64]);
        assert!(aligned.unaligned.abs() < 1e-9 && aligned.straddling.abs() < 1e-9);
        let odd = features(|s| vec![Launch::blocks(s.rows, 256)], [64, 65]);
        assert!((odd.unaligned - 128.0 / 129.0).abs() < 1e-9, "the vector has no rows: {}", odd.unaligned);
        let copied = features(|s| vec![Launch::blocks(s.rows, 256).shares(Work::copy(1, 1))], [64, 65]);
        assert!((copied.unaligned - 64.0 / 129.0).abs() < 1e-9, "{}", copied.unaligned);
        assert!((copied.straddling - 64.0 / 129.0).abs() < 1e-9, "{}", copied.straddling);
        let lines = features(|s| vec![Launch::blocks(s.rows, 256)], [64, 72]);
        assert!(lines.unaligned.abs() < 1e-9 && (lines.straddling - 128.0 / 129.0).abs() < 1e-9, "{lines:?}");
        assert_ne!(odd.place(132.0, 1.0), aligned.place(132.0, 1.0));
    }
}
