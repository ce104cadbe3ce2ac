// The partials of the warpgroups of all splits of a head, reduced once: as cluster_reduce.cuh, with a quarter of the partials.
//
// A share is 64 elements of a row, of two warps of a warpgroup. Partials of several CTA groups are reduced through
// warpgroup_global_partials.cuh.
#pragma once
#include "warpgroup_global_partials.cuh"
#include "warpgroup_scheduler.cuh"
#include "cluster_reduce.cuh"

namespace warpgroup {

constexpr int GROUPS = 2;   // consumer warpgroups of a block
constexpr int REDUCERS = 4;  // warps of a block that reduce; as many as warpgroups produce as well
constexpr int STEP = 16;  // elements or keys of a product

template <int ROWS>
using Parts = cluster_reduce::Parts<ROWS * HALVES, GROUPS>;

// What the groups of all parts have accumulated of a block's shares of a work tile.
template <int ROWS>
struct ReduceBuffer {
    static constexpr int SHARES = ROWS * HALVES;
    static constexpr int SEEN = (SHARES > cluster_reduce::MOST_PARTS ? SHARES : cluster_reduce::MOST_PARTS) * GROUPS;

    float4 sums[SEEN][ELEMENTS / 4];
    float2 headers[SEEN];  // largest score in units of log 2, sum of weights
    unsigned long long headers_known;
    unsigned long long sums_known;

    // By one thread, before anything is sent.
    __device__ __forceinline__ void open(int seen) {
        const unsigned of_headers = shared_address(&headers_known), of_sums = shared_address(&sums_known);
        hopper::mbarrier_init(of_headers, 1);
        hopper::mbarrier_init(of_sums, 1);
        hopper::mbarrier_init_fence();
        hopper::mbarrier_expect_tx(of_headers, seen * int(sizeof(headers[0])));
        hopper::mbarrier_expect_tx(of_sums, seen * int(sizeof(sums[0])));
    }
    __device__ __forceinline__ void wait_headers() const { hopper::mbarrier_wait(shared_address(&headers_known), 0); }
    __device__ __forceinline__ bool has_sums() const {
        return hopper::mbarrier_test_wait(shared_address(&sums_known), 0);
    }
    __device__ __forceinline__ void wait_sums() const { hopper::mbarrier_wait(shared_address(&sums_known), 0); }
};

// Which element of its row sum `i` of a lane of the first sixteen is: products leave a warp sixteen elements of both halves,
// multiply-adds 32 that lie together.
__device__ __forceinline__ int element_of(int share, int lane, int i) {
    if (sizeof(scalar_t) > 2) return share % HALVES * ELEMENTS + lane * 4 + i;
    return (share % HALVES * 2 + lane / 8) * STEP + lane % 8 + i / 2 * ELEMENTS + i % 2 * 8;
}

// How the partials of two parts of a head become results: known before their sums are.
struct Factors {
    float of_beginning, of_end, inverse;

    __device__ __forceinline__ Factors(const RowPartial& beginning, const RowPartial& end) {
        const float largest = fmaxf(beginning.largest, end.largest);
        of_beginning = factor(beginning.largest, largest);
        of_end = factor(end.largest, largest);
        const float total = fmaf(of_beginning, beginning.total, of_end * end.total);
        inverse = total > 0.0f ? fast_reciprocal(total) : 0.0f;
    }
    // Of a share of a head's rows.
    __device__ __forceinline__ void store(const RowPartial& beginning, const RowPartial& end, scalar_t* rows, int share) const {
        const int lane = threadIdx.x % WARP;
        if (lane >= 16) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float result = fmaf(of_beginning, beginning.sums[i], of_end * end.sums[i]) * inverse;
            rows[share / HALVES * DIM + element_of(share, lane, i)] = from_float<scalar_t>(result);
        }
    }
};

// Of a share that this block reduces: half of a warp sums up what it finds of half of the groups.
template <int ROWS>
struct ClusterPartial {
    static constexpr int MOST_SOURCES = GROUPS * cluster_reduce::MOST_PARTS / 2;
    const ReduceBuffer<ROWS>& reduce_buffer;
    const int sources, first;
    float2 headers[MOST_SOURCES];
    RowPartial seen = empty_partial();

