//! Launch rules on GPUs with fewer or more multiprocessors than the one that they were measured on: they launch what is there, and
//! what they launch is right.

use super::agreement::simulator;
use super::catalogue;
use crate::check::boundary::elements;
use crate::check::case::Case;
use crate::check::judge::judge_case;
use crate::check::{Context, Subject};
use crate::core::candidate::{Body, Kernel};
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::gpu::Gpu;
use crate::core::launch::{Argument, Launch};
use crate::core::operator::Operator;
use crate::core::shape::{Point, describe};
use std::time::Duration;

/// What is run in the simulator: some seconds for all operators together.
const MOST_ELEMENTS: usize = 1 << 18;
const MOST_FLOPS: usize = 1 << 24;

/// What parts one launch from another: blocks, threads, shared memory, the entry, arguments.
type Launched = ([usize; 3], [usize; 3], usize, usize, Option<String>, Vec<Argument>);

/// What a kernel launches on a GPU with so many multiprocessors.
fn launches(kernel: &Kernel, point: &[usize], multiprocessors: usize) -> Vec<Launched> {
    let launches = Gpu::with_multiprocessors(multiprocessors).during(|| kernel.plan(point).0);
    let parts = |l: Launch| (l.grid, l.block, l.cluster, l.shared_bytes, l.entry, l.arguments);
    launches.into_iter().map(parts).collect()
}

/// The smallest listed shape at which the launches differ.
fn smallest_that_differs(operator: &dyn Operator, kernel: &Kernel, multiprocessors: usize) -> Option<Point> {
    let listed = operator.shapes().iter().chain(operator.perf_shapes());
    let differs = |point: &&Point| {
        launches(kernel, point, multiprocessors) != launches(kernel, point, Gpu::SIMULATED.multiprocessors)
    };
    listed.filter(differs).min_by_key(|point| operator.cost(point, DType::F32).flops).cloned()
}

#[test]
fn kernels_are_right_on_a_smaller_gpu() {
    const MULTIPROCESSORS: usize = 7;
    let device = simulator().standing_for(Gpu::with_multiprocessors(MULTIPROCESSORS));
    let context = Context::new(&device, 1, Duration::from_secs(60));
    let mut run = Vec::new();
    for suite in catalogue() {
        for candidate in &suite.candidates {
            let Body::Cuda(kernel) = &candidate.body else { continue };
            let operator = &*suite.operator;
            let Some(point) = smallest_that_differs(operator, kernel, MULTIPROCESSORS) else { continue };
            let dtype = *candidate.traits.dtypes.last().unwrap();
            let place =
                format!("{}::{} {dtype} {}", operator.name(), candidate.name, describe(operator.axes(), &point));
            if elements(operator, &point) > MOST_ELEMENTS || operator.cost(&point, dtype).flops > MOST_FLOPS {
                continue;
            }
            let subject = Subject { operator, candidate, dtype };
            let judged = judge_case(&context, &subject, &Case::new(point, Distribution::Normal, 1));
            assert!(judged.is_ok(), "{place}: {judged:#?}");
            run.push(place);
        }
    }
    assert!(run.len() > 15, "{run:#?}");
}
