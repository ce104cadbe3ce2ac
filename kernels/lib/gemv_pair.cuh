// Pairs of rows of a matrix times up to eight vectors, for the steps of a model that writes a token: an epilogue that needs
// two rows (an angle, a gate) has both. The packs of the matrix are in flight before the vectors are there, in a launch that
// overlaps with the one ahead. With NORM, the vectors are normalised on the way: y = w (x * g) / sqrt(mean(x^2) + eps) needs
// the sum of the squares at the end alone, so that one pass serves.
#pragma once
#include "common.cuh"
#include "dependent.cuh"

constexpr int PAIR_THREADS = 256;
constexpr int PAIR_WARPS = PAIR_THREADS / WARP;
constexpr int PAIR_VECTORS = 8;
constexpr int PAIR_DEPTH = 4;  // packs of each row that a lane asks for before it waits

// What two rows came to with each of BATCH vectors, and the sum of the squares of each vector.
template <int BATCH, bool NORM>
struct Pair {
    float low[BATCH] = {};
    float high[BATCH] = {};
    float squares[BATCH] = {};

    // `warps` warps of the block share a pair: a power of two, as the launch rule has it.
    static __device__ __forceinline__ int of_block(int warps) { return PAIR_WARPS / warps; }
    static __device__ __forceinline__ int index(int warps) {
        return int(blockIdx.x) * of_block(warps) + int(threadIdx.x) / WARP / warps;
    }

    __device__ __forceinline__ void add(int v, Pack of_x, Pack of_g, Pack of_low, Pack of_high) {
        float x[PACK_LEN], g[PACK_LEN], a[PACK_LEN], b[PACK_LEN];
        unpack(of_x, x);
        if (NORM) unpack(of_g, g);
        unpack(of_low, a);
        unpack(of_high, b);
#pragma unroll
        for (int e = 0; e < PACK_LEN; ++e) {
            if (NORM) squares[v] = fmaf(x[e], x[e], squares[v]);
            const float scaled = NORM ? x[e] * g[e] : x[e];
            low[v] = fmaf(scaled, a[e], low[v]);
            high[v] = fmaf(scaled, b[e], high[v]);
        }
    }

    // The packs of all vectors at one place, against those of both rows there.
    __device__ __forceinline__ void add_all(const scalar_t* x, Pack of_g, Pack of_low, Pack of_high, int batch, int k) {
#pragma unroll
        for (int v = 0; v < BATCH; ++v) {
            if (v < batch) add(v, load_pack(x + (long long)v * k), of_g, of_low, of_high);
        }
    }

    // Rows of k elements, k a multiple of PACK_LEN. Nothing written by the launch ahead is read before `x`.
    __device__ __forceinline__ void multiply(const scalar_t* x, const scalar_t* g, const scalar_t* row_low,
                                             const scalar_t* row_high, int batch, int k, int warps) {
        const int stride = warps * WARP, lane = int(threadIdx.x) % stride, packs = k / PACK_LEN;
        const Pack none{make_uint4(0, 0, 0, 0)};
        Pack of_low[PAIR_DEPTH], of_high[PAIR_DEPTH], of_x[PAIR_DEPTH], of_g[PAIR_DEPTH];
#pragma unroll
        for (int i = 0; i < PAIR_DEPTH; ++i) {
            const int at = (lane + i * stride) * PACK_LEN;
            const bool inside = lane + i * stride < packs;
            of_low[i] = inside ? load_pack_streaming(row_low + at) : none;
            of_high[i] = inside ? load_pack_streaming(row_high + at) : none;
        }
        launch_dependents();
        wait_for_launch_ahead();
        x = behind_wait(x);
        if (NORM) g = behind_wait(g);
        // All at once too: one latency behind the wait, not one a pack.
#pragma unroll
        for (int i = 0; i < PAIR_DEPTH; ++i) {
            const int at = (lane + i * stride) * PACK_LEN;
            const bool inside = lane + i * stride < packs;
            of_g[i] = NORM && inside ? load_pack(g + at) : none;
            if (BATCH == 1) of_x[i] = inside ? load_pack(x + at) : none;
        }
#pragma unroll
        for (int i = 0; i < PAIR_DEPTH; ++i) {
            if (BATCH == 1) {
                add(0, of_x[i], of_g[i], of_low[i], of_high[i]);
            } else if (lane + i * stride < packs) {
                add_all(x + (lane + i * stride) * PACK_LEN, of_g[i], of_low[i], of_high[i], batch, k);
            }
        }
        for (int i = lane + PAIR_DEPTH * stride; i < packs; i += stride) {
            const int at = i * PACK_LEN;
            add_all(x + at, NORM ? load_pack(g + at) : none, load_pack_streaming(row_low + at),
                    load_pack_streaming(row_high + at), batch, k);
        }
        reduce(warps);
    }

