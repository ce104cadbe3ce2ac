//! `kernelgate sim`: one kernel of a PTX or CUDA file in the simulator, with its checks and counts.

mod argument;
mod array_file;
mod host_code;
pub(super) mod image;
pub(super) mod kind;
pub(super) mod mode;
mod source;
mod text;

use super::{Failure, print};
use crate::core::dtype::DType;
use crate::core::seed::parse as parse_seed;
use crate::harness::progress::{Progress, Quiet};
use crate::sim::{
    Checks, Dim, Error, Launch, Memory, Module, Options, Report, is_called, is_named, launch, source_name,
};
use argument::{Argument, Bound};
use clap::Args;
use mode::Mode;
use serde::Serialize;
use std::path::PathBuf;

/// Arguments of `sim`.
#[derive(Args)]
pub struct Sim {
    /// PTX as NVRTC, nvcc or Triton write it, or a CUDA source, which NVRTC compiles without its host code
    file: PathBuf,
    /// The kernel by its name in the source, with the arguments of a template ('scale<float, 4>'), by its mangled name, or by
    /// a part of it that no other has; not needed where there is only one
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,
    /// Blocks of the grid
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = extents)]
    grid: Dim,
    /// Threads of a block
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = extents)]
    block: Dim,
    /// Blocks of a cluster
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = extents, default_value = "1")]
    cluster: Dim,
    /// Dynamic shared memory of a block
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u32,
    /// A kernel argument, in order: i32:5, f32:random:1048576, f32:fill=1:64, f32:iota:64, f32:file:x.npy,
    /// out:f32:1048576, map:bf16:random:256x256:64x64:128 (a tensor map: extents, box, bytes of a swizzled row) or
    /// tex:u8x4:random:64x64:linear,wrap,normalized,unit (a texture or surface object: texel, content, extents, how it is read)
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    arguments: Vec<Argument>,
    /// What a .texref or .surfref variable stands for, as an argument of the form tex: image=tex:f32:random:64x64:linear
    #[arg(long = "texture", value_name = "NAME=ARG", value_parser = texture)]
    textures: Vec<(String, Argument)>,
    /// One run for each of these: in-order, descending, random-order, late-copies, shuffled-sums, adversarial, all
    #[arg(long = "mode", value_name = "MODE", value_delimiter = ',', default_value = "in-order")]
    modes: Vec<mode::Choice>,
    /// The seed of random inputs and of the modes that draw
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = 1)]
    seed: u64,
    /// Runs of each mode that draws, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u64,
    /// Work of a block, about one a warp instruction, after which it counts as an endless loop
    #[arg(long, value_name = "N", default_value_t = Options::default().work_budget)]
    budget: u64,
    /// Leave out the checks for races and uninitialised reads
    #[arg(long)]
    unchecked: bool,
    /// Ask for a fence (or .acquire) between the access that sees a flag and those that rely on it
    #[arg(long)]
    acquire: bool,
    /// For a CUDA source: the architecture
    #[arg(long, value_name = "sm_NN", default_value = "sm_90a")]
    arch: String,
    /// For a CUDA source that includes kernelgate.cuh: the element type
    #[arg(long, value_name = "f32|f16|bf16", default_value = "f32")]
    dtype: DType,
    /// For a CUDA source: an option of NVRTC, such as -DTILE=64
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<String>,
    /// Write an argument's buffer after the first run: 2=y.bin
    #[arg(long = "save", value_name = "ARG=PATH", value_parser = save)]
    saves: Vec<(usize, PathBuf)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
}

/// One launch in one mode.
#[derive(Serialize)]
struct Run {
    mode: &'static str,
    seed: u64,
    /// Arguments whose buffers differ from the first run, where the mode must not change a bit.
    differing_arguments: Vec<usize>,
    #[serde(flatten)]
    report: Report,
}

impl Run {
    fn is_good(&self) -> bool {
        self.report.findings.is_empty() && self.differing_arguments.is_empty()
    }
}

/// Everything that was done, as `--json` prints it.
#[derive(Serialize)]
struct Account {
    version: u32,
    file: String,
    entry: String,
    grid: [u32; 3],
    block: [u32; 3],
    cluster: [u32; 3],
    dynamic_shared_bytes: u32,
    runs: Vec<Run>,
    /// Written buffers after the first run.
    outputs: Vec<argument::Output>,
}

impl Sim {
    /// Reads, runs and prints.
    pub fn run(self) -> Result<(), Failure> {
        let ptx = source::ptx(&self.file, self.entry.as_deref(), &self.arch, self.dtype, &self.options)?;
        let module = Module::parse(&ptx).map_err(|error| self.refuse(&error))?;
        let entry = self.entry_of(&module)?;
        let mut account = Account {
            version: 1,
            file: self.file.display().to_string(),
            entry,
            grid: array(self.grid),
            block: array(self.block),
            cluster: array(self.cluster),
            dynamic_shared_bytes: self.shared,
            runs: Vec::new(),
            outputs: Vec::new(),
        };
        let mut first: Vec<Vec<u8>> = Vec::new();
        let runs = mode::runs(&self.modes, self.seed, self.seeds);
        let progress = Progress::of(runs.len(), self.quiet);
        for (mode, seed) in runs {
            progress.say(&format!("{}, {}", account.entry, mode.name()));
            let (report, buffers) = self.launch(&module, &account.entry, mode, seed)?;
            let mut differing_arguments = Vec::new();
            if account.runs.is_empty() {
                self.save(&buffers)?;
                account.outputs = argument::outputs(&self.arguments, &buffers);
                first = buffers;
            } else if mode.keeps_bits() {
                differing_arguments = (0..first.len()).filter(|&at| first[at] != buffers[at]).collect();
            }
            account.runs.push(Run { mode: mode.name(), seed, differing_arguments, report });
            progress.step();
        }
        progress.end();
        if self.json {
            let json = serde_json::to_string_pretty(&account).map_err(|e| Failure::Input(e.to_string()))?;
            print(&(json + "\n"))?;
        } else {
            print(&text::describe(&account, &ptx))?;
        }
        if account.runs.iter().all(Run::is_good) { Ok(()) } else { Err(Failure::Verdict) }
    }

