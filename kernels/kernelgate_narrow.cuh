// `kernelgate.cuh` of the dtypes that are none of f32, f16 and bf16: 8-bit floats, integers, truth values.
//
// `scalar_t` is the element type in memory. `to_float` and `from_float` convert as far as an f32 goes: whole numbers are
// exact up to 2^24, and what is larger is computed in `scalar_t` itself. A `Pack` is 16 bytes: PACK_LEN elements.
#pragma once

#if defined(KERNELGATE_E4M3)
#include <cuda_fp8.h>
typedef __nv_fp8_e4m3 scalar_t;
#elif defined(KERNELGATE_E5M2)
#include <cuda_fp8.h>
typedef __nv_fp8_e5m2 scalar_t;
#elif defined(KERNELGATE_I64)
typedef long long scalar_t;
#elif defined(KERNELGATE_I32)
typedef int scalar_t;
#elif defined(KERNELGATE_I8)
typedef signed char scalar_t;
#elif defined(KERNELGATE_U8)
typedef unsigned char scalar_t;
#elif defined(KERNELGATE_BOOL)
typedef bool scalar_t;
#else
#error "define one of KERNELGATE_E4M3, _E5M2, _I64, _I32, _I8, _U8, _BOOL"
#endif

constexpr int PACK_BYTES = 16;
constexpr int PACK_LEN = PACK_BYTES / int(sizeof(scalar_t));

__device__ __forceinline__ float to_float(float x) { return x; }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
    return x;
}

#if defined(KERNELGATE_E4M3) || defined(KERNELGATE_E5M2)
// Exact: every 8-bit float is an f32.
__device__ __forceinline__ float to_float(scalar_t x) { return static_cast<float>(x); }
// Rounds to nearest even; what is too large becomes the largest finite value.
template <>
__device__ __forceinline__ scalar_t from_float<scalar_t>(float x) {
    return scalar_t(x);
}
#elif defined(KERNELGATE_BOOL)
__device__ __forceinline__ float to_float(bool x) { return x ? 1.0f : 0.0f; }
template <>
__device__ __forceinline__ bool from_float<bool>(float x) {
    return x != 0.0f;
}
#else
__device__ __forceinline__ float to_float(scalar_t x) { return static_cast<float>(x); }
// Rounds to nearest even; what is too large becomes the largest value, NaN becomes 0.
template <>
__device__ __forceinline__ scalar_t from_float<scalar_t>(float x) {
#if defined(KERNELGATE_I64)
    return __float2ll_rn(x);
#elif defined(KERNELGATE_I32)
    return __float2int_rn(x);
#elif defined(KERNELGATE_I8)
    return static_cast<scalar_t>(max(-128, min(127, __float2int_rn(x))));
#else
    return static_cast<scalar_t>(max(0, min(255, __float2int_rn(x))));
#endif
}
#endif

// PACK_LEN elements in four registers.
struct Pack {
    uint4 words;
};

// The address must be a multiple of 16 bytes; the whole pack must lie inside the buffer.
__device__ __forceinline__ Pack load_pack(const scalar_t* from) { return Pack{*reinterpret_cast<const uint4*>(from)}; }
__device__ __forceinline__ void store_pack(scalar_t* to, Pack pack) { *reinterpret_cast<uint4*>(to) = pack.words; }

// A pack as f32 values in memory order, and back.
__device__ __forceinline__ void unpack(Pack pack, float (&x)[PACK_LEN]) {
    scalar_t elements[PACK_LEN];
    memcpy(elements, &pack, PACK_BYTES);
#pragma unroll
    for (int i = 0; i < PACK_LEN; i++) x[i] = to_float(elements[i]);
}
__device__ __forceinline__ Pack pack(const float (&x)[PACK_LEN]) {
    scalar_t elements[PACK_LEN];
#pragma unroll
    for (int i = 0; i < PACK_LEN; i++) elements[i] = from_float<scalar_t>(x[i]);
    Pack pack;
    memcpy(&pack, elements, PACK_BYTES);
    return pack;
}
