//! The kernels of the catalogue as subjects, from their committed PTX.

use super::buffers::Buffers;
use super::subject::{Argument, Expected, Group, Subject};
use kernelgate::core::candidate::{Body, Candidate, Kernel, Language};
use kernelgate::core::distribution::Distribution;
use kernelgate::core::dtype::DType;
use kernelgate::core::launch::Launch as Plan;
use kernelgate::core::operator::{Operator, draw_inputs};
use kernelgate::core::shape::outside;
use kernelgate::core::tolerance::Tolerance;
use kernelgate::sim::{Dim, Launch};
use kernelgate::toolchain::committed::{Committed, FOLDER};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Shapes of an operator with tails, without, and on other paths of its kernels.
fn shapes(operator: &dyn Operator) -> Vec<Vec<usize>> {
    match operator.axes().iter().map(|axis| axis.name).collect::<Vec<_>>().as_slice() {
        ["n"] => vec![vec![1037], vec![8192], vec![3]],
        ["m", "n", "k"] => products(),
        // Then the activation by its number, and whether there is a residual.
        ["m", "n", "k", "activation", "residual"] => layers(products()),
        ["batch", "m", "n", "k", "transposed_a", "transposed_b"] => batches(products()),
        ["vocab", "dim", "ids"] => vec![vec![7, 19, 133], vec![50, 128, 20], vec![9, 1024, 5], vec![3, 4100, 2]],
        ["rows", "cols", rest @ ..] => [
            [3, 301],
            [2, 259],
            [3, 507],
            [2, 777],
            [2, 531],
            [2, 1024],
            [37, 33],
            [2, 5000],
            [1, 20_000],
            [2, 1501],
            [2, 3003],
            [2, 5003],
        ]
        .into_iter()
        .map(|rows| rows.into_iter().chain(rest.iter().map(|_| 0)).collect())
        .collect(),
        ["tokens", "heads", "half"] => {
            vec![vec![3, 5, 7], vec![37, 2, 32], vec![5, 3, 64], vec![2, 2, 128], vec![2, 1, 256]]
        }
        // batch, heads, group, queries, keys, dim, causal: several tiles of keys, rows that see none, odd widths.
        ["batch", .., "keys", "dim", "causal"] => {
            let few_queries = vec![1, 3, 2, 2, 200, 72, 1];
            vec![vec![1, 2, 2, 5, 70, 24, 0], vec![2, 1, 1, 70, 67, 13, 1], vec![1, 1, 2, 3, 300, 100, 0], few_queries]
        }
        // Over a cache or pages: several stretches of keys, odd widths, groups, sequences that differ.
        ["batch", "heads", "group", "queries", "past", "dim"] => {
            vec![vec![2, 2, 3, 5, 40, 24], vec![1, 2, 4, 1, 300, 64], vec![1, 1, 2, 37, 30, 13]]
        }
        ["batch", "heads", "group", "past", "spare", "dim"] => {
            vec![
                vec![2, 3, 2, 40, 3, 24],
                vec![1, 2, 4, 300, 5, 64],
                vec![1, 1, 7, 130, 2, 128],
                vec![2, 1, 1, 9, 2, 13],
            ]
        }
        ["batch", "heads", "group", "shortest", "spread", "page", "pages", "dim"] => {
            vec![
                vec![3, 2, 3, 20, 300, 16, 30, 24],
                vec![2, 1, 9, 200, 70, 32, 40, 128],
                vec![2, 2, 2, 260, 9, 4, 90, 13],
            ]
        }
        // batch, channels, height, width, filters, then taps and activation by their numbers.
        ["batch", "channels", "height", "width", "filters", "taps", "activation"] => {
            vec![vec![2, 3, 9, 11, 5, 1, 2], vec![1, 40, 12, 10, 24, 1, 1], vec![1, 8, 5, 4, 8, 2, 3]]
        }
        // batch, channels, height, width, filters, tall, wide, then stride, padding, dilation and layout by their numbers.
        ["batch", "channels", "height", "width", "filters", ..] => {
            vec![vec![2, 3, 9, 11, 5, 3, 3, 0, 1, 0, 0], vec![1, 5, 12, 10, 70, 3, 2, 1, 2, 1, 1]]
        }
        // batch, channels, height, width, tall, wide, then stride, padding, layout and activation by their numbers.
        ["batch", "channels", "height", "width", "tall", ..] => {
            vec![vec![2, 3, 9, 11, 3, 3, 0, 1, 0, 1], vec![1, 5, 12, 10, 2, 2, 1, 0, 1, 2]]
        }
        ["batch", "n", "k"] => {
            vec![
                vec![1, 33, 70],
                vec![3, 70, 129],
                vec![2, 5, 1000],
                vec![1, 300, 264],
                vec![5, 29, 648],
                vec![9, 25, 4168],
            ]
        }
        ["steps", "batch", "inputs", "hidden", "layers"] => vec![vec![2, 3, 5, 17, 1], vec![1, 2, 7, 70, 0]],
        // An empty shape launches nothing.
        _ => operator
            .shapes()
            .iter()
            .filter(|point| operator.cost(point, DType::F32).bytes > 0)
            .min_by_key(|point| operator.cost(point, DType::F32).bytes)
            .cloned()
            .into_iter()
            .collect(),
    }
}

