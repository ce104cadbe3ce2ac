//! [`Simd`] in plain Rust, for processors without the instruction sets of `x86.rs`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::vector::{Kernel, Simd};

/// Eight floats in an array, which compilers map to whatever vectors the target's baseline has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

const LANES: usize = 8;
type V = [f32; LANES];

#[inline(always)]
fn lanes(f: impl Fn(usize) -> f32) -> V {
    std::array::from_fn(f)
}

/// With one rounding of consequence: where the target lacks the fused instruction, `f32::mul_add` is a
/// slow library call, and the product, exact in f64, serves as well.
#[inline(always)]
fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        (f64::from(a) * f64::from(b) + f64::from(c)) as f32
    }
}

/// `2^n` for `n` within the exponents of normal floats.
#[inline(always)]
fn exp2(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// One copy of the conversions, which are long in instructions of the baseline.
#[inline(never)]
fn widen(x: [f16; LANES]) -> V {
    let mut wide = [0.0; LANES];
    x.convert_to_f32_slice(&mut wide);
    wide
}

/// As [`widen`], the other way.
#[inline(never)]
fn narrow(v: V) -> [f16; LANES] {
    let mut narrow = [f16::ZERO; LANES];
    narrow.convert_from_f32_slice(&v);
    narrow
}

impl Simd for Portable {
    type V = V;
    const LANES: usize = LANES;
    const TILE_ROWS: usize = 4;
    const TILE_VECTORS: usize = 1;

    #[inline(never)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> V {
        // SAFETY: the caller vouches for LANES readable floats; an array of floats has their alignment.
        unsafe { p.cast::<V>().read() }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> V {
        // SAFETY: the caller vouches for LANES readable halves; an array of halves has their alignment.
        widen(unsafe { p.cast::<[f16; LANES]>().read() })
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> V {
        // SAFETY: the caller vouches for LANES readable bfloat16.
        lanes(|i| unsafe { *p.add(i) }.to_f32())
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: V) {
        // SAFETY: the caller vouches for LANES writable floats.
        unsafe { p.cast::<V>().write(v) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: V) {
        // SAFETY: the caller vouches for LANES writable halves.
        unsafe { p.cast::<[f16; LANES]>().write(narrow(v)) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: V) {
        // SAFETY: the caller vouches for LANES writable bfloat16.
        unsafe { p.cast::<[bf16; LANES]>().write(v.map(bf16::from_f32)) }
    }

    #[inline(always)]
    unsafe fn stream(self, p: *mut f32, v: V) {
        // SAFETY: what `stream` asks of the caller contains what `store` asks.
        unsafe { self.store(p, v) }
    }

    #[inline(always)]
    unsafe fn stream_f16(self, p: *mut f16, v: V) {
        // SAFETY: what `stream_f16` asks of the caller contains what `store_f16` asks.
        unsafe { self.store_f16(p, v) }
    }

    #[inline(always)]
    unsafe fn stream_bf16(self, p: *mut bf16, v: V) {
        // SAFETY: what `stream_bf16` asks of the caller contains what `store_bf16` asks.
        unsafe { self.store_bf16(p, v) }
    }

    #[inline(always)]
    fn fence(self) {}

    #[inline(always)]
    fn prefetch(self, _p: *const f32) {}

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        lanes(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        lanes(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        lanes(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        lanes(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: V, b: V, c: V) -> V {
        lanes(|i| mul_add(a[i], b[i], c[i]))
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        lanes(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn abs(self, a: V) -> V {
        a.map(f32::abs)
    }

    #[inline(always)]
    fn copysign(self, a: V, sign: V) -> V {
        lanes(|i| a[i].copysign(sign[i]))
    }

    #[inline(always)]
    fn round(self, a: V) -> V {
        a.map(f32::round_ties_even)
    }

    #[inline(always)]
    fn scale_exp2(self, a: V, n: V) -> V {
        // In two steps: 2^n itself may lie outside the normal floats where the product does not.
        lanes(|i| {
            let n = n[i] as i32;
            let half = n >> 1;
            a[i] * exp2(half) * exp2(n - half)
        })
    }

    #[inline(always)]
    fn select_lt(self, a: V, b: V, yes: V, no: V) -> V {
        lanes(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn first(self, n: usize, a: V, pad: V) -> V {
        lanes(|i| if i < n { a[i] } else { pad[i] })
    }

    #[inline(always)]
    fn sum(self, a: V) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }

    #[inline(always)]
    fn maximum(self, a: V) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}
