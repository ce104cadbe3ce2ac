//! Right kernels with their arguments and expected results: what is mutated, fuzzed, covered, timed and compared.

mod function_table;
mod split_k;

use half::{bf16, f16};
use kernelgate::core::dtype::DType;
use kernelgate::core::seed::{rng, unit};
use kernelgate::sim::{
    Accumulation, Arg, Completion, Dim, Element, Error, Finding, Launch, Memory, Metrics, Module, Options, Pointer,
    Swizzle, TensorMap, WarpOrder, launch,
};
use std::time::{Duration, Instant};

/// What a kernel gets.
#[derive(Clone)]
pub enum Argument {
    Scalar(Vec<u8>),
    Input(Vec<u8>),
    /// Bytes without content.
    Output(usize),
    Map(View),
    /// The buffer with that number once more.
    Again(usize),
}

/// A tensor map of a matrix of its own, row by row.
#[derive(Clone)]
pub struct View {
    /// `None` for an output.
    pub data: Option<Vec<u8>>,
    pub element_bytes: u32,
    pub rows: u64,
    pub columns: u64,
    pub box_rows: u32,
    pub box_columns: u32,
    pub swizzle: Swizzle,
}

/// What a buffer must hold afterwards.
#[derive(Clone)]
pub struct Expected {
    pub argument: usize,
    pub dtype: DType,
    pub values: Vec<f64>,
    pub allowed: Vec<f64>,
    /// The same where approximations err as far as they may.
    pub at_the_edge: Vec<f64>,
}

#[derive(Clone)]
pub struct Subject {
    pub name: String,
    pub ptx: String,
    /// Without arguments.
    pub launch: Launch,
    pub arguments: Vec<Argument>,
    /// Buffers that the first launch does not take, numbered behind its arguments.
    pub spare: Vec<Argument>,
    /// Launches behind the first, whose arguments are scalars and buffers once more.
    pub then: Vec<(Launch, Vec<Argument>)>,
    pub expected: Vec<Expected>,
    /// Asynchronous copies, barrier objects, warp-group products or clusters.
    pub is_async: bool,
}

/// A launch and what it needs.
struct Placed {
    memory: Memory,
    buffers: Vec<Option<(Pointer, usize)>>,
    call: Launch,
}

/// What a run left.
pub struct Outcome {
    pub findings: Vec<Finding>,
    /// Of each launch.
    pub metrics: Vec<Metrics>,
    /// By argument; empty for scalars.
    pub buffers: Vec<Vec<u8>>,
}

impl Subject {
    /// Runs a text, which may be another than the subject's own, on fresh memory.
    pub fn run(&self, module: &Module, options: &Options) -> Result<Outcome, Error> {
        let Placed { mut memory, mut buffers, call } = self.place()?;
        let mut outcome = Outcome { findings: Vec::new(), metrics: Vec::new(), buffers: Vec::new() };
        let mut add = |call: &Launch, memory: &mut Memory| -> Result<bool, Error> {
            let report = launch(module, call, memory, options)?;
            outcome.metrics.push(report.metrics);
            outcome.findings = report.findings;
            Ok(outcome.findings.is_empty())
        };
        let mut goes_on = add(&call, &mut memory)?;
        for (launch, arguments) in &self.then {
            if !goes_on {
                break;
            }
            let mut call = launch.clone();
            for argument in arguments {
                call = call.arg(place(argument, &mut memory, &mut buffers)?);
            }
            goes_on = add(&call, &mut memory)?;
        }
        let read = |buffer: &Option<(Pointer, usize)>| {
            let Some((pointer, bytes)) = buffer else { return Ok(Vec::new()) };
            let mut out = vec![0; *bytes];
            memory.read(*pointer, &mut out).map(|()| out)
        };
        outcome.buffers = buffers.iter().map(read).collect::<Result<_, _>>()?;
        Ok(outcome)
    }

