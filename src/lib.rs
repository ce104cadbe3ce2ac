//! Gates GPU operator kernels under `cargo test`.
