//! A gate for the functional tests: `MISBEHAVE` names the candidates that it has, each with a fault of its own.
//! Without it there are only two right ones. With `MISBEHAVE_TIMED` they are timed too.

use kernelgate::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

shape! { struct Rows { rows: 1..=64, cols: 1..=64 } }

fn double() -> Op<Rows> {
    let timed = std::env::var_os("MISBEHAVE_TIMED").map(|_| Rows { rows: 64, cols: 64 });
    Op::<Rows>::new("double")
        .perf(timed)
        .input("x", |s| [s.rows, s.cols])
        .output("y", |s| [s.rows, s.cols])
        .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols })
        .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x))
}

fn right(x: &Inputs, y: &mut Outputs) {
    y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, x)| *y = 2.0 * x);
}

fn candidate(name: &str) -> Cpu<Rows> {
    match name {
        "abort" => Cpu::new::<f32>(|_, _, _| std::process::abort()),
        "overflow" => Cpu::new::<f32>(|_, x, y| {
            overflow(x.slice::<f32>(0).len() + 1);
            right(x, y);
        }),
        "exit" => Cpu::new::<f32>(|_, _, _| std::process::exit(7)),
        "hang" => Cpu::new::<f32>(|_, _, _| {
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }),
        "panic" => Cpu::new::<f32>(|s: &Rows, x, y| {
            assert!(s.cols < 9, "nine columns are too many");
            right(x, y);
        }),
        // Wrong at one place only, and only from nine columns on.
        "wrong" => Cpu::new::<f32>(|s: &Rows, x, y| {
            right(x, y);
            if s.cols >= 9 {
                y.slice::<f32>(0)[s.cols - 1] += 1.0;
            }
        }),
        "chatty" => Cpu::new::<f32>(|_, x, y| {
            print!("no end of line");
            right(x, y);
        }),
        _ => Cpu::new::<f32>(|_, x, y| right(x, y)),
    }
}

/// Recursion that no optimiser turns into a loop.
#[expect(unconditional_recursion, reason = "it is to overflow the stack")]
fn overflow(depth: usize) -> usize {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let page = [depth; 512];
    SEEN.fetch_add(std::hint::black_box(&page)[depth % 512], Ordering::Relaxed);
    overflow(depth + 1) + SEEN.load(Ordering::Relaxed) + page[3]
}

fn main() -> ExitCode {
    let names = std::env::var("MISBEHAVE").unwrap_or_else(|_| "right,also_right".into());
    let cuda = Cuda::source("", "double", |_: &Rows| Launch::blocks(1, 1)).dtypes([F32]);
    let gate = gate!(double()).candidate("kernel", cuda);
    names.split(',').fold(gate, |gate, name| gate.candidate(name, candidate(name))).run()
}
