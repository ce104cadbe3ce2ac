// How teams that have walked the same head meet: by what they leave in global memory, of a share each.
#pragma once
#include "attention_split_groups_teams.cuh"
#include "attention_split_shares.cuh"
#include "blocks.cuh"

namespace groups {

constexpr int DIM = 128;
constexpr int ELEMENTS = 64;  // of half a row, and of a share
constexpr int HALVES = DIM / ELEMENTS;
constexpr int MOST_SHARES = 16;

// What has been seen of a share: four of its sums a lane, both halves of a warp the same.
struct Seen {
    float largest;  // score, in units of log 2
    float total;    // of weights
    float sums[4];
};

__device__ __forceinline__ Seen nothing() { return {Maximum::identity(), 0.0f, {}}; }

// The same of two parts of a head as one.
__device__ __forceinline__ Seen together(const Seen& a, const Seen& b) {
    Seen both;
    both.largest = fmaxf(a.largest, b.largest);
    const float of_a = factor(a.largest, both.largest), of_b = factor(b.largest, both.largest);
    both.total = fmaf(of_a, a.total, of_b * b.total);
#pragma unroll
    for (int i = 0; i < 4; ++i) both.sums[i] = fmaf(of_a, a.sums[i], of_b * b.sums[i]);
    return both;
}

// What a team leaves of a share: numbers that each say that they are there.
struct Numbers {
    unsigned long long of[ELEMENTS + 2];  // sums, largest score, sum of weights

    // Lanes have four sums each; two more have the header.
    static __device__ __forceinline__ int place(int i) {
        const int lane = threadIdx.x % WARP;
        return lane < 16 ? lane + i * 16 : ELEMENTS + lane % 2;
    }
    static __device__ __forceinline__ bool has(int i) {
        const int lane = threadIdx.x % WARP;
        return lane < 16 || lane < 18 && i == 0;
    }
    __device__ __forceinline__ void put(const Seen& seen) {
        const float header = threadIdx.x % 2 == 0 ? seen.largest : seen.total;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (has(i)) put_number(&of[place(i)], threadIdx.x % WARP < 16 ? seen.sums[i] : header);
        }
    }
    // Whether all of this lane's are there.
    __device__ __forceinline__ bool ask(float (&values)[4]) const {
        bool are_there = true;
#pragma unroll
        for (int i = 0; i < 4; ++i) are_there &= !has(i) || number_at(&of[place(i)], values[i]);
        return are_there;
    }
    static __device__ __forceinline__ Seen seen_in(const float (&values)[4]) {
        Seen seen;
#pragma unroll
        for (int i = 0; i < 4; ++i) seen.sums[i] = __shfl_sync(ALL_LANES, values[i], threadIdx.x % 16);
        seen.largest = __shfl_sync(ALL_LANES, values[0], 16);
        seen.total = __shfl_sync(ALL_LANES, values[0], 17);
        return seen;
    }
    // Whether all numbers are there; if so, takes them, and leaves none.
    __device__ __forceinline__ bool take(Seen& seen) {
        float values[4];
        if (!__all_sync(ALL_LANES, ask(values))) return false;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (has(i)) put_no_number(&of[place(i)]);
        }
        seen = seen_in(values);
        return true;
    }
};

// Of a warp that has written, or is to see what others have: `count`, by one lane.
template <class Count>
__device__ __forceinline__ unsigned counted(const Count& count) {
    __syncwarp();
    const unsigned before = threadIdx.x % WARP == 0 ? count() : 0;
    __syncwarp();
    return __shfl_sync(ALL_LANES, before, 0);
}

// Where two teams meet about the head that both have a part of. Neither waits for the other one for good: the team with the
// end merges if what is lent comes in time, else it leaves what it has seen too, and who comes second merges. What comes in
// time needs no fence, which takes longer than the way there.
constexpr int MOST_TEAMS = 64;
enum Arrival : unsigned { NOBODY, LENDER, TOO_EARLY, IN_TIME, ARRIVALS };

struct Met {
    Numbers beginning, end;
    unsigned arrivals;
};
__device__ Met met[MOST_TEAMS * MOST_SHARES];

struct Meeting {
    Met& at;

    __device__ __forceinline__ Meeting(int lender, int share) : at(met[lender * MOST_SHARES + share]) {}

    // Leaves what has been seen, and returns who was here before.
    __device__ __forceinline__ unsigned leave(Arrival who, const Seen& seen) const {
        (who == LENDER ? at.beginning : at.end).put(seen);
        return counted([&]() { return count(&at.arrivals, who) % ARRIVALS; });
    }
    // With the lender that is nobody, whoever says so first.
    __device__ __forceinline__ void arrive_in_time() const {
        if (threadIdx.x % WARP == 0) count_relaxed(&at.arrivals, IN_TIME);
    }
    // Takes both, by who came second, and leaves nobody.
    __device__ __forceinline__ void finish(Seen& beginning, Seen& end) const {
        at.beginning.take(beginning);
        at.end.take(end);
        if (threadIdx.x % WARP == 0) at.arrivals = NOBODY;
    }
};

// Where all teams of a head meet: who comes last merges, in the order of the head's keys. Where the team with the
// last keys has more of them, it looks whether all others have been here: then it has nothing to leave, which takes longer than
// to read.
constexpr int MOST_GATHERED = 16;   // teams of a head
constexpr int MOST_GATHERINGS = 8;  // heads

struct Gathered {
    Numbers of[MOST_GATHERED];
    unsigned arrivals;
};
__device__ Gathered gathered[MOST_GATHERINGS * MOST_SHARES];

struct Gathering {
    Gathered& at;
    const int teams;

    __device__ __forceinline__ Gathering(int head, int share, int teams)
        : at(gathered[head * MOST_SHARES + share]), teams(teams) {}

    // Whether all but one have been here.
    __device__ __forceinline__ bool lacks_one() const { return count_of(&at.arrivals) + 1 == teams; }
    // What the first teams have seen, and nobody has been here.
    __device__ __forceinline__ Seen take(int of_first) const {
        constexpr int AT_ONCE = 8;
        Seen seen = nothing();
#pragma unroll 1
        for (int first = 0; first < of_first; first += AT_ONCE) {
            float values[AT_ONCE][4];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (first + i < of_first) at.of[first + i].ask(values[i]);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (first + i < of_first) seen = together(seen, Numbers::seen_in(values[i]));
            }
        }
        if (threadIdx.x % WARP == 0) count_anew(&at.arrivals);
        return seen;
    }
    // Leaves what a team has seen, and returns whether it came last.
    __device__ __forceinline__ bool leave(int team, const Seen& seen) const {
        at.of[team].put(seen);
        return counted([&]() { return count(&at.arrivals, 1); }) + 1 == teams;
    }
};

}  // namespace groups
