// A warp's loop over KV blocks of keys, then of their values, on tensor cores with ldmatrix (f16 and bf16).
//
// Keys are A of the scores, and values by elements A of the weighted sums: ldmatrix loads both as they lie in boxes of 64 elements
// in the 128-byte swizzle, values transposed. The weights, B of the sums, are transposed by movmatrix. A warp alone pays for each
// instruction: there are few.
#pragma once
#include "warp_mma.cuh"
#include "hopper.cuh"

#if !defined(KERNELGATE_F32)

// An 8x8 matrix of half-width elements, transposed.
__device__ __forceinline__ unsigned transposed(unsigned matrix) {
    unsigned result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
    return result;
}

// Lanes hold scores and sums of rows lane % 4 * 2 (+ 1).
template <int DIM>
struct WarpMmaLdmatrix {
    static constexpr int STEP = 16;              // keys of a product
    static constexpr int UNIT = 4096;            // elements of a KV block: what is copied together
    static constexpr int BLOCK_KEYS = UNIT / DIM;     // keys
    static constexpr int STEPS = BLOCK_KEYS / STEP;
    static constexpr int HALVES = DIM / 64;      // of a key: a box each
    static constexpr int BOX_BYTES = BLOCK_KEYS * hopper::ROW_BYTES;
    static constexpr int STEP_BYTES = STEP * hopper::ROW_BYTES;

    const DecodeShape& s;
    const float scale;  // of scores, in units of log 2
    int seen_by_all;    // rows: how many keys
    int seen[2];        // keys that these rows see, less this lane's first key of a step
    unsigned key_place[4], value_place[4];  // in a box: where a lane's part of sixteen elements lies
    unsigned query[HALVES][4][2];
    float max[2] = {Maximum::identity(), Maximum::identity()};  // score
    float offset[2] = {};           // of the weights' exponents
    float total[4] = {};            // of these rows' weights, twice
    float sums[HALVES][4][4] = {};  // of elements 64 half + 16 i + lane / 4 of these rows, and eight further

    __device__ __forceinline__ explicit WarpMmaLdmatrix(const DecodeShape& s)
        : s(s), scale(s.scale * LOG2_E), seen_by_all(s.seen_by(0)) {
        const int lane = threadIdx.x % WARP;
        const int key = lane % 16, value = lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int j = 0; j < 2; ++j) seen[j] = s.seen_by(lane % 4 * 2 + j) - lane / 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            key_place[i] = place(key, 2 * i + lane / 16);
            value_place[i] = place(value, 2 * i + lane / 8 % 2);
        }
    }
    // Where eight elements stand.
    static __device__ __forceinline__ unsigned place(int row, int unit) {
        return row * hopper::ROW_BYTES + (unit ^ row % 8) * 16;
    }

    __device__ __forceinline__ void load_queries(const scalar_t* q) {
        const int lane = threadIdx.x % WARP, row = lane / 4;
#pragma unroll
        for (int i = 0; i < HALVES * 8; ++i) {
            const int element = i * 8 + lane % 4 * 2;
            const bool inside = row < s.rows && element < s.dim;
            query[i / 8][i / 2 % 4][i % 2] = inside ? *reinterpret_cast<const unsigned*>(q + row * s.dim + element) : 0;
        }
    }

    // Scores of a KV block: of a key, in both rows, then of the one eight further.
    __device__ __forceinline__ void score(float4 (&scores)[STEPS], unsigned keys) const {
        float sum[STEPS][2][4] = {};
#pragma unroll
        for (int i = 0; i < HALVES * 4; ++i) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                unsigned part[4];
                load_matrices(part, keys + key_place[i % 4] + i / 4 * BOX_BYTES + step * STEP_BYTES);
                multiply_add(sum[step][i % 2], part, query[i / 4][i % 4][0], query[i / 4][i % 4][1]);
            }
        }
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const float(&a)[4] = sum[step][0], (&b)[4] = sum[step][1];
            scores[step] = make_float4(a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]);
        }
    }

    // Leaves out what is not seen of a KV block that begins with key `at`, and raises this lane's largest scores.
    __device__ __forceinline__ void mask_and_max(float4 (&scores)[STEPS], int at, float (&largest)[2]) const {
        if (at + BLOCK_KEYS > seen_by_all) {
            const float none = Maximum::identity();
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const int key = at + step * STEP;
                if (key >= seen[0]) scores[step].x = none;
                if (key >= seen[1]) scores[step].y = none;
                if (key + 8 >= seen[0]) scores[step].z = none;
                if (key + 8 >= seen[1]) scores[step].w = none;
            }
        }
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            largest[0] = fmaxf(largest[0], fmaxf(scores[step].x, scores[step].z));
            largest[1] = fmaxf(largest[1], fmaxf(scores[step].y, scores[step].w));
        }
    }

    // From here on weights are taken against the largest of all lanes' largest scores.
    __device__ __forceinline__ void raise_max(float (&largest)[2]) {
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) largest[j] = fmaxf(largest[j], __shfl_xor_sync(ALL_LANES, largest[j], step));
        }
        float correction[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            offset[j] = largest[j] == Maximum::identity() ? 0.0f : largest[j] * scale;
            correction[j] = fast_exp2(fmaf(max[j], scale, -offset[j]));
            max[j] = largest[j];
            total[j] *= correction[j];
        }
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) sums[half][i][j] *= correction[j % 2];
            }
        }
    }

    // Turns scores of a step into weights, B of its values' products, and adds these up.
    __device__ __forceinline__ uint2 exponentiate(float4 scores) {
        const unsigned ones[4] = {ONES, ONES, ONES, ONES};
        const auto weight = [&](float score, int j) { return fast_exp2(fmaf(score, scale, -offset[j])); };
        const float near[2] = {weight(scores.x, 0), weight(scores.y, 1)};
        const float far[2] = {weight(scores.z, 0), weight(scores.w, 1)};
        const uint2 weights = {transposed(pack_detail::pack_word(near)), transposed(pack_detail::pack_word(far))};
        multiply_add(total, ones, weights.x, weights.y);
        return weights;
    }

    // Half of the elements of a KV block's values.
    __device__ __forceinline__ void add_values(int half, const uint2 (&weights)[STEPS], unsigned values) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            unsigned part[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                load_matrices_transposed(part[i], values + value_place[i] + half * BOX_BYTES + step * STEP_BYTES);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) multiply_add(sums[half][i], part[i], weights[step].x, weights[step].y);
        }
    }
};

#endif  // !defined(KERNELGATE_F32)
