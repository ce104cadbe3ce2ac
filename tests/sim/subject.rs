//! Right kernels with their arguments and expected results: what is mutated, fuzzed, covered, timed and compared.

mod fixtures;
mod function_table;
mod split_k;

pub use fixtures::{fixtures, gemm_mma, wgmma};

use half::{bf16, f16};
use kernelgate::core::dtype::DType;
use kernelgate::core::packed;
use kernelgate::core::seed::{rng, unit};
use kernelgate::core::tensor::Tensor;
use kernelgate::sim::{
    Accumulation, Arg, Completion, Dim, Element, Error, Finding, Launch, Memory, Metrics, Module, Options, Pointer,
    Swizzle, TensorMap, WarpOrder, launch,
};
use std::sync::Arc;
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
    /// Shared: a file has many kernels, and each of them many subjects.
    pub ptx: Arc<str>,
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
    Tensor::from_bytes(dtype, &[bytes.len() / dtype.size()], bytes).to_f64()
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
            im2col: None,
        }
    }
}

/// The modes of a search that draw nothing, each by its name.
pub fn fixed_modes() -> [(&'static str, Options); 2] {
    [
        ("in order", Options::default()),
        (
            "descending, late copies",
            Options { warp_order: WarpOrder::Descending, completion: Completion::Late, ..Options::default() },
        ),
    ]
}

/// Those that do.
pub fn seeded_modes(seed: u64) -> [(&'static str, Options); 2] {
    let base = Options { seed, ..Options::default() };
    [
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

/// A file of `fixtures/ptx`, packed or plain.
pub fn fixture(name: &str) -> Arc<str> {
    let path = format!("{}/fixtures/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(format!("{path}.xz")).or_else(|_| std::fs::read(&path));
    file.and_then(packed::text).unwrap_or_else(|e| panic!("{path}: {e}")).into()
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

fn exactly(argument: usize, values: Vec<f64>) -> Vec<Expected> {
    let allowed = vec![0.0; values.len()];
    vec![Expected { argument, dtype: DType::F32, values, at_the_edge: allowed.clone(), allowed }]
}

/// The same within a few roundings.
fn nearly(argument: usize, values: Vec<f64>) -> Vec<Expected> {
    let allowed: Vec<f64> = values.iter().map(|value| 1e-6 + 4e-6 * value.abs()).collect();
    vec![Expected { argument, dtype: DType::F32, values, at_the_edge: allowed.clone(), allowed }]
}
