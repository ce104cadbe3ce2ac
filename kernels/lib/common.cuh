// What the catalogue kernels share beneath their formulas: reductions, accesses, the elementwise loop, functions.
#pragma once
#include "kernelgate.cuh"

constexpr int WARP = 32;
constexpr unsigned int ALL_LANES = 0xffffffffu;
constexpr int MAX_WARPS = 32;  // of one block

// == Reductions ===================================================================================================

// `identity` is the value of an absent element.
struct Sum {
    static __device__ __forceinline__ float identity() { return 0.0f; }
    static __device__ __forceinline__ float combine(float a, float b) { return a + b; }
};
// Drops NaN as fmaxf does: an operator that uses it must let NaN through by another way.
struct Maximum {
    static __device__ __forceinline__ float identity() { return __int_as_float(0xff800000); }
    static __device__ __forceinline__ float combine(float a, float b) { return fmaxf(a, b); }
};

// Over aligned groups of `lanes` (a power of two, at most 32) lanes of a warp, all of which take part. Every lane
// gets the same bits: a butterfly adds the same pairs in every lane.
template <typename Reduction>
__device__ __forceinline__ float warp_reduce(float value, int lanes = WARP) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        if (offset < lanes) {
            value = Reduction::combine(value, __shfl_xor_sync(ALL_LANES, value, offset));
        }
    }
    return value;
}

// The textbook tree over a block of TREE_THREADS threads, for the naive kernels. May be called again and again.
constexpr int TREE_THREADS = 256;
template <typename Reduction>
__device__ __forceinline__ float tree_reduce(float value) {
    __shared__ float tree[TREE_THREADS];
    __syncthreads();  // the result of the call before this one is still being read
    tree[threadIdx.x] = value;
    __syncthreads();
    for (int half = TREE_THREADS / 2; half > 0; half /= 2) {
        if (int(threadIdx.x) < half) {
            tree[threadIdx.x] = Reduction::combine(tree[threadIdx.x], tree[threadIdx.x + half]);
        }
        __syncthreads();
    }
    return tree[0];
}

// Over a block of whole warps along threadIdx.x, from what each warp has reduced; every thread gets the same bits. One
// barrier: each warp reads all partials and finishes alone, which is shorter than a second round trip through shared
// memory. Few partials are read by every lane and need no shuffles.
// A SLOT has its own partials and is used once a launch; a second use would need a barrier between.
template <typename Reduction, int SLOT>
__device__ __forceinline__ float combine_warps(float of_warp) {
    constexpr int FEW_WARPS = 8;
    __shared__ float partials[MAX_WARPS];
    const int lane = int(threadIdx.x) % WARP;
    const int warp = int(threadIdx.x) / WARP;
    const int warps = int(blockDim.x) / WARP;
    if (lane == 0) {
        partials[warp] = of_warp;
    }
    if (warp == 0 && lane >= warps && lane < FEW_WARPS) {
        partials[lane] = Reduction::identity();  // what is read below is there, and read in wide loads
    }
    __syncthreads();
    if (warps <= FEW_WARPS) {
        float total = partials[0];
#pragma unroll
        for (int i = 1; i < FEW_WARPS; ++i) {
            total = Reduction::combine(total, partials[i]);
        }
        return total;
    }
    return warp_reduce<Reduction>(lane < warps ? partials[lane] : Reduction::identity());
}
template <typename Reduction, int SLOT>
__device__ __forceinline__ float block_reduce(float value) {
    return combine_warps<Reduction, SLOT>(warp_reduce<Reduction>(value));
}

// Four sums in turn: a fourth of the latency of one chain of additions, and smaller roundings.
struct FourSums {
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    __device__ __forceinline__ void add(int turn, float value) { part[turn % 4] += value; }
    __device__ __forceinline__ void add_square(int turn, float value) { part[turn % 4] += value * value; }
    __device__ __forceinline__ float total() const { return (part[0] + part[1]) + (part[2] + part[3]); }
};

// == Accesses =====================================================================================================

// What stands where there is no element to load.
enum class Absent { ZERO, MINUS_INFINITY, NOT_A_NUMBER };

// The 32 bits of a register full of it.
__device__ __forceinline__ constexpr unsigned int absent_word(Absent absent) {
#if defined(KERNELGATE_F16)
    constexpr unsigned int INFINITIES = 0xfc00fc00u, NANS = 0x7fff7fffu;
#elif defined(KERNELGATE_BF16)
    constexpr unsigned int INFINITIES = 0xff80ff80u, NANS = 0x7fff7fffu;
#else
    constexpr unsigned int INFINITIES = 0xff800000u, NANS = 0x7fffffffu;
#endif
    return absent == Absent::ZERO ? 0u : absent == Absent::MINUS_INFINITY ? INFINITIES : NANS;
}

