// Addition, elementwise: y = a + b. a, b, y [n] of one dtype; the arithmetic is f32.
//
// Launch (serves every n; no dynamic shared memory): grid ceil(n / (8 * 128)), block 128.
#include "common.cuh"

__device__ __forceinline__ Pack sum_of(Pack first, Pack second) {
    float a[PACK_LEN], b[PACK_LEN];
    unpack(first, a);
    unpack(second, b);
#pragma unroll
    for (int j = 0; j < PACK_LEN; ++j) {
        a[j] += b[j];
    }
    return pack(a);
}

// 8 elements a thread in 16-byte accesses, all loaded before the first is used. Threads of the last block do the tail,
// an element each.
extern "C" __global__ void __launch_bounds__(SMALL_MAP_THREADS)
    add(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ y, long long n) {
    constexpr int PACKS = 8 / PACK_LEN;
    const long long whole = n / PACK_LEN;
    const long long first = (long long)blockIdx.x * (PACKS * SMALL_MAP_THREADS) + threadIdx.x;
    Pack left[PACKS], right[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const long long at = first + k * SMALL_MAP_THREADS;
        if (at < whole) {
            left[k] = load_pack(a + at * PACK_LEN);
            right[k] = load_pack(b + at * PACK_LEN);
        }
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const long long at = first + k * SMALL_MAP_THREADS;
        if (at < whole) {
            store_pack(y + at * PACK_LEN, sum_of(left[k], right[k]));
        }
    }
    const long long tail = whole * PACK_LEN + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && tail < n) {
        y[tail] = from_float<scalar_t>(to_float(a[tail]) + to_float(b[tail]));
    }
}
