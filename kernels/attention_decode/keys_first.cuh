// Decode attention by clusters of 64 blocks in all, with keys ahead of their values.
//
// A consumer warp has two stages of a KV block (keys or values), and copies for itself. Of a batch of four KV blocks all keys
// come first: when values come, the largest score is known, and when the last ones come, everything but their products. These are
// counted by halves of their elements, so that one half is sent to its reducer while the other is awaited.
//
// Other warps of the block only reduce (cluster_reduce.cuh).
#pragma once
#include "warp_mma_ldmatrix.cuh"
#include "cluster_tma.cuh"
#include "cluster_reduce.cuh"

namespace keys_first {

using hopper::elect_one;
using hopper::tma_load_evict_first;
using cluster_reduce::REDUCERS;
using cluster_reduce::CONSUMERS;

constexpr int THREADS = (CONSUMERS + REDUCERS) * WARP;
constexpr int STAGES = 2;   // of a consumer
constexpr int BATCH_BLOCKS = 4;  // KV blocks

template <int DIM, int ROWS>
struct SharedStorage {
    using Mma = WarpMmaLdmatrix<DIM>;
    static constexpr int SHARES = ROWS * Mma::HALVES;

    alignas(1024) scalar_t slots[CONSUMERS][STAGES][Mma::UNIT];
    float4 scores[CONSUMERS][BATCH_BLOCKS][Mma::STEPS][WARP];  // of the batch's keys
    scalar_t queries[CONSUMERS][ROWS * DIM];
    cluster_reduce::ReduceBuffer<SHARES> reduce_buffer;
    unsigned long long full[CONSUMERS][STAGES];
    unsigned long long last_full[CONSUMERS];  // half of the last values
};

// The part of a head that a block consumes.
struct TileScheduler {
    int head;
    int first;  // key
    int end;
};

// What a consumer requests next: the keys, then the values, of a batch after the other.
template <int STRIDE>
struct Cursor {
    int at;
    int batch;
    int end;
    int length;  // of a batch
    bool keys = true;

