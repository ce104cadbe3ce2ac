//! [`Simd`] for AVX-512.
//!
//! Every `unsafe` block rests on `self`: it exists, so the processor has the instructions. Blocks that
//! touch memory rest on the caller's word for the pointer as well.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::avx2::Avx2;
use super::level::Kernel;
use super::vector::Simd;

/// AVX-512 F, BW, DQ and VL: sixteen lanes, thirty-two registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Avx512> {
        (Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Avx512(()))
    }

    /// Rounds to nearest even; a NaN keeps its sign and becomes quiet. (The instruction of
    /// AVX-512 BF16 is no choice: it flushes denormals.)
    #[inline(always)]
    fn to_bf16(self, v: __m512) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_add_epi32(bits, bias);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let quiet = _mm512_set1_epi32(0x0040_0000);
            let rounded = _mm512_mask_or_epi32(rounded, nan, bits, quiet);
            _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded))
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline(never)]
fn enter<K: Kernel>(simd: Avx512, kernel: K) -> K::Output {
    kernel.run(simd)
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    // 8 x 3 accumulators, 3 vectors of B and a broadcast: 28 of 32 registers.
    const TILE_ROWS: usize = 8;
    const TILE_VECTORS: usize = 3;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` proves the instruction set.
        unsafe { enter(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> __m512 {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> __m512 {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: __m512) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: __m512) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_storeu_si256(p.cast(), self.to_bf16(v)) }
    }

    #[inline(always)]
    unsafe fn stream(self, p: *mut f32, v: __m512) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm512_stream_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn stream_f16(self, p: *mut f16, v: __m512) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_stream_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn stream_bf16(self, p: *mut bf16, v: __m512) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_stream_si256(p.cast(), self.to_bf16(v)) }
    }

    #[inline(always)]
    fn fence(self) {
        // SAFETY: part of every x86-64.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_abs_ps(a) }
    }

    #[inline(always)]
    fn copysign(self, a: __m512, sign: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let mask = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(mask, a), _mm512_and_ps(mask, sign))
        }
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    fn scale_exp2(self, a: __m512, n: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_scalef_ps(a, n) }
    }

    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes) }
    }

    #[inline(always)]
    fn first(self, n: usize, a: __m512, pad: __m512) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let keep = ((1u32 << n.min(16)) - 1) as __mmask16;
            _mm512_mask_blend_ps(keep, pad, a)
        }
    }

    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_reduce_add_ps(a) }
    }

    #[inline(always)]
    fn maximum(self, a: __m512) -> f32 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_reduce_max_ps(a) }
    }
}
