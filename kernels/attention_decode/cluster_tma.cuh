// Decode attention by clusters: the blocks of a cluster share the keys of a head, and nothing but y is written.
//
// Each of eight warps has a pipeline of one to three stages of sixteen keys and values, and copies for itself. Keys and values
// have mbarriers of their own: the next keys are requested as soon as the scores are known, and when the last values arrive, only
// their products are left. A warp's partial then takes the place of its keys and values.
//
// At the end a warp reduces 64 elements of a row over the warps of its block and sends them to the block that reduces the splits
// of these elements (st.async). No block reads from another.
#pragma once
#include "cluster.cuh"
#include "hopper.cuh"
#include "warp_mma_swap_ab.cuh"

namespace cluster_tma {

using hopper::elect_one;
using hopper::tma_load_evict_first;

constexpr int MOST_PARTS = 8;
constexpr int KEYS = 16;      // of a step
constexpr int ELEMENTS = 64;  // of a row, that a warp reduces: four a lane, in both halves of the warp
constexpr int WARPS = 8;
constexpr int STEP = WARPS * KEYS;  // from a step of a warp to its next one

// The keys and values of a step, or what the warp has accumulated of all its steps, with a gap of four as in `WarpPartials`.
template <int DIM, int ROWS>
struct alignas(1024) Slot {
    unsigned char bytes[2 * KEYS * DIM * sizeof(scalar_t)];

    __device__ __forceinline__ scalar_t* keys() { return reinterpret_cast<scalar_t*>(bytes); }
    __device__ __forceinline__ scalar_t* values() { return keys() + KEYS * DIM; }
    __device__ __forceinline__ float (&operator[](int row))[DIM + 4] {
        return reinterpret_cast<float(*)[DIM + 4]>(bytes)[row];
    }
};

// The partial of a block of 64 elements of a row: largest score and sum of weights, and the weighted sum.
struct PartialPacket {
    uint4 header;
    uint4 out[ELEMENTS / 4];
};

template <int DIM, int ROWS, int STAGES>
struct SharedStorage {
    static constexpr int SHARES = ROWS * (DIM / ELEMENTS);

    Slot<DIM, ROWS> slots[STAGES][WARPS];
    PartialPacket received[SHARES][MOST_PARTS];
    scalar_t queries[WARPS][ROWS * DIM];
    alignas(16) float max[ROWS][WARPS];
    alignas(16) float total[ROWS][WARPS];
    unsigned long long keys_full[WARPS][STAGES];
    unsigned long long values_full[WARPS][STAGES];
    unsigned long long all_received[SHARES];
};

// An array of rows of warps, by warps.
template <int ROWS, int WARPS>
struct ByWarp {
    struct OfWarp {
        float* first;
        __device__ __forceinline__ float& operator[](int row) const { return first[row * WARPS]; }
    };
    float (&of)[ROWS][WARPS];
    __device__ __forceinline__ OfWarp operator[](int warp) const { return {&of[0][warp]}; }
};

__device__ __forceinline__ void add_halves(Partial<4>& partial) {
#pragma unroll
    for (int i = 0; i < 4; ++i) partial.out[i] += __shfl_xor_sync(ALL_LANES, partial.out[i], 16);
}

// Four elements a lane of the partials of the warps of the block: half of the warp adds up what four of them have.
template <typename SharedStorage>
__device__ __forceinline__ Partial<4> reduce_warps(SharedStorage& storage, int row, int four) {
    const int first = int(threadIdx.x) % WARP / 16 * 4;
    const float4 max = *reinterpret_cast<const float4*>(&storage.max[row][first]);
    const float4 total = *reinterpret_cast<const float4*>(&storage.total[row][first]);
    const float of_max[4] = {max.x, max.y, max.z, max.w}, of_total[4] = {total.x, total.y, total.z, total.w};
    float4 of_out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        of_out[i] = *reinterpret_cast<const float4*>(&storage.slots[0][first + i][row][four * 4]);
    }
    Partial<4> partial;
    partial.raise_max(4, [&](int i) { return of_max[i]; });
    partial.max = fmaxf(partial.max, __shfl_xor_sync(ALL_LANES, partial.max, 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) partial.add(of_max[i], of_total[i], &of_out[i].x);
    partial.total += __shfl_xor_sync(ALL_LANES, partial.total, 16);
    add_halves(partial);
    return partial;
}

// The same of the parts of a head. Every lane reads all of them: shuffles would come one after the other.
__device__ __forceinline__ Partial<4> reduce_splits(const PartialPacket (&received)[MOST_PARTS], int parts) {
    float2 headers[MOST_PARTS];
#pragma unroll
    for (int i = 0; i < MOST_PARTS; ++i) {
        headers[i] = make_float2(Maximum::identity(), 0.0f);
        if (i < parts) headers[i] = *reinterpret_cast<const float2*>(&received[i].header);
    }
    Partial<4> partial;
    partial.raise_max(MOST_PARTS, [&](int i) { return headers[i].x; });
#pragma unroll
    for (int i = 0; i < MOST_PARTS; ++i) {
        if (i >= parts) continue;
        const float4 out = *reinterpret_cast<const float4*>(&received[i].out[threadIdx.x % 16]);
        partial.add(headers[i].x, headers[i].y, &out.x);
    }
    return partial;
}

template <int DIM, int ROWS, int STAGES>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const DecodeShape& s, int share) {
    using Mma = WarpMmaSwapAB<DIM>;
    constexpr int HALVES = DIM / ELEMENTS, BOX = SwizzledRows::BOX, BYTES = KEYS * DIM * int(sizeof(scalar_t));
    constexpr int SHARES = SharedStorage<DIM, ROWS, STAGES>::SHARES;
    extern __shared__ __align__(1024) unsigned char memory[];
    SharedStorage<DIM, ROWS, STAGES>& storage = *reinterpret_cast<SharedStorage<DIM, ROWS, STAGES>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    const int part = blockIdx.x, parts = gridDim.x, head = blockIdx.y;
    const int shares = s.rows * HALVES, end = min(s.keys, (part + 1) * share);
    int at = part * share + warp * KEYS;
    const auto reducer_of = [&](int i) { return i * parts / SHARES; };  // no division: `SHARES` is a power of two

    const unsigned keys_full = shared_address(&storage.keys_full[warp][0]);
    const unsigned values_full = shared_address(&storage.values_full[warp][0]);
    const auto copy = [&](scalar_t* to, const hopper::TensorMap& from, unsigned full, int key, int more = 0) {
        hopper::mbarrier_expect_tx(full, BYTES + more);
#pragma unroll
        for (int box = 0; box < HALVES; ++box) {
            tma_load_evict_first(shared_address(to + box * BOX), from, box * ELEMENTS, key, head, full);
        }
    };
    const auto copy_keys = [&](int stage, int key, int more = 0) {
        copy(storage.slots[stage][warp].keys(), k, keys_full + 8 * stage, key, more);
    };
    const auto copy_values = [&](int stage, int key) {
        copy(storage.slots[stage][warp].values(), v, values_full + 8 * stage, key);
    };
    // The first copies come before all else: what is fetched later, code too, waits behind them.
    if (elect_one()) {
#pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            hopper::mbarrier_init(keys_full + 8 * i, 1);
            hopper::mbarrier_init(values_full + 8 * i, 1);
        }
        if (warp == 0) {
#pragma unroll
            for (int i = 0; i < SHARES; ++i) hopper::mbarrier_init(shared_address(&storage.all_received[i]), 1);
        }
        hopper::mbarrier_init_fence();
    }
    __syncwarp();
    if (elect_one() && at < end) {
        const int of_queries = s.rows * s.dim * int(sizeof(scalar_t));
        copy_keys(0, at, of_queries);
        hopper::bulk_load(shared_address(storage.queries[warp]), q + head * s.rows * s.dim, of_queries, keys_full);
        copy_values(0, at);
    }
