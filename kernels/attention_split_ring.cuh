// Attention of few queries by clusters, as in attention_split_cluster.cuh, with eight warps a block whatever its share:
// a warp has one to three stages of sixteen keys and values, and half a warp merges what four of them have seen.
#pragma once
#include "attention_split_cluster.cuh"
#include "attention_split_turned.cuh"

namespace in_ring {

using hopper::elected;
using hopper::load_box_once;
using in_cluster::ELEMENTS;
using in_cluster::KEYS;
using in_cluster::MOST_PARTS;
using in_cluster::Packets;

constexpr int WARPS = 8;
constexpr int STEP = WARPS * KEYS;  // from a step of a warp to its next one

template <int DIM, int ROWS, int STAGES>
struct Room {
    static constexpr int SHARES = ROWS * (DIM / ELEMENTS);

    in_cluster::Slot<DIM, ROWS> slots[STAGES][WARPS];
    Packets met[SHARES][MOST_PARTS];
    scalar_t queries[WARPS][ROWS * DIM];
    alignas(16) float max[ROWS][WARPS];
    alignas(16) float total[ROWS][WARPS];
    unsigned long long keys_full[WARPS][STAGES];
    unsigned long long values_full[WARPS][STAGES];
    unsigned long long all_met[SHARES];
};

// Four elements a lane of what the warps of the block have seen: half of the warp adds up what four of them have.
template <typename Room>
__device__ __forceinline__ Merged<4> merge_warps(Room& room, int row, int four) {
    const int first = int(threadIdx.x) % WARP / 16 * 4;
    const float4 max = *reinterpret_cast<const float4*>(&room.max[row][first]);
    const float4 total = *reinterpret_cast<const float4*>(&room.total[row][first]);
    const float of_max[4] = {max.x, max.y, max.z, max.w}, of_total[4] = {total.x, total.y, total.z, total.w};
    float4 of_out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        of_out[i] = *reinterpret_cast<const float4*>(&room.slots[0][first + i][row][four * 4]);
    }
    Merged<4> merged;
    merged.raise(4, [&](int i) { return of_max[i]; });
    merged.max = fmaxf(merged.max, __shfl_xor_sync(ALL_LANES, merged.max, 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) merged.add(of_max[i], of_total[i], &of_out[i].x);
    merged.total += __shfl_xor_sync(ALL_LANES, merged.total, 16);
    in_cluster::add_halves(merged);
    return merged;
}

// The same of the parts of a head. Every lane reads all of them: shuffles would come one after the other.
__device__ __forceinline__ Merged<4> merge_parts(const Packets (&met)[MOST_PARTS], int parts) {
    float2 headers[MOST_PARTS];
#pragma unroll
    for (int i = 0; i < MOST_PARTS; ++i) {
        headers[i] = make_float2(Maximum::identity(), 0.0f);
        if (i < parts) headers[i] = *reinterpret_cast<const float2*>(&met[i].header);
    }
    Merged<4> merged;
    merged.raise(MOST_PARTS, [&](int i) { return headers[i].x; });
#pragma unroll
    for (int i = 0; i < MOST_PARTS; ++i) {
        if (i >= parts) continue;
        const float4 out = *reinterpret_cast<const float4*>(&met[i].out[threadIdx.x % 16]);
        merged.add(headers[i].x, headers[i].y, &out.x);
    }
    return merged;
}

template <int DIM, int ROWS, int STAGES>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const FewQueries& s, int share) {
    using Walk = TurnedWalk<DIM>;
    constexpr int HALVES = DIM / ELEMENTS, BOX = SwizzledRows::BOX, BYTES = KEYS * DIM * int(sizeof(scalar_t));
    constexpr int SHARES = Room<DIM, ROWS, STAGES>::SHARES;
    extern __shared__ __align__(1024) unsigned char memory[];
    Room<DIM, ROWS, STAGES>& room = *reinterpret_cast<Room<DIM, ROWS, STAGES>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    const int part = blockIdx.x, parts = gridDim.x, head = blockIdx.y;
    const int shares = s.rows * HALVES, end = min(s.keys, (part + 1) * share);
    int at = part * share + warp * KEYS;
    const auto merger_of = [&](int i) { return i * parts / SHARES; };  // no division: `SHARES` is a power of two

    const unsigned keys_full = shared_address(&room.keys_full[warp][0]);
    const unsigned values_full = shared_address(&room.values_full[warp][0]);
    const auto copy = [&](scalar_t* to, const hopper::TensorMap& from, unsigned full, int key, int more = 0) {
        hopper::barrier_expect(full, BYTES + more);
#pragma unroll
        for (int box = 0; box < HALVES; ++box) {
            load_box_once(shared_address(to + box * BOX), from, box * ELEMENTS, key, head, full);
        }
    };
    const auto copy_keys = [&](int stage, int key, int more = 0) {
        copy(room.slots[stage][warp].keys(), k, keys_full + 8 * stage, key, more);
    };
    const auto copy_values = [&](int stage, int key) {
        copy(room.slots[stage][warp].values(), v, values_full + 8 * stage, key);
    };
    // The first copies come before all else: what is fetched later, code too, waits behind them.
    if (elected()) {
#pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            hopper::barrier_init(keys_full + 8 * i, 1);
            hopper::barrier_init(values_full + 8 * i, 1);
        }
        if (warp == 0) {
#pragma unroll
            for (int i = 0; i < SHARES; ++i) hopper::barrier_init(shared_address(&room.all_met[i]), 1);
        }
        hopper::barrier_init_fence();
    }
    __syncwarp();
    if (elected() && at < end) {
        const int of_queries = s.rows * s.dim * int(sizeof(scalar_t));
        copy_keys(0, at, of_queries);
        hopper::load_bytes(shared_address(room.queries[warp]), q + head * s.rows * s.dim, of_queries, keys_full);
        copy_values(0, at);
    }
