//! Launch rules: pairs of neighbouring rows.

use super::Added;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::pairs;

fn kernel(rule: fn(&str, &Added) -> Launch) -> Cuda<Added> {
    let plan = move |s: &Added| {
        let launch = rule("gemv_add", s).scalar(s.batch as i32).scalar(s.n as i32).scalar(s.k as i32);
        launch.scalar(pairs::warps(s.k) as i32)
    };
    let kernel = kernel!("gemv_add/gemv_add.cu", "gemv_add_naive", plan);
    kernel.tiles(pairs::TILES).tile("n", 8)
}

pub fn naive() -> Cuda<Added> {
    kernel(|name, s| pairs::naive(name, s.batch, s.n.div_ceil(2)))
}

pub fn best() -> Cuda<Added> {
    kernel(|name, s| pairs::launch(name, s.batch, s.n.div_ceil(2), s.k))
}
