// As warp_mma.cuh, with keys as A of the scores (A and B swapped).
//
// Half of the products, in four chains of two, as no row of A is empty. A lane then has two rows' scores, and these rows are those
// of its weighted sums. Shuffles transpose the weights into B of the values' products; a product with ones adds them up.
#pragma once
#include "warp_mma.cuh"

#if !defined(KERNELGATE_F32)

template <int DIM>
struct WarpMmaSwapAB {
    static constexpr int KEYS = 16;            // of a step
    static constexpr int PARTS = DIM / 32;     // of a key: four lanes hold 32 elements
    static constexpr int HALVES = DIM / 64;    // of a value: eight lanes hold 64 elements

    const DecodeShape& s;
    const SwizzledRows rows;
    int seen[2];  // keys of rows lane % 4 * 2 (+ 1), less the place of this lane's first key in a step
    unsigned query[PARTS][4];
    float max[2] = {Maximum::identity(), Maximum::identity()};
    float total[4] = {};            // of these rows' weights, twice
    float sums[HALVES][4][4] = {};  // of elements 64 half + lane / 4 * 8 + 2 i (+ 1), of these rows

    __device__ __forceinline__ explicit WarpMmaSwapAB(const DecodeShape& s) : s(s) {
        const int lane = threadIdx.x % WARP, first_key = lane / 8 + lane / 4 % 2 * 4;  // as `SwizzledRows` places them
#pragma unroll
        for (int j = 0; j < 2; ++j) seen[j] = s.seen_by(lane % 4 * 2 + j) - first_key;
    }
    __device__ __forceinline__ void load_queries(const scalar_t* q) { take_queries(query, q, s); }

    // Scores of this lane's two rows: of a key, then of the one eight further.
    __device__ __forceinline__ void score(float (&scores)[4], const scalar_t* keys) const {
        float sum[4][4] = {};
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const uint4 near = rows.of_key(keys, 0, part), far = rows.of_key(keys, 1, part);
            const unsigned low[4] = {near.x, far.x, near.y, far.y}, high[4] = {near.z, far.z, near.w, far.w};
            multiply_add(sum[part % 2], low, query[part][0], query[part][1]);
            multiply_add(sum[2 + part % 2], high, query[part][2], query[part][3]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
    }

    // Turns the scores of a step, the first of which is of key `at`, into weights, and the sums so far with them.
    __device__ __forceinline__ void exponentiate(float (&scores)[4], int at) {
        const float scale = s.scale * LOG2_E;
        float raised[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            scores[j] = at < seen[j] ? scores[j] * scale : Maximum::identity();
            scores[j + 2] = at + 8 < seen[j] ? scores[j + 2] * scale : Maximum::identity();
            raised[j] = fmaxf(max[j], fmaxf(scores[j], scores[j + 2]));
        }
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) raised[j] = fmaxf(raised[j], __shfl_xor_sync(ALL_LANES, raised[j], step));
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float correction = factor(max[j], raised[j]);
            max[j] = raised[j];
            scores[j] = factor(scores[j], raised[j]);
            scores[j + 2] = factor(scores[j + 2], raised[j]);
            total[j] *= correction;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sums[half][i][j] *= correction;
                    sums[half][i][j + 2] *= correction;
                }
            }
        }
    }

    // Weights of row lane / 4, where `add_weighted` wants them.
    __device__ __forceinline__ uint2 transposed(const float (&weights)[4]) const {
        const int lane = threadIdx.x % WARP, from = lane % 4 * 8 + lane / 8;
        const unsigned select = lane / 4 % 2 == 0 ? SwizzledRows::LOW : SwizzledRows::HIGH;
        const unsigned near = pack_detail::pack_word(&weights[0]), far = pack_detail::pack_word(&weights[2]);
        const auto rescale = [&](unsigned word) {
            const unsigned first = __shfl_sync(ALL_LANES, word, from), second = __shfl_sync(ALL_LANES, word, from + 4);
            return __byte_perm(first, second, select);
        };
        return {rescale(near), rescale(far)};
    }
    __device__ __forceinline__ void add_values(uint2 weights, const scalar_t* values) {
        const unsigned ones[4] = {ONES, ONES, ONES, ONES};
        multiply_add(total, ones, weights.x, weights.y);
        add_weighted(sums, rows, values, weights.x, weights.y);
    }

    // Where a row of the partial has its fours of elements: rows that are stored together begin in different banks.
    static __device__ __forceinline__ int place(int row, int four) { return four ^ row / 2 % 2; }

    // Puts down the partial: largest score, sum of weights and weighted sum of each row.
    template <int ROWS, typename OfRow, typename Out>
    __device__ __forceinline__ void put(OfRow max_of, OfRow total_of, Out& out) const {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = lane % 4 * 2 + j;
            if (row >= ROWS) continue;
            if (lane < 4) {
                max_of[row] = max[j];
                total_of[row] = total[j];
            }
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const float(&a)[4] = sums[half][i], (&b)[4] = sums[half][i + 1];
                    float* const to = &out[row][place(row, half * 16 + lane / 4 * 2 + i / 2) * 4];
                    *reinterpret_cast<float4*>(to) = make_float4(a[j], a[j + 2], b[j], b[j + 2]);
                }
            }
        }
    }
};

#endif  // !defined(KERNELGATE_F32)
