// Decode attention with consumer warpgroups (dim 128), keys ahead of their values as in keys_first.cuh.
//
// A warpgroup takes KV blocks of 64 keys, 32 in f32: its four warps multiply them, and their values, where these lie in shared
// memory, and have one partial. So there is a quarter to send and to reduce. All keys of a batch come before their values: when
// values come, their weights stand in shared memory.
//
// The warpgroups of a CTA group take every n-th KV block of its work tiles (warpgroup_scheduler.cuh). Other warps produce, one a
// warpgroup, and reduce the partials of all splits (warpgroup_reduce.cuh).
#pragma once
#if defined(KERNELGATE_F32)
#include "warpgroup_fma.cuh"
#else
#include "warpgroup_wgmma.cuh"
#endif

namespace warpgroup {

// The KV blocks of a work tile that a group consumes.
template <class Of>
__device__ __forceinline__ void consume_tile(Consumer<Of>& consumer, const WorkTile& tile, const Stride& stride, int from) {
    constexpr int ROWS = Consumer<Of>::ROWS, SCORES = Consumer<Of>::SCORES;
    const int count = stride.count(from, tile.kv_blocks);
    int kv_blocks = Stride::of_first_batch(count);
#pragma unroll 1
    for (int done = 0; done < count; done += kv_blocks, kv_blocks = BATCH_BLOCKS) {
        float batch_scores[BATCH_BLOCKS][SCORES], largest[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) largest[i] = consumer.max[i];
#pragma unroll 1
        for (int kv_block = 0; kv_block < kv_blocks; ++kv_block) {
            float scores[SCORES] = {};
            consumer.score(scores);
            consumer.mask(scores, (tile.first + from + stride.length(done + kv_block)) * KEYS);
#pragma unroll
            for (int i = 0; i < SCORES; ++i) largest[i % ROWS] = fmaxf(largest[i % ROWS], scores[i]);
#pragma unroll
            for (int i = 0; i < BATCH_BLOCKS; ++i) {
#pragma unroll
                for (int j = 0; j < SCORES; ++j) batch_scores[i][j] = kv_block == i ? scores[j] : batch_scores[i][j];
            }
        }
        consumer.raise_max(largest);
#pragma unroll
        for (int i = 0; i < BATCH_BLOCKS; ++i) {
            if (i < kv_blocks) consumer.exponentiate(i, batch_scores[i]);
        }
        const bool is_last = done + kv_blocks >= count;
        if (is_last) consumer.reduce_weight_sums();
        consumer.publish_shared();
        if (is_last) consumer.send_header();
#pragma unroll 1
        for (int kv_block = 0; kv_block < kv_blocks; ++kv_block) consumer.add_values(kv_block);
    }
    if (count <= 0) consumer.send_empty_header();
    consumer.send();
}

template <class Of>
__device__ __forceinline__ void run(SharedStorage<Of>& storage, const scalar_t* q, const DecodeShape& s, const TileScheduler<Of::SCHEDULE>& scheduler,
                                     const Parts<Of::ROWS>& parts, int stages, int warp) {
    Consumer<Of> consumer(storage, s, parts, stages, warp);
    const Stride stride = consumers_of(parts);
    cluster_arrive_relaxed();
    consumer.load_queries(q, scheduler);
    consumer.publish_shared();
    cluster_wait();  // all have begun, and mbarriers are there
#pragma unroll 1
    for (int i = scheduler.FIRST; i <= scheduler.LAST; ++i) {
        const int kind = scheduler.kind(i);
        const WorkTile tile = scheduler.tile(kind);
        if (tile.kv_blocks == 0) continue;
        consumer.begin(kind);
        consume_tile(consumer, tile, stride, stride.first(consumer_of(parts, consumer.group) - scheduler.begins(kind)));
    }
}

// Copies the KV blocks of a group.
template <class Of>
struct Producer {
    SharedStorage<Of>& storage;
    const hopper::TensorMap& k;
    const hopper::TensorMap& v;
    const int group;
    Cursor<Of::SCHEDULE> cursor;
    Stage stage;