// WIDTH elements that a thread moves with one instruction: a pack where every row starts on 16 bytes
// (cols % PACK_LEN == 0), one element elsewhere.
template <int WIDTH>
struct Access;

template <>
struct Access<PACK_LEN> {
    Pack bits;
    static __device__ __forceinline__ Access load(const scalar_t* from) { return {load_pack(from)}; }
    static __device__ __forceinline__ Access load_once(const scalar_t* from) { return {load_pack_streaming(from)}; }
    static __device__ __forceinline__ Access filled(Absent absent) {
        const unsigned int word = absent_word(absent);
        return {Pack{make_uint4(word, word, word, word)}};
    }
    __device__ __forceinline__ void get(float (&x)[PACK_LEN]) const { unpack(bits, x); }
    static __device__ __forceinline__ void store(scalar_t* to, const float (&x)[PACK_LEN]) { store_pack(to, pack(x)); }
    static __device__ __forceinline__ void store_once(scalar_t* to, const float (&x)[PACK_LEN]) {
        store_pack_streaming(to, pack(x));
    }
    __device__ __forceinline__ void put_once(scalar_t* to) const { store_pack_streaming(to, bits); }
};

// No streaming here: neighbouring accesses share sectors, so the caches have to keep them.
template <>
struct Access<1> {
    scalar_t bits;
    static __device__ __forceinline__ Access load(const scalar_t* from) { return {*from}; }
    static __device__ __forceinline__ Access load_once(const scalar_t* from) { return {*from}; }
    static __device__ __forceinline__ Access filled(Absent absent) {
        const unsigned int word = absent_word(absent);
        return {reinterpret_cast<const scalar_t&>(word)};
    }
    __device__ __forceinline__ void get(float (&x)[1]) const { x[0] = to_float(bits); }
    static __device__ __forceinline__ void store(scalar_t* to, const float (&x)[1]) {
        *to = from_float<scalar_t>(x[0]);
    }
    static __device__ __forceinline__ void store_once(scalar_t* to, const float (&x)[1]) { store(to, x); }
    __device__ __forceinline__ void put_once(scalar_t* to) const { *to = bits; }
};

// == Elementwise ==================================================================================================

// y[i] = Function::apply(x[i]) for n elements, an element a thread.
template <typename Function>
__device__ __forceinline__ void map_elements(const scalar_t* x, scalar_t* y, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = from_float<scalar_t>(Function::apply(to_float(x[i])));
    }
}

// The same in packs by blocks of THREADS threads, ELEMENTS a thread, all loaded before the first is used; the grid
// covers n. Threads of the last block do the tail, an element each.
constexpr int MAP_THREADS = 256;
constexpr int SMALL_MAP_THREADS = 128;
template <typename Function, int ELEMENTS, bool STREAMING, int THREADS = MAP_THREADS>
__device__ __forceinline__ void map_packs(const scalar_t* x, scalar_t* y, long long n) {
    constexpr int PACKS = ELEMENTS / PACK_LEN;
    const long long whole = n / PACK_LEN;
    const long long first = (long long)blockIdx.x * (PACKS * THREADS) + threadIdx.x;
    const scalar_t* const from = x + first * PACK_LEN;
    scalar_t* const to = y + first * PACK_LEN;
    const int left = int(min(whole - first, (long long)PACKS * THREADS));

    Pack in[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if (k * THREADS < left) {
            const scalar_t* const at = from + k * THREADS * PACK_LEN;
            in[k] = STREAMING ? load_pack_streaming(at) : load_pack(at);
        }
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        if (k * THREADS < left) {
            float value[PACK_LEN];
            unpack(in[k], value);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                value[j] = Function::apply(value[j]);
            }
            scalar_t* const at = to + k * THREADS * PACK_LEN;
            if (STREAMING) {
                store_pack_streaming(at, pack(value));
            } else {
                store_pack(at, pack(value));
            }
        }
    }
    const long long tail = whole * PACK_LEN + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && tail < n) {
        y[tail] = from_float<scalar_t>(Function::apply(to_float(x[tail])));
    }
}

// == Functions ====================================================================================================