#pragma unroll
    for (int i = 1; i < STAGES; ++i) {
        if (elect_one() && at + i * STEP < end) {
            copy_keys(i, at + i * STEP);
            copy_values(i, at + i * STEP);
        }
    }
    if (parts > 1) {
        if (warp == 0 && lane < shares && reducer_of(lane) == part) {
            hopper::mbarrier_expect_tx(shared_address(&storage.all_received[lane]), parts * int(sizeof(PartialPacket)));
        }
        __syncwarp();
        cluster_arrive_relaxed();  // a release would wait for the copies
        cluster_wait();            // the first data take longer
    }

    Mma mma(s);
    hopper::PipelineState<STAGES> place;
    bool begins = true;
#pragma unroll 1
    for (; at < end; at += STEP) {
        const int stage = place.stage, next = at + STAGES * STEP;
        float scores[4];
        hopper::mbarrier_wait(keys_full + 8 * stage, place.parity);
        if (begins) mma.load_queries(storage.queries[warp]);
        begins = false;
        mma.score(scores, storage.slots[stage][warp].keys());
        __syncwarp();
        if (elect_one() && next < end) copy_keys(stage, next);
        mma.exponentiate(scores, at);
        const uint2 weights = mma.transposed(scores);
        hopper::mbarrier_wait(values_full + 8 * stage, place.parity);
        mma.add_values(weights, storage.slots[stage][warp].values());
        __syncwarp();
        if (elect_one() && next < end) copy_values(stage, next);
        place.next();
    }
    using ByWarps = ByWarp<ROWS, WARPS>;
    mma.template put<ROWS>(ByWarps{storage.max}[warp], ByWarps{storage.total}[warp], storage.slots[0][warp]);
    __syncthreads();

#pragma unroll 1
    for (int i = warp; i < shares; i += WARPS) {
        const int row = i / HALVES, four = i % HALVES * 16 + lane % 16;
        Partial<4> partial = reduce_warps(storage, row, Mma::place(row, four));
        if (parts > 1) {
            const unsigned all_received = shared_address(&storage.all_received[i]);
            const float(&x)[4] = partial.out;
            const bool is_header = lane == 16;
            if (lane <= 16) {
                const uint4 packet =
                    is_header ? make_uint4(__float_as_uint(partial.max), __float_as_uint(partial.total), 0, 0)
                              : make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                           __float_as_uint(x[3]));
                uint4* const to = is_header ? &storage.received[i][part].header : &storage.received[i][part].out[lane];
                st_async_packet(shared_address(to), all_received, reducer_of(i), packet);
            }
            if (reducer_of(i) != part) continue;
            hopper::mbarrier_wait(all_received, 0);
            partial = reduce_splits(storage.received[i], parts);
        }
        if (lane < 16 && four * 4 < s.dim) {
            const float inverse = partial.total > 0.0f ? fast_reciprocal(partial.total) : 0.0f;
            const float(&x)[4] = partial.out;
            const float low[2] = {x[0] * inverse, x[1] * inverse}, high[2] = {x[2] * inverse, x[3] * inverse};
            scalar_t* const to = y + (head * s.rows + row) * s.dim + four * 4;
            *reinterpret_cast<uint2*>(to) = make_uint2(pack_detail::pack_word(low), pack_detail::pack_word(high));
        }
    }
}

}  // namespace cluster_tma