    __device__ __forceinline__ Producer(SharedStorage<Of>& storage, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                    const TileScheduler<Of::SCHEDULE>& scheduler, const Parts<Of::ROWS>& parts, int stages, int group)
        : storage(storage), k(k), v(v), group(group),
          cursor(scheduler, consumer_of(parts, group), consumers_of(parts)), stage(stages) {}

    __device__ __forceinline__ void issue() const {
        const unsigned full = shared_address(&storage.full[group][stage.stage]);
        hopper::mbarrier_expect_tx(full, BLOCK_BYTES);
        load_kv_block(shared_address(storage.kv_blocks[group][stage.stage]), cursor.keys ? k : v, cursor.key(), cursor.head(), full);
    }
    __device__ __forceinline__ void next() {
        cursor.next();
        stage.next();
    }
    // Fills the free stages. The first copy comes before all else: what is fetched later, code too, waits behind it.
    __device__ __forceinline__ void begin() {
        hopper::mbarrier_init(shared_address(&storage.full[group][0]), 1);
        hopper::mbarrier_init_fence();
        if (cursor.goes_on()) issue();
#pragma unroll
        for (int i = 0; i < MOST_STAGES; ++i) {
            if (i > 0) hopper::mbarrier_init(shared_address(&storage.full[group][i]), 1);
            hopper::mbarrier_init(shared_address(&storage.free[group][i]), hopper::WARPGROUP_WARPS);
        }
        hopper::mbarrier_init_fence();
        cursor.begin_tile();
        next();
#pragma unroll 1
        for (int i = 1; i < stage.stages && cursor.goes_on(); ++i, next()) issue();
    }
    __device__ __forceinline__ void go_on() {
#pragma unroll 1
        for (; cursor.goes_on(); next()) {
            hopper::mbarrier_wait(shared_address(&storage.free[group][stage.stage]), stage.parity ^ 1);
            issue();
        }
    }
};

template <class Of>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const DecodeShape& s, const Split& split) {
    extern __shared__ __align__(1024) unsigned char memory[];
    SharedStorage<Of>& storage = *reinterpret_cast<SharedStorage<Of>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), bits = split.split_bits;
    const int reducer = warp - GROUPS * hopper::WARPGROUP_WARPS;
    const TileScheduler<Of::SCHEDULE> scheduler(split, blockIdx.x >> bits);
    const Parts<Of::ROWS> parts{bits, int(blockIdx.x) & (1 << bits) - 1};
    if (reducer < 0) return run(storage, q, s, scheduler, parts, split.stages, warp);
    Producer<Of> producer(storage, k, v, scheduler, parts, split.stages, reducer);
    const bool copies = reducer < GROUPS;
    if (elect_one()) {
        if (copies) producer.begin();
        if (reducer == REDUCERS - 1) {
#pragma unroll
            for (int i = 0; i < SharedStorage<Of>::TILES; ++i) {
                if (scheduler.tile(i).kv_blocks > 0) storage.reduce_buffers[i].open(parts.count(s.rows * HALVES) * parts.consumers());
            }
        }
    }
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    if (copies && elect_one()) producer.go_on();
    __syncwarp();
#pragma unroll 1
    for (int i = scheduler.FIRST; i <= scheduler.LAST; ++i) {
        const int kind = scheduler.kind(i);
        const WorkTile tile = scheduler.tile(kind);
        if (tile.kv_blocks == 0) continue;
        reduce(storage.reduce_buffers[kind], storage.reduce_buffers[scheduler.last()], parts, y + tile.head * s.rows * DIM, s.rows * HALVES,
              scheduler, kind, reducer);
    }
}

}  // namespace warpgroup

#define DECODE_BY_WARPGROUPS(UNIT, NAME, SCHEDULE, ROWS)                                                                 \
    extern "C" __global__ void __launch_bounds__(warpgroup::THREADS, 1) attention_decode_##UNIT##_##NAME##_128_##ROWS( \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int kv_blocks, int share, int cta_group_bits, int split_bits, int stages) {                               \
        warpgroup::decode<warpgroup::Shape<ROWS, warpgroup::SCHEDULE>>(                                                         \
            q, k, v, y, DecodeShape{rows, queries, keys, dim, causal, scale},                                          \
            warpgroup::Split{kv_blocks, share, cta_group_bits, split_bits, stages});                                              \
    }
