// SiLU (swish), elementwise: y = x / (1 + exp(-x)). x, y [n] of one dtype; the arithmetic is f32.
// +inf stays, -inf gives NaN (it is -inf * 0), NaN stays.
//
// The idea: each byte moves once, in 16-byte accesses, and the logistic function costs one exponential and one reciprocal
// where a division is about ten instructions. Launch (every entry serves every n; no dynamic shared memory):
//   naive            grid ceil(n / 256)        block 256
//   pack_per_thread  grid ceil(n / (4 * 256))  block 256 in f32
//                    grid ceil(n / (8 * 128))  block 128 in f16 and bf16
#include "elementwise.cuh"

#define PARAMETERS const scalar_t* __restrict__ x, scalar_t* __restrict__ y, long long n

struct SiluFormula {
    static __device__ __forceinline__ float apply(float x) { return x / (1.0f + expf(-x)); }
};

struct Silu {
    static __device__ __forceinline__ float apply(float x) { return x * logistic(x); }
};

// Lesson 1: the formula, one thread an element.
extern "C" __global__ void silu_naive(PARAMETERS) { map_elements<SiluFormula>(x, y, n); }

// One pack a thread, for every n.
extern "C" __global__ void __launch_bounds__(PACK_THREADS) silu_pack_per_thread(PARAMETERS) {
    map_pack<Silu>(x, y, n);
}
