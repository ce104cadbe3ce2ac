//! Launch rules: the two rows of a head whose elements one angle rotates.

use super::Projected;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::pairs;

fn kernel(rule: fn(&str, &Projected) -> Launch) -> Cuda<Projected> {
    let plan = move |s: &Projected| {
        let extents = [s.batch, s.heads, s.kv_heads, s.half, s.k].map(|extent| extent as i32);
        let launch = extents.into_iter().fold(rule("rmsnorm_qkv_rope", s), Launch::scalar);
        launch.scalar(s.eps).scalar(pairs::warps(s.k) as i32)
    };
    let kernel = kernel!("rmsnorm_qkv_rope/rmsnorm_qkv_rope.cu", "rmsnorm_qkv_rope_naive", plan);
    kernel.tiles(pairs::TILES)
}

pub fn naive() -> Cuda<Projected> {
    kernel(|name, s| pairs::naive(name, s.batch, s.rows() / 2))
}

pub fn best() -> Cuda<Projected> {
    kernel(|name, s| pairs::launch(name, s.batch, s.rows() / 2, s.k))
}
