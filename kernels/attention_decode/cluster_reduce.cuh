// The partials (m, l, O) of all warps of a cluster, reduced once: who reduces what, and how it gets there.
//
// A share is 64 elements of a row. The splits of a head, a power of two, are blocks of a cluster that reduce as many shares each;
// where there are fewer shares than splits, some reduce none. A consumer warp sends its partial straight to the reducer by
// st.async, largest scores and sums of weights ahead of the weighted sums; mbarriers count the bytes.
#pragma once
#include "partials.cuh"
#include "cluster.cuh"
#include "hopper.cuh"

namespace cluster_reduce {

constexpr int CONSUMERS = 8;      // consumer warps of a block
constexpr int REDUCERS = 4;      // warps of a block that reduce
constexpr int ELEMENTS = 64;    // of a share
constexpr int MOST_PARTS = 8;
constexpr int GROUP = 16;       // consumers whose sums a lane adds up

// What the consumers of all parts have accumulated of a block's shares.
template <int SHARES>
struct ReduceBuffer {
    static constexpr int SEEN = (SHARES > MOST_PARTS ? SHARES : MOST_PARTS) * CONSUMERS;

    float sums[SEEN][ELEMENTS];
    float largest[SEEN];  // scores, in units of log 2
    float totals[SEEN];   // of weights
    unsigned long long largest_known;
    unsigned long long totals_known;
    unsigned long long sums_known;

    template <typename T>
    __device__ __forceinline__ unsigned offset(const T& member) const {
        return shared_address(&member) - shared_address(this);
    }
    // By one thread, before anything is sent.
    __device__ __forceinline__ void open(int seen) {
        const unsigned objects[3] = {shared_address(&largest_known), shared_address(&totals_known),
                                     shared_address(&sums_known)};
        const int bytes = seen * int(sizeof(float));
#pragma unroll
        for (int i = 0; i < 3; ++i) hopper::mbarrier_init(objects[i], 1);
        hopper::mbarrier_init_fence();
#pragma unroll
        for (int i = 0; i < 3; ++i) hopper::mbarrier_expect_tx(objects[i], i < 2 ? bytes : bytes * ELEMENTS);
    }
};

// The parts of a head, and what each reduces of what their consumers have accumulated: warps, or groups of them.
template <int SHARES, int CONSUMERS = cluster_reduce::CONSUMERS>
struct Parts {
    int bits;  // of their number
    int own;   // part

    __device__ __forceinline__ int reducer(int share) const { return (share << bits) / SHARES; }
    __device__ __forceinline__ int first_share(int part) const { return (part * SHARES) >> bits; }
    __device__ __forceinline__ int consumers() const { return CONSUMERS << bits; }
    // How many of `count` shares this part reduces.
    __device__ __forceinline__ int count(int count) const {
        const int each = max(SHARES >> bits, 1), first = first_share(own);
        return reducer(first) == own ? max(min(each, count - first), 0) : 0;
    }
    // Where in a reduce buffer a consumer's partial is, of the shares that the block there reduces.
    __device__ __forceinline__ int seen(int share, int consumer) const { return share * consumers() + consumer; }
    // Every other sixteen consumers have halves of 32 elements swapped: lanes that read together find other banks.
    static __device__ __forceinline__ int place(int consumer, int element) { return element ^ consumer / GROUP % 2 * 16; }
};

// Where a consumer's lane sends its partial of rows lane % 4 * 2 (+ 1).
template <int SHARES, int HALVES>
struct ReduceSender {
    const ReduceBuffer<SHARES>& reduce_buffer;
    unsigned there[2][HALVES];  // the reduce buffer of who reduces this half of the row
    unsigned sums[2][HALVES];   // where this lane's eight elements are in it
    unsigned number[2];         // where the row's numbers are, of the half that this lane sends
    bool tells;
    bool exists[2];             // row

