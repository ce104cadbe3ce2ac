//! The launches that run here and on a GPU.

use super::families::{self, Family, IN_WORDS, Input};
use super::inputs;
use super::operations::{self, Agreement, Kind, Operation};
use super::record::{Format, digest};
use super::wavefronts;
use crate::catalogue;
use crate::subject::{self, Argument, Subject};
use half::{bf16, f16};
use kernelgate::core::dtype::DType;
use kernelgate::core::packed;
use kernelgate::core::seed::{below, rng};
use kernelgate::sim::{Checks, Dim, Launch, Module, Options, Swizzle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};

pub struct Launched {
    pub name: String,
    pub subject: Subject,
    pub module: Arc<Module>,
    /// Whether the bits must agree.
    pub is_exact: bool,
    pub format: Format,
    /// The operands, where the output is one word for each of them.
    tuples: Vec<[u64; inputs::WORDS]>,
}

impl Launched {
    /// The output buffers, one behind the other.
    pub fn simulate(&self) -> Vec<u8> {
        let options = Options { checks: Checks::NONE, work_budget: u64::MAX, ..Options::default() };
        let outcome = self.subject.run(&self.module, &options).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        assert_eq!(outcome.findings, [], "{}", self.name);
        let outputs = (0..self.subject.arguments.len()).zip(outcome.buffers);
        outputs.filter(|(at, _)| is_output(&self.subject, *at)).flat_map(|(_, buffer)| buffer).collect()
    }

    /// Changes with everything that decides the result.
    pub fn identity(&self) -> String {
        let launch = &self.subject.launch;
        let mut parts =
            format!("{:?} {:?} {:?} {}", launch.grid, launch.block, launch.cluster, launch.dynamic_shared_bytes);
        let range = crate::mutation::body(&self.subject.ptx, &launch.entry);
        let body = self.subject.ptx.lines().skip(range.start).take(range.len());
        // Line information names places, not work.
        body.filter(|line| !line.contains(".loc")).for_each(|line| parts += line);
        let mut bytes = parts.into_bytes();
        for argument in &self.subject.arguments {
            match argument {
                Argument::Scalar(data) | Argument::Input(data) => bytes.extend(data),
                Argument::Output(length) => bytes.extend(length.to_le_bytes()),
                Argument::Map(view) => bytes.extend(view.data.iter().flatten()),
                Argument::Again(_) => {}
            }
        }
        digest(&bytes)
    }

    /// The first operands or words that differ, for a person.
    pub fn describe_first(&self, there: &[u8], here: &[u8]) -> String {
        let width = if self.tuples.is_empty() { 4 } else { 8 };
        let pairs = there.chunks(width).zip(here.chunks(width)).enumerate();
        let differing: Vec<_> = pairs.filter(|(_, (there, here))| there != here).collect();
        let hex = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
        let one = |(at, (there, here)): &(usize, (&[u8], &[u8]))| {
            let operands = self.tuples.get(*at).map(|tuple| format!("{tuple:x?} ")).unwrap_or_default();
            format!("[{at}] {operands}there {} here {}", hex(there), hex(here))
        };
        format!("{} differ: {}", differing.len(), differing.iter().take(4).map(one).collect::<Vec<_>>().join("; "))
    }
}

/// A map over data may be an output too: something is added to what is there.
fn is_output(subject: &Subject, at: usize) -> bool {
    match &subject.arguments[at] {
        Argument::Output(_) => true,
        Argument::Map(view) => view.data.is_none() || subject.expected.iter().any(|expected| expected.argument == at),
        _ => false,
    }
}

/// Everything that is compared.
pub fn all() -> &'static [Launched] {
    static ALL: LazyLock<Vec<Launched>> = LazyLock::new(draw_all);
    &ALL
}

fn draw_all() -> Vec<Launched> {
    let mut all = single_operations();
    all.extend(families::all().into_iter().map(family));
    all.extend([Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128].map(swizzled));
    all.extend(wavefronts::all().into_iter().map(access));
    let mut modules: BTreeMap<Arc<str>, Arc<Module>> = BTreeMap::new();
    for group in subject::fixtures().into_iter().chain(catalogue::kernels().iter().cloned()) {
        // The machine with the GPU runs single launches.
        let single = group.subjects.into_iter().enumerate().filter(|(_, subject)| subject.then.is_empty());
        for (at, subject) in single {
            let module = modules.entry(subject.ptx.clone()).or_insert_with(|| parse(&subject.ptx));
            let is_exact = is_ieee(&subject);
            let module = Arc::clone(module);
            let name = format!("{} #{at}", subject.name);
            let format = subject.expected.first().map_or(Format::F32, |expected| Format::of_values(expected.dtype));
            all.push(Launched { name, subject, module, is_exact, format, tuples: Vec::new() });
        }
    }
    all
}

