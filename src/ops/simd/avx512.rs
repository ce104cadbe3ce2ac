//! [`Simd`] for AVX-512.
//!
//! Every `unsafe` block rests on `self`: it exists, so the processor has the instructions.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::avx2::Avx2;
use super::vector::{Kernel, Simd};
use super::x86::{arithmetic, memory};

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

    #[inline(always)]
    fn widen_f16(self, bits: __m256i) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_cvtph_ps(bits) }
    }

    #[inline(always)]
    fn widen_bf16(self, bits: __m256i) -> __m512 {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))) }
    }

    /// Rounds to nearest even.
    #[inline(always)]
    fn narrow_f16(self, v: __m512) -> __m256i {
        // SAFETY: `self` proves the instruction set.
        unsafe { _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v) }
    }

    /// Rounds to nearest even; a NaN keeps its sign and becomes quiet. (The instruction of
    /// AVX-512 BF16 is no choice: it flushes denormals.)
    #[inline(always)]
    fn narrow_bf16(self, v: __m512) -> __m256i {
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

    memory!(__m512: _mm512_loadu_ps, _mm512_storeu_ps, _mm512_stream_ps;
        _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256);

    arithmetic! { __m512:
        add(a, b) = _mm512_add_ps,
        sub(a, b) = _mm512_sub_ps,
        mul(a, b) = _mm512_mul_ps,
        div(a, b) = _mm512_div_ps,
        min(a, b) = _mm512_min_ps,
        max(a, b) = _mm512_max_ps,
        mul_add(a, b, c) = _mm512_fmadd_ps,
        abs(a) = _mm512_abs_ps,
        scale_exp2(a, n) = _mm512_scalef_ps,
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