    __device__ __forceinline__ ReduceSender(const ReduceBuffer<SHARES>& reduce_buffer, const Parts<SHARES>& parts, int consumer, int rows)
        : reduce_buffer(reduce_buffer), tells(threadIdx.x % WARP / 4 < HALVES) {
        const int lane = threadIdx.x % WARP, of_all = parts.own * CONSUMERS + consumer;
        const unsigned first_rank = hopper::cluster_rank() - parts.own;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int row = lane % 4 * 2 + j;
            exists[j] = row < rows;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                const int share = row * HALVES + half, reducer = parts.reducer(share);
                const int seen = parts.seen(share - parts.first_share(reducer), of_all);
                there[j][half] = mapa_shared(shared_address(&reduce_buffer), first_rank + reducer);
                sums[j][half] = there[j][half] + reduce_buffer.offset(reduce_buffer.sums[seen][parts.place(of_all, lane / 4 * 8)]);
                if (half == 0 || lane / 4 == half) number[j] = there[j][half] + seen * int(sizeof(float));
            }
        }
    }
    // Sends a number a row into an array of numbers.
    __device__ __forceinline__ void send_header(const float (&array)[ReduceBuffer<SHARES>::SEEN], const unsigned long long& known,
                                         float first, float second) const {
        const float numbers[2] = {first, second};
        const int half = HALVES > 1 && threadIdx.x % WARP / 4 > 0;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const unsigned to = half > 0 ? there[j][HALVES - 1] : there[j][0];
            if (tells && exists[j]) st_async_1(number[j] + reduce_buffer.offset(array), to + reduce_buffer.offset(known), numbers[j]);
        }
        __syncwarp();
    }
    __device__ __forceinline__ void send_max(float first, float second) const {
        send_header(reduce_buffer.largest, reduce_buffer.largest_known, first, second);
    }
    __device__ __forceinline__ void send_sum(float first, float second) const {
        send_header(reduce_buffer.totals, reduce_buffer.totals_known, first, second);
    }
    // Half a row each: element lane / 4 of eight, then those of the next eight.
    __device__ __forceinline__ void send(int half, const float (&of)[4][4]) const {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (!exists[j]) continue;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float(&a)[4] = of[2 * i], (&b)[4] = of[2 * i + 1];
                const unsigned known = there[j][half] + reduce_buffer.offset(reduce_buffer.sums_known);
                st_async_4(sums[j][half] + i * 16, known, a[j], a[j + 2], b[j], b[j + 2]);
            }
        }
    }
};

// Over the groups of lanes that have accumulated the same elements: one, two or four.
template <typename Reduction>
__device__ __forceinline__ float over_groups(float x, int group_bits) {
    if (group_bits > 0) x = Reduction::combine(x, __shfl_xor_sync(ALL_LANES, x, 16));
    if (group_bits > 1) x = Reduction::combine(x, __shfl_xor_sync(ALL_LANES, x, 8));
    return x;
}

// Reduces this split's shares and stores them: two elements a lane, of what sixteen consumers have accumulated; where there are more,
// groups of lanes share these out. What is left to do when the last sums come is to multiply and add.
template <int SHARES, int HALVES>
__device__ __forceinline__ void reduce(const ReduceBuffer<SHARES>& reduce_buffer, const Parts<SHARES>& parts, scalar_t* y,
                                      const DecodeShape& s, int head, int reducer) {
    const int lane = threadIdx.x % WARP, group_bits = parts.bits - 1, column_bits = 5 - group_bits;
    const int group = lane >> column_bits, column = (lane & (1 << column_bits) - 1) * 2;
#pragma unroll 1
    for (int job = reducer; job < parts.count(s.rows * HALVES) << group_bits; job += REDUCERS) {
        const int element = (job << (column_bits + 1)) + column, own = element / ELEMENTS, at = element % ELEMENTS;
        const int share = parts.first_share(parts.own) + own, seen = parts.seen(own, group * GROUP);
        const int first = share % HALVES * ELEMENTS + at % 8 * 8 + at / 8;  // the other element is eight further
        const bool stores[2] = {group == 0 && first < s.dim, group == 0 && first + 8 < s.dim};
        scalar_t* const to = y + (head * s.rows + share / HALVES) * s.dim + first;
        const float* const from = &reduce_buffer.sums[seen][parts.place(group * GROUP, at)];

        float factors[GROUP], largest = Maximum::identity(), total = 0.0f;
        hopper::mbarrier_wait(shared_address(&reduce_buffer.largest_known), 0);
#pragma unroll
        for (int i = 0; i < GROUP; ++i) largest = fmaxf(largest, factors[i] = reduce_buffer.largest[seen + i]);
        largest = over_groups<Maximum>(largest, group_bits);
#pragma unroll
        for (int i = 0; i < GROUP; ++i) factors[i] = factor(factors[i], largest);
        hopper::mbarrier_wait(shared_address(&reduce_buffer.totals_known), 0);
#pragma unroll
        for (int i = 0; i < GROUP; ++i) total = fmaf(factors[i], reduce_buffer.totals[seen + i], total);
        total = over_groups<Sum>(total, group_bits);
        const float inverse = total > 0.0f ? fast_reciprocal(total) : 0.0f;
#pragma unroll
        for (int i = 0; i < GROUP; ++i) factors[i] *= inverse;

        hopper::mbarrier_wait(shared_address(&reduce_buffer.sums_known), 0);
        float2 sums[GROUP];
        float results[2][2] = {};
#pragma unroll
        for (int i = 0; i < GROUP; ++i) sums[i] = *reinterpret_cast<const float2*>(from + i * ELEMENTS);
#pragma unroll
        for (int i = 0; i < GROUP; ++i) {
            results[0][i % 2] = fmaf(factors[i], sums[i].x, results[0][i % 2]);
            results[1][i % 2] = fmaf(factors[i], sums[i].y, results[1][i % 2]);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float result = over_groups<Sum>(results[j][0] + results[j][1], group_bits);
            if (stores[j]) to[j * 8] = from_float<scalar_t>(result);
        }
    }
}

}  // namespace cluster_reduce
