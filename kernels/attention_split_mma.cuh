// A warp's walk over keys in shared memory on tensor cores, for up to eight rows (f16 and bf16).
//
// Fragments are loaded as they lie: sums may run in any order, so each lane takes sixteen bytes of a row and calls its
// elements by the places that its registers have in a product. Scores are queries times keys, with the queries as the
// left factor; weighted sums are values times weights, values being the left factor and turned by selecting halves of
// words: the weights then are where the scores were.
#pragma once
#include "attention_split.cuh"
#include "gemm_mma.cuh"

#if !defined(KERNELGATE_F32)

template <int DIM>
struct TensorWalk {
    static constexpr int ROWS = 8;
    static constexpr int KEYS = 16;            // of a step
    static constexpr int PARTS = DIM / 32;     // of a key: four lanes hold 32 elements
    static constexpr int HALVES = DIM / 64;    // of a value: eight lanes hold 64 elements

    const FewQueries& s;
    unsigned query[PARTS][4];
    float max = Maximum::identity();  // of row lane / 4
    float total = 0.0f;               // of this lane's weights
    float sums[HALVES][4][4] = {};    // of elements 64 half + lane / 4 * 8 + 2 i (+ 1), rows lane % 4 * 2 (+ 1)

    static __device__ __forceinline__ Pack none() { return Pack{make_uint4(0, 0, 0, 0)}; }

    // Sixteen bytes of key (or value) `key` of `count`, from `element` on; zeros where there are none.
    __device__ __forceinline__ Pack load(const scalar_t* rows, int key, int count, int element) const {
        return key < count && element < s.dim ? load_pack(rows + key * s.dim + element) : none();
    }
    __device__ __forceinline__ TensorWalk(const FewQueries& s, const scalar_t* q) : s(s) {
        const int lane = threadIdx.x % WARP, row = lane / 4;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int element = part * 32 + lane % 4 * 8;
            const bool inside = row < s.rows && element < s.dim;
            const uint4 words = (inside ? load_pack(q + row * s.dim + element) : none()).words;
            query[part][0] = words.x;
            query[part][1] = words.y;
            query[part][2] = words.z;
            query[part][3] = words.w;
        }
    }

    // Scores of this lane's row: keys lane % 4 * 2 (+ 1) of the first eight, then of the second.
    __device__ __forceinline__ void score(float (&scores)[4], const scalar_t* keys, int count) const {
        const int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float products[4] = {};
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const unsigned low[4] = {query[part][0], 0, query[part][1], 0};
                const unsigned high[4] = {query[part][2], 0, query[part][3], 0};
                const uint4 words = load(keys, i * 8 + lane / 4, count, part * 32 + lane % 4 * 8).words;
                multiply_add(products, low, words.x, words.y);
                multiply_add(products, high, words.z, words.w);
            }
            scores[2 * i] = products[0];
            scores[2 * i + 1] = products[1];
        }
    }

    // The first of the step's `count` keys is key `at` of the head.
    __device__ __forceinline__ void weigh(float (&scores)[4], int at, int count) {
        const int lane = threadIdx.x % WARP;
        const float scale = s.scale * LOG2_E;
        const int seen = min(count, s.seen_by(lane / 4) - at) - lane % 4 * 2;
        float largest = max;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[i] = i % 2 + i / 2 * 8 < seen ? scores[i] * scale : Maximum::identity();
            largest = fmaxf(largest, scores[i]);
        }
        const float raised = warp_reduce<Maximum>(largest, 4);
        if (__any_sync(ALL_LANES, raised != max)) {
            const float correction = factor(max, raised);
            total *= correction;
            const float even = __shfl_sync(ALL_LANES, correction, lane % 4 * 8);
            const float odd = __shfl_sync(ALL_LANES, correction, lane % 4 * 8 + 4);
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) sums[half][i][j] *= j % 2 == 0 ? even : odd;
                }
            }
            max = raised;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[i] = factor(scores[i], max);
            total += scores[i];
        }
    }

    __device__ __forceinline__ void add_values(const float (&weights)[4], const scalar_t* values, int count) {
        const int lane = threadIdx.x % WARP;
        constexpr unsigned LOW = 0x5410, HIGH = 0x7632;  // halves of two words
        const unsigned first = pack_detail::pack_word(&weights[0]), second = pack_detail::pack_word(&weights[2]);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const int key = lane % 4 * 2, element = half * 64 + lane / 4 * 8;
            const uint4 a = load(values, key, count, element).words, b = load(values, key + 1, count, element).words;
            const uint4 c = load(values, key + 8, count, element).words, d = load(values, key + 9, count, element).words;
            const unsigned near[4][2] = {{a.x, b.x}, {a.y, b.y}, {a.z, b.z}, {a.w, b.w}};
            const unsigned far[4][2] = {{c.x, d.x}, {c.y, d.y}, {c.z, d.z}, {c.w, d.w}};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned left[4] = {
                    __byte_perm(near[i][0], near[i][1], LOW), __byte_perm(near[i][0], near[i][1], HIGH),
                    __byte_perm(far[i][0], far[i][1], LOW), __byte_perm(far[i][0], far[i][1], HIGH)};
                multiply_add(sums[half][i], left, first, second);
            }
        }
    }

    // `count` keys and their values, the first being key `at` of the head.
    __device__ __forceinline__ void step(const scalar_t* keys, const scalar_t* values, int at, int count) {
        float scores[4];
        score(scores, keys, count);
        weigh(scores, at, count);
        add_values(scores, values, count);
    }

    __device__ __forceinline__ void put(Board<DIM, ROWS>& board) const {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        const float all = warp_reduce<Sum>(total, 4);
        if (lane % 4 == 0) {
            board.max[warp][lane / 4] = max;
            board.total[warp][lane / 4] = all;
        }
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    float* const to = &board.out[warp][lane % 4 * 2 + j][half * 64 + lane / 4 * 8 + 2 * i];
                    *reinterpret_cast<float2*>(to) = make_float2(sums[half][i][j], sums[half][i][j + 2]);
                }
            }
        }
    }
};

#endif  // !defined(KERNELGATE_F32)
