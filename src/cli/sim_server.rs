//! `kernelgate sim-server`: launches that another process asks for, a JSON line each, in the simulator.
//!
//! So host code that is not ours, Triton's or a notebook's, runs without a GPU: `ci/foreign/driver.py` is a client. Buffers
//! are files, which a launch reads and writes; a reply is one line too, whatever happens.

use super::sim::image::Image;
use super::sim::kind::Kind;
use super::sim::mode::Mode;
use super::{Failure, print};
use crate::protocol::process::from_line;
use crate::sim::{Arg, Checks, Dim, Error, Launch, Memory, Module, Options, Pointer, Swizzle, TensorMap, launch};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

/// Longest request.
const MOST_BYTES: u64 = 16 << 20;

/// Arguments of `sim-server`.
#[derive(Args)]
#[command(after_help = "\
A request: {\"ptx\": \"k.ptx\", \"entry\": \"k\", \"grid\": [8,1,1], \"block\": [128,1,1], \"buffers\": [\"x.bin\"], \
\"arguments\": [{\"buffer\": {\"index\": 0}}, {\"bytes\": [5,0,0,0]}]}.
Also: cluster, shared (bytes), mode, seed, budget, unchecked, id (comes back in the reply); an argument may be \
{\"map\": {\"buffer\", \"offset\", \"element\", \"extents\", \"strides_bytes\", \"box\", \"swizzle\"}}, innermost extent first, or \
{\"texture\": {\"buffer\", \"offset\", \"texel\": \"u8x4\", \"extents\", \"row_bytes\", \"options\": \"linear,wrap,normalized,unit\"}}; \
\"textures\" has such objects by the names of .texref and .surfref variables.
The reply has the findings, or an error.")]
pub struct SimServer {}

/// A launch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    id: u64,
    ptx: PathBuf,
    /// Not needed where there is only one.
    entry: Option<String>,
    grid: [u32; 3],
    block: [u32; 3],
    #[serde(default = "one")]
    cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    shared: u32,
    #[serde(default)]
    buffers: Vec<PathBuf>,
    #[serde(default)]
    arguments: Vec<Argument>,
    /// What `.texref` and `.surfref` variables stand for.
    #[serde(default)]
    textures: HashMap<String, ImageView>,
    mode: Option<String>,
    #[serde(default)]
    seed: u64,
    budget: Option<u64>,
    #[serde(default)]
    unchecked: bool,
}

fn one() -> [u32; 3] {
    [1; 3]
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Argument {
    /// A value as it lies in memory.
    Bytes(Vec<u8>),
    /// An address in a buffer.
    Buffer {
        index: usize,
        #[serde(default)]
        offset: u64,
    },
    Map(View),
    /// The handle of a texture or surface object.
    Texture(ImageView),
}

/// A texture or surface object; extents go from the innermost to the outermost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageView {
    buffer: usize,
    #[serde(default)]
    offset: u64,
    /// As on the command line: `f32`, `u8x4`.
    texel: String,
    extents: Vec<u64>,
    /// Rows follow each other where it is left out.
    row_bytes: Option<u64>,
    /// As on the command line: `linear,wrap,normalized,unit`.
    #[serde(default)]
    options: String,
}

/// A tensor map; extents go from the innermost to the outermost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    buffer: usize,
    #[serde(default)]
    offset: u64,
    element: String,
    extents: Vec<u64>,
    /// Of all extents but the innermost.
    strides_bytes: Vec<u64>,
    #[serde(rename = "box")]
    box_extents: Vec<u32>,
    /// Bytes of a swizzled row: 0, 32, 64 or 128.
    #[serde(default)]
    swizzle: u32,
}

#[derive(Serialize, Default)]
struct Reply {
    id: u64,
    /// Why there was no launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The opcode that is not modelled, where that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsupported: Option<String>,
    findings: Vec<String>,
    printf: String,
    warp_instructions: u64,
}

/// Why a launch did not happen, and the opcode if one is not modelled.
struct Refusal(String, Option<String>);

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Refusal(why, None)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let why = error.to_string();
        Refusal(why, if let Error::Unsupported { opcode, .. } = error { Some(opcode) } else { None })
    }
}

impl SimServer {
    /// Answers until stdin ends.
    pub fn run(self) -> Result<(), Failure> {
        let mut modules = HashMap::new();
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let mut bounded = std::io::Read::take(&mut input, MOST_BYTES);
            bounded.read_until(b'\n', &mut line).map_err(|e| Failure::Input(format!("stdin: {e}")))?;
            if line.is_empty() {
                return Ok(());
            }
            if line.len() as u64 == MOST_BYTES {
                return Err(Failure::Input(format!("a request of more than {MOST_BYTES} bytes: pass data as files")));
            }
            let reply = match from_line::<Request>(&line) {
                Ok(request) => {
                    let id = request.id;
                    let refused =
                        |Refusal(error, unsupported)| Reply { error: Some(error), unsupported, ..Reply::default() };
                    Reply { id, ..answer(&request, &mut modules).unwrap_or_else(refused) }
                }
                Err(e) => Reply { error: Some(format!("the request: {e}; see --help")), ..Reply::default() },
            };
            let text = serde_json::to_string(&reply).map_err(|e| Failure::Input(e.to_string()))?;
            print(&(text + "\n"))?;
        }
    }
}