    /// One launch on fresh memory; gives the report and the buffers after it.
    fn launch(&self, module: &Module, entry: &str, mode: Mode, seed: u64) -> Result<(Report, Vec<Vec<u8>>), Failure> {
        let mut memory = Memory::new();
        let bound = Bound::all(&self.arguments, self.seed, &mut memory).map_err(Failure::Input)?;
        let mut call = Launch::new(entry, self.grid, self.block).cluster(self.cluster).dynamic_shared(self.shared);
        call.args = bound.iter().map(|bound| bound.value.clone()).collect();
        let named: Vec<Argument> = self.textures.iter().map(|(_, argument)| argument.clone()).collect();
        let handles = Bound::all(&named, self.seed, &mut memory).map_err(Failure::Input)?;
        let handles = handles.iter().filter_map(|bound| bound.handle);
        call.textures = self.textures.iter().map(|(name, _)| name.clone()).zip(handles).collect();
        let all = Checks { acquire: self.acquire, ..Checks::ALL };
        let checks = if self.unchecked { Checks::NONE } else { all };
        let options = mode.options(&Options { checks, seed, work_budget: self.budget, ..Options::default() });
        let report = launch(module, &call, &mut memory, &options).map_err(|error| self.refuse(&error))?;
        let read = |bound: &Bound| bound.read(&memory).map_err(|error| self.refuse(&error));
        let buffers = bound.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok((report, buffers))
    }

    /// The entry by its name, mangled or as in the source, or else by a part of it that no other has.
    fn entry_of(&self, module: &Module) -> Result<String, Failure> {
        let names: Vec<&str> = module.entries().collect();
        let wanted = self.entry.as_deref().unwrap_or_default();
        let ways: [fn(&str, &str) -> bool; 3] =
            [is_named, is_called, |entry, wanted| entry.contains(wanted) || source_name(entry).contains(wanted)];
        let fitting = |way: &fn(&str, &str) -> bool| -> Vec<&str> {
            names.iter().copied().filter(|entry| way(entry, wanted)).collect()
        };
        let found = ways.iter().map(fitting).find(|found| !found.is_empty()).unwrap_or_default();
        if let [only] = found.as_slice() {
            return Ok((*only).to_owned());
        }
        let hint = if names.is_empty() { "; of a template, name the instance: --entry 'scale<float, 4>'" } else { "" };
        Err(Failure::Input(format!(
            "{}: {} kernels fit `{wanted}`; name one of them with --entry: {}{hint}",
            self.file.display(),
            found.len(),
            names.iter().map(|name| source_name(name)).collect::<Vec<_>>().join(", ")
        )))
    }

    fn save(&self, buffers: &[Vec<u8>]) -> Result<(), Failure> {
        for (at, path) in &self.saves {
            let Some(bytes) = buffers.get(*at).filter(|bytes| !bytes.is_empty()) else {
                return Err(Failure::Input(format!("--save {at}=…: argument {at} is no buffer")));
            };
            std::fs::write(path, bytes).map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?;
        }
        Ok(())
    }

    fn refuse(&self, error: &Error) -> Failure {
        Failure::Input(format!("{}: {error}", self.file.display()))
    }
}

fn array(dim: Dim) -> [u32; 3] {
    [dim.x, dim.y, dim.z]
}

fn extents(text: &str) -> Result<Dim, String> {
    let parts: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    match parts.as_deref() {
        Ok([x]) => Ok(Dim::new(*x, 1, 1)),
        Ok([x, y]) => Ok(Dim::new(*x, *y, 1)),
        Ok([x, y, z]) => Ok(Dim::new(*x, *y, *z)),
        _ => Err("one to three numbers with commas between are expected, such as 4096 or 16,16,1".into()),
    }
}

fn texture(text: &str) -> Result<(String, Argument), String> {
    let expected = "expected a name and a texture: image=tex:f32:random:64x64:linear";
    let (name, argument) = text.split_once('=').ok_or(expected)?;
    match argument.parse()? {
        argument @ Argument::Texture(..) => Ok((name.to_owned(), argument)),
        _ => Err(expected.into()),
    }
}

fn save(text: &str) -> Result<(usize, PathBuf), String> {
    let (at, path) = text.split_once('=').ok_or("expected the number of an argument and a path: 2=y.bin")?;
    Ok((at.parse().map_err(|_| format!("`{at}` is no number of an argument"))?, path.into()))
}
