//! The CUDA device on a real GPU: what it must catch, and whether its clock tells the truth. Without a GPU every
//! trial is ignored, with the reason.

use kernelgate::core::candidate::{Candidate, IntoCandidate};
use kernelgate::core::operator::Operator;
use kernelgate::core::stats::median;
use kernelgate::core::tensor::Tensor;
use kernelgate::device::cuda::{CudaDevice, precompile};
use kernelgate::device::fault::Fault;
use kernelgate::device::{Device, Heat, Job, Poison, Problem, TimingPlan};
use kernelgate::prelude::*;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

shape! { struct Vector { n: 0..=1 << 28 } }

/// A GPU is lost by these: each runs in a process of its own.
const LETHAL: &str = "KERNELGATE_TEST_LETHAL";

fn copy() -> Op<Vector> {
    Op::<Vector>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n])
}

const HEAD: &str = r#"#include "kernelgate.cuh"
extern "C" __global__ void k(const scalar_t* x, scalar_t* y, long long n) {
    const long long i = 1ll * blockIdx.x * blockDim.x + threadIdx.x;
"#;

/// Copies.
const RIGHT: &str = "if (i < n) y[i] = x[i];";

fn kernel(body: &str) -> Candidate {
    launched(body, |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i64))
}

fn launched(body: &str, launch: impl Fn(&Vector) -> Launch + Send + Sync + 'static) -> Candidate {
    Cuda::source(source(body), "k", launch).named("k")
}

fn source(body: &str) -> String {
    format!("{HEAD}{body}\n}}")
}

fn right() -> Candidate {
    kernel(RIGHT)
}

/// Every kernel of this file, so that a bundle can carry them compiled.
fn suites() -> Vec<Suite> {
    let bodies = [
        RIGHT,
        "if (i <= n) y[i] = x[0];",
        "if (i < n) { y[i] = x[i]; const_cast<scalar_t*>(x)[i] = y[0]; }",
        "__shared__ scalar_t s[256]; y[i] = i < n ? s[threadIdx.x] : x[0];",
        "if (i < n) y[i + (1ll << 40)] = x[i];",
        "while (y != nullptr) { if (x == nullptr) return; __threadfence(); }",
    ];
    let mut suite = Suite::of(copy());
    for (at, body) in bodies.iter().enumerate() {
        let cuda = Cuda::source(source(body), "k", |_: &Vector| Launch::blocks(1, 1));
        suite = suite.candidate(&at.to_string(), cuda);
    }
    vec![suite.into()]
}

fn with<R>(
    device: &CudaDevice,
    candidate: &Candidate,
    dtype: DType,
    n: usize,
    f: impl FnOnce(Result<&mut dyn Problem, Fault>) -> R,
) -> R {
    let operator = copy();
    let values: Vec<f64> = (0..n).map(|i| (i % 13) as f64 - 6.0).collect();
    let inputs = [Tensor::from_f64(dtype, &[n], &values)];
    let point = Vector { n }.to_point();
    let job =
        Job { operator: &operator as &dyn Operator, candidate, point: &point, dtype, inputs: &inputs, offset_bytes: 0 };
    match device.prepare(&job) {
        Ok(mut problem) => f(Ok(problem.as_mut())),
        Err(fault) => f(Err(fault)),
    }
}

fn run(device: &CudaDevice, candidate: &Candidate, n: usize) -> Result<Vec<Tensor>, Fault> {
    with(device, candidate, F32, n, |problem| problem?.run(Poison::Nan))
}

fn ensure(good: bool, what: impl std::fmt::Debug) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(format!("{what:?}").into()) }
}

fn a_right_kernel_runs_in_every_dtype(device: &CudaDevice) -> Result<(), Failed> {
    for dtype in DType::FLOATS {
        for n in [0, 1, 255, 1000] {
            let outputs = with(device, &right(), dtype, n, |problem| problem?.run(Poison::Huge))?;
            ensure(outputs[0].to_f64() == (0..n).map(|i| (i % 13) as f64 - 6.0).collect::<Vec<_>>(), (dtype, n))?;
        }
    }
    Ok(())
}

fn a_write_past_the_end_is_caught(device: &CudaDevice) -> Result<(), Failed> {
    let fault = run(device, &kernel("if (i <= n) y[i] = x[0];"), 1000);
    ensure(matches!(&fault, Err(Fault::Guard { buffer, offset: 1 }) if buffer == "y"), fault)
}

fn a_modified_input_is_caught(device: &CudaDevice) -> Result<(), Failed> {
    let fault = run(device, &kernel("if (i < n) { y[i] = x[i]; const_cast<scalar_t*>(x)[i] = y[0]; }"), 1000);
    ensure(matches!(&fault, Err(Fault::InputModified { input, .. }) if input == "x"), fault)
}

fn unwritten_shared_memory_is_poisoned(device: &CudaDevice) -> Result<(), Failed> {
    let reads_shared = kernel("__shared__ scalar_t s[256]; y[i] = i < n ? s[threadIdx.x] : x[0];");
    let values = run(device, &reads_shared, 256)?[0].to_f64();
    ensure(values.iter().all(|v| v.is_nan()), &values[..4])
}

fn wrong_signatures_are_refused(device: &CudaDevice) -> Result<(), Failed> {
    let launches = [
        Launch::blocks(4, 256),
        Launch::blocks(4, 256).scalar(1i32),
        Launch::blocks(4, 256).scalar(1i64).scalar(1i64),
        Launch::blocks(4, 2048).scalar(1i64),
        Launch::blocks(4, 256).scalar(1i64).shared(1 << 20),
        Launch::blocks(4, 256).scalar(1i64).entry("absent"),
    ];
    for launch in launches {
        let wrong = launch.clone();
        let fault = run(device, &launched(RIGHT, move |_| wrong.clone()), 1000);
        ensure(matches!(fault, Err(Fault::Signature(_))), (launch, fault))?;
    }
    ensure(!device.is_lost(), "a refused launch must not lose the device")
}

