// What the warp groups of all parts of a head have seen, merged once: as in attention_split_shares.cuh, a quarter of it.
//
// A share is 64 elements of a row: sixteen of both of its halves, of two warps of a group.
#pragma once
#include "attention_split_shares.cuh"

namespace groups {

constexpr int GROUPS = 2;   // of a block, that walk
constexpr int MERGERS = 4;  // warps of a block that merge
constexpr int DIM = 128;
constexpr int ELEMENTS = 64;  // of half a row, and of a share
constexpr int HALVES = DIM / ELEMENTS;
constexpr int STEP = 16;  // elements or keys of a product

template <int ROWS>
using Parts = shares::Parts<ROWS * HALVES, GROUPS>;

// What the groups of all parts have seen of a block's shares.
template <int ROWS>
struct Inbox {
    static constexpr int SHARES = ROWS * HALVES;
    static constexpr int SEEN = (SHARES > shares::MOST_PARTS ? SHARES : shares::MOST_PARTS) * GROUPS;

    float4 sums[SEEN][ELEMENTS / 4];
    float2 headers[SEEN];  // largest score in units of log 2, sum of weights
    unsigned long long headers_known;
    unsigned long long sums_known;

    // By one thread, before anything is sent.
    __device__ __forceinline__ void open(int seen) {
        const unsigned of_headers = shared_address(&headers_known), of_sums = shared_address(&sums_known);
        hopper::barrier_init(of_headers, 1);
        hopper::barrier_init(of_sums, 1);
        hopper::barrier_init_fence();
        hopper::barrier_expect(of_headers, seen * int(sizeof(headers[0])));
        hopper::barrier_expect(of_sums, seen * int(sizeof(sums[0])));
    }
};

// Merges this part's shares and stores them: half of a warp takes a share of half of the groups.
template <int ROWS>
__device__ __forceinline__ void merge(const Inbox<ROWS>& inbox, const Parts<ROWS>& parts, scalar_t* y,
                                      const FewQueries& s, int head, int merger) {
    constexpr int MOST_SOURCES = GROUPS * shares::MOST_PARTS / 2;
    const int lane = threadIdx.x % WARP, sources = parts.walkers() / 2, fours = lane % 16;
#pragma unroll 1
    for (int own = merger; own < parts.count(s.rows * HALVES); own += MERGERS) {
        const int share = parts.first_share(parts.own) + own, seen = parts.seen(own, lane / 16 * sources);
        float2 headers[MOST_SOURCES];
        float largest = Maximum::identity(), total = 0.0f;
        hopper::barrier_wait(shared_address(&inbox.headers_known), 0);
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            headers[i] = i < sources ? inbox.headers[seen + i] : make_float2(Maximum::identity(), 0.0f);
            largest = fmaxf(largest, headers[i].x);
        }
        largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 16));
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            headers[i].x = factor(headers[i].x, largest);
            total = fmaf(headers[i].x, headers[i].y, total);
        }
        total += __shfl_xor_sync(ALL_LANES, total, 16);
        const float inverse = total > 0.0f ? fast_reciprocal(total) : 0.0f;
        float results[4] = {};
        const int first = (share % HALVES * 2 + fours / 8) * STEP + fours % 8;
        scalar_t* const to = y + (head * s.rows + share / HALVES) * DIM + first;
        hopper::barrier_wait(shared_address(&inbox.sums_known), 0);
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            if (i >= sources) continue;
            const float4 sums = inbox.sums[seen + i][fours];
            const float share_of_all = headers[i].x * inverse;
            results[0] = fmaf(share_of_all, sums.x, results[0]);
            results[1] = fmaf(share_of_all, sums.y, results[1]);
            results[2] = fmaf(share_of_all, sums.z, results[2]);
            results[3] = fmaf(share_of_all, sums.w, results[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float result = results[i] + __shfl_xor_sync(ALL_LANES, results[i], 16);
            if (lane < 16) to[i / 2 * ELEMENTS + i % 2 * 8] = from_float<scalar_t>(result);
        }
    }
}

}  // namespace groups
