//! A gate for the functional tests: `MISBEHAVE` names the candidates that it has, each with a fault of its own.
//! Without it there are only two right ones. With `MISBEHAVE_TIMED` they are timed too, with `MISBEHAVE_REFERENCE` the
//! reference panics at more than one row.

use kernelgate::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

shape! { struct Rows { rows: 1..=64, cols: 1..=64 } }

/// The shape that is timed.
const TIMED: Rows = Rows { rows: 64, cols: 64 };

fn double() -> Op<Rows> {
    let timed = std::env::var_os("MISBEHAVE_TIMED").map(|_| TIMED);
    Op::<Rows>::new("double")
        .perf(timed)
        .input("x", |s| [s.rows, s.cols])
        .output("y", |s| [s.rows, s.cols])
        .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols })
        .reference(|s, x, y| {
            let is_broken = s.rows > 1 && std::env::var_os("MISBEHAVE_REFERENCE").is_some();
            assert!(!is_broken, "the reference is broken");
            y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x);
        })
}

/// A right kernel: y[i] = x[i] + x[i], a thread an element.
const DOUBLE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry double(.param .u64 x, .param .u64 y, .param .u64 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<3>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd4, %r4;
    setp.ge.u64 %p1, %rd4, %rd3;
    @%p1 bra END;
    shl.b64 %rd5, %rd4, 2;
    add.s64 %rd6, %rd1, %rd5;
    add.s64 %rd7, %rd2, %rd5;
    ld.global.f32 %f1, [%rd6];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd7], %f2;
END:
    ret;
}
";

/// What a right candidate takes at the timed shape: by the clock, so that a machine at work on other things says the same.
const TAKES: Duration = Duration::from_micros(300);

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
                std::thread::sleep(Duration::from_secs(1));
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
        "tile" => Cpu::new::<f32>(|_, x, y| right(x, y)).tile("colls", 4).alignment(3),
        "chatty" => Cpu::new::<f32>(|_, x, y| {
            print!("no end of line");
            right(x, y);
        }),
        "slow" => Cpu::new::<f32>(|_, x, y| {
            static FIRST: std::sync::Once = std::sync::Once::new();
            FIRST.call_once(|| std::thread::sleep(Duration::from_secs(3)));
            right(x, y);
        }),
        "chatty_wrong" => Cpu::new::<f32>(|_, _, _| print!("no end of line")),
        _ => Cpu::new::<f32>(|s: &Rows, x, y| {
            let ends = Instant::now() + TAKES;
            right(x, y);
            while (s.rows, s.cols) == (TIMED.rows, TIMED.cols) && Instant::now() < ends {
                std::hint::spin_loop();
            }
        }),
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
    let cuda = Cuda::ptx(DOUBLE, "double", |s: &Rows| {
        let n = s.rows * s.cols;
        Launch::blocks(n.div_ceil(64), 64).scalar(n as i64)
    })
    .dtypes([F32]);
    let gate = gate!(double()).candidate("kernel", cuda);
    let misspelt = || Cuda::ptx(DOUBLE, "dubble", |_: &Rows| Launch::blocks(1, 64).scalar(1_i64)).dtypes([F32]);
    let add = |gate: kernelgate::harness::GateOf<Rows>, name: &str| match name {
        "entry" => gate.candidate(name, misspelt()),
        _ => gate.candidate(name, candidate(name)),
    };
    names.split(',').fold(gate, add).run()
}
