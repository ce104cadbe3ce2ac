//! Whole launches of small kernels: values of every operation, and what the checks find.

mod barrier_objects;
mod bulk_copies;
mod bulk_reductions;
mod calls;
mod checks;
mod control;
mod global_races;
mod group_matrix;
mod heap_and_multicast;
mod indirect_calls;
mod matrix;
mod quad_pair_products;
mod rare;
mod rare_products;
mod scopes;
mod shared_words;
mod sparse_products;
mod textures;
mod tiers;
mod values;
mod warp_tiles;

use crate::sim::machine::memory::{Memory, Pointer};
use crate::sim::options::Options;
use crate::sim::report::Report;
use crate::sim::run::launch;
use crate::sim::{Launch, Module};

/// A kernel `k` with parameters of 8 bytes and plenty of registers: `%r`, `%rs`, `%rd`, `%f`, `%d`, `%p`.
fn kernel(params: usize, body: &str) -> Module {
    let list: Vec<String> = (0..params).map(|at| format!(".param .u64 p{at}")).collect();
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];\n.visible .entry k({}) {{\n\
         .reg .b32 %r<40>; .reg .b16 %rs<40>; .reg .b64 %rd<40>; .reg .f32 %f<40>; .reg .f64 %d<40>; .reg .pred %p<40>;\n{body}\nret;\n}}",
        list.join(", ")
    );
    Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Device memory with one buffer of words.
fn words(memory: &mut Memory, values: &[u32]) -> Pointer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    memory.alloc(bytes.len() as u64, Some(&bytes)).unwrap()
}

fn read_words(memory: &Memory, pointer: Pointer, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    memory.read(pointer, &mut bytes).unwrap();
    bytes.chunks(4).map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

fn run(module: &Module, launch_of: &Launch, memory: &mut Memory) -> Report {
    launch(module, launch_of, memory, &Options::default()).unwrap()
}

/// Runs `%rd0`, `%rd1`, … (and their low parts in `%r…`, `%rs…`) through a body that leaves its result in `%rd30`.
fn evaluate(body: &str, inputs: &[u64]) -> u64 {
    let mut text = String::new();
    for at in 0..inputs.len() {
        text += &format!(
            "ld.param.u64 %rd{at}, [p{}];\ncvt.u32.u64 %r{at}, %rd{at};\ncvt.u16.u64 %rs{at}, %rd{at};\n",
            at + 1
        );
        text += &format!("mov.b32 %f{at}, %r{at};\nmov.b64 %d{at}, %rd{at};\n");
    }
    text += &format!("ld.param.u64 %rd39, [p0];\n{body}\nst.global.u64 [%rd39], %rd30;");
    let module = kernel(inputs.len() + 1, &text);
    let mut memory = Memory::new();
    let out = memory.alloc(8, None).unwrap();
    let mut call = Launch::new("k", 1, 1).arg(out);
    for input in inputs {
        call = call.arg(*input);
    }
    let report = run(&module, &call, &mut memory);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let mut bytes = [0; 8];
    memory.read(out, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// An operation on 32-bit (`r`), 16-bit (`rs`) or 64-bit (`rd`) registers: `operation(\"add.s32\", \"r\", \"r\", …)`.
fn operation(opcode: &str, result: &str, source: &str, inputs: &[u64]) -> u64 {
    let sources: Vec<String> = (0..inputs.len()).map(|at| format!("%{source}{at}")).collect();
    let widen = match result {
        "rd" => "",
        "r" => "cvt.u64.u32 %rd30, %r30;",
        "rs" => "cvt.u64.u16 %rd30, %rs30;",
        _ => "selp.u64 %rd30, 1, 0, %p30;",
    };
    evaluate(&format!("{opcode} %{result}30, {};\n{widen}", sources.join(", ")), inputs)
}