// One instruction each, results below 2^-126 flushed to zero; relative error about 2^-22.5 and 2^-23.
__device__ __forceinline__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// sum / count for a count below 2^24, rounded as a division rounds up to rare last bits, without the division's call.
__device__ __forceinline__ float mean_of(float sum, int count) {
    const float reciprocal = fast_reciprocal(float(count));
    const float mean = sum * reciprocal;
    return fmaf(fmaf(-float(count), mean, sum), reciprocal, mean);
}

// 1 / sqrt(sum / count + eps). An infinite sum gives 0.
__device__ __forceinline__ float inverse_root_mean(float sum, int count, float eps) {
    return rsqrtf(fmaf(sum, fast_reciprocal(float(count)), eps));
}

constexpr float LOG2_E = 1.4426950408889634f;

// 1 / (1 + e^-x), the reciprocal within 1 ulp; the exponential is expf in f32 and one exp2 for half-width types.
__device__ __forceinline__ float logistic(float x) {
#if defined(KERNELGATE_F32)
    const float e = expf(-x);
#else
    const float e = fast_exp2(-LOG2_E * x);
#endif
    return fast_reciprocal(1.0f + e);
}

// x * Phi(x) as the formula is written. +inf stays, -inf gives NaN (it is -inf * 0).
__device__ __forceinline__ float gelu_erf_formula(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}

// Phi(-a) for 0 <= a <= gelu_tail_end(): 2^P(a), P a polynomial fitted to log2 Phi(-a). At half width of degree 6, to the
// relative error; in f32 of degree 10, to the absolute one.
__device__ __forceinline__ constexpr float gelu_tail_end() {
#if defined(KERNELGATE_F32)
    return 10.0f;
#elif defined(KERNELGATE_F16)
    return 12.0f;
#else
    return 13.0f;
#endif
}
__device__ __forceinline__ float gelu_tail(float a) {
#if defined(KERNELGATE_F32)
    float p = -7.0448913369602906e-09f;
    p = fmaf(p, a, 2.929336915258318e-07f);
    p = fmaf(p, a, -4.966987944499124e-06f);
    p = fmaf(p, a, 4.297812483855523e-05f);
    p = fmaf(p, a, -1.7320954066235572e-04f);
    p = fmaf(p, a, -1.973436155822128e-04f);
    p = fmaf(p, a, 7.15717813000083e-03f);
    p = fmaf(p, a, -5.256322771310806e-02f);
    p = fmaf(p, a, -4.591866731643677e-01f);
    p = fmaf(p, a, -1.151107668876648f);
    p = fmaf(p, a, -0.9999999403953552f);
#elif defined(KERNELGATE_F16)
    float p = 3.244491745135747e-05f;
    p = fmaf(p, a, -7.484226953238249e-04f);
    p = fmaf(p, a, 7.942277006804943e-03f);
    p = fmaf(p, a, -5.305182188749313e-02f);
    p = fmaf(p, a, -4.591704607009888e-01f);
    p = fmaf(p, a, -1.1510366201400757f);
    p = fmaf(p, a, -1.0000076293945312f);
#else
    float p = 1.0709913112805225e-05f;
    p = fmaf(p, a, -3.7023244658485055e-04f);
    p = fmaf(p, a, 5.422730464488268e-03f);
    p = fmaf(p, a, -4.518237337470055e-02f);
    p = fmaf(p, a, -4.704124033451080e-01f);
    p = fmaf(p, a, -1.1451300382614136f);
    p = fmaf(p, a, -1.0005111694335938f);
#endif
    return fast_exp2(p);
}

// x * Phi(x), cheap enough to hide behind the memory. At half width x * Phi(x) = max(x, 0) - a * Phi(-a) with a = |x|:
// one exponential, no selection between branches as in erff, and no cancellation for negative x. Error before the
// rounding, over all values of the type: f16 0.011 ulp; bf16 0.091 ulp for x > -8.75, and 1e-20 left of it, where
// |y| < 1e-17. In f32 it is the formula: the memory leaves room.
__device__ __forceinline__ float gelu_erf(float x) {
#if defined(KERNELGATE_F32)
    return gelu_erf_formula(x);
#else
    // The clamp keeps inf * 0 out and drops NaN: `half` brings both back where the formula has them.
    const float a = fminf(fabsf(x), gelu_tail_end());
    const float half = 0.5f * x;
    return (half + fabsf(half)) - a * gelu_tail(a);
#endif
}
struct Gelu {
    static __device__ __forceinline__ float apply(float x) { return gelu_erf(x); }
};
