//! How long launches take: one core and two, with all checks and with none.
//!
//! `KERNELGATE_WRITE=docs cargo test --release --test sim speed -- --ignored --nocapture` prints the table and writes it;
//! with `KERNELGATE_SPEED=mma` only of kernels that are called so, which writes nothing: for a profiler.

use super::catalogue;
use super::subject::{self, Subject};
use kernelgate::sim::{Checks, Module, Options};
use rayon::ThreadPoolBuilder;
use std::fmt::Write as _;
use std::time::Duration;

/// Runs of each case.
const RUNS: usize = 40;

/// The shortest of many launches: what else the machine does only makes them longer.
fn time(subject: &Subject, module: &Module, checks: Checks, threads: usize) -> Duration {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let options = Options { checks, ..Options::default() };
    let once = || pool.install(|| subject.time(module, &options).expect("a right kernel"));
    (0..RUNS).map(|_| once()).min().unwrap_or_default()
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let shapes: [(&str, &str, &[usize]); 4] = [
        ("gelu", "cuda_v1", &[1 << 20]),
        ("softmax", "cuda_v1", &[256, 4096]),
        ("layernorm", "cuda_v1", &[256, 4096, 0]),
        ("gemm", "cuda_v2", &[256, 256, 256]),
    ];
    let mut subjects: Vec<Subject> =
        shapes.iter().filter_map(|(operator, name, point)| catalogue::candidate(operator, name, point)).collect();
    subjects.push(subject::gemm_mma([256; 3]));
    subjects.push(subject::wgmma("gemm_k_major", [256; 3]));
    let only = std::env::var("KERNELGATE_SPEED").ok();
    subjects.retain(|subject| only.as_ref().is_none_or(|only| subject.name.contains(only)));
    let mut table = String::from(
        "| kernel | one core, checks off (ms) | checks on (ms) | ratio | two cores, checks on (ms) | times faster |\n|---|---|---|---|---|---|\n",
    );
    let mut product = 1.0;
    for subject in &subjects {
        let module = Module::parse(&subject.ptx).expect("a right kernel");
        let ms = |checks, threads| 1e3 * time(subject, &module, checks, threads).as_secs_f64();
        let (off, on, two) = (ms(Checks::NONE, 1), ms(Checks::ALL, 1), ms(Checks::ALL, 2));
        product *= on / off;
        let _ =
            writeln!(table, "| {} | {off:.1} | {on:.1} | {:.2} | {two:.1} | {:.2} |", subject.name, on / off, on / two);
    }
    let mean = f64::powf(product, 1.0 / subjects.len() as f64);
    let _ = writeln!(
        table,
        "\nGeometric mean of the ratios: {mean:.2}. Each time is that of the shortest of {RUNS} launches on memory that was filled before."
    );
    println!("{table}");
    if only.is_some() {
        return;
    }
    super::evidence::write("simulator-speed.md", "Speed of the simulator", &table);
}