/// Of a matrix product: m, n and k.
fn products() -> Vec<Vec<usize>> {
    [[33, 70, 45], [130, 128, 64], [64, 36, 100], [40, 24, 300]].map(Vec::from).into()
}

/// Single rows and columns, several tiles, tiles of every width.
fn further_products() -> Vec<Vec<usize>> {
    let wide = [[129, 260, 24], [257, 130, 17], [200, 136, 264], [8, 512, 72], [100, 8, 136], [72, 200, 640]];
    let long = [[130, 264, 1032], [300, 264, 328], [136, 520, 16], [64, 64, 256], [70, 72, 192]];
    let odd = [[65, 71, 333], [150, 77, 130], [40, 33, 700], [129, 131, 67], [17, 200, 257]];
    // Factors whose lines end anywhere in a pack, and products whose last row or column is the first of a thread's.
    let ends = [[64, 31, 39], [40, 23, 71], [33, 38, 46], [134, 135, 103], [97, 72, 40], [33, 72, 40], [89, 128, 64]];
    (1..34)
        .flat_map(|at| [vec![at, 67 - at, 33 + at % 3], vec![at, 5, 1 + at % 5]])
        .chain(wide.into_iter().chain(long).chain(odd).chain(ends).map(Vec::from))
        .collect()
}

/// The same products with every activation in turn, with a residual and without.
fn layers(products: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let what_follows = (0..3).flat_map(|activation| [1, 0].map(|residual| [activation, residual])).cycle();
    products.into_iter().zip(what_follows).map(|(product, follows)| [product, follows.to_vec()].concat()).collect()
}

/// Batches of the same products in every layout in turn, of two and three items.
fn batches(products: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let layouts = [[0, 1], [1, 0], [0, 0], [1, 1]].into_iter().cycle();
    let items = products.into_iter().zip(layouts).enumerate();
    items.map(|(at, (product, layout))| [vec![2 + at % 2], product, layout.to_vec()].concat()).collect()
}

/// Rows and columns where several rows share a block or a warp.
const TALL: [[usize; 2]; 9] =
    [[70, 3], [40, 5], [33, 17], [130, 8], [300, 2], [600, 1], [9, 1024], [5, 2048], [3, 4100]];

