//! [`Simd`] for AVX2 with FMA.
//!
//! Every `unsafe` block rests on `self`: it exists, so the processor has the instructions. Blocks that
//! touch memory rest on the caller's word for the pointer as well.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::level::Kernel;
use super::vector::Simd;

/// AVX2, FMA and F16C: eight lanes, sixteen registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c"))
            .then_some(Avx2(()))
    }

    /// `2^n` for `n` within the exponents of normal floats.
    #[inline(always)]
    fn exp2(self, n: __m256i) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let biased = _mm256_add_epi32(n, _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }

    /// Rounds to nearest even; a NaN keeps its sign and becomes quiet.
    #[inline(always)]
    fn to_bf16(self, v: __m256) -> __m128i {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_add_epi32(bits, bias);
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
            let high = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
            _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256::<1>(high))
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn enter<K: Kernel>(simd: Avx2, kernel: K) -> K::Output {
    kernel.run(simd)
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    // 6 x 2 accumulators, 2 vectors of B and a broadcast: 15 of 16 registers.
    const TILE_ROWS: usize = 6;
    const TILE_VECTORS: usize = 2;

    #[inline(always)]
    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` proves the instruction set.
        unsafe { enter(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> __m256 {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> __m256 {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: __m256) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16, v: __m256) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm_storeu_si128(p.cast(), self.to_bf16(v)) }
    }

    #[inline(always)]
    unsafe fn stream(self, p: *mut f32, v: __m256) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm256_stream_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn stream_f16(self, p: *mut f16, v: __m256) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm_stream_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn stream_bf16(self, p: *mut bf16, v: __m256) {
        // SAFETY: `self` proves the instruction set, the caller the pointer.
        unsafe { _mm_stream_si128(p.cast(), self.to_bf16(v)) }
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
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }

    #[inline(always)]
    fn copysign(self, a: __m256, sign: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let mask = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(mask, a), _mm256_and_ps(mask, sign))
        }
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    fn scale_exp2(self, a: __m256, n: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            // In two steps: 2^n itself may lie outside the normal floats where the product does not.
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let a = _mm256_mul_ps(a, self.exp2(half));
            _mm256_mul_ps(a, self.exp2(_mm256_sub_epi32(n, half)))
        }
    }

    #[inline(always)]
    fn select_lt(self, a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
    }

    #[inline(always)]
    fn first(self, n: usize, a: __m256, pad: __m256) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lane);
            _mm256_blendv_ps(pad, a, _mm256_castsi256_ps(keep))
        }
    }

    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)))
        }
    }

    #[inline(always)]
    fn maximum(self, a: __m256) -> f32 {
        // SAFETY: `self` proves the instruction set.
        unsafe {
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)))
        }
    }
}
