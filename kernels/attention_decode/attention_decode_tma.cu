// Decode attention in f16 and bf16 for compute capability 9.0: keys and values by TMA, products on tensor cores.
//
// Launch (dim a multiple of 8 up to 128, rows <= 8; other shapes take attention_naive); <dim> is 64 or 128, <rows> 1, 4 or 8,
// each the next that holds the shape's. The launch rules are in src/ops/attention_decode/launch:
//   split_kv_tma_<dim>_<rows>          this file: persistent blocks over the splits of all heads
//       grid splits, or fewer  block 256  cluster of a head's splits, or none
//       shared dim * (1024 + 64 * rows) + 192 * rows + 128, and parts * (dim + 2) * 4 a query where they are a cluster
//   cluster_tma_<dim>_<rows>_<stages>  cluster_tma.cuh: a cluster a head, a pipeline a warp; stages 1 or 2 at 128, 2 or 3 at 64
//       grid parts x heads of keys, parts <= 8 being a cluster  block 256
//   keys_first_<dim>_<rows>            keys_first.cuh: keys of a batch of KV blocks before their values; rows <= 4
//       grid parts * heads of keys, parts a power of two from 2 to 8  block 384  cluster a multiple of parts
//   wgmma_<schedule>_128_<rows>        warpgroup.cuh: warpgroups on 64 keys a KV block, for dim 128
//       schedule: whole (a CTA group a head), stream_k (2^cta_group_bits CTA groups for all heads) or split_kv (up to 8 CTA
//       groups for each of up to 32 heads, which are along y)
//       grid parts * CTA groups, parts a power of two up to 8  block 384  cluster a multiple of parts, at most 8
//
// split_kv_tma: every warp has a pipeline of its own, into which it copies sixteen keys and values a stage (tensor maps of heads,
// keys, elements: what lies past the keys of a head is zero): no warp waits for the copy of another. The queries come the same
// way, ahead of the first keys; requested later, they would arrive behind all of these. A block takes one work tile (a split of a
// head) after the other, and its copies run ahead into the next. Partials are reduced in the shared memory of the cluster's first
// block, or in the workspace by the last arriver. Its counters are zero between launches, so two launches of this module
// must not run at the same time.
#include "attention.cuh"
#include "partials.cuh"

#if !defined(KERNELGATE_F32) && __CUDA_ARCH__ >= 900
#include "keys_first.cuh"
#include "warpgroup.cuh"
#include "warp_mma.cuh"
#include "cluster_tma.cuh"
#include "cluster.cuh"
#include "hopper.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int THREADS = WARPS * WARP;
constexpr int STAGES = 2;  // of a warp: more of them in flight are no faster, and delay whatever else is requested
constexpr int KEYS = 16;   // of a stage

// Arrived splits of each head; no more heads have several.
constexpr int MOST_COUNTED = 132;
__device__ unsigned arrived[MOST_COUNTED];

constexpr int HEADER = 2;    // of a partial row: largest score, sum of weights; the weighted sum follows
constexpr int TOGETHER = 16;  // partials that are loaded before the first is used

// How the keys are split.
struct Split {
    int parts;
    int share;  // keys of a split
    int items;  // splits of all heads
};

// Shared memory.
template <int DIM, int ROWS>
struct SharedStorage {
    static constexpr int BOXES = DIM / 64;

    scalar_t keys[WARPS][STAGES][BOXES * SwizzledRows::BOX];
    scalar_t values[WARPS][STAGES][BOXES * SwizzledRows::BOX];
    scalar_t queries[WARPS][STAGES][ROWS * DIM];
    WarpPartials<DIM, ROWS, WARPS, 4> warp_partials;
    unsigned long long full[WARPS][STAGES];
};

// The keys of a work tile that a warp consumes.
struct TileScheduler {
    int at;
    int end;

    __device__ __forceinline__ TileScheduler(const DecodeShape& s, const Split& split, int item) {
        const int first = item % split.parts * split.share;
        at = first + int(threadIdx.x) / WARP * KEYS;
        end = min(s.keys, first + split.share);
    }
    __device__ __forceinline__ bool goes_on() const { return at < end; }
    __device__ __forceinline__ void next() { at += WARPS * KEYS; }
};

// What a warp copies: the keys, values and queries that it will consume, tile after tile.
template <int DIM, int ROWS>
struct Producer {
    const DecodeShape& s;
    const Split& split;
    const hopper::TensorMap& k;
    const hopper::TensorMap& v;
    const scalar_t* const q;
    SharedStorage<DIM, ROWS>& storage;
    int item = blockIdx.x;
    TileScheduler scheduler = TileScheduler(s, split, item);
    bool begins = true;  // an item

