// ReLU, elementwise: y = x < 0 ? 0 : x, so that NaN stays. x, y [n] of one dtype.
//
// Launch (serves every n; no dynamic shared memory): grid ceil(n / (8 * 128)), block 128.
#include "common.cuh"

struct Relu {
    static __device__ __forceinline__ float apply(float x) { return x < 0.0f ? 0.0f : x; }
};

// 8 elements a thread in 16-byte accesses, all loaded before the first is used.
extern "C" __global__ void __launch_bounds__(SMALL_MAP_THREADS)
    relu(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, long long n) {
    map_packs<Relu, 8, false, SMALL_MAP_THREADS>(x, y, n);
}
