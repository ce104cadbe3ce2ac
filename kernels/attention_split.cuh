// What few queries have seen of a part of the keys, and how parts are merged: by warps, blocks, launches.
//
// `rows` are the queries of all query heads of one head of keys: they stand behind each other in q and y.
#pragma once
#include "attention.cuh"

constexpr int SPLIT_THREADS = 128;
constexpr int SPLIT_WARPS = SPLIT_THREADS / WARP;

struct FewQueries {
    int rows;
    int queries;
    int keys;
    int dim;
    int causal;
    float scale;

    // How many keys a row sees.
    __device__ __forceinline__ int seen_by(int row) const {
        return causal ? row % queries + 1 + keys - queries : keys;
    }
};

// What turns sums against `max` (in units of log 2) into sums against a largest of `raised`; where there is no score
// yet, there is nothing to turn, and -inf - -inf is no number.
__device__ __forceinline__ float factor(float max, float raised) {
    return fast_exp2(max - (raised == Maximum::identity() ? 0.0f : raised));
}

// An element of a row's weighted sum, out of several that were taken against different largest scores.
struct Merged {
    float out = 0.0f;
    float total = 0.0f;  // of the weights
    float max = Maximum::identity();

    template <typename MaxOf>
    __device__ __forceinline__ void raise(int sources, MaxOf max_of) {
        for (int i = 0; i < sources; ++i) max = fmaxf(max, max_of(i));
    }
    __device__ __forceinline__ void add(float of_max, float of_total, float of_out) {
        const float share = factor(of_max, max);
        total = fmaf(of_total, share, total);
        out = fmaf(of_out, share, out);
    }
    __device__ __forceinline__ float result() const { return total > 0.0f ? out / total : 0.0f; }
};

// What the warps of a block have seen.
template <int DIM, int ROWS>
struct Board {
    float max[SPLIT_WARPS][ROWS];
    float total[SPLIT_WARPS][ROWS];
    float out[SPLIT_WARPS][ROWS][DIM];

    __device__ __forceinline__ Merged merge(int row, int element) const {
        Merged merged;
        merged.raise(SPLIT_WARPS, [&](int warp) { return max[warp][row]; });
#pragma unroll 1  // code that runs once had better be short: it is fetched from memory
        for (int warp = 0; warp < SPLIT_WARPS; ++warp) {
            merged.add(max[warp][row], total[warp][row], out[warp][row][element]);
        }
        return merged;
    }
};