    /// The buffers in fresh memory, and the first launch with them.
    fn place(&self) -> Result<Placed, Error> {
        let (mut memory, mut buffers) = (Memory::new(), Vec::new());
        let mut call = self.launch.clone();
        for argument in &self.arguments {
            call = call.arg(place(argument, &mut memory, &mut buffers)?);
        }
        for argument in &self.spare {
            place(argument, &mut memory, &mut buffers)?;
        }
        Ok(Placed { memory, buffers, call })
    }

    /// How long the first launch takes.
    pub fn time(&self, module: &Module, options: &Options) -> Result<Duration, Error> {
        let Placed { mut memory, call, .. } = self.place()?;
        let start = Instant::now();
        launch(module, &call, &mut memory, options)?;
        Ok(start.elapsed())
    }

    /// Elements that are not as expected of a run with these options.
    pub fn wrong(&self, outcome: &Outcome, options: &Options) -> usize {
        let wrong = |expected: &Expected| {
            let allowed = if options.adversarial_approximations { &expected.at_the_edge } else { &expected.allowed };
            let got = values(expected.dtype, &outcome.buffers[expected.argument]);
            let pairs = got.into_iter().zip(expected.values.iter().zip(allowed));
            pairs.filter(|(got, (value, allowed))| !is_right(expected.dtype, *got, **value, **allowed)).count()
        };
        self.expected.iter().map(wrong).sum()
    }
}

/// What an argument passes; buffers are made and remembered.
fn place(argument: &Argument, memory: &mut Memory, buffers: &mut Vec<Option<(Pointer, usize)>>) -> Result<Arg, Error> {
    let mut hold = |bytes: usize, data: Option<&[u8]>| -> Result<Pointer, Error> {
        let pointer = memory.alloc(bytes as u64, data)?;
        buffers.push(Some((pointer, bytes)));
        Ok(pointer)
    };
    Ok(match argument {
        Argument::Input(data) => Arg::from(hold(data.len(), Some(data))?),
        Argument::Output(bytes) => Arg::from(hold(*bytes, None)?),
        Argument::Map(view) => {
            let bytes = (view.rows * view.columns) as usize * view.element_bytes as usize;
            let base = hold(bytes, view.data.as_deref())?;
            Arg::bytes(&view.map(base).to_bytes()?)
        }
        Argument::Scalar(bytes) => {
            buffers.push(None);
            Arg::bytes(bytes)
        }
        Argument::Again(at) => Arg::from(buffers[*at].expect("a buffer").0),
    })
}

fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let half = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
    match dtype {
        DType::F16 => bytes.chunks_exact(2).map(|pair| f16::from_bits(half(pair)).to_f64()).collect(),
        DType::BF16 => bytes.chunks_exact(2).map(|pair| bf16::from_bits(half(pair)).to_f64()).collect(),
        _ => {
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]).into()).collect()
        }
    }
}

fn is_right(dtype: DType, got: f64, value: f64, allowed: f64) -> bool {
    (value.is_nan() && got.is_nan()) || got == dtype.round(value) || (got - value).abs() <= allowed
}

impl View {
    pub fn map(&self, base: Pointer) -> TensorMap {
        TensorMap {
            base,
            element: if self.element_bytes == 2 { Element::Bf16 } else { Element::F32 },
            extents: vec![self.columns, self.rows],
            strides_bytes: vec![self.columns * u64::from(self.element_bytes)],
            box_extents: vec![self.box_columns, self.box_rows],
            swizzle: self.swizzle,
            walk: None,
        }
    }
}