fn parse(ptx: &str) -> Arc<Module> {
    Arc::new(Module::parse(ptx).unwrap_or_else(|e| panic!("{e}")))
}

/// Whether an entry uses operations of one right result only. The matrix units are exact where the factors are small
/// integers, as those of the fixtures are; in 16 bits they meet others.
fn is_ieee(subject: &Subject) -> bool {
    let range = crate::mutation::body(&subject.ptx, &subject.launch.entry);
    let body: Vec<&str> = subject.ptx.lines().skip(range.start).take(range.len()).collect();
    let is_single = subject.expected.iter().all(|expected| expected.dtype == DType::F32);
    let uses = |part: &str| body.iter().any(|line| line.contains(part));
    !uses(".approx") && !uses(".full") && (is_single || !(uses("mma.sync") || uses("wgmma")))
}

fn declare(kind: Kind) -> &'static str {
    match kind {
        Kind::Half => ".b16",
        Kind::Word => ".b32",
        Kind::Wide => ".b64",
        Kind::Single => ".f32",
        Kind::Double => ".f64",
        Kind::Pred => ".pred",
    }
}

fn entry(name: &str, operation: &Operation) -> String {
    let mut text = format!(
        ".visible .entry {name}(.param .u64 p0, .param .u64 p1, .param .u32 p2)\n{{\n.reg .pred %q; .reg .b32 %i, %n, %nt, %c, %w; \
         .reg .b64 %a, %b, %x, %y; .reg {} %r;\n",
        declare(operation.result)
    );
    text += "ld.param.u64 %a, [p0]; ld.param.u64 %b, [p1]; ld.param.u32 %n, [p2]; mov.u32 %c, %ctaid.x; mov.u32 %nt, %ntid.x; mov.u32 %i, %tid.x;\n\
             mad.lo.u32 %i, %c, %nt, %i; setp.ge.u32 %q, %i, %n; @%q ret; mul.wide.u32 %y, %i, 32; add.s64 %a, %a, %y; mul.wide.u32 %y, %i, 8; add.s64 %b, %b, %y;\n";
    for (at, kind) in operation.sources.iter().enumerate() {
        let _ = write!(text, ".reg {} %s{at}; ld.global.u64 %x, [%a+{}]; ", declare(*kind), 8 * at);
        let _ = match kind {
            Kind::Half => writeln!(text, "cvt.u16.u64 %s{at}, %x;"),
            Kind::Word => writeln!(text, "cvt.u32.u64 %s{at}, %x;"),
            Kind::Single => writeln!(text, "cvt.u32.u64 %w, %x; mov.b32 %s{at}, %w;"),
            Kind::Pred => writeln!(text, "setp.ne.u64 %s{at}, %x, 0;"),
            Kind::Wide | Kind::Double => writeln!(text, "mov.b64 %s{at}, %x;"),
        };
    }
    let _ = writeln!(text, "{}", operation.instruction());
    text += match operation.result {
        Kind::Half => "cvt.u64.u16 %y, %r;",
        Kind::Word => "cvt.u64.u32 %y, %r;",
        Kind::Single => "mov.b32 %w, %r; cvt.u64.u32 %y, %w;",
        Kind::Pred => "selp.u64 %y, 1, 0, %r;",
        Kind::Wide | Kind::Double => "mov.b64 %y, %r;",
    };
    text + "\nst.global.u64 [%b], %y;\nret;\n}\n"
}

fn single_operations() -> Vec<Launched> {
    let operations = operations::all();
    let mut ptx = ".version 8.3\n.target sm_90a\n.address_size 64\n".to_owned();
    for (at, operation) in operations.iter().enumerate() {
        ptx += &entry(&format!("v{at}"), operation);
    }
    let module = parse(&ptx);
    let ptx: Arc<str> = ptx.into();
    let launched = |(at, operation): (usize, Operation)| {
        let tuples = inputs::tuples(&operation);
        let data = tuples.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let count = tuples.len() as u32;
        let entry = format!("v{at}");
        let subject = Subject {
            name: operation.opcode.clone(),
            ptx: ptx.clone(),
            launch: Launch::new(entry, count.div_ceil(256), 256),
            arguments: vec![
                Argument::Input(data),
                Argument::Output(8 * tuples.len()),
                Argument::Scalar(count.to_le_bytes().to_vec()),
            ],
            spare: Vec::new(),
            then: Vec::new(),
            expected: Vec::new(),
            is_async: false,
        };
        let module = Arc::clone(&module);
        let is_exact = operation.agreement == Agreement::Bits;
        let format = Format::of(&operation.opcode);
        Launched { name: operation.opcode, subject, module, is_exact, format, tuples }
    };
    // Rare forms that the simulator refuses are not compared.
    let is_modelled = |(at, _): &(usize, Operation)| module.check(&format!("v{at}")).is_ok();
    operations.into_iter().enumerate().filter(is_modelled).map(launched).collect()
}

