//! [`Simd`] for AVX2 with FMA.
//!
//! Every `unsafe` block rests on `self`: it exists, so the processor has the instructions.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::vector::{Kernel, Simd};
use super::x86::{arithmetic, memory};

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

    #[inline(always)]
    fn widen_f16(self, bits: __m128i) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_cvtph_ps(bits) }
    }

    #[inline(always)]
    fn widen_bf16(self, bits: __m128i) -> __m256 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits))) }
    }

    /// Rounds to nearest even.
    #[inline(always)]
    fn narrow_f16(self, v: __m256) -> __m128i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v) }
    }

    /// Rounds to nearest even; a NaN keeps its sign and becomes quiet.
    #[inline(always)]
    fn narrow_bf16(self, v: __m256) -> __m128i {
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

    memory!(__m256: _mm256_loadu_ps, _mm256_storeu_ps, _mm256_stream_ps;
        _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128);

    arithmetic! { __m256:
        add(a, b) = _mm256_add_ps,
        sub(a, b) = _mm256_sub_ps,
        mul(a, b) = _mm256_mul_ps,
        div(a, b) = _mm256_div_ps,
        min(a, b) = _mm256_min_ps,
        max(a, b) = _mm256_max_ps,
        mul_add(a, b, c) = _mm256_fmadd_ps,
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
