//! Candidates: the ways to compute an operator that the gate judges.

mod body;
mod cpu;
mod cuda;
mod enqueue;
mod include;
mod kernel;
mod library;
mod text;
mod traits;
mod triton;

pub use body::{Body, CpuBody};
pub use cpu::Cpu;
pub use cuda::Cuda;
pub use enqueue::{Enqueue, EnqueueBody};
pub use include::included;
pub use kernel::{Kernel, Language, Program};
pub use library::CudaHost;
pub use text::Text;
pub use traits::{Declare, Traits};
pub use triton::{TritonError, TritonMetadata};

/// A candidate as the gate holds it: named, its shape type erased.
#[derive(Clone)]
pub struct Candidate {
    /// The second part of the trial name.
    pub name: String,
    /// Its code.
    pub body: Body,
    /// Its declarations.
    pub traits: Traits,
}

/// A candidate of an operator with shape `S`, before it has a name.
pub trait IntoCandidate<S> {
    /// Gives it its name.
    fn named(self, name: &str) -> Candidate;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::shape! { struct Matrix { rows: 1..=8, cols: 1..=8 } }

    #[test]
    fn tiles_together_are_those_one_by_one() {
        let candidate = || Cpu::new::<f32>(|_: &Matrix, _, _| {});
        let mut together = candidate().tiles([("rows", 4), ("cols", 2), ("cols", 3)]);
        let mut one_by_one = candidate().tile("rows", 4).tile("cols", 2).tile("cols", 3);
        assert_eq!(together.traits_mut().tiles, [("rows", 4), ("cols", 2), ("cols", 3)]);
        assert_eq!(together.traits_mut().tiles, one_by_one.traits_mut().tiles);
    }
}
