// What the warp groups of all parts of a head have seen, merged once: as in attention_split_shares.cuh, a quarter of it.
//
// A share is 64 elements of a row: sixteen of both of its halves, of two warps of a group. Of a head that two teams have
// walked, the team with its end takes what the other one has left in global memory.
#pragma once
#include "attention_split_groups_teams.cuh"
#include "attention_split_shares.cuh"

namespace groups {

constexpr int GROUPS = 2;   // of a block, that walk
constexpr int MERGERS = 4;  // warps of a block that merge; as many as groups copy as well
constexpr int DIM = 128;
constexpr int ELEMENTS = 64;  // of half a row, and of a share
constexpr int HALVES = DIM / ELEMENTS;
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

// What has been seen of a share: four of its sums a lane, both halves of a warp the same.
struct Seen {
    float largest;  // score, in units of log 2
    float total;    // of weights
    float sums[4];
};

__device__ __forceinline__ Seen nothing() { return {Maximum::identity(), 0.0f, {}}; }

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
        const int lane = threadIdx.x % WARP, first = (share % HALVES * 2 + lane / 8) * STEP + lane % 8;
        if (lane >= 16) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float result = fmaf(of_beginning, beginning.sums[i], of_end * end.sums[i]) * inverse;
            rows[share / HALVES * DIM + first + i / 2 * ELEMENTS + i % 2 * 8] = from_float<scalar_t>(result);
        }
    }
};

// Where two teams meet about a share of a head that both have a part of. Neither waits for the other one for good: the team
// with the end merges if what is lent comes in time, else it leaves what it has seen too, and who comes second merges.
//
// Numbers each say that they are there, so that they need no fence, which takes longer than the way there. Who takes them
// leaves none.
constexpr int MOST_TEAMS = 64;
constexpr int MOST_SHARES = 16;
constexpr int NUMBERS = ELEMENTS + 2;  // sums, largest score, sum of weights
enum Arrival : unsigned { NOBODY, LENDER, TOO_EARLY, IN_TIME, ARRIVALS };

struct Met {
    unsigned long long numbers[2][NUMBERS];  // of the beginning, of the end
    unsigned arrivals;
};
__device__ Met met[MOST_TEAMS * MOST_SHARES];

struct Meeting {
    Met& at;

    __device__ __forceinline__ Meeting(int lender, int share) : at(met[lender * MOST_SHARES + share]) {}

    // Lanes have four sums each; two more have the header.
    static __device__ __forceinline__ int place(int i) {
        const int lane = threadIdx.x % WARP;
        return lane < 16 ? lane + i * 16 : ELEMENTS + lane % 2;
    }
    static __device__ __forceinline__ bool has(int i) {
        const int lane = threadIdx.x % WARP;
        return lane < 16 || lane < 18 && i == 0;
    }
    __device__ __forceinline__ void leave(bool end, const Seen& seen) const {
        const float header = threadIdx.x % 2 == 0 ? seen.largest : seen.total;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (has(i)) put_number(&at.numbers[end][place(i)], threadIdx.x % WARP < 16 ? seen.sums[i] : header);
        }
    }
    // Whether all numbers are there; if so, takes them.
    __device__ __forceinline__ bool take(bool end, Seen& seen) const {
        float values[4];
        bool are_there = true;
#pragma unroll
        for (int i = 0; i < 4; ++i) are_there &= !has(i) || number_at(&at.numbers[end][place(i)], values[i]);
        if (!__all_sync(ALL_LANES, are_there)) return false;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (has(i)) put_no_number(&at.numbers[end][place(i)]);
            seen.sums[i] = __shfl_sync(ALL_LANES, values[i], threadIdx.x % 16);
        }
        seen.largest = __shfl_sync(ALL_LANES, values[0], 16);
        seen.total = __shfl_sync(ALL_LANES, values[0], 17);
        return true;
    }
    // Says who is here, and returns who was before.
    __device__ __forceinline__ unsigned arrive(Arrival who) const {
        unsigned before = NOBODY;
        __syncwarp();
        if (threadIdx.x % WARP == 0) before = count(&at.arrivals, who) % ARRIVALS;
        __syncwarp();
        return __shfl_sync(ALL_LANES, before, 0);
    }
    // With the lender that is nobody, whoever says so first.
    __device__ __forceinline__ void arrive_in_time() const {
        if (threadIdx.x % WARP == 0) count_relaxed(&at.arrivals, IN_TIME);
    }
    // Takes both, by who came second, and leaves nobody.
    __device__ __forceinline__ void finish(Seen& beginning, Seen& end) const {
        take(false, beginning);
        take(true, end);
        if (threadIdx.x % WARP == 0) at.arrivals = NOBODY;
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
        if (meeting.take(false, beginning)) return true;
    }
    return false;
}

// Merges this part's shares of a piece. `last` is the inbox of the team's last one.
template <int ROWS, bool LENDS>
__device__ __forceinline__ void merge(const Inbox<ROWS>& inbox, const Inbox<ROWS>& last, const Parts<ROWS>& parts,
                                      scalar_t* rows, int shares, const Course<LENDS>& course, int kind, int merger) {
    // Warps that copy have no time for pieces that are over early.
    const int first = kind == LENT ? merger - GROUPS : kind == REST ? MERGERS - 1 - merger : merger;
    if (first < 0) return;
#pragma unroll 1
    for (int own = first; own < parts.count(shares); own += kind == LENT ? MERGERS - GROUPS : MERGERS) {
        const int share = parts.first_share(parts.own) + own;
        const Meeting meeting(kind == LENT ? course.team : course.team - 1, share);
        Seen beginning = nothing();
        const bool in_time = LENDS && kind == REST && take_in_time(meeting, last, beginning);
        Collected<ROWS> end(inbox, parts, own);
        Factors factors(beginning, end.seen);
        end.await_sums();
        if (LENDS && kind != WHOLE && !in_time) {
            meeting.leave(kind == REST, end.seen);
            if (meeting.arrive(kind == LENT ? LENDER : TOO_EARLY) != (kind == LENT ? TOO_EARLY : LENDER)) continue;
            meeting.finish(beginning, end.seen);
            factors = Factors(beginning, end.seen);
        }
        factors.store(beginning, end.seen, rows, share);
        if (in_time) meeting.arrive_in_time();
    }
}

}  // namespace groups