/// Carries out one launch. Modules are kept by their paths.
fn answer(request: &Request, modules: &mut HashMap<PathBuf, Module>) -> Result<Reply, Refusal> {
    if !modules.contains_key(&request.ptx) {
        let text = std::fs::read_to_string(&request.ptx).map_err(|e| failed(&request.ptx, &e))?;
        modules.insert(request.ptx.clone(), Module::parse(&text)?);
    }
    let module = &modules[&request.ptx];
    let entry = match &request.entry {
        Some(entry) => entry.clone(),
        None => match module.entries().collect::<Vec<_>>().as_slice() {
            [only] => (*only).to_owned(),
            all => return Err(format!("{} kernels are there: name the `entry`", all.len()).into()),
        },
    };
    let mut memory = Memory::new();
    let mut buffers = Vec::new();
    for path in &request.buffers {
        let bytes = std::fs::read(path).map_err(|e| failed(path, &e))?;
        buffers.push((path, memory.alloc(bytes.len() as u64, Some(&bytes))?, bytes));
    }
    let pointers: Vec<Pointer> = buffers.iter().map(|(_, pointer, _)| *pointer).collect();
    let [grid, block, cluster] = [request.grid, request.block, request.cluster].map(|[x, y, z]| Dim::new(x, y, z));
    let mut call = Launch::new(&entry, grid, block).cluster(cluster).dynamic_shared(request.shared);
    for (name, view) in &request.textures {
        let handle = texture(view, &pointers, &mut memory).map_err(|why| format!("texture {name}: {why}"))?;
        call = call.texture(name, handle);
    }
    let arguments = request.arguments.iter().enumerate();
    let bind = |(at, argument)| value(argument, &pointers, &mut memory).map_err(|why| format!("argument {at}: {why}"));
    call.args = arguments.map(bind).collect::<Result<Vec<Arg>, String>>()?;
    let mut options = Options { seed: request.seed, ..Options::default() };
    options.checks = if request.unchecked { Checks::NONE } else { Checks::ALL };
    options.work_budget = request.budget.unwrap_or(options.work_budget);
    if let Some(name) = &request.mode {
        options = Mode::named(name)?.options(&options);
    }
    let report = launch(module, &call, &mut memory, &options)?;
    for (path, pointer, before) in buffers {
        let mut after = vec![0; before.len()];
        memory.read(pointer, &mut after)?;
        if after != before {
            std::fs::write(path, after).map_err(|e| failed(path, &e))?;
        }
    }
    Ok(Reply {
        findings: report.findings.iter().map(ToString::to_string).collect(),
        printf: report.printf,
        warp_instructions: report.metrics.warp_instructions_total,
        ..Reply::default()
    })
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn address(buffers: &[Pointer], index: usize, offset: u64) -> Result<Pointer, String> {
    let found = buffers.get(index).ok_or_else(|| format!("buffer {index} of {}", buffers.len()))?;
    Ok(found.offset(offset))
}

fn texture(view: &ImageView, buffers: &[Pointer], memory: &mut Memory) -> Result<u64, String> {
    let image = Image::parse(&view.texel, &view.extents, &view.options)?;
    let data = address(buffers, view.buffer, view.offset)?;
    memory.texture(image.at(data, view.row_bytes)).map_err(|e| e.to_string())
}

fn value(argument: &Argument, buffers: &[Pointer], memory: &mut Memory) -> Result<Arg, String> {
    let address = |index: usize, offset: u64| address(buffers, index, offset);
    Ok(match argument {
        Argument::Bytes(bytes) => Arg::bytes(bytes),
        Argument::Buffer { index, offset } => Arg::from(address(*index, *offset)?),
        Argument::Texture(view) => Arg::from(texture(view, buffers, memory)?),
        Argument::Map(view) => {
            let map = TensorMap {
                base: address(view.buffer, view.offset)?,
                element: Kind::parse(&view.element)?.element(),
                extents: view.extents.clone(),
                strides_bytes: view.strides_bytes.clone(),
                box_extents: view.box_extents.clone(),
                swizzle: Swizzle::of_row(view.swizzle)?,
                im2col: None,
            };
            Arg::bytes(&map.to_bytes().map_err(|e| e.to_string())?)
        }
    })
}
