// GELU, elementwise: `gelu` is x * Phi(x) with the error function, `gelu_tanh` its tanh approximation
// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). x, y [n] of one dtype; the arithmetic is f32.
// +inf stays, -inf gives NaN (it is -inf * 0), NaN stays.
//
// The idea: read and write each byte once, in 16-byte accesses, and make the arithmetic so cheap that it hides behind the
// memory. Launch (every entry serves every n; no dynamic shared memory):
//   naive                  grid ceil(n / 256)         block 256
//   vectorised             grid ceil(n / (8 * 256))   block 256
//   fast_math              grid ceil(n / (8 * 256))   block 256 in f16 and bf16
//   pack_per_thread        grid ceil(n / (4 * 256))   block 256 in f32
//                          grid ceil(n / (8 * 128))   block 128 in f16 and bf16
#include "elementwise.cuh"

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

// Lesson 1: the formula, one thread an element.
extern "C" __global__ void gelu_naive(PARAMETERS) { map_elements<GeluFormula>(x, y, n); }
extern "C" __global__ void gelu_tanh_naive(PARAMETERS) { map_elements<GeluTanhFormula>(x, y, n); }

// Lesson 2: 8 elements a thread in 16-byte accesses: a quarter to an eighth of the memory instructions, and independent
// elements to overlap.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_vectorised(PARAMETERS) {
    map_packs<GeluFormula, 8, false>(x, y, n);
}

#if !defined(KERNELGATE_F32)
// Lesson 3: arithmetic that hides behind the memory at half width, where twice the elements arrive in the same time.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) gelu_fast_math(PARAMETERS) {
    map_packs<Gelu, 8, false>(x, y, n);
}
#endif

// (1 + tanh(u)) / 2 is the logistic function of 2u: one exponential and one reciprocal where tanhf has two branches,
// and no cancellation for negative x.
struct GeluTanh {
    static __device__ __forceinline__ float apply(float x) {
        const float twice_inner = x * fmaf(x * x, 2.0f * SQRT_2_OVER_PI * CUBIC, 2.0f * SQRT_2_OVER_PI);
        return x * logistic(twice_inner);
    }
};

#if defined(KERNELGATE_F32)
// max(x, 0) - a * Phi(-a) with a = |x|: a polynomial and an exponential where erff chooses between two branches. The
// product with 0 brings back what the clamp drops: NaN, and that of -inf.
struct GeluByTail {
    static __device__ __forceinline__ float apply(float x) {
        const float a = fminf(fabsf(x), gelu_tail_end());
        return fmaf(-a, gelu_tail(a), x > 0.0f ? x : x * 0.0f);
    }
};
using GeluFast = GeluByTail;
#else
using GeluFast = Gelu;
#endif

// One pack a thread, for every n.
extern "C" __global__ void __launch_bounds__(PACK_THREADS) gelu_pack_per_thread(PARAMETERS) {
    map_pack<GeluFast>(x, y, n);
}
extern "C" __global__ void __launch_bounds__(PACK_THREADS) gelu_tanh_pack_per_thread(PARAMETERS) {
    map_pack<GeluTanh>(x, y, n);
}