#pragma unroll
    for (int i = 1; i < STAGES; ++i) {
        if (elected() && at + i * STEP < end) {
            copy_keys(i, at + i * STEP);
            copy_values(i, at + i * STEP);
        }
    }
    if (parts > 1) {
        if (warp == 0 && lane < shares && merger_of(lane) == part) {
            hopper::barrier_expect(shared_address(&room.all_met[lane]), parts * int(sizeof(Packets)));
        }
        __syncwarp();
        cluster_arrive_relaxed();  // a release would wait for the copies
        cluster_wait();            // the first data take longer
    }

    Walk walk(s);
    hopper::Place<STAGES> place;
    bool begins = true;
#pragma unroll 1
    for (; at < end; at += STEP) {
        const int stage = place.stage, next = at + STAGES * STEP;
        float scores[4];
        hopper::barrier_wait(keys_full + 8 * stage, place.parity);
        if (begins) walk.take(room.queries[warp]);
        begins = false;
        walk.score(scores, room.slots[stage][warp].keys());
        __syncwarp();
        if (elected() && next < end) copy_keys(stage, next);
        walk.weigh(scores, at);
        const uint2 weights = walk.turned(scores);
        hopper::barrier_wait(values_full + 8 * stage, place.parity);
        walk.add_values(weights, room.slots[stage][warp].values());
        __syncwarp();
        if (elected() && next < end) copy_values(stage, next);
        place.next();
    }
    using ByWarps = in_cluster::Turned<ROWS, WARPS>;
    walk.template put<ROWS>(ByWarps{room.max}[warp], ByWarps{room.total}[warp], room.slots[0][warp]);
    __syncthreads();

#pragma unroll 1
    for (int i = warp; i < shares; i += WARPS) {
        const int row = i / HALVES, four = i % HALVES * 16 + lane % 16;
        Merged<4> merged = merge_warps(room, row, Walk::place(row, four));
        if (parts > 1) {
            const unsigned all_met = shared_address(&room.all_met[i]);
            const float(&x)[4] = merged.out;
            const bool is_header = lane == 16;
            if (lane <= 16) {
                const uint4 packet =
                    is_header ? make_uint4(__float_as_uint(merged.max), __float_as_uint(merged.total), 0, 0)
                              : make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                           __float_as_uint(x[3]));
                uint4* const to = is_header ? &room.met[i][part].header : &room.met[i][part].out[lane];
                send_packet(shared_address(to), all_met, merger_of(i), packet);
            }
            if (merger_of(i) != part) continue;
            hopper::barrier_wait(all_met, 0);
            merged = merge_parts(room.met[i], parts);
        }
        if (lane < 16 && four * 4 < s.dim) {
            const float inverse = merged.total > 0.0f ? fast_reciprocal(merged.total) : 0.0f;
            const float(&x)[4] = merged.out;
            const float low[2] = {x[0] * inverse, x[1] * inverse}, high[2] = {x[2] * inverse, x[3] * inverse};
            scalar_t* const to = y + (head * s.rows + row) * s.dim + four * 4;
            *reinterpret_cast<uint2*>(to) = make_uint2(pack_detail::pack_word(low), pack_detail::pack_word(high));
        }
    }
}

}  // namespace in_ring
