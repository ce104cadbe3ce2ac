// Elementwise operators over 16-byte packs: the loop around a function of one element.
#pragma once
#include "common.cuh"

// y[i] = Function::apply(x[i]) for n elements, one pack a thread; the grid covers n. An elementwise kernel is bound by
// memory: one independent load a thread, with few instructions before it, keeps the most bytes in flight per register,
// and the occupancy hides the latency. The tail goes to one thread or to the last block.
#if defined(KERNELGATE_F32)
constexpr int PACK_THREADS = 256;
template <typename Function>
__device__ __forceinline__ void map_pack(const scalar_t* x, scalar_t* y, long long n) {
    const unsigned int whole = (unsigned int)(n / PACK_LEN);
    const unsigned int at = blockIdx.x * PACK_THREADS + threadIdx.x;
    if (at < whole) {
        float value[PACK_LEN];
        unpack(load_pack(x + (size_t)at * PACK_LEN), value);
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
            value[j] = Function::apply(value[j]);
        }
        store_pack(y + (size_t)at * PACK_LEN, pack(value));
    } else if (at == whole) {
        for (long long i = (long long)whole * PACK_LEN; i < n; ++i) {
            y[i] = from_float<scalar_t>(Function::apply(to_float(x[i])));
        }
    }
}
#else
// A pack holds twice the elements here: with half the threads less has to arrive before a block can write.
constexpr int PACK_THREADS = 128;
template <typename Function>
__device__ __forceinline__ void map_pack(const scalar_t* x, scalar_t* y, long long n) {
    map_packs<Function, PACK_LEN, false, PACK_THREADS>(x, y, n);
}
#endif