/// Widths at which kernels that hold rows in registers change their ways.
fn widths(operator: &dyn Operator) -> Vec<Vec<usize>> {
    match operator.axes().iter().map(|axis| axis.name).collect::<Vec<_>>().as_slice() {
        ["n"] => (1..40)
            .chain([48, 255, 256, 257, 512, 513, 514, 516, 1023, 1024, 1025, 1040, 1536, 2048, 4095, 4096, 5008, 8192])
            .map(|n| vec![n])
            .collect(),
        ["m", "n", "k"] => further_products(),
        ["m", "n", "k", "activation", "residual"] => layers(further_products()),
        ["batch", "m", "n", "k", "transposed_a", "transposed_b"] => {
            // Several stretches of sums in each of the four layouts.
            let long = [[40, 70, 300]; 4].into_iter().chain([[65, 32, 450]; 4]).map(Vec::from);
            let ends = [[102, 39, 23], [98, 103, 30], [50, 71, 31]].into_iter().flat_map(|product| [product; 4]);
            batches(further_products().into_iter().chain(long).chain(ends.map(Vec::from)).collect())
        }
        ["batch", "n", "k"] => (1..34)
            .flat_map(|at| [vec![1 + at % 9, at, 67 - at], vec![1 + at % 4, 70 - at, 8 * at]])
            .chain([[8, 64, 2056], [1, 20, 4100], [4, 130, 512], [17, 9, 640], [1, 1, 1]].map(Vec::from))
            // Rows that end in a part of a step, and few rows of several steps.
            .chain([[1, 9, 648], [1, 5, 1288], [3, 11, 264]].map(Vec::from))
            .collect(),
        ["batch", .., "keys", "dim", "causal"] => (1..34)
            .map(|at| vec![1, 1, 1 + at % 2, at, 2 * at - at % 3, 3 + 7 * at % 40, at % 2])
            .chain([[1, 1, 1, 9, 5, 8, 1], [1, 1, 1, 1, 257, 40, 0], [1, 1, 1, 130, 131, 72, 1]].map(Vec::from))
            .chain([[1, 1, 1, 3, 520, 64, 1], [1, 1, 1, 2, 65, 256, 0], [1, 2, 1, 64, 128, 128, 1]].map(Vec::from))
            .chain([[1, 1, 1, 70, 200, 128, 1], [1, 1, 2, 130, 70, 100, 1], [2, 1, 1, 5, 300, 200, 1]].map(Vec::from))
            .chain([[2, 4, 1, 2, 1041, 40, 0], [1, 8, 2, 1, 1060, 128, 1]].map(Vec::from))
            .collect(),
        ["batch", "channels", "height", "width", "filters", "taps", "activation"] => (1..12)
            .flat_map(|at| {
                let of = |channels, filters| vec![1 + at % 2, channels, 4 + at, 17 - at, filters, at % 4, at / 2 % 4];
                [of(at, 3 * at + 1), of(8 * at, 8 * (1 + at % 3))]
            })
            .collect(),
        ["batch", "channels", "height", "width", "filters", ..] => (1..12)
            .map(|at| {
                vec![
                    1 + at % 2,
                    at,
                    4 + at,
                    15 - at,
                    13 - at,
                    1 + at % 3,
                    1 + at % 4,
                    at % 3,
                    at / 3 % 3,
                    at / 2 % 2,
                    at % 2,
                ]
            })
            .chain([
                // More taps than one stretch, more outputs and filters than a tile.
                vec![1, 130, 6, 7, 3, 2, 2, 0, 0, 0, 1],
                vec![1, 65, 7, 6, 66, 3, 3, 1, 1, 0, 0],
                vec![3, 4, 17, 19, 9, 5, 4, 2, 1, 0, 1],
                vec![1, 1, 10, 10, 2, 1, 1, 0, 0, 0, 0],
                vec![1, 520, 2, 3, 2, 1, 1, 0, 0, 0, 0],
                vec![1, 70, 5, 5, 4, 3, 5, 0, 2, 0, 1],
                // Channels in whole packs, in both layouts, and planes in whole packs.
                vec![2, 8, 10, 9, 16, 3, 3, 1, 1, 0, 1],
                vec![1, 24, 9, 9, 40, 3, 3, 0, 1, 1, 0],
                vec![2, 64, 8, 8, 72, 3, 3, 0, 1, 0, 1],
                vec![1, 16, 16, 8, 24, 1, 1, 0, 0, 0, 0],
                vec![2, 5, 33, 35, 6, 3, 3, 2, 1, 0, 0],
            ])
            .collect(),
        ["steps", "batch", "inputs", "hidden", "layers"] => [
            [3, 5, 33, 9, 0],
            [2, 17, 9, 33, 1],
            [4, 1, 1, 1, 1],
            [1, 1, 64, 8, 0],
            [1, 2, 4, 3, 0],
            [2, 2, 3, 4, 0],
            [2, 9, 3, 15, 0],
            [3, 9, 24, 40, 0],
            [2, 33, 16, 24, 1],
            [3, 70, 9, 37, 1],
            [2, 6, 130, 72, 0],
            [1, 130, 40, 36, 0],
            [2, 2, 5, 4, 1],
        ]
        .map(Vec::from)
        .into(),
        ["vocab", "dim", "ids"] => (1..34)
            .map(|at| vec![at, at * 4 + at % 3, 3 + at])
            // Outputs that end in a thread's second pack, rows that end with the table, and rows of several rounds.
            .chain([[5, 19, 27], [5, 19, 29], [5, 19, 30], [2, 508, 9], [3, 4104, 2]].map(Vec::from))
            .collect(),
        ["rows", "cols", rest @ ..] => {
            let cols = (1..33).chain((32..1056).step_by(32).flat_map(|at| [at, at + 1]));
            let cols = cols.chain((1024..8193).step_by(512).flat_map(|at| [at, at + 1]));
            let cols = cols.chain([5008, 8208, 9000, 12_289, 16_384, 16_400, 20_004, 24_577, 32_752]);
            let points = cols.map(|cols| [2, cols]).chain(TALL);
            points.map(|point| point.into_iter().chain(rest.iter().map(|_| 0)).collect()).collect()
        }
        _ => Vec::new(),
    }
}