    __device__ __forceinline__ void copy(int stage) {
        while (!scheduler.goes_on()) {
            item += gridDim.x;
            if (item >= split.items) return;
            scheduler = TileScheduler(s, split, item);
            begins = true;
        }
        if (threadIdx.x % WARP == 0) issue(threadIdx.x / WARP, stage, item / split.parts);
        scheduler.next();
        begins = false;
    }
    __device__ __forceinline__ void issue(int warp, int stage, int head) const {
        constexpr int BOX = SwizzledRows::BOX, BYTES = 2 * sizeof(storage.keys[0][0]);
        const unsigned full = shared_address(&storage.full[warp][stage]);
        const unsigned keys = shared_address(storage.keys[warp][stage]), values = shared_address(storage.values[warp][stage]);
        const int of_queries = begins ? s.rows * s.dim * int(sizeof(scalar_t)) : 0;
        hopper::mbarrier_expect_tx(full, BYTES + of_queries);
        if (begins) {
            const scalar_t* const from = q + (long long)head * s.rows * s.dim;
            hopper::bulk_load(shared_address(storage.queries[warp][stage]), from, of_queries, full);
        }
#pragma unroll
        for (int box = 0; box < SharedStorage<DIM, ROWS>::BOXES; ++box) {
            hopper::tma_load(keys + box * BOX * int(sizeof(scalar_t)), k, box * 64, scheduler.at, head, full);
        }
#pragma unroll
        for (int box = 0; box < SharedStorage<DIM, ROWS>::BOXES; ++box) {
            hopper::tma_load(values + box * BOX * int(sizeof(scalar_t)), v, box * 64, scheduler.at, head, full);
        }
    }
};

// Calls `each` for two neighbouring elements of a row after the other, with threads side by side.
template <int DIM, typename Each>
__device__ __forceinline__ void for_pairs(int rows, Each each) {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * (DIM / 2); i += THREADS) each(i / (DIM / 2), i % (DIM / 2) * 2);
}

// Whether this block arrives last of the splits of its head; their partials can be read then.
__device__ __forceinline__ bool is_last(bool joined, int head, int parts) {
    if (joined) {
        hopper::cluster_sync();
        return hopper::cluster_rank() == 0;
    }
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) last = atomic_inc_wrap(&arrived[head], parts - 1) == unsigned(parts - 1);
    return __syncthreads_or(last);
}

// Two elements of a row, of all splits, `pitch` elements apart.
__device__ __forceinline__ Partial<2> reduce_splits(const float* row, int element, int parts, int pitch) {
    Partial<2> partial;
#pragma unroll 1
    for (int first = 0; first < parts; first += TOGETHER) {
        float2 header[TOGETHER], out[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const float* const from = row + (first + i) * pitch;
            const bool inside = first + i < parts;
            header[i] = inside ? *reinterpret_cast<const float2*>(from) : make_float2(Maximum::identity(), 0.0f);
            out[i] = inside ? *reinterpret_cast<const float2*>(from + HEADER + element) : make_float2(0.0f, 0.0f);
        }
        partial.merge(header, out);
    }
    return partial;
}

template <int DIM, int ROWS>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, float* workspace, const DecodeShape& s, const Split& split) {
    extern __shared__ __align__(1024) unsigned char memory[];
    SharedStorage<DIM, ROWS>& storage = *reinterpret_cast<SharedStorage<DIM, ROWS>*>(memory);
    float* const reduce_buffer = reinterpret_cast<float*>(memory + sizeof(storage));
    const int warp = threadIdx.x / WARP, parts = split.parts;
    const bool joined = cluster_size() > 1;
    if (joined) cluster_arrive();
    if (threadIdx.x % WARP == 0) {
        for (int stage = 0; stage < STAGES; ++stage) hopper::mbarrier_init(shared_address(&storage.full[warp][stage]), 1);
        hopper::mbarrier_init_fence();
    }
    __syncwarp();
    Producer<DIM, ROWS> producer{s, split, k, v, q, storage};
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) producer.copy(stage);

    hopper::PipelineState<STAGES> place;