/// The modes of a search, each by its name.
pub fn modes(seed: u64) -> [(&'static str, Options); 4] {
    let base = Options { seed, ..Options::default() };
    [
        ("in order", Options::default()),
        (
            "descending, late copies",
            Options { warp_order: WarpOrder::Descending, completion: Completion::Late, ..Options::default() },
        ),
        ("seeded, late copies", Options { warp_order: WarpOrder::Seeded, completion: Completion::Late, ..base }),
        (
            "seeded, shuffled sums, adversarial",
            Options {
                warp_order: WarpOrder::Seeded,
                accumulation: Accumulation::Shuffled,
                adversarial_approximations: true,
                ..base
            },
        ),
    ]
}

fn bytes_of_f32(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect()
}

fn random(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = rng(seed);
    (0..count).map(|_| f64::from((2.0 * unit(&mut rng) - 1.0) as f32)).collect()
}

/// Integers of few bits: exact in every format, in every order of summation.
fn small(count: usize, seed: u64) -> Vec<f64> {
    random(count, seed).iter().map(|value| (value * 4.0).round()).collect()
}

/// A file of `fixtures/ptx`.
pub fn fixture(name: &str) -> String {
    let path = format!("{}/fixtures/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn scalar(value: i32) -> Argument {
    Argument::Scalar(value.to_le_bytes().to_vec())
}

/// a[m,k] * b[k,n].
fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let element = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(element).collect()
}

fn transposed(values: &[f64], columns: usize) -> Vec<f64> {
    let rows = values.len() / columns;
    (0..values.len()).map(|at| values[at % rows * columns + at / rows]).collect()
}

fn bf16_bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| bf16::from_f64(*value).to_le_bytes()).collect()
}

/// One kernel at several shapes.
#[derive(Clone, Default)]
pub struct Group {
    /// The same text and entry, each with other arguments.
    pub subjects: Vec<Subject>,
    /// Further shapes, many and small.
    pub further: Vec<Subject>,
}

impl From<Vec<Subject>> for Group {
    fn from(subjects: Vec<Subject>) -> Self {
        Group { subjects, further: Vec::new() }
    }
}

/// Kernels of `fixtures/ptx` that use what the catalogue does not.
pub fn fixtures() -> Vec<Group> {
    let mut all: Vec<Group> = vec![
        vec![gemm_mma([64, 128, 160]), gemm_mma([128, 64, 32])].into(),
        vec![scale(2, 11), scale(1, 1), scale(3, 2)].into(),
        vec![sum_rows(3, 1536), sum_rows(1, 256)].into(),
        vec![row_max(24, 1000), row_max(3, 77), row_max(24, 5000)].into(),
        vec![ring(3)].into(),
        vec![split_k::split_k([70, 100, 130], 48), split_k::split_k([33, 36, 40], 20)].into(),
        vec![function_table::apply(333), function_table::apply(64)].into(),
        [[0, 1], [3, 2], [1, 3], [2, 0]].map(|pair| function_table::apply_pair(150, pair)).to_vec().into(),
    ];
    for entry in ["gemm_k_major", "gemm_n_major"] {
        all.push(vec![wgmma(entry, [128, 64, 384]), wgmma(entry, [64, 128, 64])].into());
    }
    for arch in ["sm_80", "sm_90a"] {
        let shapes = [([3, 784], [64, 128, 96]), ([2, 400], [128, 64, 32]), ([1, 1024], [64, 64, 224])];
        let mut kernels = vec![Vec::new(); 4];
        for (rows, extents) in shapes {
            kernels.iter_mut().zip(triton(arch, rows, extents)).for_each(|(group, subject)| group.push(subject));
        }
        all.extend(kernels.into_iter().map(Group::from));
    }
    all
}

fn exactly(argument: usize, values: Vec<f64>) -> Vec<Expected> {
    let allowed = vec![0.0; values.len()];
    vec![Expected { argument, dtype: DType::F32, values, at_the_edge: allowed.clone(), allowed }]
}

/// The same within a few roundings.
fn nearly(argument: usize, values: Vec<f64>) -> Vec<Expected> {
    let allowed: Vec<f64> = values.iter().map(|value| 1e-6 + 4e-6 * value.abs()).collect();
    vec![Expected { argument, dtype: DType::F32, values, at_the_edge: allowed.clone(), allowed }]
}