/// Rows that end within the last warp, once in each stretch of its elements or packs: aligned ones and others.
fn ragged(operator: &dyn Operator) -> Vec<Vec<usize>> {
    let axes = operator.axes().len();
    if !operator.axes().iter().map(|axis| axis.name).take(2).eq(["rows", "cols"]) {
        return Vec::new();
    }
    let aligned = [(512, 4), (1024, 8), (4096, 8), (8192, 8)];
    let packs = aligned.into_iter().flat_map(|(from, stretches)| (0..stretches).map(move |k| from + 128 * k + 8));
    let anywhere = [2048, 4096].into_iter().flat_map(|from| (0..8).map(move |k| from + 128 * k + 17));
    let elements = (8..64).map(|k| 32 * k + 1);
    let cols = packs.chain(anywhere).chain(elements);
    cols.map(|cols| [2, cols].into_iter().chain((2..axes).map(|_| 0)).collect()).collect()
}

/// The type in which a candidate is taken: single precision where it has it.
fn dtype_of(candidate: &Candidate) -> Option<DType> {
    let dtypes = &candidate.traits.dtypes;
    [DType::F32, DType::BF16, DType::F16].into_iter().find(|dtype| dtypes.contains(dtype))
}

/// The committed PTX of a kernel.
fn committed(kernel: &Kernel, dtype: DType) -> Option<Arc<str>> {
    if kernel.program.language == Language::Ptx {
        return Some((*kernel.program.text).into());
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    Committed::new(folder).find(&kernel.program, dtype).map(|ptx| ptx.text.into())
}

/// The CUDA candidates of the catalogue, by the entry that they launch first.
pub fn kernels() -> &'static [Group] {
    static ALL: LazyLock<Vec<Group>> = LazyLock::new(draw_all);
    &ALL
}

