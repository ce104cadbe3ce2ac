// Consumer warpgroups in f32: multiply-adds of 32 keys, then of their values, out of boxes of 32 elements in the 128-byte
// swizzle.
//
// Keys: a warp has eight of a KV block, and eight of its lanes split one: lanes lane / 4 the elements, lanes lane % 4 the keys, two
// of them each, so that a load of queries serves two. Values: a warp has a box, eight lanes four elements each of all, and lanes
// lane / 8 every fourth key. The sums of the same elements are added last, each lane its own part.
#pragma once
#include "warpgroup_storage.cuh"

namespace warpgroup {

constexpr int BOXES = hopper::WARPGROUP_WARPS;  // of a KV block
constexpr int OF_WARP = 8;                  // keys
static_assert(BOXES * 32 == DIM, "a warp has a box of values");

template <class Of>
struct Operands {
    // Four elements, of those of lanes 0, 4 and so on, then their next four: what lanes load together lies together.
    float4 queries[GROUPS][TileScheduler<Of::SCHEDULE>::TILES][Of::ROWS][DIM / 4];
    float weights[GROUPS][BATCH_BLOCKS][KEYS][Of::ROWS];
};

__device__ __forceinline__ float4 load_shared(unsigned address) {
    float4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

template <class Of>
struct Consumer : ConsumerBase<Of> {
    using Base = ConsumerBase<Of>;
    using Base::wait_full, Base::group, Base::kind, Base::lane, Base::sync_group, Base::release, Base::storage, Base::s, Base::scale, Base::warp;
    static constexpr int ALL_ROWS = Of::ROWS;
    static constexpr int ROWS = ALL_ROWS > 4 ? 2 : 1;  // of a lane, in the end
    static constexpr int SCORES = ROWS;                // of a KV block: of key warp * 8 + lane % 8

    static constexpr bool HOLDS = ALL_ROWS <= 4;  // queries in registers

    const bool counts;   // of one row, eight lanes; the others have the same
    float4 held[HOLDS ? ALL_ROWS : 1][4];
    int seen[ROWS];      // keys that these rows see, less this lane's key of a KV block
    float max[ROWS];     // score of these rows
    float offset[ROWS];  // of the weights' exponents
    float total[ROWS];   // of these rows' weights
    float max_of[ALL_ROWS];
    float sums[ALL_ROWS * 4];                      // of a row after the other, of elements 32 warp + 4 (lane % 8)
    unsigned sums_there[ROWS], known_there[ROWS];  // where those of this lane's rows go, and what counts them

    __device__ __forceinline__ Consumer(SharedStorage<Of>& storage, const DecodeShape& s, const Parts<Of::ROWS>& parts, int stages,
                                      int warp)
        : Base(storage, s, parts, stages, warp), counts(ALL_ROWS > 1 || lane < OF_WARP) {
#pragma unroll
        for (int j = 0; j < ROWS; ++j) seen[j] = s.seen_by(row(j)) - (this->warp * OF_WARP + lane % OF_WARP);
    }
    __device__ __forceinline__ int row(int j) const { return ALL_ROWS > 1 ? lane / OF_WARP * ROWS + j : 0; }
    // What these threads have stored is there for the others of the group.
    __device__ __forceinline__ void publish_shared() const { sync_group(); }

    // Queries, zeros where there is none.
    __device__ __forceinline__ void load_queries(const scalar_t* q, const TileScheduler<Of::SCHEDULE>& scheduler) const {
        constexpr int UNITS = DIM / 4;
#pragma unroll
        for (int i = 0; i < SharedStorage<Of>::TILES; ++i) {
            const WorkTile tile = scheduler.tile(i);
#pragma unroll
            for (int at = warp * WARP + lane; at < ALL_ROWS * UNITS; at += hopper::WARPGROUP_THREADS) {
                const int row = at / UNITS, unit = at % UNITS;
                float4 elements = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (row < s.rows && tile.kv_blocks > 0) {
                    elements = *reinterpret_cast<const float4*>(q + (tile.head * s.rows + row) * DIM + unit * 4);
                }
                storage.operands.queries[group][i][row][unit % 4 * 8 + unit / 4] = elements;
            }
        }
    }

    __device__ __forceinline__ void score(float (&scores)[SCORES]) {
        const int box = lane / 8, half = lane / 4 % 2, key = lane % 4;
        const unsigned keys = wait_full() + box * BOX_BYTES + (warp * OF_WARP + key) * hopper::ROW_BYTES;
        float products[2 * ALL_ROWS] = {};  // of all rows with the first key, then with the one four further
#pragma unroll
        for (int unit = 0; unit < 4; ++unit) {
            const unsigned at = keys + (half * 4 + (unit ^ key)) * 16;
            const float4 first = load_shared(at), second = load_shared((at ^ 64) + 4 * hopper::ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ALL_ROWS; ++r) {
                const float4 query = HOLDS ? held[HOLDS ? r : 0][unit] : load_query(r, unit);
                products[r] = dot(query, first, products[r]);
                products[ALL_ROWS + r] = dot(query, second, products[ALL_ROWS + r]);
            }
        }
        hopper::fence_operand(products);
        __syncwarp();
        release();
        butterfly_reduce<2 * ALL_ROWS>(products, 4);
        butterfly_reduce<ALL_ROWS>(products, 16);
        butterfly_reduce<(ALL_ROWS > 1 ? ALL_ROWS / 2 : 1)>(products, 8);
#pragma unroll
        for (int j = 0; j < SCORES; ++j) scores[j] = products[j];
    }
    // This lane's elements of a row: a half of a box, four of it.
    __device__ __forceinline__ float4 load_query(int row, int unit) const {
        return load_shared(shared_address(&storage.operands.queries[group][kind][row][unit * 8 + lane / 4]));
    }
    static __device__ __forceinline__ float dot(const float4& a, const float4& b, float sum) {
        return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }
    // Leaves out what is not seen of a KV block that begins with key `at`.
    __device__ __forceinline__ void mask(float (&scores)[SCORES], int at) const {
        if (at + KEYS <= this->seen_by_all) return;
#pragma unroll
        for (int j = 0; j < SCORES; ++j) {
            if (at >= seen[j]) scores[j] = Maximum::identity();
        }
    }

    // From here on weights are taken against the largest scores of the group.
    __device__ __forceinline__ void raise_max(float (&largest)[ROWS]) {
#pragma unroll
        for (int step = 1; step < OF_WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) largest[j] = fmaxf(largest[j], __shfl_xor_sync(ALL_LANES, largest[j], step));
        }
        const auto of_warp = [&](int i) { return reinterpret_cast<float*>(storage.largest[group][kind][i]); };
        if (lane % OF_WARP == 0 && counts) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) of_warp(warp)[row(j)] = largest[j];
        }
        sync_group();
#pragma unroll
        for (int r = 0; r < ALL_ROWS; ++r) {
            float raised = max_of[r];
#pragma unroll
            for (int i = 0; i < hopper::WARPGROUP_WARPS; ++i) raised = fmaxf(raised, of_warp(i)[r]);
            const float of_weights = raised == Maximum::identity() ? 0.0f : raised * scale;
            const float correction = fast_exp2(fmaf(max_of[r], scale, -of_weights));
            max_of[r] = raised;
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[r * 4 + e] *= correction;
#pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                if (r != row(j)) continue;
                max[j] = raised;
                offset[j] = of_weights;
                total[j] *= correction;
            }
        }
    }

    __device__ __forceinline__ void exponentiate(int kv_block, const float (&scores)[SCORES]) {
        float* const to = &storage.operands.weights[group][kv_block][warp * OF_WARP + lane % OF_WARP][row(0)];
#pragma unroll
        for (int j = 0; j < SCORES; ++j) {
            const float weight = fast_exp2(fmaf(scores[j], scale, -offset[j]));
            total[j] += weight;
            if (counts) to[j] = weight;
        }
    }
    __device__ __forceinline__ void add_values(int kv_block) {
        const int first = lane / 8, unit = lane % 8;
        const float(&weights)[KEYS][ALL_ROWS] = storage.operands.weights[group][kv_block];
        const unsigned values = wait_full() + warp * BOX_BYTES + first * hopper::ROW_BYTES + (unit ^ first) * 16;
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) {
            const float4 value = load_shared((values ^ i % 2 * 64) + i * 4 * hopper::ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ALL_ROWS; ++r) {
                const float weight = weights[i * 4 + first][r];
                sums[r * 4] = fmaf(weight, value.x, sums[r * 4]);
                sums[r * 4 + 1] = fmaf(weight, value.y, sums[r * 4 + 1]);
                sums[r * 4 + 2] = fmaf(weight, value.z, sums[r * 4 + 2]);
                sums[r * 4 + 3] = fmaf(weight, value.w, sums[r * 4 + 3]);
            }
        }
        hopper::fence_operand(sums);
        __syncwarp();
        release();
    }

    // Leaves this warp's sums of weights to the one that sends the group's.
    __device__ __forceinline__ void reduce_weight_sums() {
#pragma unroll
        for (int step = 1; step < OF_WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) total[j] += __shfl_xor_sync(ALL_LANES, total[j], step);
        }
        if (lane % OF_WARP != 0 || !counts) return;
