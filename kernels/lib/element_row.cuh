// Short rows by single elements: neighbouring threads hold neighbouring elements, so that a warp moves whole sectors
// wherever a row starts, and no lane puts packs together or waits for an edge.
#pragma once
#include "common.cuh"

// One thread's fragment of a row of more than MORE_THAN and at most AT_MOST elements, of which THREADS threads (whole warps)
// hold VALUES each, THREADS apart. A block has GROUPS rows; a group past the last row loads that row again and has none to
// store.
constexpr int ELEMENTS_BLOCK = 128;
template <int THREADS, int MORE_THAN, int AT_MOST>
struct ElementRow {
    static constexpr int VALUES = AT_MOST / THREADS;
    static constexpr int SURE = MORE_THAN / THREADS;  // accesses that need no test
    static constexpr int STRIDE = THREADS;
    static constexpr int GROUPS = ELEMENTS_BLOCK / THREADS;
    bool has_row;
    int left;         // columns from this thread's first on
    long long start;  // of this thread's elements in the matrix

    static __device__ __forceinline__ int rank() { return int(threadIdx.x % THREADS); }
    static __device__ __forceinline__ int group() { return int(threadIdx.x / THREADS); }

    __device__ __forceinline__ ElementRow(int rows, int cols) {
        const long long row = (long long)blockIdx.x * GROUPS + group();
        has_row = row < rows;
        left = cols - rank();
        start = min(row, (long long)rows - 1) * cols + rank();
    }

    __device__ __forceinline__ bool has(int k) const { return k < SURE || k * THREADS < left; }

    // Zeros where nothing is held.
    __device__ __forceinline__ void load(const scalar_t* x, float (&value)[VALUES]) const {
#pragma unroll
        for (int k = 0; k < VALUES; ++k) {
            value[k] = 0.0f;
            if (has(k)) {
                value[k] = to_float(x[start + k * THREADS]);
            }
        }
    }

    // The weights that go with them, on their way before the row. Most of the tests always pass: without them the compiler
    // moves the loads to their use, behind the reduction.
    __device__ __forceinline__ void load_weights(const scalar_t* weights, float (&weight)[VALUES]) const {
#pragma unroll
        for (int k = 0; k < VALUES; ++k) {
            if (k * THREADS < left) {
                weight[k] = to_float(weights[rank() + k * THREADS]);
            }
        }
    }

    // visit(k) for every element held, for a thread that has a row.
    template <typename Visit>
    __device__ __forceinline__ void each(Visit visit) const {
        if (!has_row) return;
#pragma unroll
        for (int k = 0; k < VALUES; ++k) {
            if (has(k)) {
                visit(k);
            }
        }
    }

    // The sum of term(k) over every element held, absent ones too, and over the threads of the row; every thread gets the same
    // bits. A SLOT is used once a launch.
    template <int SLOT, typename Term>
    __device__ __forceinline__ float sum_of(Term term) const {
        FourSums sums;
#pragma unroll
        for (int k = 0; k < VALUES; ++k) {
            sums.add(k, term(k));
        }
        constexpr int WARPS = THREADS / WARP;
        float value = warp_reduce<Sum>(sums.total());
        if constexpr (WARPS > 1) {
            __shared__ float partials[GROUPS][WARPS];
            if (threadIdx.x % WARP == 0) {
                partials[group()][threadIdx.x / WARP % WARPS] = value;
            }
            __syncthreads();
            value = 0.0f;
#pragma unroll
            for (int i = 0; i < WARPS; ++i) {
                value += partials[group()][i];
            }
        }
        return value;
    }
};

// The rows served: one, two or four warps each.
using ElementsOfWarp = ElementRow<WARP, 256, 384>;
using ElementsOfTwoWarps = ElementRow<2 * WARP, 384, 512>;
using ElementsOfFourWarps = ElementRow<4 * WARP, 512, 1024>;
