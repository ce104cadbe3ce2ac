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

// A word of ones: products with them add weights up.
#if defined(KERNELGATE_F16)
constexpr unsigned ONES = 0x3c003c00;
#else
constexpr unsigned ONES = 0x3f803f80;
#endif

// How a step's keys and values lie: rows of `dim` elements behind each other, `count` of them; the others are zeros.
struct PackedRows {
    static constexpr unsigned LOW = 0x5410, HIGH = 0x7632;  // halves of two words

    int dim;

    __device__ __forceinline__ explicit PackedRows(int dim) : dim(dim) {}

    // Else the compiler counts them again before every load.
    static __device__ __forceinline__ void settle(int& count) { asm volatile("" : "+r"(count)); }

    // The key of this lane's score `i`, and whether it is one of the first `seen`.
    static __device__ __forceinline__ int key(int i) { return int(threadIdx.x) % WARP % 4 * 2 + (i % 2 + i / 2 * 8); }
    static __device__ __forceinline__ bool is_seen(int i, int seen) {
        return i % 2 + i / 2 * 8 < seen - int(threadIdx.x) % WARP % 4 * 2;  // without an addition a key
    }
    // 32 elements a part, of key lane / 4 of eight.
    __device__ __forceinline__ uint4 of_key(const scalar_t* keys, int count, int eight, int part) const {
        const int lane = threadIdx.x % WARP;
        return load(keys, eight * 8 + lane / 4, count, part * 32 + lane % 4 * 8);
    }
    // 64 elements a half, of the key of this lane's score `i`.
    __device__ __forceinline__ uint4 of_value(const scalar_t* values, int count, int i, int half) const {
        return load(values, key(i), count, half * 64 + int(threadIdx.x) % WARP / 4 * 8);
    }
    // Selects the lower (upper) halves of words of the values of two neighbouring scores.
    __device__ __forceinline__ unsigned low() const { return LOW; }
    __device__ __forceinline__ unsigned high() const { return HIGH; }

    __device__ __forceinline__ uint4 load(const scalar_t* rows, int key, int count, int element) const {
        return key < count && element < dim ? load_pack(rows + key * dim + element).words : make_uint4(0, 0, 0, 0);
    }
};

// Sixteen rows in boxes of 64 elements, in the 128-byte swizzle, with zeros where there are none. Eight lanes that load
// together take rows four apart, which no two of them find in the same banks: so the order of keys is another, and every
// other lane loads two values in the other order and selects their halves the other way round.
struct SwizzledRows {
    static constexpr int BOX = 16 * 64;
    static constexpr int EIGHT = 8 * 64;

    bool odd;
    int first_key;          // of lane / 4
    int first_value;        // of the first score
    int second_value;

    __device__ __forceinline__ explicit SwizzledRows(int) {
        const int lane = threadIdx.x % WARP, group = lane / 4;
        odd = group % 2;
        first_key = place(group / 2 + odd * 4, lane % 4);
        first_value = place(lane % 4 + odd * 4, group);
        second_value = place(lane % 4 + !odd * 4, group);
    }
    // Where eight elements stand.
    static __device__ __forceinline__ int place(int row, int unit) { return row * 64 + (unit ^ row) * 8; }

    static __device__ __forceinline__ void settle(int&) {}  // there are always sixteen
    static __device__ __forceinline__ int key(int i) { return int(threadIdx.x) % 4 + i * 4; }
    static __device__ __forceinline__ bool is_seen(int i, int seen) { return key(i) < seen; }
    __device__ __forceinline__ uint4 of_key(const scalar_t* keys, int, int eight, int part) const {
        return load_pack(keys + part / 2 * BOX + eight * EIGHT + (first_key ^ part % 2 * 32)).words;
    }
    __device__ __forceinline__ uint4 of_value(const scalar_t* values, int, int i, int half) const {
        return load_pack(values + half * BOX + i / 2 * EIGHT + (i % 2 == 0 ? first_value : second_value)).words;
    }
    __device__ __forceinline__ unsigned low() const { return odd ? 0x1054 : 0x5410; }
    __device__ __forceinline__ unsigned high() const { return odd ? 0x3276 : 0x7632; }
};