fn family(family: Family) -> Launched {
    let mut rng = rng(9);
    let pair = |encode: &dyn Fn(f32) -> u16, rng: &mut _| {
        let mut one = || u32::from(encode(below(rng, 9) as f32 - 4.0));
        one() | one() << 16
    };
    let words: Vec<u32> = (0..IN_WORDS)
        .map(|_| match family.input {
            Input::Bits => below(&mut rng, 1 << 32) as u32,
            Input::Halves => below(&mut rng, 1 << 32) as u32 & 0xBFFF_BFFF,
            Input::SmallF16 => pair(&|x| f16::from_f32(x).to_bits(), &mut rng),
            Input::SmallBf16 => pair(&|x| bf16::from_f32(x).to_bits(), &mut rng),
            Input::SmallTf32 => (below(&mut rng, 9) as f32 - 4.0).to_bits(),
        })
        .collect();
    let subject = Subject {
        name: family.name.clone(),
        launch: Launch::new(family.name.clone(), 1, family.threads),
        arguments: vec![
            Argument::Input(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            Argument::Output(4 * family.out_words),
        ],
        spare: Vec::new(),
        then: Vec::new(),
        expected: Vec::new(),
        is_async: false,
        ptx: family.ptx.into(),
    };
    let module = parse(&subject.ptx);
    Launched { name: family.name, subject, module, is_exact: true, format: Format::F32, tuples: Vec::new() }
}

/// One access to shared memory; its counts are compared too.
fn access(access: wavefronts::Access) -> Launched {
    let name = format!("{} #0", access.name);
    let subject = Subject {
        name: access.name,
        launch: Launch::new(access.entry, 1, 32),
        arguments: vec![
            Argument::Input(access.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect()),
            Argument::Output(128),
        ],
        spare: Vec::new(),
        then: Vec::new(),
        expected: Vec::new(),
        is_async: false,
        ptx: access.ptx.into(),
    };
    let module = parse(&subject.ptx);
    Launched { name, subject, module, is_exact: true, format: Format::F32, tuples: Vec::new() }
}

/// A box of a tensor map, read back byte by byte as it lies in shared memory, with an edge beyond the tensor.
fn swizzled(swizzle: Swizzle) -> Launched {
    let (row_bytes, name) = match swizzle {
        Swizzle::None => (128, "box"),
        Swizzle::Bytes32 => (32, "box_32"),
        Swizzle::Bytes64 => (64, "box_64"),
        Swizzle::Bytes128 => (128, "box_128"),
    };
    let ptx = format!(
        ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry {name}(.param .align 64 .b8 p0[128], .param .u64 p1)\n{{\n\
         .reg .b32 %r<20>; .reg .b64 %d<9>; .reg .pred %p<4>; .shared .align 1024 .b8 sh[8192]; .shared .align 8 .b64 done;\n\
         ld.param.u64 %d0, [p1]; mov.b64 %d1, p0; cvta.param.u64 %d2, %d1; mov.u32 %r0, %tid.x; mov.u32 %r1, sh; mov.u32 %r2, done; mov.u32 %r3, 4; mov.u32 %r4, 3;\n\
         setp.ne.u32 %p0, %r0, 0; @%p0 bra W; mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {}; cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d2, {{%r3, %r4}}], [%r2];\n\
         W: bar.sync 0;\nL: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra L;\n\
         shl.b32 %r5, %r0, 2; add.s32 %r6, %r1, %r5; mul.wide.u32 %d3, %r0, 4; add.s64 %d4, %d0, %d3; setp.ge.u32 %p2, %r5, {}; @%p2 ret;\n\
         ld.shared.b32 %r7, [%r6]; st.global.b32 [%d4], %r7; ret;\n}}\n",
        16 * row_bytes,
        16 * row_bytes
    );
    let mut rng = rng(11);
    let data: Vec<u8> = (0..64 * 16 * 4).map(|_| below(&mut rng, 256) as u8).collect();
    let view = subject::View {
        data: Some(data),
        element_bytes: 4,
        rows: 16,
        columns: 64,
        box_rows: 16,
        box_columns: row_bytes / 4,
        swizzle,
    };
    let bytes = 16 * row_bytes as usize;
    let subject = Subject {
        name: name.into(),
        launch: Launch::new(name, 1, 1024),
        arguments: vec![Argument::Map(view), Argument::Output(bytes)],
        spare: Vec::new(),
        then: Vec::new(),
        expected: Vec::new(),
        is_async: true,
        ptx: ptx.into(),
    };
    let module = parse(&subject.ptx);
    Launched { name: name.into(), subject, module, is_exact: true, format: Format::F32, tuples: Vec::new() }
}