    __device__ __forceinline__ Cursor(int first, int end, int kv_blocks)
        : at(first), batch(first), end(end), length(kv_blocks * STRIDE) {}
    __device__ __forceinline__ bool goes_on() const { return at < end; }
    __device__ __forceinline__ void next() {
        at += STRIDE;
        if (at < min(batch + length, end)) return;
        if (!keys) batch += length;
        keys = !keys;
        at = batch;
    }
};

template <int DIM, int ROWS>
__device__ __forceinline__ void consume_keys(SharedStorage<DIM, ROWS>& storage, const scalar_t* q, const hopper::TensorMap& k,
                                          const hopper::TensorMap& v, const DecodeShape& s, const TileScheduler& scheduler,
                                          const cluster_reduce::Parts<SharedStorage<DIM, ROWS>::SHARES>& parts, int consumer) {
    using Mma = WarpMmaLdmatrix<DIM>;
    constexpr int HALVES = Mma::HALVES, STEPS = Mma::STEPS, STRIDE = CONSUMERS * Mma::BLOCK_KEYS;
    constexpr int BYTES = Mma::UNIT * int(sizeof(scalar_t)), BOX_ELEMENTS = 64;
    const int lane = threadIdx.x % WARP, first = scheduler.first + consumer * Mma::BLOCK_KEYS, end = scheduler.end;
    const unsigned full = shared_address(storage.full[consumer]), slots = shared_address(storage.slots[consumer]);
    const unsigned last_full = shared_address(&storage.last_full[consumer]);
    const auto copy = [&](int stage, bool keys, int at, int more = 0) {
        const unsigned there = full + 8 * stage;
        const bool by_halves = HALVES > 1 && !keys && at + STRIDE >= end;
        hopper::mbarrier_expect_tx(there, (by_halves ? BYTES / HALVES : BYTES) + more);
        if (by_halves) hopper::mbarrier_expect_tx(last_full, BYTES - BYTES / HALVES);
        const hopper::TensorMap& map = keys ? k : v;
#pragma unroll
        for (int box = 0; box < HALVES; ++box) {
            const unsigned to = slots + stage * BYTES + box * Mma::BOX_BYTES;
            tma_load_evict_first(to, map, box * BOX_ELEMENTS, at, scheduler.head, by_halves && box > 0 ? last_full : there);
        }
    };
    // The first copies come before all else: what is fetched later, code too, waits behind them.
    if (elect_one()) {
        hopper::mbarrier_init(full, 1);
        hopper::mbarrier_init(full + 8, 1);
        hopper::mbarrier_init(last_full, 1);
        hopper::mbarrier_init_fence();
        if (first < end) {
            const int of_queries = s.rows * s.dim * int(sizeof(scalar_t));
            copy(0, true, first, of_queries);
            hopper::bulk_load(shared_address(storage.queries[consumer]), q + scheduler.head * s.rows * s.dim, of_queries, full);
            const bool goes_on = first + STRIDE < end;
            copy(1, goes_on, goes_on ? first + STRIDE : first);
        }
    }
    __syncwarp();
    cluster_arrive_relaxed();  // a release would wait for the copies

    Mma mma(s);
    Cursor<STRIDE> cursor(first, end, BATCH_BLOCKS);
    cursor.next();
    cursor.next();
    hopper::PipelineState<STAGES> place;
    const cluster_reduce::ReduceSender<SharedStorage<DIM, ROWS>::SHARES, HALVES> sender(storage.reduce_buffer, parts, consumer, s.rows);
    const auto wait = [&]() { hopper::mbarrier_wait(full + 8 * place.stage, place.parity); };
    const auto refill = [&]() {
        __syncwarp();
        if (cursor.goes_on()) {
            if (elect_one()) copy(place.stage, cursor.keys, cursor.at);
            cursor.next();
        }
        place.next();
    };

    uint2 weights[STEPS];
#pragma unroll 1
    for (int batch = first; batch < end; batch += BATCH_BLOCKS * STRIDE) {
        const int limit = min(batch + BATCH_BLOCKS * STRIDE, end);
        float largest[2] = {mma.max[0], mma.max[1]};
        float4* batch_scores = &storage.scores[consumer][0][0][lane];
#pragma unroll 1
        for (int at = batch; at < limit; at += STRIDE) {
            wait();
            if (at == first) {
                mma.load_queries(storage.queries[consumer]);
                cluster_wait();  // all have begun
            }
            float4 scores[STEPS];
            mma.score(scores, slots + place.stage * BYTES);
            refill();
            mma.mask_and_max(scores, at, largest);
#pragma unroll
            for (int i = 0; i < STEPS; ++i) batch_scores[i * WARP] = scores[i];
            batch_scores += STEPS * WARP;
        }
        mma.raise_max(largest);
        if (limit == end) sender.send_max(mma.max[0] * mma.scale, mma.max[1] * mma.scale);
        batch_scores = &storage.scores[consumer][0][0][lane];
#pragma unroll 1
        for (int at = batch; at < limit; at += STRIDE) {
#pragma unroll
            for (int i = 0; i < STEPS; ++i) weights[i] = mma.exponentiate(batch_scores[i * WARP]);
            batch_scores += STEPS * WARP;
            if (at + STRIDE >= end) break;
            wait();
#pragma unroll
            for (int half = 0; half < HALVES; ++half) mma.add_values(half, weights, slots + place.stage * BYTES);
            refill();
        }
    }
    if (first >= end) {
        cluster_wait();
        sender.send_max(mma.max[0], mma.max[1]);
    }
    sender.send_sum(mma.total[0], mma.total[1]);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        if (first < end) {
            if (half == 0) wait();
            if (half > 0) hopper::mbarrier_wait(last_full, 0);
            mma.add_values(half, weights, slots + place.stage * BYTES);
        }
        sender.send(half, mma.sums[half]);
    }
}

template <int DIM, int ROWS>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const DecodeShape& s, int share, int split_bits) {
    constexpr int SHARES = SharedStorage<DIM, ROWS>::SHARES, HALVES = WarpMmaLdmatrix<DIM>::HALVES;
    extern __shared__ __align__(1024) unsigned char memory[];
    SharedStorage<DIM, ROWS>& storage = *reinterpret_cast<SharedStorage<DIM, ROWS>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), part = blockIdx.x & (1 << split_bits) - 1;
    const TileScheduler scheduler{int(blockIdx.x >> split_bits), part * share, min(s.keys, (part + 1) * share)};
    const cluster_reduce::Parts<SHARES> parts{split_bits, part};
    if (warp < CONSUMERS) return consume_keys(storage, q, k, v, s, scheduler, parts, warp);
    if (warp == CONSUMERS && elect_one()) storage.reduce_buffer.open(parts.count(s.rows * HALVES) * parts.consumers());
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    cluster_reduce::reduce<SHARES, HALVES>(storage.reduce_buffer, parts, y, s, scheduler.head, warp - CONSUMERS);
}

}  // namespace keys_first
