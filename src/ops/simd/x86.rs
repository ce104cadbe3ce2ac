//! The methods of [`Simd`](super::vector::Simd) that AVX2 and AVX-512 write alike: one intrinsic each, whose name alone
//! tells the width.
//!
//! Every `unsafe` block rests on `self`: it exists, so the processor has the instructions. Methods that touch memory
//! rest on the caller's word for the pointer as well.

/// Methods from vectors to a vector: `add(a, b) = _mm256_add_ps`.
macro_rules! arithmetic {
    ($vector:ty: $($method:ident($($operand:ident),+) = $intrinsic:ident,)+) => {$(
        #[inline(always)]
        fn $method(self, $($operand: $vector),+) -> $vector {
            // SAFETY: `self` proves the instruction set.
            unsafe { $intrinsic($($operand),+) }
        }
    )+};
}

/// All that moves vectors: of floats by the first three intrinsics; of f16 and bf16, which take half of the bits, by
/// the next three. The type brings `widen_f16`, `widen_bf16`, `narrow_f16` and `narrow_bf16`.
macro_rules! memory {
    ($vector:ty: $load:ident, $store:ident, $stream:ident; $load_half:ident, $store_half:ident, $stream_half:ident) => {
        #[inline(always)]
        unsafe fn load(self, p: *const f32) -> $vector {
            // SAFETY: `self` proves the instruction set, the caller the pointer.
            unsafe { $load(p) }
        }

        memory!(@load $vector, load_f16, f16, $load_half, widen_f16);
        memory!(@load $vector, load_bf16, bf16, $load_half, widen_bf16);

        #[inline(always)]
        unsafe fn store(self, p: *mut f32, v: $vector) {
            // SAFETY: `self` proves the instruction set, the caller the pointer.
            unsafe { $store(p, v) }
        }

        memory!(@store $vector, store_f16, f16, $store_half, narrow_f16);
        memory!(@store $vector, store_bf16, bf16, $store_half, narrow_bf16);

        #[inline(always)]
        unsafe fn stream(self, p: *mut f32, v: $vector) {
            // SAFETY: `self` proves the instruction set, the caller the pointer.
            unsafe { $stream(p, v) }
        }

        memory!(@store $vector, stream_f16, f16, $stream_half, narrow_f16);
        memory!(@store $vector, stream_bf16, bf16, $stream_half, narrow_bf16);

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
    };
    (@load $vector:ty, $method:ident, $half:ty, $intrinsic:ident, $convert:ident) => {
        #[inline(always)]
        unsafe fn $method(self, p: *const $half) -> $vector {
            // SAFETY: `self` proves the instruction set, the caller the pointer.
            self.$convert(unsafe { $intrinsic(p.cast()) })
        }
    };
    (@store $vector:ty, $method:ident, $half:ty, $intrinsic:ident, $convert:ident) => {
        #[inline(always)]
        unsafe fn $method(self, p: *mut $half, v: $vector) {
            // SAFETY: `self` proves the instruction set, the caller the pointer.
            unsafe { $intrinsic(p.cast(), self.$convert(v)) }
        }
    };
}

pub(super) use {arithmetic, memory};