/// Writes `jobs.json`, `inputs.bin` and the PTX, with the sweeps behind.
pub fn export(launches: &[Launched], folder: &Path) {
    // What does not run here is not sent.
    let refused = launches.iter().filter_map(|launched| launched.module.check(&launched.subject.launch.entry).err());
    let refused: Vec<String> = refused.map(|error| error.to_string()).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(launches.iter().all(|launched| !launched.simulate().is_empty()));
    let mut inputs: Vec<u8> = Vec::new();
    let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let mut jobs: Vec<Value> = Vec::new();
    std::fs::create_dir_all(folder).expect("the folder");
    for launched in launches {
        let subject = &launched.subject;
        let number = files.len();
        let file = files.entry(&subject.ptx).or_insert_with(|| {
            let name = format!("{number}.ptx");
            // Triton writes the newest version; what it uses is older, and so may be the driver.
            let text = subject.ptx.replacen(".version 9.4", ".version 8.7", 1);
            std::fs::write(folder.join(&name), text).expect("a PTX file");
            name
        });
        let mut content = |data: &Vec<u8>| {
            let start = *known.entry(data.clone()).or_insert_with(|| {
                inputs.extend(data);
                inputs.len() - data.len()
            });
            json!([start, data.len()])
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let arguments: Vec<Value> = subject
            .arguments
            .iter()
            .enumerate()
            .map(|(at, argument)| match argument {
                Argument::Scalar(bytes) => json!({ "scalar": hex(bytes) }),
                Argument::Input(data) => json!({ "input": content(data), "bytes": data.len() }),
                Argument::Output(bytes) => json!({ "bytes": bytes }),
                Argument::Map(view) => json!({
                    "input": view.data.as_ref().map(&mut content),
                    "returned": is_output(subject, at),
                    "bytes": view.rows * view.columns * u64::from(view.element_bytes),
                    "map": {
                        "element_bytes": view.element_bytes,
                        "extents": [view.columns, view.rows],
                        "strides_bytes": [view.columns * u64::from(view.element_bytes)],
                        "box": [view.box_columns, view.box_rows],
                        "row_bytes": match view.swizzle {
                            Swizzle::None => 0,
                            Swizzle::Bytes32 => 32,
                            Swizzle::Bytes64 => 64,
                            Swizzle::Bytes128 => 128,
                        },
                    },
                }),
                Argument::Again(_) => unreachable!("only launches behind the first take a buffer once more"),
            })
            .collect();
        jobs.push(job(&launched.name, file, &subject.launch, arguments));
    }
    let sweeps = format!("{}/fixtures/hardware/sweeps.ptx.xz", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(&sweeps).and_then(packed::text).unwrap_or_else(|e| panic!("{sweeps}: {e}"));
    std::fs::write(folder.join("sweeps.ptx"), &text).expect("a PTX file");
    // They are not run here: 2^32 inputs each. Their names are read from the text.
    let headers = text.lines().filter_map(|line| line.trim().strip_prefix(".visible .entry "));
    for entry in headers.filter_map(|rest| rest.split('(').next()) {
        let zeros = vec![0u8; 16];
        let start = inputs.len();
        inputs.extend(&zeros);
        // An input that the kernel changes, and that comes back.
        let arguments = vec![json!({ "input": [start, 16], "bytes": 16, "returned": true })];
        jobs.push(job(entry, "sweeps.ptx", &Launch::new(entry, 2048, 256), arguments));
    }
    std::fs::write(folder.join("metrics"), super::counters::COUNTERS.map(|counter| counter.1).join(","))
        .expect("metrics");
    std::fs::write(folder.join("inputs.bin"), inputs).expect("inputs");
    std::fs::write(folder.join("jobs.json"), serde_json::to_string(&jobs).expect("JSON")).expect("jobs");
}

fn job(name: &str, ptx: &str, launch: &Launch, arguments: Vec<Value>) -> Value {
    let extents = |dim: Dim| [dim.x, dim.y, dim.z];
    json!({
        "name": name,
        "ptx": ptx,
        "entry": launch.entry,
        "grid": extents(launch.grid),
        "block": extents(launch.block),
        "cluster": extents(launch.cluster),
        "shared": launch.dynamic_shared_bytes,
        "arguments": arguments,
    })
}