// Four lanes take 32 elements of a row of the queries, eight each; rows and elements that are not there are zero.
template <int PARTS>
__device__ __forceinline__ void take_queries(unsigned (&query)[PARTS][4], const scalar_t* q, const FewQueries& s) {
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
template <int HALVES, typename Rows>
__device__ __forceinline__ void add_weighted(float (&sums)[HALVES][4][4], const Rows& rows, const scalar_t* values,
                                             int count, unsigned first, unsigned second) {
    const unsigned low = rows.low(), high = rows.high();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        const uint4 a = rows.of_value(values, count, 0, half), b = rows.of_value(values, count, 1, half);
        const uint4 c = rows.of_value(values, count, 2, half), d = rows.of_value(values, count, 3, half);
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

template <int DIM, typename Rows = PackedRows>
struct TensorWalk {
    static constexpr int ROWS = 8;
    static constexpr int KEYS = 16;            // of a step
    static constexpr int PARTS = DIM / 32;     // of a key: four lanes hold 32 elements
    static constexpr int HALVES = DIM / 64;    // of a value: eight lanes hold 64 elements

    const FewQueries& s;
    const Rows rows;
    unsigned query[PARTS][4];
    float max = Maximum::identity();  // of row lane / 4
    float total = 0.0f;               // of this lane's weights
    float sums[HALVES][4][4] = {};    // of elements 64 half + lane / 4 * 8 + 2 i (+ 1), rows lane % 4 * 2 (+ 1)

    // Before the first step, `take` the queries.
    __device__ __forceinline__ explicit TensorWalk(const FewQueries& s) : s(s), rows(s.dim) {}
    __device__ __forceinline__ TensorWalk(const FewQueries& s, const scalar_t* q) : TensorWalk(s) { take(q); }
    __device__ __forceinline__ void take(const scalar_t* q) {
        take_queries(query, q, s);
    }

    // Scores of this lane's row: two keys of the first eight, then of the second.
    __device__ __forceinline__ void score(float (&scores)[4], const scalar_t* keys, int count) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float products[4] = {};
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const unsigned low[4] = {query[part][0], 0, query[part][1], 0};
                const unsigned high[4] = {query[part][2], 0, query[part][3], 0};
                const uint4 words = rows.of_key(keys, count, i, part);
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
        const int seen = min(count, s.seen_by(lane / 4) - at);
        float largest = max;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            scores[i] = Rows::is_seen(i, seen) ? scores[i] * scale : Maximum::identity();
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
        const unsigned first = pack_detail::pack_word(&weights[0]), second = pack_detail::pack_word(&weights[2]);
        add_weighted(sums, rows, values, count, first, second);
    }

    // `count` keys and their values, the first being key `at` of the head.
    __device__ __forceinline__ void step(const scalar_t* keys, const scalar_t* values, int at, int count) {
        Rows::settle(count);
        float scores[4];
        score(scores, keys, count);
        weigh(scores, at, count);
        add_values(scores, values, count);
    }

    template <typename Board>
    __device__ __forceinline__ void put(Board& board) const {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        const float all = warp_reduce<Sum>(total, 4);
        if (lane % 4 == 0 && lane / 4 < Board::ROWS) {
            board.max[warp][lane / 4] = max;
            board.total[warp][lane / 4] = all;
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = lane % 4 * 2 + j;
            if (row >= Board::ROWS) continue;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
#pragma unroll
                for (int i = 0; i < 4; i += 2) {
                    const float(&a)[4] = sums[half][i], (&b)[4] = sums[half][i + 1];
                    float* const to = &board.out[warp][row][half * 64 + lane / 4 * 8 + 2 * i];
                    *reinterpret_cast<float4*>(to) = make_float4(a[j], a[j + 2], b[j], b[j + 2]);
                }
            }
        }
    }
};

#endif  // !defined(KERNELGATE_F32)
