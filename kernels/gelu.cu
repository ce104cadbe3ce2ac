// GELU, elementwise: `gelu` is x * Phi(x) with the error function, `gelu_tanh` its tanh approximation
// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). x, y [n] of one dtype; the arithmetic is f32.
// +inf stays, -inf gives NaN (it is -inf * 0), NaN stays.
//
// Launch (both operators; every version serves every n; no dynamic shared memory):
//   v1      grid ceil(n / 256)         block 256
//   v2, v3  grid ceil(n / (8 * 256))   block 256
//   v4      grid ceil(n / (16 * 256))  block 256
//   v5      grid ceil(n / (8 * 128))   block 128
//   v6      grid ceil(n / (4 * 256))   block 256   f32
#include "one_pack.cuh"

#define PARAMETERS const scalar_t* __restrict__ x, scalar_t* __restrict__ y, long long n

struct GeluFormula {
    static __device__ __forceinline__ float apply(float x) { return gelu_erf_formula(x); }
};

constexpr float SQRT_2_OVER_PI = 0.79788456080286536f;
constexpr float CUBIC = 0.044715f;

struct GeluTanhFormula {
    static __device__ __forceinline__ float apply(float x) {
        const float inner = SQRT_2_OVER_PI * (x + CUBIC * x * x * x);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
};

// (1 + tanh(u)) / 2 is the logistic function of 2u: one exponential and one reciprocal where tanhf has two branches,
// and no cancellation for negative x.
struct GeluTanh {
    static __device__ __forceinline__ float apply(float x) {
        const float twice_inner = x * fmaf(x * x, 2.0f * SQRT_2_OVER_PI * CUBIC, 2.0f * SQRT_2_OVER_PI);
        return x * logistic(twice_inner);
    }
};

// v1: the formula, one thread an element.
extern "C" __global__ void gelu_v1(PARAMETERS) { map_elements<GeluFormula>(x, y, n); }
extern "C" __global__ void gelu_tanh_v1(PARAMETERS) { map_elements<GeluTanhFormula>(x, y, n); }

// v2: 8 elements a thread in 16-byte accesses: a quarter to an eighth of the memory instructions, and independent
// elements to overlap.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_v2(PARAMETERS) {
    map_packs<GeluFormula, 8, false>(x, y, n);
}
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_tanh_v2(PARAMETERS) {
    map_packs<GeluTanhFormula, 8, false>(x, y, n);
}

// v3: arithmetic that hides behind the memory at half width, where twice the elements arrive in the same time.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_v3(PARAMETERS) { map_packs<Gelu, 8, false>(x, y, n); }
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_tanh_v3(PARAMETERS) {
    map_packs<GeluTanh, 8, false>(x, y, n);
}

// v4: 16 elements a thread, so that some are on their way while others are worked on; streaming, because no byte is
// touched twice.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_v4(PARAMETERS) { map_packs<Gelu, 16, true>(x, y, n); }
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_tanh_v4(PARAMETERS) {
    map_packs<GeluTanh, 16, true>(x, y, n);
}

// v5: as v3 with half the threads: less has to arrive before a block can write. On an H200 at
// 33,554,432 elements, as a fraction of a copy: f32 .99 (v3 .98), bf16 1.00 (v3 .98).
extern "C" __global__ void __launch_bounds__(SMALL_MAP_THREADS) gelu_v5(PARAMETERS) {
    map_packs<Gelu, 8, false, SMALL_MAP_THREADS>(x, y, n);
}
extern "C" __global__ void __launch_bounds__(SMALL_MAP_THREADS) gelu_tanh_v5(PARAMETERS) {
    map_packs<GeluTanh, 8, false, SMALL_MAP_THREADS>(x, y, n);
}

#if defined(KERNELGATE_F32)
// max(x, 0) - a * Phi(-a) with a = |x|. The product with 0 brings back what the clamp drops: NaN, and that of -inf.
struct GeluByTail {
    static __device__ __forceinline__ float apply(float x) {
        const float a = fminf(fabsf(x), gelu_tail_end());
        return fmaf(-a, gelu_tail(a), x > 0.0f ? x : x * 0.0f);
    }
};

// v6: one pack a thread, as v5 has it at half width, and a polynomial and an exponential where erff chooses between two
// branches. On an H200, as a fraction of a copy: 1.00 at 1,048,576 elements (v5 .95) and at 33,554,432 (v5 .99).
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_v6(PARAMETERS) { map_one_pack<GeluByTail>(x, y, n); }
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_tanh_v6(PARAMETERS) { map_one_pack<GeluTanh>(x, y, n); }
#endif
