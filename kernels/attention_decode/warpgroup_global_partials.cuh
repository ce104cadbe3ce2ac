// Partials of CTA groups that share a head, that travel through global memory, a share each.
#pragma once
#include "warpgroup_scheduler.cuh"
#include "cluster_reduce.cuh"
#include "cluster.cuh"

namespace warpgroup {

constexpr int DIM = 128;
constexpr int ELEMENTS = 64;  // of half a row, and of a share
constexpr int HALVES = DIM / ELEMENTS;
constexpr int MOST_SHARES = 16;

// Lanes whose numbers differ in `bit` share values out: each keeps half of them, of both. One value both keep.
template <int COUNT, int SIZE>
__device__ __forceinline__ void butterfly_reduce(float (&values)[SIZE], int bit) {
    const bool second = threadIdx.x & bit;
    if (COUNT == 1) values[0] += __shfl_xor_sync(ALL_LANES, values[0], bit);
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
        const float batch_scores = second ? values[i + COUNT / 2] : values[i], given = second ? values[i] : values[i + COUNT / 2];
        values[i] = batch_scores + __shfl_xor_sync(ALL_LANES, given, bit);
    }
}

// The partial of a share: four of its sums a lane, both halves of a warp the same.
struct RowPartial {
    float largest;  // score, in units of log 2
    float total;    // of weights
    float sums[4];
};

__device__ __forceinline__ RowPartial empty_partial() { return {Maximum::identity(), 0.0f, {}}; }

// A partial of a share whose numbers each carry a flag that they are there.
struct FlaggedPartial {
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
    __device__ __forceinline__ void put(const RowPartial& seen) {
        const float header = threadIdx.x % 2 == 0 ? seen.largest : seen.total;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (has(i)) store_flagged(&of[place(i)], threadIdx.x % WARP < 16 ? seen.sums[i] : header);
        }
    }
    // Whether all of this lane's are there.
    __device__ __forceinline__ bool issue(float (&values)[4]) const {
        bool are_there = true;
#pragma unroll
        for (int i = 0; i < 4; ++i) are_there &= !has(i) || load_flagged(&of[place(i)], values[i]);
        return are_there;
    }
    static __device__ __forceinline__ RowPartial seen_in(const float (&values)[4]) {
        RowPartial seen;
#pragma unroll
        for (int i = 0; i < 4; ++i) seen.sums[i] = __shfl_sync(ALL_LANES, values[i], threadIdx.x % 16);
        seen.largest = __shfl_sync(ALL_LANES, values[0], 16);
        seen.total = __shfl_sync(ALL_LANES, values[0], 17);
        return seen;
    }
    // Whether all numbers are there; if so, takes them, and leaves none.
    __device__ __forceinline__ bool load_queries(RowPartial& seen) {
        float values[4];
        if (!__all_sync(ALL_LANES, issue(values))) return false;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (has(i)) clear_flagged(&of[place(i)]);
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

// Stream-K: two CTA groups have a part of the same head. Neither waits for good: the one with the end reduces if the partial of
// the start arrives in time, else it publishes its partial too, and the last arriver reduces. What arrives in time needs no
// fence, which takes longer than the transfer.
constexpr int MOST_CTA_GROUPS = 64;
enum Arrival : unsigned { NOBODY, START_ARRIVED, END_ARRIVED, END_REDUCED, ARRIVALS };

struct StreamKSlot {
    FlaggedPartial beginning, end;
    unsigned arrivals;
};
__device__ StreamKSlot received[MOST_CTA_GROUPS * MOST_SHARES];

struct StreamKPartials {
    StreamKSlot& at;

    __device__ __forceinline__ StreamKPartials(int first_cta_group, int share) : at(received[first_cta_group * MOST_SHARES + share]) {}

    // Publishes a partial, and returns who arrived before.
    __device__ __forceinline__ unsigned publish(Arrival who, const RowPartial& seen) const {
        (who == START_ARRIVED ? at.beginning : at.end).put(seen);
        return counted([&]() { return count(&at.arrivals, who) % ARRIVALS; });
    }
    // Together with the start's arrival this counts back to NOBODY.
    __device__ __forceinline__ void mark_reduced() const {
        if (threadIdx.x % WARP == 0) red_add_relaxed(&at.arrivals, END_REDUCED);
    }
    // The last arriver takes both partials and clears the slot.
    __device__ __forceinline__ void finish(RowPartial& beginning, RowPartial& end) const {
        at.beginning.load_queries(beginning);
        at.end.load_queries(end);
        if (threadIdx.x % WARP == 0) at.arrivals = NOBODY;
    }
};

// Split-KV: several CTA groups have a part of the same head, and the last arriver reduces. Each instruction of that is paid in
// full, by a warp that all wait for: four lanes read the partial of a CTA group, of all CTA groups at once.
constexpr int MOST_SPLITS = 8;     // CTA groups of a head
constexpr int MOST_SPLIT_HEADS = 32;  // heads
static_assert(MOST_SPLITS * 4 == WARP && ELEMENTS == 64, "sixteen sums a lane");

struct SplitPartial {
    float4 sums[ELEMENTS / 4];
    float2 header;  // largest score, sum of weights
};
struct SplitKvSlot {
    SplitPartial of[MOST_SPLITS];
    unsigned arrivals;
};
__device__ SplitKvSlot split_kv_slots[MOST_SPLIT_HEADS * MOST_SHARES];

struct SplitKvPartials {
    SplitKvSlot& at;
    const int cta_groups;

    __device__ __forceinline__ SplitKvPartials(int head, int share, int cta_groups)
        : at(split_kv_slots[head * MOST_SHARES + share]), cta_groups(cta_groups) {}

    // Publishes the partial of a CTA group, and returns whether it arrived last.
    __device__ __forceinline__ bool publish(int cta_group, const RowPartial& seen) const {
        const int lane = threadIdx.x % WARP;
        const float(&sums)[4] = seen.sums;
        if (lane < ELEMENTS / 4) at.of[cta_group].sums[lane] = make_float4(sums[0], sums[1], sums[2], sums[3]);
        if (lane == ELEMENTS / 4) at.of[cta_group].header = make_float2(seen.largest, seen.total);
        return counted([&]() { return atomic_inc_wrap(&at.arrivals, cta_groups - 1); }) + 1 == cta_groups;
    }
    // The results of the share, by the last arriver: `put` gets two neighbours, and where they are.
    template <class Put>
    __device__ __forceinline__ void reduce(const Put& put) const {
        const int lane = threadIdx.x % WARP, cta_group = lane / 4, part = lane % 4;
        float sums[16] = {};
        float2 header = make_float2(Maximum::identity(), 0.0f);
        if (cta_group < cta_groups) {
            const SplitPartial& left = at.of[cta_group];
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
        butterfly_reduce<16>(sums, 4);
        butterfly_reduce<8>(sums, 8);
        butterfly_reduce<4>(sums, 16);
        put(part * 4 + lane / 4 % 2 * 2 + lane / 8 % 2, lane / 16 * 2, sums[0] * inverse, sums[1] * inverse);
    }
};

}  // namespace warpgroup
