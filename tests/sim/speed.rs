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

/// Runs of each case: so many that even on two cores, where twice as much can come between, some are not disturbed.
const RUNS: usize = 600;

/// Each pair of checks and threads, the shortest of many launches in turn: what else the machine does only makes them
/// longer, and comes to all of them.
fn shortest<const N: usize>(subject: &Subject, module: &Module, ways: [(Checks, usize); N]) -> [Duration; N] {
    let ways = ways.map(|(checks, threads)| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        (pool, Options { checks, ..Options::default() })
    });
    let mut shortest = [Duration::MAX; N];
    for _ in 0..RUNS {
        for (shortest, (pool, options)) in shortest.iter_mut().zip(&ways) {
            let took = pool.install(|| subject.time(module, options).expect("a right kernel"));
            *shortest = took.min(*shortest);
        }
    }
    shortest
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let shapes: [(&str, &str, &[usize]); 4] = [
        ("gelu", "lesson1_naive", &[1 << 20]),
        ("softmax", "lesson1_naive", &[256, 4096]),
        ("layernorm", "lesson1_naive", &[256, 4096, 0]),
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
        let ways = [(Checks::NONE, 1), (Checks::ALL, 1), (Checks::ALL, 2)];
        let [off, on, two] = shortest(subject, &module, ways).map(|time| 1e3 * time.as_secs_f64());
        product *= on / off;
        let _ =
            writeln!(table, "| {} | {off:.1} | {on:.1} | {:.2} | {two:.1} | {:.2} |", subject.name, on / off, on / two);
    }
    let mean = f64::powf(product, 1.0 / subjects.len() as f64);
    let _ = writeln!(
        table,
        "\nGeometric mean of the ratios: {mean:.2}. Each time is that of the shortest of {RUNS} launches on memory that was filled before, in turn with those of its row."
    );
    println!("{table}");
    if only.is_some() {
        return;
    }
    super::evidence::write("simulator-speed.md", "Speed of the simulator", &table);
}