fn draw_all() -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for suite in kernelgate::ops::catalogue() {
        for candidate in &suite.candidates {
            let (Body::Cuda(kernel), Some(dtype)) = (&candidate.body, dtype_of(candidate)) else { continue };
            let Some(ptx) = committed(kernel, dtype) else { continue };
            let mut groups: BTreeMap<String, Group> = BTreeMap::new();
            let operator = suite.operator.as_ref();
            let subject = |point: &[usize], draw| {
                let subject = case(operator, candidate, kernel, dtype, point, draw, &ptx)?;
                Some((subject.launch.entry.clone(), subject))
            };
            let distributions = [Distribution::Normal, Distribution::NonFinite];
            let distributions = distributions.into_iter().filter(|one| operator.distributions().contains(one));
            for (point, distribution) in
                shapes(operator).iter().flat_map(|point| distributions.clone().map(move |d| (point, d)))
            {
                let found = subject(point, Draw::From(distribution));
                found.into_iter().for_each(|(entry, subject)| groups.entry(entry).or_default().subjects.push(subject));
            }
            // Inputs that show what ordinary ones forgive: a maximum that was not subtracted, say.
            let rare = operator
                .distributions()
                .iter()
                .filter(|one| ![Distribution::Normal, Distribution::Uniform, Distribution::NonFinite].contains(one));
            let rare = rare.flat_map(|one| shapes(operator).into_iter().map(move |point| (point, *one)));
            for (entry, subject) in rare.filter_map(|(point, one)| subject(&point, Draw::From(one))) {
                groups.entry(entry).or_default().further.push(subject);
            }
            let peaks = shapes(operator).into_iter().flat_map(|point| (0..4).map(move |third| (point.clone(), third)));
            for (entry, subject) in peaks.filter_map(|(point, third)| subject(&point, Draw::Peak { third })) {
                groups.entry(entry).or_default().further.push(subject);
            }
            for (entry, subject) in
                widths(operator).iter().filter_map(|point| subject(point, Draw::From(Distribution::Normal)))
            {
                groups.entry(entry).or_default().further.push(subject);
            }
            // What counts an element too many shows where the mean is large.
            let large = operator.distributions().iter().find(|one| **one == Distribution::LargeMean);
            let large = Draw::From(large.copied().unwrap_or(Distribution::Normal));
            for (entry, subject) in ragged(operator).iter().filter_map(|point| subject(point, large)) {
                groups.entry(entry).or_default().further.push(subject);
            }
            // The ways of one version for short rows are often those of another.
            let is_new = |group: &Group| {
                let same = |a: &Subject, b: &Subject| (&a.ptx, &a.launch.entry) == (&b.ptx, &b.launch.entry);
                let first = group.subjects.first();
                first.is_some_and(|first| {
                    !all.iter().any(|known| known.subjects.first().is_some_and(|known| same(known, first)))
                })
            };
            let new: Vec<Group> = groups.into_values().filter(is_new).collect();
            all.extend(new);
        }
    }
    all
}

/// A CUDA candidate at a shape; `None` where a subject cannot hold what it takes.
pub fn candidate(operator: &str, name: &str, point: &[usize]) -> Option<Subject> {
    let suite = kernelgate::ops::catalogue().into_iter().find(|suite| suite.operator.name() == operator)?;
    let candidate = suite.candidates.iter().find(|candidate| candidate.name == name)?;
    let (Body::Cuda(kernel), Some(dtype)) = (&candidate.body, dtype_of(candidate)) else { return None };
    let ptx = committed(kernel, dtype)?;
    case(suite.operator.as_ref(), candidate, kernel, dtype, point, Draw::From(Distribution::Normal), &ptx)
}

/// What the inputs of a case hold.
#[derive(Debug, Clone, Copy)]
enum Draw {
    From(Distribution),
    /// Normal numbers, and one far above them in each row of the first input: so many thirds along it.
    Peak {
        third: usize,
    },
}

/// Far enough above normal numbers that exponentials without the largest number subtracted overflow.
const PEAK: f32 = 200.0;

/// The inputs: their bytes and their values.
fn inputs(operator: &dyn Operator, point: &[usize], dtype: DType, draw: Draw) -> (Vec<Vec<u8>>, Vec<Vec<f64>>) {
    let distribution = if let Draw::From(distribution) = draw { distribution } else { Distribution::Normal };
    let inputs = draw_inputs(operator, point, dtype, distribution, 1);
    let mut bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.bytes().to_vec()).collect();
    let mut values: Vec<Vec<f64>> = inputs.iter().map(|input| input.to_f64()).collect();
    if let (Draw::Peak { third }, [_, columns, ..], DType::F32) = (draw, point, dtype)
        && operator.axes().iter().map(|axis| axis.name).take(2).eq(["rows", "cols"])
    {
        for row in (0..values[0].len()).step_by(*columns) {
            let at = row + (columns - 1) * third / 3;
            values[0][at] = f64::from(PEAK);
            bytes[0][4 * at..4 * at + 4].copy_from_slice(&PEAK.to_le_bytes());
        }
    }
    (bytes, values)
}