/// The bf16 product by warps; extents are multiples of 64, 64 and 32.
pub fn gemm_mma([m, n, k]: [usize; 3]) -> Subject {
    let (a, b) = (small(m * k, 1), small(k * n, 2));
    Subject {
        name: "mma_cp_async".into(),
        ptx: fixture("mma_cp_async"),
        launch: Launch::new("gemm_mma", Dim::new(n as u32 / 64, m as u32 / 64, 1), 128),
        arguments: vec![
            Argument::Input(bf16_bytes(&a)),
            Argument::Input(bf16_bytes(&b)),
            Argument::Output(4 * m * n),
            scalar(n as i32),
            scalar(k as i32),
        ],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(2, product(&a, &b, [m, n, k])),
        is_async: true,
    }
}

/// The bf16 product by warp groups; extents are multiples of 64.
pub fn wgmma(entry: &str, [m, n, k]: [usize; 3]) -> Subject {
    let (a, b) = (small(m * k, 1), small(k * n, 2));
    let map = |values: &[f64], columns: usize| {
        Argument::Map(View {
            data: Some(bf16_bytes(values)),
            element_bytes: 2,
            rows: (values.len() / columns) as u64,
            columns: columns as u64,
            box_rows: 64,
            box_columns: 64,
            swizzle: Swizzle::Bytes128,
        })
    };
    let right = if entry == "gemm_k_major" { map(&transposed(&b, n), k) } else { map(&b, n) };
    Subject {
        name: entry.replace("gemm", "wgmma_tma"),
        ptx: fixture("wgmma_tma"),
        launch: Launch::new(entry, Dim::new(n as u32 / 64, m as u32 / 64, 1), 128),
        arguments: vec![map(&a, k), right, Argument::Output(4 * m * n), scalar(n as i32), scalar(k as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(2, product(&a, &b, [m, n, k])),
        is_async: true,
    }
}

fn scale(box_rows: usize, boxes: usize) -> Subject {
    let x = random(box_rows * boxes * 1024, 3);
    let map = |data| {
        Argument::Map(View {
            data,
            element_bytes: 4,
            rows: box_rows as u64 * 32,
            columns: boxes as u64 * 32,
            box_rows: 32,
            box_columns: 32,
            swizzle: Swizzle::None,
        })
    };
    Subject {
        name: "bulk_pipeline scale".into(),
        ptx: fixture("bulk_pipeline"),
        launch: Launch::new("scale", box_rows as u32, 128),
        arguments: vec![map(Some(bytes_of_f32(&x))), map(None), scalar(boxes as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(1, x.iter().map(|x| f64::from((2.0 * x + 1.0) as f32)).collect()),
        is_async: true,
    }
}

fn sum_rows(rows: usize, columns: usize) -> Subject {
    let x = small(rows * columns, 4);
    Subject {
        name: "bulk_pipeline sum_rows".into(),
        ptx: fixture("bulk_pipeline"),
        launch: Launch::new("sum_rows", rows as u32, 64),
        arguments: vec![Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * rows), scalar(columns as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(1, x.chunks(columns).map(|row| row.iter().sum()).collect()),
        is_async: true,
    }
}

fn row_max(rows: usize, columns: usize) -> Subject {
    let mut x = random(rows * columns, 5);
    // The largest lies elsewhere in every row: no thread may be forgotten.
    (0..rows).for_each(|row| x[row * columns + (row * 397 + 4 * columns / 5) % columns] = 2.0 + row as f64);
    Subject {
        name: "cluster row_max".into(),
        ptx: fixture("cluster"),
        launch: Launch::new("row_max", 4 * rows as u32, 128).cluster(4),
        arguments: vec![Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * rows), scalar(columns as i32)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(
            1,
            x.chunks(columns).map(|row| f64::from(row.iter().copied().fold(f64::MIN, f64::max) as f32)).collect(),
        ),
        is_async: true,
    }
}

fn ring(groups: usize) -> Subject {
    let x = small(groups * 256, 6);
    let y = (0..x.len()).map(|at| (0..4).map(|block| x[at / 256 * 256 + block * 64 + at % 64]).sum()).collect();
    Subject {
        name: "cluster ring".into(),
        ptx: fixture("cluster"),
        launch: Launch::new("ring", 4 * groups as u32, 64).cluster(4),
        arguments: vec![Argument::Input(bytes_of_f32(&x)), Argument::Output(4 * x.len())],
        spare: Vec::new(),
        then: Vec::new(),
        expected: exactly(1, y),
        is_async: true,
    }
}

/// What Triton makes of four programs.
fn triton(arch: &str, [rows, columns]: [usize; 2], extents: [usize; 3]) -> Vec<Subject> {
    let subject = |kernel: &str, grid: Dim, shared: u32, mut arguments: Vec<Argument>, expected: Vec<Expected>| {
        // Two scratch pointers that Triton adds.
        arguments.extend([Argument::Scalar(vec![0; 8]), Argument::Scalar(vec![0; 8])]);
        Subject {
            name: format!("triton {kernel} {arch}"),
            ptx: fixture(&format!("triton/{kernel}.{arch}")),
            launch: Launch::new(kernel, grid, 128).dynamic_shared(shared),
            arguments,
            spare: Vec::new(),
            then: Vec::new(),
            expected,
            is_async: kernel == "matmul",
        }
    };
    let input = |values: &[f64]| Argument::Input(bytes_of_f32(values));
    let (x, y) = (random(rows * columns, 7), random(rows * columns, 8));
    let sums = x.iter().zip(&y).map(|(x, y)| f64::from((x + y) as f32)).collect();
    let n = rows * columns;
    let add = subject(
        "add",
        Dim::new(n.div_ceil(256) as u32, 1, 1),
        0,
        vec![input(&x), input(&y), Argument::Output(4 * n), scalar(n as i32)],
        exactly(2, sums),
    );
    let per_row = |f: fn(&[f64]) -> Vec<f64>| x.chunks(columns).flat_map(f).collect::<Vec<f64>>();
    let softmax = subject(
        "softmax",
        Dim::new(rows as u32, 1, 1),
        16,
        vec![input(&x), Argument::Output(4 * n), scalar(columns as i32)],
        nearly(
            1,
            per_row(|row| {
                let sum: f64 = row.iter().map(|x| x.exp()).sum();
                row.iter().map(|x| x.exp() / sum).collect()
            }),
        ),
    );
    let (weight, bias) = (random(columns, 9), random(columns, 10));
    let normal = per_row(|row| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64;
        row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
    });
    let scaled = normal.iter().enumerate().map(|(at, x)| x * weight[at % columns] + bias[at % columns]).collect();
    let layernorm = subject(
        "layernorm",
        Dim::new(rows as u32, 1, 1),
        16,
        vec![
            input(&x),
            input(&weight),
            input(&bias),
            Argument::Output(4 * n),
            scalar(columns as i32),
            Argument::Scalar(1e-5f32.to_le_bytes().to_vec()),
        ],
        nearly(3, scaled),
    );
    let [m, n, k] = extents;
    let (a, b) = (small(m * k, 11), small(k * n, 12));
    let half =
        |values: &[f64]| Argument::Input(values.iter().flat_map(|value| f16::from_f64(*value).to_le_bytes()).collect());
    let matmul = subject(
        "matmul",
        Dim::new(m as u32 / 64, n as u32 / 64, 1),
        24_576,
        vec![half(&a), half(&b), Argument::Output(4 * m * n), scalar(m as i32), scalar(n as i32), scalar(k as i32)],
        exactly(2, product(&a, &b, extents)),
    );
    vec![add, softmax, layernorm, matmul]
}
