// Elementwise operators of one pack a thread.
#pragma once
#include "common.cuh"

// y[i] = Function::apply(x[i]) for n elements, a pack a thread and few instructions before its load: the grid covers n. The
// thread behind the last whole pack does the tail.
template <typename Function>
__device__ __forceinline__ void map_one_pack(const scalar_t* x, scalar_t* y, long long n) {
    const unsigned int whole = (unsigned int)(n / PACK_LEN);
    const unsigned int at = blockIdx.x * MAP_THREADS + threadIdx.x;
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