/// A candidate at one shape, with one draw of inputs.
fn case(
    operator: &dyn Operator,
    candidate: &Candidate,
    kernel: &Kernel,
    dtype: DType,
    point: &[usize],
    draw: Draw,
    ptx: &Arc<str>,
) -> Option<Subject> {
    let plan = kernel.plan(point).0;
    let plan: Vec<&Plan> = plan.iter().filter(|launch| !launch.is_empty()).collect();
    let (first, then) = plan.split_first()?;
    // Shapes are listed by the names of axes, which operators with other bounds have too. What another operator's program
    // does is tried there.
    if outside(operator.axes(), point).is_some() || plan.iter().any(|launch| launch.program.is_some()) {
        return None;
    }
    let (inputs, wide) = inputs(operator, point, dtype, draw);
    let mut buffers = Buffers::new(
        inputs.into_iter().zip(operator.inputs()).map(|(data, port)| (port.name.to_owned(), Argument::Input(data))),
    );
    let lengths: Vec<usize> =
        (0..operator.outputs().len()).map(|at| operator.output_dims(at, point).iter().product()).collect();
    let outputs = operator.outputs().iter().map(|port| (port.name, port.dtype(dtype)));
    for (port, length) in operator.outputs().iter().zip(&lengths).filter(|(port, _)| !port.in_place) {
        buffers.add(port.name, Argument::Output(length * port.dtype(dtype).size()));
    }
    let workspace = candidate.body.workspace_bytes(point);
    if workspace > 0 {
        buffers.add("workspace", Argument::Output(workspace));
    }
    let arguments = buffers.arguments(first)?;
    let spare = buffers.rest();
    let launch = |plan: &Plan| {
        let dim = |[x, y, z]: [usize; 3]| Dim::new(x as u32, y as u32, z as u32);
        Launch::new(kernel.entry_of(plan, dtype), dim(plan.grid), dim(plan.block))
            .cluster(plan.cluster as u32)
            .dynamic_shared(plan.shared_bytes as u32)
    };
    let then = then.iter().map(|plan| Some((launch(plan), buffers.arguments(plan)?))).collect::<Option<Vec<_>>>()?;
    let wide: Vec<&[f64]> = wide.iter().map(Vec::as_slice).collect();
    let mut values: Vec<Vec<f64>> = lengths.iter().map(|length| vec![0.0; *length]).collect();
    operator.reference(point, dtype, &wide, &mut values);
    let mut magnitudes = values.clone();
    operator.magnitude(point, &wide, &mut magnitudes);
    let depth = operator.depth(point);
    let own = candidate.traits.tolerance.as_ref().or_else(|| operator.tolerance());
    let tolerance = own.map_or_else(Tolerance::default, |own| own.tolerance);
    let mut expected = Vec::new();
    for ((name, dtype), (values, magnitudes)) in outputs.zip(values.into_iter().zip(magnitudes)) {
        let allowed = |tolerance: Tolerance| {
            let pairs = values.iter().zip(&magnitudes);
            pairs.map(|(value, size)| tolerance.allowed(dtype, *value, depth, *size)).collect::<Vec<_>>()
        };
        // As the gate does: twice the error of the arithmetic before the last rounding.
        let at_the_edge = allowed(Tolerance { factor: 2.0 * tolerance.factor, ..tolerance });
        let (argument, allowed) = (buffers.number(name)?, allowed(tolerance));
        expected.push(Expected { argument, dtype, values, allowed, at_the_edge });
    }
    let launch = launch(first);
    Some(Subject {
        name: format!("{} {} {}", operator.name(), candidate.name, launch.entry),
        ptx: ptx.clone(),
        launch,
        arguments,
        spare,
        then,
        expected,
        is_async: first.cluster > 1 || !first.pointers,
    })
}
