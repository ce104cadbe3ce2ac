// What the warp groups of all parts of a head have seen, merged once: as in attention_split_shares.cuh, a quarter of it.
//
// A share is 64 elements of a row, of two warps of a group. What several teams have seen of a head they merge as
// attention_split_groups_meet.cuh says.
#pragma once
#include "attention_split_groups_meet.cuh"
#include "attention_split_groups_teams.cuh"
#include "attention_split_shares.cuh"

namespace groups {

constexpr int GROUPS = 2;   // of a block, that walk
constexpr int MERGERS = 4;  // warps of a block that merge; as many as groups copy as well
constexpr int STEP = 16;  // elements or keys of a product

template <int ROWS>
using Parts = shares::Parts<ROWS * HALVES, GROUPS>;

// What the groups of all parts have seen of a block's shares of a piece.
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
    __device__ __forceinline__ void await_headers() const { hopper::barrier_wait(shared_address(&headers_known), 0); }
    __device__ __forceinline__ bool knows_sums() const {
        return hopper::barrier_is_over(shared_address(&sums_known), 0);
    }
    __device__ __forceinline__ void await_sums() const { hopper::barrier_wait(shared_address(&sums_known), 0); }
};

// Which element of its row sum `i` of a lane of the first sixteen is: products leave a warp sixteen elements of both halves,
// multiply-adds 32 that lie together.
__device__ __forceinline__ int element_of(int share, int lane, int i) {
    if (sizeof(scalar_t) > 2) return share % HALVES * ELEMENTS + lane * 4 + i;
    return (share % HALVES * 2 + lane / 8) * STEP + lane % 8 + i / 2 * ELEMENTS + i % 2 * 8;
}

// How what has been seen of two parts of a head becomes results: known before their sums are.
struct Factors {
    float of_beginning, of_end, inverse;

    __device__ __forceinline__ Factors(const Seen& beginning, const Seen& end) {
        const float largest = fmaxf(beginning.largest, end.largest);
        of_beginning = factor(beginning.largest, largest);
        of_end = factor(end.largest, largest);
        const float total = fmaf(of_beginning, beginning.total, of_end * end.total);
        inverse = total > 0.0f ? fast_reciprocal(total) : 0.0f;
    }
    // Of a share of a head's rows.
    __device__ __forceinline__ void store(const Seen& beginning, const Seen& end, scalar_t* rows, int share) const {
        const int lane = threadIdx.x % WARP;
        if (lane >= 16) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float result = fmaf(of_beginning, beginning.sums[i], of_end * end.sums[i]) * inverse;
            rows[share / HALVES * DIM + element_of(share, lane, i)] = from_float<scalar_t>(result);
        }
    }
};

// Of a share that this block merges: half of a warp sums up what it finds of half of the groups.
template <int ROWS>
struct Collected {
    static constexpr int MOST_SOURCES = GROUPS * shares::MOST_PARTS / 2;
    const Inbox<ROWS>& inbox;
    const int sources, first;
    float2 headers[MOST_SOURCES];
    Seen seen = nothing();

    __device__ __forceinline__ Collected(const Inbox<ROWS>& inbox, const Parts<ROWS>& parts, int own)
        : inbox(inbox), sources(parts.walkers() / 2), first(parts.seen(own, threadIdx.x % WARP / 16 * sources)) {
        inbox.await_headers();
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            headers[i] = i < sources ? inbox.headers[first + i] : make_float2(Maximum::identity(), 0.0f);
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
    __device__ __forceinline__ void await_sums() {
        inbox.await_sums();
#pragma unroll
        for (int i = 0; i < MOST_SOURCES; ++i) {
            if (i >= sources) continue;
            const float4 sums = inbox.sums[first + i][threadIdx.x % 16];
            seen.sums[0] = fmaf(headers[i].x, sums.x, seen.sums[0]);
            seen.sums[1] = fmaf(headers[i].x, sums.y, seen.sums[1]);
            seen.sums[2] = fmaf(headers[i].x, sums.z, seen.sums[2]);
            seen.sums[3] = fmaf(headers[i].x, sums.w, seen.sums[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) seen.sums[i] += __shfl_xor_sync(ALL_LANES, seen.sums[i], 16);
    }
};

// Takes what is lent, if it comes before the last sums of the team or little later.
template <int ROWS>
__device__ __forceinline__ bool take_in_time(const Meeting& meeting, const Inbox<ROWS>& last, Seen& beginning) {
    constexpr int PATIENCE = 8;
#pragma unroll 1
    for (int late = 0; late < PATIENCE; late += last.knows_sums()) {
        if (meeting.at.beginning.take(beginning)) return true;
    }
    return false;
}

// Merges this part's shares of a piece. `last` is the inbox of the team's last one.
template <int ROWS, Sharing SHARING>
__device__ __forceinline__ void merge(const Inbox<ROWS>& inbox, const Inbox<ROWS>& last, const Parts<ROWS>& parts,
                                      scalar_t* rows, int shares, const Course<SHARING>& course, int kind, int merger) {
    // Warps that copy have no time for pieces that are over early.
    const int first = kind == LENT ? merger - GROUPS : kind == REST ? MERGERS - 1 - merger : merger;
    if (first < 0) return;
#pragma unroll 1
    for (int own = first; own < parts.count(shares); own += kind == LENT ? MERGERS - GROUPS : MERGERS) {
        const int share = parts.first_share(parts.own) + own;
        const Meeting meeting(kind == LENT ? course.team : course.team - 1, share);
        Seen beginning = nothing();
        const bool in_time = SHARING == LENDING && kind == REST && take_in_time(meeting, last, beginning);
        Collected<ROWS> end(inbox, parts, own);
        if (SHARING == GATHERING) {
            const Gathering gathering(course.head, share, int(gridDim.x) >> parts.bits);
            end.await_sums();
            if (!gathering.leave(course.team, end.seen)) continue;
            gathering.merge([&](int lane, int i, float a, float b) {
                rows[share / HALVES * DIM + element_of(share, lane, i)] = from_float<scalar_t>(a);
                rows[share / HALVES * DIM + element_of(share, lane, i + 1)] = from_float<scalar_t>(b);
            });
            continue;
        }
        Factors factors(beginning, end.seen);
        end.await_sums();
        if (SHARING == LENDING && kind != WHOLE && !in_time) {
            const unsigned before = meeting.leave(kind == LENT ? LENDER : TOO_EARLY, end.seen);
            if (before != (kind == LENT ? TOO_EARLY : LENDER)) continue;
            meeting.finish(beginning, end.seen);
            factors = Factors(beginning, end.seen);
        }
        factors.store(beginning, end.seen, rows, share);
        if (in_time) meeting.arrive_in_time();
    }
}

}  // namespace groups
