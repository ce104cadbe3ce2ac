// What a linear layer does to the sums of its product: y[row, col] = activation(sum + bias[col]) + residual[row, col].
#pragma once
#include "common.cuh"
#include "gemm.cuh"

// As the launch rule counts them.
enum Activation { NONE, GELU_TANH, SILU };

// GELU by tanh is the logistic function of twice its inner polynomial: one exponential and one reciprocal, as SiLU has
// them, and no cancellation for negative x.
template <int ACTIVATION>
__device__ __forceinline__ float activated(float x) {
    constexpr float LINEAR = 2.0f * 0.79788456080286536f;  // 2 sqrt(2 / pi)
    if (ACTIVATION == GELU_TANH) return x * logistic(x * fmaf(x * x, LINEAR * 0.044715f, LINEAR));
    if (ACTIVATION == SILU) return x * logistic(x);
    return x;
}

#if !defined(KERNELGATE_F32)
// x of the activation is x / (1 + 2^v), v being x * (slope + cubic * x^2): one code for both that are curved.
struct Curve {
    float slope;
    float cubic;

    __device__ __forceinline__ explicit Curve(int activation) {
        constexpr float LINEAR = 2.0f * 0.79788456080286536f;
        // Not 0: the square may be infinite, and of infinity times 0 nothing is left.
        constexpr float NEARLY_NONE = 7.8886090522101181e-31f;  // 2^-100
        const bool is_gelu = activation == GELU_TANH;
        slope = is_gelu ? -LOG2_E * LINEAR : -LOG2_E;
        cubic = is_gelu ? -LOG2_E * LINEAR * 0.044715f : -NEARLY_NONE;
    }

    // One reciprocal of two denominators would be three special-function operations for four, but an output would then
    // depend on the rounding of its neighbour's.
    template <int COUNT>
    __device__ __forceinline__ void of_all(float* sums) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const float x = sums[i];
            sums[i] = x * fast_reciprocal(1.0f + fast_exp2(x * fmaf(x * x, cubic, slope)));
        }
    }
};
#endif

// What every kernel of the operator takes besides operands, output and extents, and what it makes of that and of m and n.
#define LINEAR_POINTERS const scalar_t *__restrict__ bias, const scalar_t *__restrict__ residual
#define LINEAR_SCALARS int activation, int has_residual
#define LINEAR_EPILOGUE \
    LinearEpilogue { bias, residual, activation, has_residual, m, n }

struct LinearEpilogue {
    const scalar_t* bias;      // [n]
    const scalar_t* residual;  // [m, n], where there is one
    int activation;
    int has_residual;
    int m;
    int n;

    __device__ __forceinline__ float of_one(float sum, int row, int col) const {
        if (row >= m || col >= n) return 0.0f;
        const float x = sum + to_float(bias[col]);
        const float y = activation == GELU_TANH ? activated<GELU_TANH>(x) : activation == SILU ? activated<SILU>(x) : x;
        return has_residual ? y + to_float(residual[(long long)row * n + col]) : y;
    }

#if !defined(KERNELGATE_F32)
    // Two neighbours, the first at an even element. Volatile: the compiler would ask for them where they are used.
    static __device__ __forceinline__ unsigned ask_for_pair(const scalar_t* from) {
        unsigned pair;
        asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(pair) : "l"(__cvta_generic_to_global(from)));
        return pair;
    }

    static __device__ __forceinline__ unsigned ask_for_one(const scalar_t* from) {
        unsigned short one;
        asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(one) : "l"(__cvta_generic_to_global(from)));
        return one;
    }

    template <int WIDTH>
    struct Tile;
    template <int ROWS>
    struct SwapAB;  // linear_swap_ab.cuh
#endif
};

#if !defined(KERNELGATE_F32)
// As in `Unchanged`, for WIDTH columns of the 16 rows of a warp. A lane holds two biases of every 64 columns, which go to the
// other lanes by shuffles; the residuals of the first 64 columns are loaded before the product, the others brought into L2 (`whole`).
template <int WIDTH>
struct LinearEpilogue::Tile {
    static constexpr int CHUNKS = WIDTH / 64;
    static constexpr int PAIRS = 16;  // of a lane in 64 columns: eight in each of its rows

    int row;  // the first of this lane's
    int col;
    bool whole;
    unsigned bias[CHUNKS];
    unsigned residual[PAIRS];

    __device__ __forceinline__ Tile(const LinearEpilogue& e, int row, int col, bool whole)
        : row(row), col(col), whole(whole) {
        const int lane = threadIdx.x % 32;
        const int first_row = row - lane / 4;
        const int first_col = col - lane % 4 * 2;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const int here = first_col + chunk * 64 + lane * 2;
            bias[chunk] = whole && here < e.n ? ask_for_pair(e.bias + here) : 0u;
        }
        if (!e.has_residual || !whole) return;
        ask_for_residual(e, 0);
        // A line of 128 bytes a lane: half a warp has the 16 rows of 64 columns.
#pragma unroll
        for (int chunk = 1; chunk < CHUNKS; chunk += 2) {
            const long long there = first_row + lane % 16;
            const int here = first_col + (chunk + lane / 16) * 64;
            if (there < e.m && here < e.n && chunk + lane / 16 < CHUNKS) {
                asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(e.residual + there * e.n + here)));
            }
        }
    }

    __device__ __forceinline__ void ask_for_residual(const LinearEpilogue& e, int chunk) {
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            const int there = row + i % 2 * 8;
            const int here = col + chunk * 64 + i / 2 * 8;
            const bool inside = there < e.m && here < e.n;
            residual[i] = inside ? ask_for_pair(e.residual + (long long)there * e.n + here) : 0u;
        }
    }

    // What follows is chosen once for all outputs of 64 columns: an instruction an output is 0.1 us a tile.
    __device__ __forceinline__ void finish(const LinearEpilogue& e, int chunk, float* sums) {
        if (!whole) ask_for_biases(e, chunk);
#pragma unroll
        for (int j = 0; j < PAIRS / 2; ++j) {
            float biases[2];
            pack_detail::unpack_word(__shfl_sync(ALL_LANES, bias[chunk], j * 4 + threadIdx.x % 4), biases);
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[4 * j + i] += biases[i % 2];
        }
        if (e.activation != NONE) Curve(e.activation).of_all<2 * PAIRS>(sums);
        if (!e.has_residual) return;
        if (!whole) {
            add_elements(e, chunk, sums);
            return;
        }
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            float added[2];
            pack_detail::unpack_word(residual[i], added);
            sums[2 * i] += added[0];
            sums[2 * i + 1] += added[1];
        }
        if (chunk + 1 < CHUNKS) ask_for_residual(e, chunk + 1);
    }

    // One by one, as the last of a row may have no neighbour.
    __device__ __forceinline__ void ask_for_biases(const LinearEpilogue& e, int chunk) {
        const int here = col - threadIdx.x % 4 * 2 + chunk * 64 + threadIdx.x % 32 * 2;
        bias[chunk] = here < e.n ? ask_for_one(e.bias + here) : 0u;
        bias[chunk] |= here + 1 < e.n ? ask_for_one(e.bias + here + 1) << 16 : 0u;
    }

    __device__ __forceinline__ void add_elements(const LinearEpilogue& e, int chunk, float* sums) const {
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; ++i) {
            const int there = row + i / 2 % 2 * 8;
            const int here = col + chunk * 64 + i / 4 * 8 + i % 2;
            if (there < e.m && here < e.n) sums[i] += to_float(e.residual[(long long)there * e.n + here]);
        }
    }
};
#endif
