// A warp's loop over keys in shared memory on tensor cores (mma.sync), for up to eight rows (f16 and bf16).
//
// Fragments are loaded as they lie: sums may run in any order, so each lane takes sixteen bytes of a row and calls its elements by
// the places that its registers have in a product. Scores are queries times keys, with the queries as A; weighted sums are values
// times weights, with the values as A, transposed by selecting halves of words: the weights then are where the scores were.
#pragma once
#include "partials.cuh"
#include "gemm_mma.cuh"

#if !defined(KERNELGATE_F32)

// A word of ones: products with them add weights up.
#if defined(KERNELGATE_F16)
constexpr unsigned ONES = 0x3c003c00;
#else
constexpr unsigned ONES = 0x3f803f80;
#endif

// Sixteen rows in boxes of 64 elements, in the 128-byte swizzle, with zeros where there are none. Eight lanes that load
// together take rows four apart, which no two of them find in the same banks: so the order of keys is another, and every
// other lane loads two values in the other order and selects their halves the other way round.
struct SwizzledRows {
    static constexpr int BOX = 16 * 64;
    static constexpr int EIGHT = 8 * 64;
    static constexpr unsigned LOW = 0x5410, HIGH = 0x7632;  // halves of two words

    bool odd;
    int first_key;          // of lane / 4
    int first_value;        // of the first score
    int second_value;

    __device__ __forceinline__ SwizzledRows() {
        const int lane = threadIdx.x % WARP, group = lane / 4;
        odd = group % 2;
        first_key = place(group / 2 + odd * 4, lane % 4);
        first_value = place(lane % 4 + odd * 4, group);
        second_value = place(lane % 4 + !odd * 4, group);
    }
    // Where eight elements stand.
    static __device__ __forceinline__ int place(int row, int unit) { return row * 64 + (unit ^ row) * 8; }

    static __device__ __forceinline__ int key(int i) { return int(threadIdx.x) % 4 + i * 4; }
    static __device__ __forceinline__ bool is_seen(int i, int seen) { return key(i) < seen; }
    __device__ __forceinline__ uint4 of_key(const scalar_t* keys, int eight, int part) const {
        return load_pack(keys + part / 2 * BOX + eight * EIGHT + (first_key ^ part % 2 * 32)).words;
    }
    __device__ __forceinline__ uint4 of_value(const scalar_t* values, int i, int half) const {
        return load_pack(values + half * BOX + i / 2 * EIGHT + (i % 2 == 0 ? first_value : second_value)).words;
    }
    __device__ __forceinline__ unsigned low() const { return odd ? 0x1054 : LOW; }
    __device__ __forceinline__ unsigned high() const { return odd ? 0x3276 : HIGH; }
};

// Four lanes take 32 elements of a row of the queries, eight each; rows and elements that are not there are zero.
template <int PARTS>
__device__ __forceinline__ void take_queries(unsigned (&query)[PARTS][4], const scalar_t* q, const DecodeShape& s) {
    const int lane = threadIdx.x % WARP, row = lane / 4;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int element = part * 32 + lane % 4 * 8;
        const bool inside = row < s.rows && element < s.dim;
        const uint4 words = inside ? load_pack(q + row * s.dim + element).words : make_uint4(0, 0, 0, 0);
        query[part][0] = words.x;
        query[part][1] = words.y;
        query[part][2] = words.z;
        query[part][3] = words.w;
    }
}

// Adds sixteen values times their weights, of which lanes hold two neighbouring scores' in a word.
template <int HALVES>
__device__ __forceinline__ void add_weighted(float (&sums)[HALVES][4][4], const SwizzledRows& rows,
                                             const scalar_t* values, unsigned first, unsigned second) {
    const unsigned low = rows.low(), high = rows.high();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        const uint4 a = rows.of_value(values, 0, half), b = rows.of_value(values, 1, half);
        const uint4 c = rows.of_value(values, 2, half), d = rows.of_value(values, 3, half);
        const unsigned near[4][2] = {{a.x, b.x}, {a.y, b.y}, {a.z, b.z}, {a.w, b.w}};
        const unsigned far[4][2] = {{c.x, d.x}, {c.y, d.y}, {c.z, d.z}, {c.w, d.w}};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned left[4] = {
                __byte_perm(near[i][0], near[i][1], low), __byte_perm(near[i][0], near[i][1], high),
                __byte_perm(far[i][0], far[i][1], low), __byte_perm(far[i][0], far[i][1], high)};
            multiply_add(sums[half][i], left, first, second);
        }
    }
}

