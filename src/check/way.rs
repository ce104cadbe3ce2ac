//! The ways a candidate goes: shapes that it launches alike.

use super::case::Case;
use crate::core::candidate::Body;
use crate::core::launch::Launch;
use std::collections::HashSet;

/// What a launch has in common with those of other shapes: its entry, the threads of a block, the blocks of a cluster,
/// and along which axes it has more than one block.
type Step = (Option<String>, [usize; 3], usize, [bool; 3]);

fn step(launch: Launch) -> Step {
    (launch.entry, launch.block, launch.cluster, launch.grid.map(|blocks| blocks > 1))
}

/// The first case of each way, by index. A kernel may be right on one way and wrong on another, so these say more than
/// as many others; host code has one way.
pub(super) fn first_of_each(body: &Body, cases: &[Case]) -> Vec<usize> {
    let mut known = HashSet::new();
    let mut is_new = |case: &Case| {
        let steps: Vec<Step> = body.launches(&case.point).into_iter().map(step).collect();
        known.insert(steps)
    };
    (0..cases.len()).filter(|&index| is_new(&cases[index])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Cpu, Cuda, IntoCandidate};
    use crate::core::distribution::Distribution;
    use crate::core::tensor::{Inputs, Outputs};
    use rstest::rstest;

    crate::shape! { struct Vector { n: 1..=1 << 20 } }

    fn cases() -> Vec<Case> {
        (1..=40).map(|n| Case::new(vec![n], Distribution::Normal, 1)).collect()
    }

    fn kernel(plan: impl Fn(usize) -> Launch + Send + Sync + 'static) -> Body {
        Cuda::source("k", "", move |s: &Vector| plan(s.n)).named("k").body
    }

    #[rstest]
    #[case::one(kernel(|_| Launch::blocks(1, 32)), &[0])]
    #[case::several_blocks(kernel(|n| Launch::blocks(n.div_ceil(8), 32)), &[0, 8])]
    #[case::threads(kernel(|n| Launch::blocks(1, n.div_ceil(16) * 32)), &[0, 16, 32])]
    #[case::clusters(kernel(|n| Launch::blocks(8, 32).cluster(if n < 30 { 1 } else { 2 })), &[0, 29])]
    #[case::entries(kernel(|n| Launch::blocks(1, 32).entry(if n % 2 == 0 { "even" } else { "odd" })), &[0, 1])]
    #[case::host(Cpu::new::<f32>(|_: &Vector, _: &Inputs<'_>, _: &mut Outputs<'_>| ()).named("h").body, &[0])]
    fn the_first_case_of_each_way_is_found(#[case] body: Body, #[case] found: &[usize]) {
        assert_eq!(first_of_each(&body, &cases()), found);
    }
}