/// One entry, once with much shared memory and later with none.
fn a_launch_keeps_its_shared_memory(device: &CudaDevice) -> Result<(), Failed> {
    let bytes = |s: &Vector| if s.n > 512 { 64 << 10 } else { 0 };
    let candidate = launched(RIGHT, move |s| Launch::blocks(4, 256).scalar(s.n as i64).shared(bytes(s)));
    let fault = with(device, &candidate, F32, 1000, |problem| {
        let problem = problem?;
        run(device, &candidate, 1)?;
        problem.run(Poison::Nan)
    });
    ensure(fault.is_ok(), fault)
}

fn times(device: &CudaDevice, n: usize, heat: Heat, planted_us: f64) -> Result<f64, Fault> {
    with(device, &right(), F32, n, |problem| {
        let problem = problem?;
        problem.run(Poison::Nan)?;
        let plan =
            TimingPlan { heat, chained: false, batch_us: 300.0, instances: 2, planted_us, session: Duration::ZERO };
        let instances = problem.arm(&plan)?;
        let samples = (0..20).map(|i| problem.sample(i % instances)).collect::<Result<Vec<_>, _>>()?;
        if !problem.timed_outputs_agree()? {
            return Err(Fault::Launch("the timed outputs differ".into()));
        }
        Ok(median(&samples.iter().map(|sample| sample.launch_us).collect::<Vec<_>>()))
    })
}

/// A cold copy cannot be faster than the memory, and a hot one that fits the L2 is faster than a cold one.
fn times_are_believable(device: &CudaDevice) -> Result<(), Failed> {
    let n = 1 << 22;
    let (cold, hot) = (times(device, n, Heat::Cold, 0.0)?, times(device, n / 4, Heat::Hot, 0.0)?);
    let quarter = times(device, n / 4, Heat::Cold, 0.0)?;
    println!("cold {cold:.2} µs, a quarter cold {quarter:.2} µs, hot {hot:.2} µs");
    ensure(cold > 1.0 && hot < quarter && quarter < cold, (cold, quarter, hot))
}

fn a_planted_delay_is_seen(device: &CudaDevice) -> Result<(), Failed> {
    let plain = times(device, 1 << 22, Heat::Cold, 0.0)?;
    let planted = times(device, 1 << 22, Heat::Cold, 0.1 * plain)?;
    println!("planted 10 %: {:+.2} %", 100.0 * (planted / plain - 1.0));
    ensure((1.07..1.13).contains(&(planted / plain)), (plain, planted))
}

/// Runs a kernel that loses the GPU, in this process; the parent looks at what it prints.
fn die(which: &str) -> ExitCode {
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(why) => {
            println!("no device: {why}");
            return ExitCode::FAILURE;
        }
    };
    let body = match which {
        "crash" => "if (i < n) y[i + (1ll << 40)] = x[i];",
        _ => "while (y != nullptr) { if (x == nullptr) return; __threadfence(); }",
    };
    let first = run(&device, &kernel(body), 256);
    let second = run(&device, &right(), 256);
    println!("{which}: {:?}, lost {}, then {:?}", first.map(|_| ()), device.is_lost(), second.map(|_| ()));
    // The context cannot be torn down while the kernel runs.
    std::process::exit(0)
}

fn in_a_child(which: &'static str, expected: &str) -> Result<(), Failed> {
    let child = std::process::Command::new(std::env::current_exe()?).env(LETHAL, which).output()?;
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    ensure(text.contains(expected) && text.contains("lost true") && text.contains("Err(Crash"), text)
}

fn main() -> ExitCode {
    if let Ok(which) = std::env::var(LETHAL) {
        return die(&which);
    }
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, archs] = &arguments[..]
        && flag == "--compile"
    {
        return match precompile(&suites(), &archs.split(',').collect::<Vec<_>>()) {
            Ok(n) => {
                println!("{n} kernels compiled");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // One GPU, one trial at a time.
    arguments.test_threads = Some(1);
    let device = if arguments.list { Err("listing".into()) } else { CudaDevice::open(0).map(Arc::new) };
    type Test = fn(&CudaDevice) -> Result<(), Failed>;
    let tests: [(&str, Test); 10] = [
        ("a_right_kernel_runs_in_every_dtype", a_right_kernel_runs_in_every_dtype),
        ("a_write_past_the_end_is_caught", a_write_past_the_end_is_caught),
        ("a_modified_input_is_caught", a_modified_input_is_caught),
        ("unwritten_shared_memory_is_poisoned", unwritten_shared_memory_is_poisoned),
        ("wrong_signatures_are_refused", wrong_signatures_are_refused),
        ("a_launch_keeps_its_shared_memory", a_launch_keeps_its_shared_memory),
        ("times_are_believable", times_are_believable),
        ("a_planted_delay_is_seen", a_planted_delay_is_seen),
        ("an_illegal_access_loses_the_device", |_| in_a_child("crash", "Err(Crash")),
        ("an_endless_kernel_times_out", |_| in_a_child("hang", "Err(Timeout")),
    ];
    let trials = tests.map(|(name, test)| {
        let device = device.clone();
        Trial::ignorable_test(name, move || match &device {
            Ok(device) => test(device).map(|()| Completion::Completed),
            Err(why) => Ok(Completion::ignored_with(why.clone())),
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
