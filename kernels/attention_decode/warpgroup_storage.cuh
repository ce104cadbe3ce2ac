// Shared storage and pipelines of the warpgroup kernels, whatever multiplies, and the part of a consumer that both have.
#pragma once
#include "warpgroup_reduce.cuh"
#include "warpgroup_scheduler.cuh"

namespace warpgroup {

using hopper::elect_one;

constexpr int THREADS = GROUPS * hopper::WARPGROUP_THREADS + REDUCERS * WARP;
constexpr int MOST_STAGES = 5;  // of a group
constexpr int COLUMNS = 8;      // rows that numbers are kept of, or none
constexpr int BLOCK_BYTES = KEYS * DIM * int(sizeof(scalar_t));
constexpr int BOX_BYTES = KEYS * hopper::ROW_BYTES;  // as many elements of a row as 128 bytes hold, of all keys

// Rows of the products, and the schedule.
template <int ROWS_, Schedule SHARING_>
struct Shape {
    static constexpr int ROWS = ROWS_;
    static constexpr Schedule SCHEDULE = SHARING_;
};

// Queries and weights, as the consumers multiply them.
template <class Of>
struct Operands;

template <class Of>
struct SharedStorage {
    static constexpr int TILES = TileScheduler<Of::SCHEDULE>::TILES;

    alignas(1024) unsigned char kv_blocks[GROUPS][MOST_STAGES][BLOCK_BYTES];
    Operands<Of> operands;
    ReduceBuffer<Of::ROWS> reduce_buffers[TILES];
    float2 largest[GROUPS][TILES][hopper::WARPGROUP_WARPS][COLUMNS / 2];  // scores
    float2 totals[GROUPS][TILES][hopper::WARPGROUP_WARPS][COLUMNS / 2];   // of weights
    unsigned long long full[GROUPS][MOST_STAGES];
    unsigned long long free[GROUPS][MOST_STAGES];
};

// The pipeline state of a role.
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

// Copies a KV block, by a map of heads, boxes, keys, elements; nobody reads it again.
__device__ __forceinline__ void load_kv_block(unsigned to, const hopper::TensorMap& map, int key, int head,
                                           unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(0), "r"(key), "r"(head), "r"(barrier), "l"(hopper::EVICT_FIRST)
        : "memory");
}

// Groups of other blocks come between those of a block: who has a KV block more is in another block.
template <class Parts>
__device__ __forceinline__ int consumer_of(const Parts& parts, int group) {
    return group << parts.bits | parts.own;
}
template <class Parts>
__device__ __forceinline__ Stride consumers_of(const Parts& parts) {
    return {parts.bits + 1};
}

// A consumer thread, whatever multiplies.
template <class Of>
struct ConsumerBase {
    SharedStorage<Of>& storage;
    const DecodeShape& s;
    const Parts<Of::ROWS>& parts;
    const int group, warp, lane;
    const float scale;  // of scores, in units of log 2
    const int seen_by_all;
    int kind;  // of the work tile
    Stage stage;

    __device__ __forceinline__ ConsumerBase(SharedStorage<Of>& storage, const DecodeShape& s, const Parts<Of::ROWS>& parts, int stages,
                                      int warp)
        : storage(storage), s(s), parts(parts), group(warp / hopper::WARPGROUP_WARPS), warp(warp % hopper::WARPGROUP_WARPS),
          lane(threadIdx.x % WARP), scale(s.scale * LOG2_E), seen_by_all(s.seen_by(0)), stage(stages) {}

    __device__ __forceinline__ void sync_group() const { hopper::named_barrier_sync(1 + group, hopper::WARPGROUP_THREADS); }
    __device__ __forceinline__ unsigned wait_full() const {
        hopper::mbarrier_wait(shared_address(&storage.full[group][stage.stage]), stage.parity);
        return shared_address(storage.kv_blocks[group][stage.stage]);
    }
    __device__ __forceinline__ void release() {
        if (lane == 0) hopper::mbarrier_arrive(shared_address(&storage.free[group][stage.stage]));
        stage.next();
    }

    // The reduce buffer of who reduces a share, and where this group's place is among those of the share.
    struct There {
        unsigned reduce_buffer;
        int seen;
    };
    __device__ __forceinline__ There there(int share) const {
        const int reducer = parts.reducer(share);
        const int seen = parts.seen(share - parts.first_share(reducer), parts.own * GROUPS + group);
        return {mapa_shared(shared_address(&storage.reduce_buffers[kind]), hopper::cluster_rank() - parts.own + reducer), seen};
    }
    __device__ __forceinline__ unsigned offset_of(const void* member) const {
        return shared_address(member) - shared_address(&storage.reduce_buffers[0]);
    }
    // Largest scores and sums of weights: a share a lane of the first warp.
    __device__ __forceinline__ void send_header() const {
        if (warp == 0 && lane < s.rows * HALVES) {
            const int row = lane / HALVES;
            float total = 0.0f, largest = Maximum::identity();
#pragma unroll
            for (int i = 0; i < hopper::WARPGROUP_WARPS; ++i) {
                total += reinterpret_cast<const float*>(storage.totals[group][kind][i])[row];
                largest = fmaxf(largest, reinterpret_cast<const float*>(storage.largest[group][kind][i])[row]);
            }
            const There to = there(lane);
            st_async_2(to.reduce_buffer + offset_of(&storage.reduce_buffers[0].headers[to.seen]), to.reduce_buffer + offset_of(&storage.reduce_buffers[0].headers_known),
                     largest * scale, total);
        }
        __syncwarp();
    }
    // No KV blocks of the work tile.
    __device__ __forceinline__ void send_empty_header() const {
        if (lane < COLUMNS / 2) {
            storage.largest[group][kind][warp][lane] = make_float2(Maximum::identity(), Maximum::identity());
            storage.totals[group][kind][warp][lane] = make_float2(0.0f, 0.0f);
        }
        sync_group();
        send_header();
    }
};

}  // namespace warpgroup
