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

// Lanes whose numbers differ in `bit` share values out: each keeps half of them, of both. One value both keep.
template <int COUNT, int SIZE>
__device__ __forceinline__ void share_out(float (&values)[SIZE], int bit) {
    const bool second = threadIdx.x & bit;
    if (COUNT == 1) values[0] += __shfl_xor_sync(ALL_LANES, values[0], bit);
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
        const float kept = second ? values[i + COUNT / 2] : values[i], given = second ? values[i] : values[i + COUNT / 2];
        values[i] = kept + __shfl_xor_sync(ALL_LANES, given, bit);
    }
}

// What has been seen of a share: four of its sums a lane, both halves of a warp the same.
struct Seen {
    float largest;  // score, in units of log 2
    float total;    // of weights
    float sums[4];
};

__device__ __forceinline__ Seen nothing() { return {Maximum::identity(), 0.0f, {}}; }

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

// Where all teams of a head meet: who comes last merges. Each instruction of that is paid in full, by a warp that all wait for:
// four lanes read what a team has left, of all teams at once, and lanes add up what they have of the same.
constexpr int MOST_GATHERED = 8;     // teams of a head
constexpr int MOST_GATHERINGS = 32;  // heads
static_assert(MOST_GATHERED * 4 == WARP && ELEMENTS == 64, "sixteen sums a lane");

struct Left {
    float4 sums[ELEMENTS / 4];
    float2 header;  // largest score, sum of weights
};
struct Gathered {
    Left of[MOST_GATHERED];
    unsigned arrivals;
};
__device__ Gathered gathered[MOST_GATHERINGS * MOST_SHARES];

struct Gathering {
    Gathered& at;
    const int teams;

    __device__ __forceinline__ Gathering(int head, int share, int teams)
        : at(gathered[head * MOST_SHARES + share]), teams(teams) {}

    // Leaves what a team has seen, and returns whether it came last.
    __device__ __forceinline__ bool leave(int team, const Seen& seen) const {
        const int lane = threadIdx.x % WARP;
        const float(&sums)[4] = seen.sums;
        if (lane < ELEMENTS / 4) at.of[team].sums[lane] = make_float4(sums[0], sums[1], sums[2], sums[3]);
        if (lane == ELEMENTS / 4) at.of[team].header = make_float2(seen.largest, seen.total);
        return counted([&]() { return count_around(&at.arrivals, teams - 1); }) + 1 == teams;
    }
    // The results of the share, by who came last: `put` is told two neighbours, and where they are.
    template <class Put>
    __device__ __forceinline__ void merge(const Put& put) const {
        const int lane = threadIdx.x % WARP, team = lane / 4, part = lane % 4;
        float sums[16] = {};
        float2 header = make_float2(Maximum::identity(), 0.0f);
        if (team < teams) {
            const Left& left = at.of[team];
            header = __ldcg(&left.header);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 four = __ldcg(&left.sums[part * 4 + i]);
                sums[i * 4] = four.x, sums[i * 4 + 1] = four.y, sums[i * 4 + 2] = four.z, sums[i * 4 + 3] = four.w;
            }
        }
        float largest = header.x;
#pragma unroll
        for (int bit = 4; bit < WARP; bit *= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, bit));
        const float share = factor(header.x, largest);
        float total = share * header.y;
#pragma unroll
        for (int bit = 4; bit < WARP; bit *= 2) total += __shfl_xor_sync(ALL_LANES, total, bit);
        const float inverse = total > 0.0f ? fast_reciprocal(total) : 0.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) sums[i] *= share;
        share_out<16>(sums, 4);
        share_out<8>(sums, 8);
        share_out<4>(sums, 16);
        put(part * 4 + lane / 4 % 2 * 2 + lane / 8 % 2, lane / 16 * 2, sums[0] * inverse, sums[1] * inverse);
    }
};

}  // namespace groups
