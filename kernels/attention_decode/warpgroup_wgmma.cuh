// Consumer warpgroups in half width: wgmma over 64 keys, or their values, where these lie in shared memory. Queries and weights are
// B, eight columns of them.
#pragma once
#include "warpgroup_storage.cuh"

namespace warpgroup {

constexpr int COLUMN_BYTES = hopper::PATTERN_BYTES;  // 64 elements, or keys, of all rows

template <class Of>
struct Operands {
    alignas(1024) unsigned char queries[GROUPS][TileScheduler<Of::SCHEDULE>::TILES][HALVES][COLUMN_BYTES];
    alignas(1024) unsigned char weights[GROUPS][BATCH_BLOCKS][COLUMN_BYTES];
};

// Eight half-width elements of a row of 128 bytes, in the 128-byte swizzle.
__device__ __forceinline__ unsigned place(int row, int unit) { return row * hopper::ROW_BYTES + (unit ^ row) * 16; }

// An offset within the same tile, in the units of a descriptor.
__device__ __forceinline__ constexpr unsigned in_descriptor(unsigned bytes) { return bytes >> 4; }

template <class Of>
struct Consumer : ConsumerBase<Of> {
    using Base = ConsumerBase<Of>;
    using Base::wait_full, Base::group, Base::kind, Base::lane, Base::sync_group, Base::release, Base::storage, Base::s, Base::scale, Base::warp;
    static constexpr int ROWS = 2;    // of a lane: lane % 4 * 2 (+ 1)
    static constexpr int SCORES = 4;  // of a KV block: of a key, in both rows, then of the one eight further

    int seen[2];            // keys that these rows see, less this lane's first key of a KV block
    float max[2];           // score of these rows
    float offset[2];        // of the weights' exponents
    float total[2];         // of these rows' weights
    float sums[HALVES][4];  // of elements 64 half + 16 warp + lane / 4 of these rows, and eight further
    unsigned sums_there[2], known_there[2];  // where these sums go, and what counts them

    __device__ __forceinline__ Consumer(SharedStorage<Of>& storage, const DecodeShape& s, const Parts<Of::ROWS>& parts, int stages,
                                      int warp)
        : Base(storage, s, parts, stages, warp) {
#pragma unroll
        for (int j = 0; j < 2; ++j) seen[j] = s.seen_by(lane % 4 * 2 + j) - (this->warp * STEP + lane / 4);
    }
    // What these threads have stored is there for products.
    __device__ __forceinline__ void publish_shared() const {
        hopper::fence_proxy_async();
        sync_group();
    }

    // Queries as B of the scores, zeros where there is none; eight elements a thread.
    __device__ __forceinline__ void load_queries(const scalar_t* q, const TileScheduler<Of::SCHEDULE>& scheduler) const {
        const int row = warp * 2 + lane / 16, unit = lane % 16;
        uint4 elements[SharedStorage<Of>::TILES];
#pragma unroll
        for (int i = 0; i < SharedStorage<Of>::TILES; ++i) {
            const WorkTile tile = scheduler.tile(i);
            elements[i] = make_uint4(0, 0, 0, 0);
            if (row >= s.rows || tile.kv_blocks == 0) continue;
            elements[i] = *reinterpret_cast<const uint4*>(q + (tile.head * s.rows + row) * DIM + unit * 8);
        }
#pragma unroll
        for (int i = 0; i < SharedStorage<Of>::TILES; ++i) {
            *reinterpret_cast<uint4*>(&storage.operands.queries[group][i][unit / 8][place(row, unit % 8)]) = elements[i];
        }
    }

    __device__ __forceinline__ void score(float (&scores)[4]) {
        const unsigned long long keys = hopper::descriptor(wait_full(), 0);
        const unsigned long long queries = hopper::descriptor(shared_address(storage.operands.queries[group][kind]), 0);
        hopper::wgmma_fence();
#pragma unroll
        for (int i = 0; i < DIM / STEP; ++i) {
            const int half = i / 4, at = i % 4 * STEP * int(sizeof(scalar_t));
            hopper::Wgmma<8, 0>::add(scores, keys + in_descriptor(half * BOX_BYTES + at),
                                       queries + in_descriptor(half * COLUMN_BYTES + at), i > 0);
        }
        hopper::wgmma_commit();
        hopper::wgmma_wait<0>();
        hopper::fence_operand(scores);
        release();
    }
    // Leaves out what is not seen of a KV block that begins with key `at`.
    __device__ __forceinline__ void mask(float (&scores)[4], int at) const {
        if (at + KEYS <= this->seen_by_all) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (at + i / 2 * 8 >= seen[i % 2]) scores[i] = Maximum::identity();
        }
    }

