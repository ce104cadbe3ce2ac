// What every kernel may include: the element type of this compilation and its 16-byte pack.
//
// A source is compiled once per dtype with one of KERNELGATE_F32, KERNELGATE_F16, KERNELGATE_BF16 defined.
// `scalar_t` is the element type in memory; arithmetic is done in f32 between `to_float` and `from_float`.
// A `Pack` is 16 bytes, the widest access of one thread: PACK_LEN elements (4 of f32, 8 of f16 and bf16).
#pragma once

#if defined(KERNELGATE_F32) + defined(KERNELGATE_F16) + defined(KERNELGATE_BF16) != 1
#error "define exactly one of KERNELGATE_F32, KERNELGATE_F16, KERNELGATE_BF16"
#endif

#if defined(KERNELGATE_F16)
#include <cuda_fp16.h>
typedef __half scalar_t;
#elif defined(KERNELGATE_BF16)
#include <cuda_bf16.h>
typedef __nv_bfloat16 scalar_t;
#else
typedef float scalar_t;
#endif

constexpr int PACK_BYTES = 16;
constexpr int PACK_LEN = PACK_BYTES / int(sizeof(scalar_t));

// Exact: every f16 and bf16 is an f32.
__device__ __forceinline__ float to_float(float x) { return x; }

// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}

#if defined(KERNELGATE_F16)
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}
#elif defined(KERNELGATE_BF16)
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
#endif

// PACK_LEN elements in four registers. Kept as words, not as an array of scalars: the compiler then moves it
// with one 16-byte instruction and never spills a half-word array to local memory.
struct Pack {
    uint4 words;
};

// The address must be a multiple of 16 bytes; the whole pack must lie inside the buffer.
__device__ __forceinline__ Pack load_pack(const scalar_t* from) { return Pack{*reinterpret_cast<const uint4*>(from)}; }
__device__ __forceinline__ void store_pack(scalar_t* to, Pack pack) { *reinterpret_cast<uint4*>(to) = pack.words; }

// Streaming: first to be evicted from the caches, for data that is touched once.
__device__ __forceinline__ Pack load_pack_streaming(const scalar_t* from) {
    return Pack{__ldcs(reinterpret_cast<const uint4*>(from))};
}
__device__ __forceinline__ void store_pack_streaming(scalar_t* to, Pack pack) {
    __stcs(reinterpret_cast<uint4*>(to), pack.words);
}

namespace pack_detail {

// One 32-bit word of a pack: one f32 or two half-width elements, the lower address in the low bits.
__device__ __forceinline__ void unpack_word(unsigned int word, float* x) {
#if defined(KERNELGATE_F16)
    const float2 pair = __half22float2(reinterpret_cast<const __half2&>(word));
    x[0] = pair.x;
    x[1] = pair.y;
#elif defined(KERNELGATE_BF16)
    x[0] = __uint_as_float(word << 16);
    x[1] = __uint_as_float(word & 0xffff0000u);
#else
    x[0] = __uint_as_float(word);
#endif
}

__device__ __forceinline__ unsigned int pack_word(const float* x) {
#if defined(KERNELGATE_F16)
    const __half2 pair = __floats2half2_rn(x[0], x[1]);
    return reinterpret_cast<const unsigned int&>(pair);
#elif defined(KERNELGATE_BF16)
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x[0], x[1]);
    return reinterpret_cast<const unsigned int&>(pair);
#else
    return __float_as_uint(x[0]);
#endif
}

}  // namespace pack_detail

// A pack as f32 values in memory order, and back.
__device__ __forceinline__ void unpack(Pack pack, float (&x)[PACK_LEN]) {
    constexpr int A_WORD = PACK_LEN / 4;
    pack_detail::unpack_word(pack.words.x, x);
    pack_detail::unpack_word(pack.words.y, x + A_WORD);
    pack_detail::unpack_word(pack.words.z, x + 2 * A_WORD);
    pack_detail::unpack_word(pack.words.w, x + 3 * A_WORD);
}
__device__ __forceinline__ Pack pack(const float (&x)[PACK_LEN]) {
    constexpr int A_WORD = PACK_LEN / 4;
    return Pack{make_uint4(pack_detail::pack_word(x), pack_detail::pack_word(x + A_WORD),
                           pack_detail::pack_word(x + 2 * A_WORD), pack_detail::pack_word(x + 3 * A_WORD))};
}
