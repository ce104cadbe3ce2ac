//! The simulator as a device: what a problem catches, what it refuses, what it keeps.

use super::SimDevice;
use crate::check::outcome::Verdict;
use crate::check::{Context, Subject, correctness, property};
use crate::core::candidate::{Candidate, Cuda, CudaHost, Declare, IntoCandidate};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::tensor::Tensor;
use crate::core::tensor_map::{Fill, Swizzle, TensorMap};
use crate::device::fault::Fault;
use crate::device::{Device, Job, Poison, Problem};
use rstest::rstest;
use std::time::Duration;

crate::shape! { struct Vector { n: 0..=4096 } }

fn operator() -> Op<Vector> {
    Op::<Vector>::new("double")
        .input("x", |s| [s.n])
        .output("y", |s| [s.n])
        .separable("n")
        .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x))
}

/// y[i] = 2 x[i] for i < n, with `body` in place of the store; `%rd5` is the address of y[i], `%rd4` that of x[i].
fn kernel(body: &str) -> Candidate {
    kernel_with("", "setp.ge.s64 %p1, %rd1, %rd3;", body)
}

fn kernel_with(variables: &str, bound: &str, body: &str) -> Candidate {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n{variables}
         .visible .entry k(.param .u64 x, .param .u64 y, .param .u64 n) {{
            .reg .pred %p<3>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %rd<12>;
            ld.param.u64 %rd6, [x]; ld.param.u64 %rd7, [y]; ld.param.u64 %rd3, [n];
            mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
            mad.lo.s32 %r4, %r1, %r2, %r3;
            cvt.u64.u32 %rd1, %r4;
            {bound}
            @%p1 bra END;
            shl.b64 %rd2, %rd1, 2;
            add.s64 %rd4, %rd6, %rd2;
            add.s64 %rd5, %rd7, %rd2;
            ld.global.f32 %f1, [%rd4];
            add.f32 %f2, %f1, %f1;
            {body}
            END: ret;
         }}"
    );
    Cuda::ptx(text, "k", |s: &Vector| Launch::blocks(s.n.div_ceil(64), 64).scalar(s.n as i64))
        .dtypes([DType::F32])
        .named("k")
}

const STORE: &str = "st.global.f32 [%rd5], %f2;";

fn with<R>(
    candidate: &Candidate,
    n: usize,
    offset_bytes: usize,
    f: impl FnOnce(Result<&mut dyn Problem, Fault>) -> R,
) -> R {
    let (device, operator) = (SimDevice::new(None), operator());
    let values: Vec<f64> = (0..n).map(|i| i as f64).collect();
    let inputs = [Tensor::from_f64(DType::F32, &[n], &values)];
    let point = [n];
    let job = Job { operator: &operator, candidate, point: &point, dtype: DType::F32, inputs: &inputs, offset_bytes };
    match device.prepare(&job) {
        Ok(mut problem) => f(Ok(problem.as_mut())),
        Err(fault) => f(Err(fault)),
    }
}

fn run(candidate: &Candidate, n: usize) -> Result<Vec<Tensor>, Fault> {
    with(candidate, n, 16, |problem| problem?.run(Poison::Nan))
}

#[rstest]
fn a_right_kernel_gives_its_values_in_every_run(
    #[values(0, 1, 63, 64, 65, 1000)] n: usize,
    #[values(0, 16)] offset: usize,
) {
    with(&kernel(STORE), n, offset, |problem| {
        let problem = problem.unwrap();
        let y = problem.run(Poison::Nan).unwrap();
        assert_eq!(y[0].to_f64(), (0..n).map(|i| 2.0 * i as f64).collect::<Vec<_>>());
        assert_eq!(problem.run(Poison::Huge).unwrap(), y);
        assert_eq!(problem.agrees_under(Poison::Huge), Ok(true));
        assert_eq!(problem.repeat(3), Ok(0));
        assert_eq!(problem.run_varied(), Ok(None), "nothing about an addition is approximate");
    });
}

#[test]
fn an_input_that_is_a_block_is_repeated() {
    let (device, operator, candidate) = (SimDevice::new(None), operator(), kernel(STORE));
    let inputs = [Tensor::from_f64(DType::F32, &[3], &[1.0, 2.0, 3.0])];
    let (point, dtype) = (&[8][..], DType::F32);
    let job = Job { operator: &operator, candidate: &candidate, point, dtype, inputs: &inputs, offset_bytes: 16 };
    let mut problem = device.prepare(&job).unwrap();
    let y = problem.run(Poison::Nan).unwrap();
    assert_eq!(y[0].to_f64(), [2.0, 4.0, 6.0, 2.0, 4.0, 6.0, 2.0, 4.0]);
    problem.run_unread().unwrap();
    assert_eq!(problem.repeat(2), Ok(0));
}

#[test]
fn approximations_are_varied() {
    with(&kernel("rcp.approx.f32 %f2, %f1; st.global.f32 [%rd5], %f2;"), 1000, 0, |problem| {
        let problem = problem.unwrap();
        let plain = problem.run(Poison::Nan).unwrap();
        assert_eq!(problem.run(Poison::Huge).unwrap(), plain);
        let varied = problem.run_varied().unwrap().expect("a reciprocal is approximate");
        assert_ne!(varied, plain);
    });
}

