// What the warp groups of attention_split_groups.cuh share, whatever multiplies: shared memory, rings, and what a thread that
// walks knows of its group and of who merges.
#pragma once
#include "attention_split_groups_merge.cuh"
#include "attention_split_groups_teams.cuh"

namespace groups {

using hopper::elected;

constexpr int THREADS = GROUPS * hopper::GROUP_THREADS + MERGERS * WARP;
constexpr int MOST_STAGES = 5;  // of a group
constexpr int COLUMNS = 8;      // rows that numbers are kept of, or none
constexpr int ROUND_BYTES = KEYS * DIM * int(sizeof(scalar_t));
constexpr int BOX_BYTES = KEYS * hopper::ROW_BYTES;  // as many elements of a row as 128 bytes hold, of all keys

// Rows of the products, and what teams share.
template <int ROWS_, Sharing SHARING_>
struct Shape {
    static constexpr int ROWS = ROWS_;
    static constexpr Sharing SHARING = SHARING_;
};

// Queries and weights, as those that walk multiply them.
template <class Of>
struct Operands;

template <class Of>
struct Room {
    static constexpr int PIECES = Course<Of::SHARING>::PIECES;

    alignas(1024) unsigned char rounds[GROUPS][MOST_STAGES][ROUND_BYTES];
    Operands<Of> operands;
    Inbox<Of::ROWS> inboxes[PIECES];
    float2 largest[GROUPS][PIECES][hopper::GROUP_WARPS][COLUMNS / 2];  // scores
    float2 totals[GROUPS][PIECES][hopper::GROUP_WARPS][COLUMNS / 2];   // of weights
    unsigned long long full[GROUPS][MOST_STAGES];
    unsigned long long free[GROUPS][MOST_STAGES];
};

// Where a role stands in a ring.
struct Stage {
    int stages;
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ explicit Stage(int stages) : stages(stages) {}
    __device__ __forceinline__ void next() {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1;
    }
};

// Copies a round, by a map of heads, boxes, keys, elements; nobody reads it again.
__device__ __forceinline__ void load_round(unsigned to, const hopper::TensorMap& map, int key, int head,
                                           unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(0), "r"(key), "r"(head), "r"(barrier), "l"(hopper::EVICT_FIRST)
        : "memory");
}

// Groups of other blocks come between those of a block: who has a round more is in another block.
template <class Parts>
__device__ __forceinline__ int walker_of(const Parts& parts, int group) {
    return group << parts.bits | parts.own;
}
template <class Parts>
__device__ __forceinline__ Stride walkers_of(const Parts& parts) {
    return {parts.bits + 1};
}

// What a thread that walks has, whatever multiplies.
template <class Of>
struct Member {
    Room<Of>& room;
    const FewQueries& s;
    const Parts<Of::ROWS>& parts;
    const int group, warp, lane;
    const float scale;  // of scores, in units of log 2
    const int seen_by_all;
    int kind;  // of the piece
    Stage stage;

    __device__ __forceinline__ Member(Room<Of>& room, const FewQueries& s, const Parts<Of::ROWS>& parts, int stages,
                                      int warp)
        : room(room), s(s), parts(parts), group(warp / hopper::GROUP_WARPS), warp(warp % hopper::GROUP_WARPS),
          lane(threadIdx.x % WARP), scale(s.scale * LOG2_E), seen_by_all(s.seen_by(0)), stage(stages) {}

    __device__ __forceinline__ void meet() const { hopper::named_sync(1 + group, hopper::GROUP_THREADS); }
    __device__ __forceinline__ unsigned await() const {
        hopper::barrier_wait(shared_address(&room.full[group][stage.stage]), stage.parity);
        return shared_address(room.rounds[group][stage.stage]);
    }
    __device__ __forceinline__ void release() {
        if (lane == 0) hopper::barrier_arrive(shared_address(&room.free[group][stage.stage]));
        stage.next();
    }

    // The inbox of who merges a share, and where this group's place is among those of the share.
    struct There {
        unsigned inbox;
        int seen;
    };
    __device__ __forceinline__ There there(int share) const {
        const int merger = parts.merger(share);
        const int seen = parts.seen(share - parts.first_share(merger), parts.own * GROUPS + group);
        return {rank_address(shared_address(&room.inboxes[kind]), hopper::cluster_rank() - parts.own + merger), seen};
    }
    __device__ __forceinline__ unsigned offset_of(const void* member) const {
        return shared_address(member) - shared_address(&room.inboxes[0]);
    }
    // Largest scores and sums of weights: a share a lane of the first warp.
    __device__ __forceinline__ void tell() const {
        if (warp == 0 && lane < s.rows * HALVES) {
            const int row = lane / HALVES;
            float total = 0.0f, largest = Maximum::identity();
#pragma unroll
            for (int i = 0; i < hopper::GROUP_WARPS; ++i) {
                total += reinterpret_cast<const float*>(room.totals[group][kind][i])[row];
                largest = fmaxf(largest, reinterpret_cast<const float*>(room.largest[group][kind][i])[row]);
            }
            const There to = there(lane);
            send_two(to.inbox + offset_of(&room.inboxes[0].headers[to.seen]), to.inbox + offset_of(&room.inboxes[0].headers_known),
                     largest * scale, total);
        }
        __syncwarp();
    }
    // No rounds of the piece.
    __device__ __forceinline__ void tell_nothing() const {
        if (lane < COLUMNS / 2) {
            room.largest[group][kind][warp][lane] = make_float2(Maximum::identity(), Maximum::identity());
            room.totals[group][kind][warp][lane] = make_float2(0.0f, 0.0f);
        }
        meet();
        tell();
    }
};

}  // namespace groups
