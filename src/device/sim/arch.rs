//! Which GPU is simulated.

/// The architecture that is simulated, as the compiler's options name its PTX.
pub const ARCH: &str = "compute_90a";