    // Sums of all lanes of the pair, in every lane of its first warp.
    __device__ __forceinline__ void reduce(int warps) {
        __shared__ float partials[PAIR_WARPS][3][BATCH];
        const int warp = int(threadIdx.x) / WARP;
#pragma unroll
        for (int v = 0; v < BATCH; ++v) {
            low[v] = warp_reduce<Sum>(low[v]);
            high[v] = warp_reduce<Sum>(high[v]);
            if (NORM) squares[v] = warp_reduce<Sum>(squares[v]);
        }
        if (warps == 1) return;
        if (threadIdx.x % WARP == 0) {
#pragma unroll
            for (int v = 0; v < BATCH; ++v) {
                partials[warp][0][v] = low[v];
                partials[warp][1][v] = high[v];
                if (NORM) partials[warp][2][v] = squares[v];
            }
        }
        __syncthreads();
        if (warp % warps != 0) return;
#pragma unroll
        for (int v = 0; v < BATCH; ++v) {
            for (int other = warp + 1; other < warp + warps; ++other) {
                low[v] += partials[other][0][v];
                high[v] += partials[other][1][v];
                if (NORM) squares[v] += partials[other][2][v];
            }
        }
    }

    // Calls use(v, low, high) in a lane of its own for each vector, with both sums divided by the root mean square.
    template <typename Use>
    __device__ __forceinline__ void finish(int batch, int k, float eps, int warps, Use use) const {
        if (int(threadIdx.x) / WARP % warps != 0) return;
#pragma unroll
        for (int v = 0; v < BATCH; ++v) {
            if (int(threadIdx.x) % WARP == v && v < batch) {
                const float by = NORM ? inverse_root_mean(squares[v], k, eps) : 1.0f;
                use(v, low[v] * by, high[v] * by);
            }
        }
    }
};

// The same by a block of TREE_THREADS threads for one pair and one vector, whatever k: the definition.
template <bool NORM, typename Use>
__device__ __forceinline__ void naive_pair(const scalar_t* x, const scalar_t* g, const scalar_t* row_low,
                                           const scalar_t* row_high, int k, float eps, Use use) {
    launch_dependents();
    wait_for_launch_ahead();
    x = behind_wait(x);
    row_low = behind_wait(row_low);
    row_high = behind_wait(row_high);
    if (NORM) g = behind_wait(g);
    float low = 0.0f, high = 0.0f, squares = 0.0f;
    for (int j = threadIdx.x; j < k; j += TREE_THREADS) {
        const float element = to_float(x[j]);
        const float scaled = NORM ? element * to_float(g[j]) : element;
        squares = fmaf(element, element, squares);
        low = fmaf(scaled, to_float(row_low[j]), low);
        high = fmaf(scaled, to_float(row_high[j]), high);
    }
    low = tree_reduce<Sum>(low);
    high = tree_reduce<Sum>(high);
    const float by = NORM ? inverse_root_mean(tree_reduce<Sum>(squares), k, eps) : 1.0f;
    if (threadIdx.x == 0) {
        use(low * by, high * by);
    }
}
