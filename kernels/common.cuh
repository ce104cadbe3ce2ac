// What several catalogue kernels share: warp and block reductions, fast transcendental functions.
#pragma once
#include "kernelgate.cuh"

constexpr int WARP = 32;
constexpr unsigned int ALL_LANES = 0xffffffffu;
constexpr int MAX_WARPS = 32;  // of one block

// The two reductions that the catalogue needs. `identity` is the value of an absent element.
// Maximum drops NaN as fmaxf does: an operator that uses it must let NaN through by another way.
struct Sum {
    static __device__ __forceinline__ float identity() { return 0.0f; }
    static __device__ __forceinline__ float combine(float a, float b) { return a + b; }
};
struct Maximum {
    static __device__ __forceinline__ float identity() { return __int_as_float(0xff800000); }
    static __device__ __forceinline__ float combine(float a, float b) { return fmaxf(a, b); }
};

// Over the 32 lanes of a warp; every lane gets the same bits (a butterfly adds the same pairs in every lane).
template <typename Reduction> __device__ __forceinline__ float warp_reduce(float value) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        value = Reduction::combine(value, __shfl_xor_sync(ALL_LANES, value, offset));
    }
    return value;
}

// Over a block of whole warps along threadIdx.x; every thread gets the same bits. One barrier: each warp reads
// all partials and finishes alone, which is shorter than a second round trip through shared memory.
// `partials` is used once: a second reduction in the same kernel needs its own, or a barrier between.
template <typename Reduction> __device__ __forceinline__ float block_reduce(float value, float (&partials)[MAX_WARPS]) {
    const int lane = int(threadIdx.x) % WARP;
    const int warp = int(threadIdx.x) / WARP;
    const int warps = int(blockDim.x) / WARP;
    value = warp_reduce<Reduction>(value);
    if (lane == 0) {
        partials[warp] = value;
    }
    __syncthreads();
    return warp_reduce<Reduction>(lane < warps ? partials[lane] : Reduction::identity());
}