    __device__ __forceinline__ ClusterPartial(const ReduceBuffer<ROWS>& reduce_buffer, const Parts<ROWS>& parts, int own)
        : reduce_buffer(reduce_buffer), sources(parts.consumers() / 2), first(parts.seen(own, threadIdx.x % WARP / 16 * sources)) {
        reduce_buffer.wait_headers();
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            headers[i] = i < sources ? reduce_buffer.headers[first + i] : make_float2(Maximum::identity(), 0.0f);
            seen.largest = fmaxf(seen.largest, headers[i].x);
        }
        seen.largest = fmaxf(seen.largest, __shfl_xor_sync(ALL_LANES, seen.largest, 16));
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            headers[i].x = factor(headers[i].x, seen.largest);
            seen.total = fmaf(headers[i].x, headers[i].y, seen.total);
        }
        seen.total += __shfl_xor_sync(ALL_LANES, seen.total, 16);
    }
    __device__ __forceinline__ void wait_sums() {
        reduce_buffer.wait_sums();
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            if (i >= sources) continue;
            const float4 sums = reduce_buffer.sums[first + i][threadIdx.x % 16];
            seen.sums[0] = fmaf(headers[i].x, sums.x, seen.sums[0]);
            seen.sums[1] = fmaf(headers[i].x, sums.y, seen.sums[1]);
            seen.sums[2] = fmaf(headers[i].x, sums.z, seen.sums[2]);
            seen.sums[3] = fmaf(headers[i].x, sums.w, seen.sums[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) seen.sums[i] += __shfl_xor_sync(ALL_LANES, seen.sums[i], 16);
    }
};

// Takes the partial of a head's start, if it arrives before the last sums of the CTA group or little later.
template <int ROWS>
__device__ __forceinline__ bool take_if_ready(const StreamKPartials& partials, const ReduceBuffer<ROWS>& last, RowPartial& beginning) {
    constexpr int POLLS = 8;
#pragma unroll 1
    for (int late = 0; late < POLLS; late += last.has_sums()) {
        if (partials.at.beginning.load_queries(beginning)) return true;
    }
    return false;
}

// Reduces this split's shares of a work tile. `last` is the reduce buffer of the CTA group's last one.
template <int ROWS, Schedule SCHEDULE>
__device__ __forceinline__ void reduce(const ReduceBuffer<ROWS>& reduce_buffer, const ReduceBuffer<ROWS>& last, const Parts<ROWS>& parts,
                                      scalar_t* rows, int shares, const TileScheduler<SCHEDULE>& scheduler, int kind, int reducer) {
    // Producer warps have no time for work tiles that end early.
    const int first = kind == HEAD_START ? reducer - GROUPS : kind == HEAD_END ? REDUCERS - 1 - reducer : reducer;
    if (first < 0) return;
#pragma unroll 1
    for (int own = first; own < parts.count(shares); own += kind == HEAD_START ? REDUCERS - GROUPS : REDUCERS) {
        const int share = parts.first_share(parts.own) + own;
        const StreamKPartials partials(kind == HEAD_START ? scheduler.cta_group : scheduler.cta_group - 1, share);
        RowPartial beginning = empty_partial();
        const bool is_ready = SCHEDULE == STREAM_K && kind == HEAD_END && take_if_ready(partials, last, beginning);
        ClusterPartial<ROWS> end(reduce_buffer, parts, own);
        if (SCHEDULE == SPLIT_KV) {
            const SplitKvPartials partials(scheduler.head, share, int(gridDim.x) >> parts.bits);
            end.wait_sums();
            if (!partials.publish(scheduler.cta_group, end.seen)) continue;
            partials.reduce([&](int lane, int i, float a, float b) {
                rows[share / HALVES * DIM + element_of(share, lane, i)] = from_float<scalar_t>(a);
                rows[share / HALVES * DIM + element_of(share, lane, i + 1)] = from_float<scalar_t>(b);
            });
            continue;
        }
        Factors factors(beginning, end.seen);
        end.wait_sums();
        if (SCHEDULE == STREAM_K && kind != WHOLE_HEAD && !is_ready) {
            const unsigned before = partials.publish(kind == HEAD_START ? START_ARRIVED : END_ARRIVED, end.seen);
            if (before != (kind == HEAD_START ? END_ARRIVED : START_ARRIVED)) continue;
            partials.finish(beginning, end.seen);
            factors = Factors(beginning, end.seen);
        }
        factors.store(beginning, end.seen, rows, share);
        if (is_ready) partials.mark_reduced();
    }
}

}  // namespace warpgroup