#pragma unroll 1
    for (int item = blockIdx.x; item < split.items; item += gridDim.x) {
        const int head = item / parts, part = item % parts;
        WarpMma<DIM> mma(s);
        bool begins = true;
#pragma unroll 1
        for (TileScheduler scheduler(s, split, item); scheduler.goes_on(); scheduler.next()) {
            const int stage = place.stage;
            hopper::mbarrier_wait(shared_address(&storage.full[warp][stage]), place.parity);
            if (begins) mma.load_queries(storage.queries[warp][stage]);
            begins = false;
            mma.step(storage.keys[warp][stage], storage.values[warp][stage], scheduler.at);
            __syncwarp();
            producer.copy(stage);
            place.next();
        }
        if (item != blockIdx.x) __syncthreads();  // the partials of the tile before have been read
        mma.put(storage.warp_partials);
        __syncthreads();
        if (joined) cluster_wait();  // the first block has begun

        const int pitch = s.rows * (HEADER + DIM);
        float* const partials = joined ? mapa_generic(reduce_buffer, 0) : workspace + (long long)head * parts * pitch;
        const auto store = [&](int row, int element, const Partial<2>& partial) {
            if (element >= s.dim) return;
            const float results[2] = {partial.result(0), partial.result(1)};
            scalar_t* const to = y + ((long long)head * s.rows + row) * s.dim + element;
            *reinterpret_cast<unsigned*>(to) = pack_detail::pack_word(results);
        };
        for_pairs<DIM>(s.rows, [&](int row, int element) {
            const Partial<2> partial = storage.warp_partials.template reduce<2, WARPS>(row, element);
            if (parts == 1) return store(row, element, partial);
            float* const to = partials + part * pitch + row * (HEADER + DIM);
            if (element == 0) *reinterpret_cast<float2*>(to) = make_float2(partial.max, partial.total);
            *reinterpret_cast<float2*>(to + HEADER + element) = make_float2(partial.out[0], partial.out[1]);
        });
        if (parts == 1 || !is_last(joined, head, parts)) continue;
        const float* const received = joined ? reduce_buffer : partials;
        for_pairs<DIM>(s.rows, [&](int row, int element) {
            store(row, element, reduce_splits(received + row * (HEADER + DIM), element, parts, pitch));
        });
    }
}

}  // namespace

#define DECODE_SPLIT_KV_TMA(DIM, ROWS, BLOCKS)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_decode_split_kv_tma_##DIM##_##ROWS(                 \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, float* workspace,                                   \
        const __grid_constant__ hopper::TensorMap k, const __grid_constant__ hopper::TensorMap v, int rows,           \
        int queries, int keys, int dim, int causal, float scale, int parts, int share, int items) {                   \
        decode<DIM, ROWS>(q, k, v, y, workspace, DecodeShape{rows, queries, keys, dim, causal, scale},                 \
                          Split{parts, share, items});                                                                \
    }
DECODE_SPLIT_KV_TMA(64, 1, 2)
DECODE_SPLIT_KV_TMA(64, 4, 2)
DECODE_SPLIT_KV_TMA(64, 8, 2)
DECODE_SPLIT_KV_TMA(128, 1, 1)
DECODE_SPLIT_KV_TMA(128, 4, 1)
DECODE_SPLIT_KV_TMA(128, 8, 1)

#define DECODE_CLUSTER_TMA(DIM, ROWS, STAGES)                                                                                  \
    extern "C" __global__ void __launch_bounds__(cluster_tma::WARPS* WARP, 1) attention_decode_cluster_tma_##DIM##_##ROWS##_##STAGES( \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int share) {                                                                                     \
        cluster_tma::decode<DIM, ROWS, STAGES>(q, k, v, y, DecodeShape{rows, queries, keys, dim, causal, scale}, share);   \
    }
DECODE_CLUSTER_TMA(64, 1, 2)
DECODE_CLUSTER_TMA(64, 4, 2)
DECODE_CLUSTER_TMA(64, 8, 2)
DECODE_CLUSTER_TMA(128, 1, 1)
DECODE_CLUSTER_TMA(128, 4, 1)
DECODE_CLUSTER_TMA(128, 8, 1)
DECODE_CLUSTER_TMA(64, 1, 3)
DECODE_CLUSTER_TMA(64, 4, 3)
DECODE_CLUSTER_TMA(64, 8, 3)
DECODE_CLUSTER_TMA(128, 1, 2)
DECODE_CLUSTER_TMA(128, 4, 2)
DECODE_CLUSTER_TMA(128, 8, 2)

#define DECODE_KEYS_FIRST(DIM, ROWS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(keys_first::THREADS, 1) attention_decode_keys_first_##DIM##_##ROWS(               \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int share, int split_bits) {                                                                      \
        keys_first::decode<DIM, ROWS>(q, k, v, y, DecodeShape{rows, queries, keys, dim, causal, scale}, share, split_bits);  \
    }
DECODE_KEYS_FIRST(64, 1)
DECODE_KEYS_FIRST(64, 4)
DECODE_KEYS_FIRST(128, 1)
DECODE_KEYS_FIRST(128, 4)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
DECODE_BY_WARPGROUPS(wgmma, whole, WHOLE_HEADS, 1)
DECODE_BY_WARPGROUPS(wgmma, whole, WHOLE_HEADS, 4)
DECODE_BY_WARPGROUPS(wgmma, whole, WHOLE_HEADS, 8)
DECODE_BY_WARPGROUPS(wgmma, stream_k, STREAM_K, 1)
DECODE_BY_WARPGROUPS(wgmma, stream_k, STREAM_K, 4)
DECODE_BY_WARPGROUPS(wgmma, stream_k, STREAM_K, 8)
DECODE_BY_WARPGROUPS(wgmma, split_kv, SPLIT_KV, 1)
DECODE_BY_WARPGROUPS(wgmma, split_kv, SPLIT_KV, 4)
DECODE_BY_WARPGROUPS(wgmma, split_kv, SPLIT_KV, 8)
#endif

#endif
