//! Launch rules: a row of the gate and its row of the other half.

use super::Gated;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::pairs;

fn kernel(rule: fn(&str, &Gated) -> Launch) -> Cuda<Gated> {
    let plan = move |s: &Gated| {
        let launch = rule("rmsnorm_swiglu", s).scalar(s.batch as i32).scalar(s.n as i32).scalar(s.k as i32);
        launch.scalar(s.eps).scalar(pairs::warps(s.k) as i32)
    };
    let kernel = kernel!("rmsnorm_swiglu/rmsnorm_swiglu.cu", "rmsnorm_swiglu_naive", plan);
    kernel.tiles(pairs::TILES).tile("n", 8)
}

pub fn naive() -> Cuda<Gated> {
    kernel(|name, s| pairs::naive(name, s.batch, s.n))
}

pub fn best() -> Cuda<Gated> {
    kernel(|name, s| pairs::launch(name, s.batch, s.n, s.k))
}