#[rstest]
#[case::past_the_end("st.global.f32 [%rd5+4], %f2;", "out-of-bounds", "0 bytes past the end of `y`")]
#[case::before_the_start("st.global.f32 [%rd5-20], %f2;", "out-of-bounds", "")]
#[case::its_own_output(
    "ld.global.f32 %f3, [%rd5]; add.f32 %f2, %f2, %f3; st.global.f32 [%rd5], %f2;",
    "uninitialised-global",
    "byte 0 of the 400 of `y`"
)]
#[case::its_input("st.global.f32 [%rd4], %f2; st.global.f32 [%rd5], %f2;", "read-only", "of `x`")]
#[case::one_place("st.global.f32 [%rd7], %f1;", "race-global", "of `y`")]
#[case::misaligned("st.global.v2.f32 [%rd5], {%f2, %f2};", "misaligned", "of `y`")]
#[case::a_trap("trap;", "trap", "")]
fn what_a_kernel_does_wrong_is_a_finding_with_its_place(#[case] body: &str, #[case] check: &str, #[case] buffer: &str) {
    let Err(Fault::Findings(findings)) = run(&kernel(body), 100) else { panic!("{check} was not found") };
    assert!(
        findings.iter().any(|f| f.starts_with(check) && f.contains(buffer) && f.contains("thread (")),
        "{findings:?}"
    );
}

#[test]
fn a_write_before_a_buffer_inside_its_allocation_is_seen_by_the_guard() {
    let fault = run(
        &kernel("st.global.f32 [%rd5], %f2; setp.ne.s64 %p2, %rd1, 0; @%p2 bra END; st.global.f32 [%rd7-4], %f2;"),
        9,
    );
    assert_eq!(fault, Err(Fault::Guard { buffer: "y".into(), offset: -4 }));
}

#[test]
fn variables_of_a_module_outlive_a_launch() {
    let counted =
        "atom.global.add.u32 %r5, [count], 1; setp.gt.u32 %p2, %r5, 0; @%p2 bra END; st.global.f32 [%rd5], %f2;";
    let once = kernel_with(".global .align 4 .u32 count = 0;", "setp.ne.s64 %p1, %rd1, 0;", counted);
    with(&once, 1, 0, |problem| {
        let problem = problem.unwrap();
        assert_eq!(problem.run(Poison::Nan).unwrap()[0].to_f64(), [0.0]);
        assert!(problem.run(Poison::Nan).unwrap()[0].get(0).is_nan(), "the second launch does nothing");
    });
}

#[test]
fn a_wrong_launch_is_refused_before_it_runs() {
    let with_launch = |launch: Launch| {
        let candidate = kernel(STORE);
        let crate::core::candidate::Body::Cuda(kernel) = &candidate.body else { panic!("a kernel") };
        let text = kernel.program.text.to_string();
        run(&Cuda::ptx(text, "k", move |_: &Vector| launch.clone()).named("k"), 8)
    };
    let wrong = [
        Launch::blocks(1, 64),
        Launch::blocks(1, 64).scalar(8i32),
        Launch::blocks(1, 1025).scalar(8i64),
        Launch::blocks(1, 64).scalar(8i64).entry("other"),
        Launch::blocks(1, 64).scalar(8i64).dependent(),
        Launch::blocks(1, 64).scalar(8i64).shared(300 << 10),
    ];
    for launch in wrong {
        assert!(matches!(with_launch(launch.clone()), Err(Fault::Signature(_))), "{launch:?}");
    }
    let tall = Launch::grid([1, 65_536, 1], [1, 1, 1]).scalar(8i64);
    assert!(matches!(with_launch(tall), Err(Fault::Launch(_))));
}

#[test]
fn what_cannot_be_simulated_is_a_skip_and_never_green() {
    let (device, operator) = (SimDevice::new(None), operator());
    let context = Context::new(&device, 1, Duration::from_secs(20));
    let host: Candidate = CudaHost::new(|_: &Vector, _| Ok(())).named("host");
    for (candidate, why) in [
        (kernel("tcgen05.nothing.f32 %f2, %f1;"), "unsupported: `tcgen05.nothing.f32` (k.ptx, PTX line "),
        (host, "host code that enqueues GPU work needs a GPU"),
    ] {
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let settings = property::Settings { cases: 3, regressions: None, shrinking: property::SHRINKING };
        for outcome in [correctness::run(&context, &subject), property::run(&context, &subject, &settings)] {
            assert_eq!(outcome.verdict, Verdict::Skip);
            assert!(outcome.reason.starts_with(why), "{}", outcome.reason);
        }
    }
}

