// Partial results of a split of the keys, (m, l, O), and how partials are reduced: over warps, blocks, launches.
//
// `rows` are the queries of all query heads of one head of keys: they stand behind each other in q and y.
#pragma once
#include "online_softmax.cuh"

constexpr int SPLIT_THREADS = 128;
constexpr int SPLIT_WARPS = SPLIT_THREADS / WARP;

struct DecodeShape {
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

// Neighbouring elements of a row's weighted sum, out of several that were taken against different largest scores.
template <int COUNT>
struct Partial {
    float out[COUNT] = {};
    float total = 0.0f;  // of the weights
    float max = Maximum::identity();

    template <typename MaxOf>
    __device__ __forceinline__ void raise_max(int sources, MaxOf max_of) {
        for (int i = 0; i < sources; ++i) max = fmaxf(max, max_of(i));
    }
    __device__ __forceinline__ void add(float of_max, float of_total, const float* of_out) {
        const float share = factor(of_max, max);
        total = fmaf(of_total, share, total);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) out[i] = fmaf(of_out[i], share, out[i]);
    }
    // Takes in partials that were read together: largest score and sum of weights, weighted sums.
    template <int SOURCES>
    __device__ __forceinline__ void merge(const float2 (&header)[SOURCES], const float2 (&of_out)[SOURCES]) {
        const float before = max;
        raise_max(SOURCES, [&](int i) { return header[i].x; });
        const float correction = factor(before, max);
        total *= correction;
        out[0] *= correction;
        out[1] *= correction;
#pragma unroll
        for (int i = 0; i < SOURCES; ++i) add(header[i].x, header[i].y, &of_out[i].x);
    }
    __device__ __forceinline__ float result(int i) const { return total > 0.0f ? out[i] / total : 0.0f; }
};

// What the warps of a block have accumulated. With a gap of four, rows that are stored together begin in different banks.
template <int DIM, int ROWS_, int WARPS = SPLIT_WARPS, int GAP = 0>
struct WarpPartials {
    static constexpr int ROWS = ROWS_;

    float max[WARPS][ROWS];
    float total[WARPS][ROWS];
    alignas(16) float out[WARPS][ROWS][DIM + GAP];

    // UNROLL: code that runs once had better be short, as it is fetched from memory, unless all wait for it.
    template <int COUNT = 1, int UNROLL = 1>
    __device__ __forceinline__ Partial<COUNT> reduce(int row, int element) const {
        Partial<COUNT> partial;
        partial.raise_max(WARPS, [&](int warp) { return max[warp][row]; });
#pragma unroll UNROLL
        for (int warp = 0; warp < WARPS; ++warp) {
            partial.add(max[warp][row], total[warp][row], &out[warp][row][element]);
        }
        return partial;
    }
};