#pragma unroll
        for (int j = 0; j < ROWS; ++j) reinterpret_cast<float*>(storage.totals[group][kind][warp])[row(j)] = total[j];
    }

    // A work tile begins. Where its sums will go is computed before there are any.
    __device__ __forceinline__ void begin(int tile) {
        kind = tile;
#pragma unroll
        for (int r = 0; HOLDS && r < ALL_ROWS; ++r) {
#pragma unroll
            for (int unit = 0; unit < 4; ++unit) held[r][unit] = load_query(r, unit);
        }
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            max[j] = Maximum::identity();
            offset[j] = total[j] = 0.0f;
            const auto to = this->there(row(j) * HALVES + warp / 2);
            sums_there[j] = to.reduce_buffer + this->offset_of(&storage.reduce_buffers[0].sums[to.seen][warp % 2 * 8 + lane % 8]);
            known_there[j] = to.reduce_buffer + this->offset_of(&storage.reduce_buffers[0].sums_known);
        }
#pragma unroll
        for (int r = 0; r < ALL_ROWS; ++r) {
            max_of[r] = Maximum::identity();
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[r * 4 + e] = 0.0f;
        }
    }
    __device__ __forceinline__ void send() {
        if (ALL_ROWS > 1) {
            butterfly_reduce<ALL_ROWS * 4>(sums, 16);
            butterfly_reduce<ALL_ROWS * 2>(sums, 8);
        } else {
#pragma unroll
            for (int bit = 16; bit >= 8; bit /= 2) {
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[e] += __shfl_xor_sync(ALL_LANES, sums[e], bit);
            }
        }
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            if (!counts || row(j) >= s.rows) continue;
            st_async_4(sums_there[j], known_there[j], sums[j * 4], sums[j * 4 + 1], sums[j * 4 + 2], sums[j * 4 + 3]);
        }
    }
};

}  // namespace warpgroup