#[test]
fn a_trial_runs_in_the_simulator_as_on_a_gpu() {
    let (device, operator) = (SimDevice::new(None), operator());
    let context = Context::new(&device, 1, Duration::from_secs(60));
    let judge = |candidate: Candidate| {
        correctness::run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 })
    };
    let right = judge(kernel(STORE));
    assert_eq!(right.verdict, Verdict::Pass, "{right:#?}");
    assert!(right.cases > 40, "{}", right.cases);
    let unwritten = judge(kernel_with("", "add.s64 %rd3, %rd3, -1; setp.ge.s64 %p1, %rd1, %rd3;", STORE));
    assert_eq!(unwritten.failure.map(|failure| failure.check), Some("poison".into()));
    let wrong = judge(kernel("add.f32 %f2, %f2, 0f3F800000; st.global.f32 [%rd5], %f2;"));
    assert_eq!(wrong.failure.map(|failure| failure.check), Some("values".into()));
    let past = judge(kernel("st.global.f32 [%rd5], %f2; st.global.f32 [%rd5+4], %f2;"));
    assert_eq!(past.failure.map(|failure| failure.check), Some("finding".into()));
}

#[test]
fn counts_are_the_same_for_any_number_of_threads() {
    let copied = "bar.sync 0; setp.gt.f32 %p2, %f1, 0f42C80000; @%p2 bra END; st.global.f32 [%rd5], %f2;";
    let candidate = kernel(copied);
    let counts = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| with(&candidate, 4096, 0, |problem| problem.unwrap().count())).unwrap()
    };
    let one = counts(1);
    assert_eq!((one.barriers, one.divergent_branches), (128, 1), "{one:#?}");
    assert_eq!(one.global_reads.bytes, 4 * 4096);
    assert_eq!(one.global_reads.units, 512);
    assert!(one.entries.is_empty(), "nobody asked ptxas");
    for threads in [2, 8] {
        assert_eq!(counts(threads), one, "{threads} threads");
    }
}

crate::shape! { struct Product { m: 64..=128, n: 64..=128, k: 64..=128 } }

/// Runs a product of 128x64x128 by bulk tensor copies and warp-group products; `view` changes the map of a.
fn run_with_maps(view: fn(TensorMap) -> TensorMap) -> Result<Vec<f64>, Fault> {
    let operator = Op::<Product>::new("gemm")
        .input("a", |s| [s.m, s.k])
        .input("b", |s| [s.k, s.n])
        .output("c", |s| [s.m, s.n])
        .in_dtype(DType::F32);
    let text = include_str!("../../../fixtures/ptx/wgmma_tma.ptx");
    let candidate = Cuda::ptx(text, "gemm_n_major", move |s: &Product| {
        let map =
            |name: &str, extents: [usize; 2]| TensorMap::of(name, extents).tile([64, 64]).swizzle(Swizzle::Bytes128);
        Launch::grid([s.n / 64, s.m / 64, 1], [128, 1, 1])
            .without_pointers()
            .map(view(map("a", [s.m, s.k])))
            .map(map("b", [s.k, s.n]))
            .pointer("c")
            .scalar(s.n as i32)
            .scalar(s.k as i32)
    });
    let candidate = candidate.needs("sm_90a").dtypes([DType::BF16]).named("maps");
    let (device, point) = (SimDevice::new(None), [128, 64, 128]);
    let values = |factor: usize| (0..128 * 128).map(|i| (i * factor % 7) as f64 - 3.0).collect::<Vec<_>>();
    let inputs = [
        Tensor::from_f64(DType::BF16, &[128, 128], &values(3)),
        Tensor::from_f64(DType::BF16, &[128, 64], &values(5)[..128 * 64]),
    ];
    let job = Job {
        operator: &operator,
        candidate: &candidate,
        point: &point,
        dtype: DType::BF16,
        inputs: &inputs,
        offset_bytes: 16,
    };
    let outputs = device.prepare(&job)?.run(Poison::Nan)?;
    let (a, b) = (values(3), values(5));
    let expected = |i: usize, j: usize| (0..128).map(|k| a[i * 128 + k] * b[k * 64 + j]).sum::<f64>();
    let off = outputs[0].to_f64().iter().enumerate().map(|(at, c)| c - expected(at / 64, at % 64)).collect();
    Ok(off)
}

#[test]
fn a_kernel_takes_tensor_maps_of_its_buffers() {
    assert!(run_with_maps(|map| map).unwrap().iter().all(|&off| off == 0.0));
    // 64 rows of a are then zeros.
    let cut = run_with_maps(|map| TensorMap { extents: vec![64, 128], ..map }).unwrap();
    assert!(cut[..64 * 64].iter().all(|&off| off == 0.0) && cut[64 * 64..].iter().any(|&off| off != 0.0));
}

#[rstest]
#[case(|map: TensorMap| map.swizzle(Swizzle::Bytes64), "no more than 64")]
#[case(|map: TensorMap| TensorMap { extents: vec![129, 128], ..map }, "ends at byte 33024, the buffer has 32768")]
#[case(|map: TensorMap| TensorMap { buffer: "d".into(), ..map }, "the case has a, b, c")]
#[case(|map: TensorMap| map.fill(Fill::Nan), "not modelled")]
fn a_tensor_map_that_cannot_be_is_told(#[case] view: fn(TensorMap) -> TensorMap, #[case] why: &str) {
    let said = run_with_maps(view).unwrap_err().to_string();
    assert!(said.contains(why), "{said}");
}
