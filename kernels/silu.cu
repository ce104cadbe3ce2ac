// SiLU (swish), elementwise: y = x / (1 + exp(-x)). x, y [n] of one dtype; the arithmetic is f32.
// +inf stays, -inf gives NaN (it is -inf * 0), NaN stays.
//
// Launch (every version serves every n; no dynamic shared memory):
//   v1      grid ceil(n / 256)         block 256
//   v2, v3  grid ceil(n / (8 * 256))   block 256
//   v4      grid ceil(n / (16 * 256))  block 256
//   v5      grid ceil(n / (8 * 128))   block 128
//   v6      grid ceil(n / (4 * 256))   block 256   f32
#include "one_pack.cuh"

#define PARAMETERS const scalar_t* __restrict__ x, scalar_t* __restrict__ y, long long n

struct SiluFormula {
    static __device__ __forceinline__ float apply(float x) { return x / (1.0f + expf(-x)); }
};

struct Silu {
    static __device__ __forceinline__ float apply(float x) { return x * logistic(x); }
};

// v1: the formula, one thread an element.
extern "C" __global__ void silu_v1(PARAMETERS) { map_elements<SiluFormula>(x, y, n); }

// v2: 8 elements a thread in 16-byte accesses: a quarter to an eighth of the memory instructions, and independent
// elements to overlap.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) silu_v2(PARAMETERS) {
    map_packs<SiluFormula, 8, false>(x, y, n);
}

// v3: the reciprocal and, at half width, the exponential in one instruction each: a division is about ten.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) silu_v3(PARAMETERS) { map_packs<Silu, 8, false>(x, y, n); }

// v4: 16 elements a thread, so that some are on their way while others are worked on; streaming, because no byte is
// touched twice.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) silu_v4(PARAMETERS) { map_packs<Silu, 16, true>(x, y, n); }

// v5: as v3 with half the threads: less has to arrive before a block can write. On an H200 at
// 33,554,432 elements, as a fraction of a copy: f32 .98, bf16 1.00 (v3 .99).
extern "C" __global__ void __launch_bounds__(SMALL_MAP_THREADS) silu_v5(PARAMETERS) {
    map_packs<Silu, 8, false, SMALL_MAP_THREADS>(x, y, n);
}

#if defined(KERNELGATE_F32)
// v6: one pack a thread, as v5 has it at half width. On an H200, as a fraction of a copy: 1.00 at 1,048,576 elements
// (v5 .99) and at 33,554,432 (v5 .99).
extern "C" __global__ void __launch_bounds__(MAP_THREADS) silu_v6(PARAMETERS) { map_one_pack<Silu>(x, y, n); }
#endif