    // From here on weights are taken against the largest scores of the group.
    __device__ __forceinline__ void raise_max(float (&largest)[2]) {
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) largest[j] = fmaxf(largest[j], __shfl_xor_sync(ALL_LANES, largest[j], step));
        }
        if (lane < 4) storage.largest[group][kind][warp][lane] = make_float2(largest[0], largest[1]);
        sync_group();
#pragma unroll
        for (int i = 0; i < hopper::WARPGROUP_WARPS; ++i) {
            const float2 of = storage.largest[group][kind][i][lane % 4];
            largest[0] = fmaxf(largest[0], of.x);
            largest[1] = fmaxf(largest[1], of.y);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            offset[j] = largest[j] == Maximum::identity() ? 0.0f : largest[j] * scale;
            const float correction = fast_exp2(fmaf(max[j], scale, -offset[j]));
            max[j] = largest[j];
            total[j] *= correction;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                sums[half][j] *= correction;
                sums[half][j + 2] *= correction;
            }
        }
    }

    // Turns scores into weights, B of their values' products.
    __device__ __forceinline__ void exponentiate(int kv_block, const float (&scores)[4]) {
        float weights[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[i] = fast_exp2(fmaf(scores[i], scale, -offset[i % 2]));
            total[i % 2] += weights[i];
        }
        const unsigned to = shared_address(storage.operands.weights[group][kv_block]) + place(lane % 8, warp * 2 + lane / 8 % 2);
        hopper::store_matrices_transposed(to, pack_detail::pack_word(&weights[0]), pack_detail::pack_word(&weights[2]));
    }
    __device__ __forceinline__ void add_values(int kv_block) {
        const unsigned long long values = hopper::descriptor(wait_full(), 0);
        const unsigned long long weights = hopper::descriptor(shared_address(storage.operands.weights[group][kv_block]), 0);
        hopper::wgmma_fence();
#pragma unroll
        for (int i = 0; i < KEYS / STEP; ++i) {
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                const unsigned at = half * BOX_BYTES + i * STEP * hopper::ROW_BYTES;
                hopper::Wgmma<8, 0, 1>::add(sums[half], values + in_descriptor(at),
                                              weights + in_descriptor(i * STEP * int(sizeof(scalar_t))), 1);
            }
        }
        hopper::wgmma_commit();
        hopper::wgmma_wait<0>();
#pragma unroll
        for (int half = 0; half < HALVES; ++half) hopper::fence_operand(sums[half]);
        release();
    }

    // Leaves this warp's sums of weights to the one that sends the group's.
    __device__ __forceinline__ void reduce_weight_sums() {
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) total[j] += __shfl_xor_sync(ALL_LANES, total[j], step);
        }
        if (lane < 4) storage.totals[group][kind][warp][lane] = make_float2(total[0], total[1]);
    }

    // A work tile begins. Where its sums will go is computed before there are any.
    __device__ __forceinline__ void begin(int tile) {
        kind = tile;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            max[j] = Maximum::identity();
            offset[j] = total[j] = 0.0f;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) sums[half][j] = sums[half][j + 2] = 0.0f;
            const auto to = this->there(min(lane % 4 * 2 + j, Of::ROWS - 1) * HALVES + warp / 2);
            sums_there[j] = to.reduce_buffer + this->offset_of(&storage.reduce_buffers[0].sums[to.seen][warp % 2 * 8 + lane / 4]);
            known_there[j] = to.reduce_buffer + this->offset_of(&storage.reduce_buffers[0].sums_known);
        }
    }
    __device__ __forceinline__ void send() const {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (lane % 4 * 2 + j >= s.rows) continue;
            st_async_4(sums_there[j], known_there[j], sums[0][j], sums[0][j + 2], sums[1][j], sums[1][j + 2]);
        }
    }
};


}  // namespace warpgroup
