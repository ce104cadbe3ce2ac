//! The GPU that launch rules are asked for: like CUDA's current device, one a thread.

use std::cell::Cell;

/// Multiprocessors of an H100 or H200 on its board: what is simulated, and what the launch rules of the catalogue were measured on.
pub const H200_MULTIPROCESSORS: usize = 132;

/// What a launch rule may ask of the GPU that it is to launch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Major and minor: from `(9, 0)` on blocks form clusters.
    pub compute_capability: (u32, u32),
}

thread_local! {
    static CURRENT: Cell<Gpu> = const { Cell::new(Gpu::SIMULATED) };
}

impl Gpu {
    /// The one that the simulator stands for, and that rules are asked for where no other is current: an H200.
    pub const SIMULATED: Gpu = Gpu { multiprocessors: H200_MULTIPROCESSORS, compute_capability: (9, 0) };

    /// The simulated one, with so many multiprocessors.
    pub fn with_multiprocessors(multiprocessors: usize) -> Self {
        Gpu { multiprocessors: multiprocessors.max(1), ..Gpu::SIMULATED }
    }

    /// The same, of a compute capability.
    pub fn of_capability(self, major: u32, minor: u32) -> Self {
        Gpu { compute_capability: (major, minor), ..self }
    }

    /// Whether blocks form clusters.
    pub fn has_clusters(self) -> bool {
        self.largest_cluster() > 1
    }

    /// The most blocks of a cluster: more than 8 are not portable.
    pub fn largest_cluster(self) -> usize {
        match self.compute_capability.0 {
            ..=8 => 1,
            9..=10 => 16,
            _ => 8,
        }
    }

    /// The GPU of the case in hand. Within a launch rule, that which the kernel is launched on:
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    ///
    /// # const SCALE: &str = "";
    /// // Persistent blocks, two a multiprocessor.
    /// let scale = Cuda::source(SCALE, "scale", |s: &Vector| {
    ///     Launch::blocks(s.n.div_ceil(256).min(2 * Gpu::current().multiprocessors), 256).scalar(s.n as i32)
    /// });
    /// ```
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Makes it the current one of this thread.
    pub fn make_current(self) {
        CURRENT.set(self);
    }

    /// What `f` returns while it is the current one of this thread.
    pub fn during<T>(self, f: impl FnOnce() -> T) -> T {
        /// Restores the one before, after a panic too.
        struct Before(Gpu);
        impl Drop for Before {
            fn drop(&mut self) {
                self.0.make_current();
            }
        }
        let _before = Before(CURRENT.replace(self));
        f()
    }
}

/// Multiprocessors of the current GPU.
pub fn multiprocessors() -> usize {
    Gpu::current().multiprocessors
}

/// What an H200 runs at the same time, for the current GPU: in proportion to its multiprocessors, one at least.
pub fn scaled(on_an_h200: usize) -> usize {
    (on_an_h200 * multiprocessors() / H200_MULTIPROCESSORS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_one_is_of_the_thread_and_comes_back() {
        assert_eq!((multiprocessors(), scaled(30)), (132, 30));
        let small = Gpu::with_multiprocessors(16);
        assert_eq!(small.during(|| (multiprocessors(), scaled(30), scaled(5))), (16, 3, 1));
        assert!(small.has_clusters() && !small.of_capability(8, 9).has_clusters());
        assert_eq!([(9, 0), (10, 0), (12, 0)].map(|(x, y)| small.of_capability(x, y).largest_cluster()), [16, 16, 8]);
        let panicked = std::panic::catch_unwind(|| small.during(|| panic!("in a rule")));
        assert!(panicked.is_err());
        assert_eq!(Gpu::current(), Gpu::SIMULATED);
        small.make_current();
        assert_eq!(std::thread::spawn(multiprocessors).join().unwrap(), 132);
        Gpu::SIMULATED.make_current();
    }
}