template <int DIM>
struct WarpMma {
    static constexpr int ROWS = 8;
    static constexpr int KEYS = 16;            // of a step
    static constexpr int PARTS = DIM / 32;     // of a key: four lanes hold 32 elements
    static constexpr int HALVES = DIM / 64;    // of a value: eight lanes hold 64 elements

    const DecodeShape& s;
    const SwizzledRows rows;
    unsigned query[PARTS][4];
    float max = Maximum::identity();  // of row lane / 4
    float total = 0.0f;               // of this lane's weights
    float sums[HALVES][4][4] = {};    // of elements 64 half + lane / 4 * 8 + 2 i (+ 1), rows lane % 4 * 2 (+ 1)

    // Before the first step, `take` the queries.
    __device__ __forceinline__ explicit WarpMma(const DecodeShape& s) : s(s) {}
    __device__ __forceinline__ void load_queries(const scalar_t* q) {
        take_queries(query, q, s);
    }

    // Scores of this lane's row: two keys of the first eight, then of the second.
    __device__ __forceinline__ void score(float (&scores)[4], const scalar_t* keys) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float products[4] = {};
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const unsigned low[4] = {query[part][0], 0, query[part][1], 0};
                const unsigned high[4] = {query[part][2], 0, query[part][3], 0};
                const uint4 words = rows.of_key(keys, i, part);
                multiply_add(products, low, words.x, words.y);
                multiply_add(products, high, words.z, words.w);
            }
            scores[2 * i] = products[0];
            scores[2 * i + 1] = products[1];
        }
    }

    // The first of the step's `count` keys is key `at` of the head.
    __device__ __forceinline__ void exponentiate(float (&scores)[4], int at) {
        const int lane = threadIdx.x % WARP;
        const float scale = s.scale * LOG2_E;
        const int seen = min(KEYS, s.seen_by(lane / 4) - at);
        float largest = max;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[i] = SwizzledRows::is_seen(i, seen) ? scores[i] * scale : Maximum::identity();
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

    __device__ __forceinline__ void add_values(const float (&weights)[4], const scalar_t* values) {
        const unsigned first = pack_detail::pack_word(&weights[0]), second = pack_detail::pack_word(&weights[2]);
        add_weighted(sums, rows, values, first, second);
    }

    // `count` keys and their values, the first being key `at` of the head.
    __device__ __forceinline__ void step(const scalar_t* keys, const scalar_t* values, int at) {
        float scores[4];
        score(scores, keys);
        exponentiate(scores, at);
        add_values(scores, values);
    }

    template <typename WarpPartials>
    __device__ __forceinline__ void put(WarpPartials& warp_partials) const {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        const float all = warp_reduce<Sum>(total, 4);
        if (lane % 4 == 0 && lane / 4 < WarpPartials::ROWS) {
            warp_partials.max[warp][lane / 4] = max;
            warp_partials.total[warp][lane / 4] = all;
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = lane % 4 * 2 + j;
            if (row >= WarpPartials::ROWS) continue;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const float(&a)[4] = sums[half][i], (&b)[4] = sums[half][i + 1];
                    float* const to = &warp_partials.out[warp][row][half * 64 + lane / 4 * 8 + 2 * i];
                    *reinterpret_cast<float4*>(to) = make_float4(a[j], a[j + 2], b[j], b[j + 2]);
                }
            }
        }
    }
};

#endif  // !defined(KERNELGATE_F32)
