//! The vector a kernel is written over: `LANES` floats and the few operations the operators need.

use half::{bf16, f16};

/// Work written once for every instruction set.
pub trait Kernel {
    type Output;
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// The most lanes of any [`Simd`]; sizes the stack buffers that ragged ends pass through.
pub(super) const MAX_LANES: usize = 16;

/// One instruction set.
///
/// A value is the proof that the processor has the instructions: it can only be had by detection, so
/// arithmetic on it is safe. Methods are inlined into [`Simd::vectorize`], the one function compiled
/// with the instruction set enabled; called elsewhere they are right but slow.
pub trait Simd: Copy + Send + Sync {
    /// `LANES` floats.
    type V: Copy;
    const LANES: usize;
    /// Rows of C that the GEMM tile keeps in registers.
    const TILE_ROWS: usize;
    /// Vectors of C a row that the GEMM tile keeps in registers.
    const TILE_VECTORS: usize;

    /// Runs a kernel with the instruction set enabled.
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output;

    fn splat(self, x: f32) -> Self::V;
    /// # Safety
    /// `p` is readable for `LANES` floats.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// # Safety
    /// `p` is readable for `LANES` halves.
    unsafe fn load_f16(self, p: *const f16) -> Self::V;
    /// # Safety
    /// `p` is readable for `LANES` bfloat16.
    unsafe fn load_bf16(self, p: *const bf16) -> Self::V;
    /// # Safety
    /// `p` is writable for `LANES` floats.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// Rounds to nearest even.
    /// # Safety
    /// `p` is writable for `LANES` halves.
    unsafe fn store_f16(self, p: *mut f16, v: Self::V);
    /// Rounds to nearest even.
    /// # Safety
    /// `p` is writable for `LANES` bfloat16.
    unsafe fn store_bf16(self, p: *mut bf16, v: Self::V);
    /// A store that does not bring the line into the cache; [`Simd::fence`] before others read it.
    /// # Safety
    /// As [`Simd::store`], and `p` is aligned to the whole vector.
    unsafe fn stream(self, p: *mut f32, v: Self::V);
    /// [`Simd::store_f16`] past the cache.
    /// # Safety
    /// As [`Simd::store_f16`], and `p` is aligned to the whole vector of halves.
    unsafe fn stream_f16(self, p: *mut f16, v: Self::V);
    /// [`Simd::store_bf16`] past the cache.
    /// # Safety
    /// As [`Simd::store_bf16`], and `p` is aligned to the whole vector of bfloat16.
    unsafe fn stream_bf16(self, p: *mut bf16, v: Self::V);
    /// Orders streamed stores before whatever tells another thread of them.
    fn fence(self);
    /// Asks for the line at `p`, which need not be readable.
    fn prefetch(self, p: *const f32);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c` from the unrounded product.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The smaller; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn abs(self, a: Self::V) -> Self::V;
    /// The magnitude of `a` with the sign of `sign`.
    fn copysign(self, a: Self::V, sign: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `a * 2^n` with one rounding, for integral `n` within ±252.
    fn scale_exp2(self, a: Self::V, n: Self::V) -> Self::V;
    /// `yes` in the lanes where `a < b`, else `no`; `no` where either is NaN.
    fn select_lt(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// The first `n` lanes of `a`, `pad` in the others.
    fn first(self, n: usize, a: Self::V, pad: Self::V) -> Self::V;
    /// The sum of all lanes, in a fixed order.
    fn sum(self, a: Self::V) -> f32;
    /// The largest lane, NaN left out of account.
    fn maximum(self, a: Self::V) -> f32;
}
