// Decode attention: few queries over many keys (split-KV). The definition is in attention.cu.
//
// Memory bounds it: keys and values are read once, for all rows that share them (GQA), and the keys of a head are split among
// blocks, so that all multiprocessors read. `rows` are the queries of all query heads of one head of keys.
//
// Launch (dim a multiple of 8 up to 128, rows <= 8; other shapes take attention_naive); <dim> is 64 or 128, <rows> 1, 4 or 8,
// each the next that holds the shape's:
//   split_kv_<dim>_<rows>      grid heads of keys * parts  block 128
//   split_kv_reduce            grid heads of keys * rows   block 128   where there are several parts
//   cluster_bulk_<dim>_<rows>  grid heads of keys * parts  block 160   f32; parts <= 8, which are a cluster
//                              shared 98,304 + 16 a stage, of which there are 6 at 64 and 3 at 128
//   fma_<schedule>_128_<rows>  f32, as wgmma_<schedule>_128_<rows> of attention_decode_tma.cu, by multiply-adds
#include "attention.cuh"
#include "partials.cuh"

namespace {

// A warp's loop over keys, without tensor cores: a group of lanes holds a key, eight elements a lane, and keeps a softmax
// of its own, so that groups communicate only at the end.
template <int DIM, int ROWS_>
struct LaneGroups {
    static constexpr int ROWS = ROWS_;
    static constexpr int KEYS = 8;  // of a step
    static constexpr int OF_LANE = 8;
    static constexpr int PACKS = OF_LANE / PACK_LEN;
    static constexpr int LANES = DIM / OF_LANE;
    static constexpr int GROUPS = WARP / LANES;
    static constexpr int LOADS = KEYS / GROUPS;  // keys of a lane

    const DecodeShape& s;
    float query[ROWS][OF_LANE];
    float max[ROWS];
    float total[ROWS];
    float out[ROWS][OF_LANE];

    // Of pack `pack` of this lane.
    static __device__ __forceinline__ int element(int pack) {
        return (pack * LANES + int(threadIdx.x) % LANES) * PACK_LEN;
    }
    __device__ __forceinline__ void load(Pack (&to)[PACKS], const scalar_t* row, bool inside) const {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            to[p] = inside && element(p) < s.dim ? load_pack(row + element(p)) : Pack{make_uint4(0, 0, 0, 0)};
        }
    }
    static __device__ __forceinline__ void unpack_all(const Pack (&packs)[PACKS], float (&x)[OF_LANE]) {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            float part[PACK_LEN];
            unpack(packs[p], part);
#pragma unroll
            for (int e = 0; e < PACK_LEN; ++e) x[p * PACK_LEN + e] = part[e];
        }
    }

    __device__ __forceinline__ LaneGroups(const DecodeShape& s, const scalar_t* q) : s(s) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            Pack packs[PACKS];
            load(packs, q + r * s.dim, r < s.rows);
            unpack_all(packs, query[r]);
            max[r] = Maximum::identity();
            total[r] = 0.0f;
#pragma unroll
            for (int e = 0; e < OF_LANE; ++e) {
                out[r][e] = 0.0f;
                query[r][e] *= s.scale * LOG2_E;
            }
        }
    }

    // `count` keys and their values, the first being key `at` of the head.
    __device__ __forceinline__ void step(const scalar_t* keys, const scalar_t* values, int at, int count) {
        const int own = int(threadIdx.x) % WARP / LANES;
        Pack of_keys[LOADS][PACKS], of_values[LOADS][PACKS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int key = own + i * GROUPS;
            load(of_keys[i], keys + (long long)key * s.dim, key < count);
            load(of_values[i], values + (long long)key * s.dim, key < count);
        }
        float weight[ROWS][LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            float x[OF_LANE];
            unpack_all(of_keys[i], x);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                float score = 0.0f;
#pragma unroll
                for (int e = 0; e < OF_LANE; ++e) score = fmaf(query[r][e], x[e], score);
                weight[r][i] = warp_reduce<Sum>(score, LANES);
            }
        }
        if (count < KEYS || at + KEYS > s.seen_by(0)) {  // the first query sees least
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int i = 0; i < LOADS; ++i) {
                    if (own + i * GROUPS >= min(count, s.seen_by(r) - at)) weight[r][i] = Maximum::identity();
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) exponentiate(weight[r], r);
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            float x[OF_LANE];
            unpack_all(of_values[i], x);
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int e = 0; e < OF_LANE; ++e) out[r][e] = fmaf(weight[r][i], x[e], out[r][e]);
            }
        }
    }

    __device__ __forceinline__ void exponentiate(float (&weight)[LOADS], int r) {
        float raised = max[r];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) raised = fmaxf(raised, weight[i]);
        rescale(r, raised);
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            weight[i] = factor(weight[i], raised);
            total[r] += weight[i];
        }
    }
    __device__ __forceinline__ void rescale(int r, float raised) {
        const float correction = factor(max[r], raised);
        max[r] = raised;
        total[r] *= correction;
#pragma unroll
        for (int e = 0; e < OF_LANE; ++e) out[r][e] *= correction;
    }

    __device__ __forceinline__ void put(WarpPartials<DIM, ROWS>& warp_partials) {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int offset = LANES; offset < WARP; offset *= 2) {
                rescale(r, fmaxf(max[r], __shfl_xor_sync(ALL_LANES, max[r], offset)));
                total[r] += __shfl_xor_sync(ALL_LANES, total[r], offset);
#pragma unroll
                for (int e = 0; e < OF_LANE; ++e) out[r][e] += __shfl_xor_sync(ALL_LANES, out[r][e], offset);
            }
            if (lane == 0) {
                warp_partials.max[warp][r] = max[r];
                warp_partials.total[warp][r] = total[r];
            }
            if (lane < LANES) {
#pragma unroll
                for (int e = 0; e < OF_LANE; ++e) {
                    warp_partials.out[warp][r][element(e / PACK_LEN) + e % PACK_LEN] = out[r][e];
                }
            }
        }
    }
};

// Where a row of a part stands in the workspace: largest score, sum of weights, weighted sum.
constexpr int HEADER = 2;

__device__ __forceinline__ long long part_place(long long row, int parts, int part, int dim) {
    return (row * parts + part) * (HEADER + dim);
}

template <int DIM, typename Mma>
__device__ __forceinline__ void decode(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                                       float* workspace, const DecodeShape& s, int parts, int share) {
    __shared__ WarpPartials<DIM, Mma::ROWS> warp_partials;
    const int head = blockIdx.x / parts, part = blockIdx.x % parts;
    const int end = min(s.keys, (part + 1) * share);
    const long long of_head = (long long)head * s.keys * s.dim;
    Mma mma(s, q + (long long)head * s.rows * s.dim);
    for (int at = part * share + threadIdx.x / WARP * Mma::KEYS; at < end; at += SPLIT_WARPS * Mma::KEYS) {
        const long long from = of_head + (long long)at * s.dim;
        mma.step(k + from, v + from, at, min(Mma::KEYS, end - at));
    }
    mma.put(warp_partials);
    __syncthreads();
    for (int i = threadIdx.x; i < s.rows * DIM; i += SPLIT_THREADS) {
        const int element = i % DIM;
        if (element >= s.dim) continue;
        const Partial<1> partial = warp_partials.reduce(i / DIM, element);
        const long long row = (long long)head * s.rows + i / DIM;
        if (parts == 1) {
            y[row * s.dim + element] = from_float<scalar_t>(partial.result(0));
        } else {
            float* const to = workspace + part_place(row, parts, part, s.dim);
            if (element == 0) {
                to[0] = partial.max;
                to[1] = partial.total;
            }
            to[HEADER + element] = partial.out[0];
        }
    }
}

}  // namespace

#define DECODE_PARAMETERS(...)                                                                      \
    const scalar_t *__restrict__ q, const scalar_t *__restrict__ k, const scalar_t *__restrict__ v, \
        scalar_t *__restrict__ y, __VA_ARGS__ int rows, int queries, int keys, int dim, int causal, float scale, \
        int parts, int share

// Splits of the keys, and a second launch that reduces their partials (m, l, O).
#define DECODE_SPLIT_KV(DIM, ROWS)                                                                                       \
    extern "C" __global__ void __launch_bounds__(SPLIT_THREADS, 1)                                                 \
        attention_decode_split_kv_##DIM##_##ROWS(DECODE_PARAMETERS(float* __restrict__ workspace, )) {                   \
        decode<DIM, LaneGroups<DIM, ROWS>>(q, k, v, y, workspace, DecodeShape{rows, queries, keys, dim, causal, scale}, \
                                          parts, share);                                                           \
    }
DECODE_SPLIT_KV(64, 1)
DECODE_SPLIT_KV(64, 4)
DECODE_SPLIT_KV(64, 8)
DECODE_SPLIT_KV(128, 1)
DECODE_SPLIT_KV(128, 4)
DECODE_SPLIT_KV(128, 8)

extern "C" __global__ void __launch_bounds__(128)
    attention_decode_split_kv_reduce(scalar_t* __restrict__ y, const float* __restrict__ workspace, int dim, int parts) {
    const int element = threadIdx.x;
    const long long row = blockIdx.x;
    if (element >= dim) return;
    Partial<1> partial;
    partial.raise_max(parts, [&](int part) { return workspace[part_place(row, parts, part, dim)]; });
    for (int part = 0; part < parts; ++part) {
        const float* const from = workspace + part_place(row, parts, part, dim);
        partial.add(from[0], from[1], from + HEADER + element);
    }
    y[row * dim + element] = from_float<scalar_t>(partial.result(0));
}

#if defined(KERNELGATE_F32) && __CUDA_ARCH__ >= 900
#include "hopper.cuh"

// Warp-specialised: a producer thread copies keys and values into a pipeline in shared memory by bulk copies, and is not held
// up by what the consumer warps compute. The splits of a head are a cluster, whose blocks read each other's partials from
// shared memory: no second launch and no workspace.
namespace {

constexpr int PIPELINE_THREADS = SPLIT_THREADS + WARP;  // and the producer
constexpr int PIPELINE_BYTES = 96 << 10;                // two blocks a multiprocessor

// A pipeline of stages with keys and values each: a step of every warp.
template <int DIM, typename Mma>
struct Pipeline {
    static constexpr int KEYS = SPLIT_WARPS * Mma::KEYS;
    static constexpr int HALF = KEYS * DIM;  // elements: where the values of a stage begin
    static constexpr int STAGE_BYTES = 2 * HALF * int(sizeof(scalar_t));
    static constexpr int STAGES = PIPELINE_BYTES / STAGE_BYTES;

    scalar_t* memory;
    hopper::PipelineState<STAGES> place;

    __device__ __forceinline__ scalar_t* keys() const { return memory + place.stage * 2 * HALF; }
    __device__ __forceinline__ scalar_t* values() const { return keys() + HALF; }
    __device__ __forceinline__ unsigned full(int stage) const {
        return shared_address(memory) + STAGES * STAGE_BYTES + stage * 16;
    }
    __device__ __forceinline__ unsigned empty(int stage) const { return full(stage) + 8; }

    __device__ __forceinline__ void init() const {
        for (int stage = 0; stage < STAGES; ++stage) {
            hopper::mbarrier_init(full(stage), 1);
            hopper::mbarrier_init(empty(stage), SPLIT_WARPS);
        }
        hopper::mbarrier_init_fence();
    }

    // The producer: copies keys [first, end) and their values, as stages come free.
    __device__ __forceinline__ void fetch(const scalar_t* k, const scalar_t* v, int dim, int first, int end) {
        for (int at = first; at < end; at += KEYS) {
            const int bytes = min(KEYS, end - at) * dim * int(sizeof(scalar_t));
            hopper::mbarrier_wait(empty(place.stage), place.parity ^ 1);
            hopper::mbarrier_expect_tx(full(place.stage), 2 * bytes);
            hopper::bulk_load(shared_address(keys()), k + (long long)at * dim, bytes, full(place.stage));
            hopper::bulk_load(shared_address(values()), v + (long long)at * dim, bytes, full(place.stage));
            place.next();
        }
    }

    // The consumers: each warp its own keys of a stage.
    __device__ __forceinline__ void run(Mma& mma, int dim, int first, int end) {
        const int own = threadIdx.x / WARP * Mma::KEYS;
        for (int at = first; at < end; at += KEYS) {
            hopper::mbarrier_wait(full(place.stage), place.parity);
            const int count = min(Mma::KEYS, end - at - own);
            if (count > 0) mma.step(keys() + own * dim, values() + own * dim, at + own, count);
            __syncwarp();
            if (threadIdx.x % WARP == 0) hopper::mbarrier_arrive(empty(place.stage));
            place.next();
        }
    }
};

constexpr int MOST_PARTS = 8;  // of a cluster

// The partial of a block, for the others of its cluster, and what it has read of theirs.
template <int DIM, int ROWS>
struct BlockPartial {
    float max[ROWS];
    float total[ROWS];
    float out[ROWS][DIM];
    float max_of[MOST_PARTS][ROWS];
    float total_of[MOST_PARTS][ROWS];
};

__device__ __forceinline__ float remote(const float* own, unsigned rank) {
    float value;
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %1, %2;\nld.shared::cluster.f32 %0, [there];\n}"
        : "=f"(value)
        : "r"(shared_address(own)), "r"(rank)
        : "memory");
    return value;
}

template <int DIM, typename Mma>
__device__ __forceinline__ void decode_in_cluster(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y,
                                                  const DecodeShape& s, int parts, int share) {
    extern __shared__ __align__(128) unsigned char shared[];
    Pipeline<DIM, Mma> pipeline{reinterpret_cast<scalar_t*>(shared)};
    // The pipeline is used up when these are written.
    WarpPartials<DIM, Mma::ROWS>& warp_partials = *reinterpret_cast<WarpPartials<DIM, Mma::ROWS>*>(shared);
    BlockPartial<DIM, Mma::ROWS>& own = *reinterpret_cast<BlockPartial<DIM, Mma::ROWS>*>(shared + sizeof(warp_partials));
    static_assert(sizeof(warp_partials) + sizeof(own) <= Pipeline<DIM, Mma>::STAGES * Pipeline<DIM, Mma>::STAGE_BYTES, "they fit");
    if (threadIdx.x == 0) pipeline.init();
    __syncthreads();

    const int head = blockIdx.x / parts;
    const int rank = hopper::cluster_rank();
    const int first = rank * share, end = min(s.keys, first + share);
    const bool copies = threadIdx.x >= SPLIT_THREADS;
    Mma mma(s, q + (long long)head * s.rows * s.dim);
    if (!copies) {
        pipeline.run(mma, s.dim, first, end);
    } else if (threadIdx.x == SPLIT_THREADS) {
        const long long of_head = (long long)head * s.keys * s.dim;
        pipeline.fetch(k + of_head, v + of_head, s.dim, first, end);
    }
    __syncwarp();  // the producer and its warp
    __syncthreads();
    if (!copies) mma.put(warp_partials);
    __syncthreads();
    for (int i = threadIdx.x; i < s.rows * DIM; i += PIPELINE_THREADS) {
        const int row = i / DIM, element = i % DIM;
        const Partial<1> partial = warp_partials.reduce(row, element);
        if (element == 0) {
            own.max[row] = partial.max;
            own.total[row] = partial.total;
        }
        own.out[row][element] = partial.out[0];
    }
    hopper::cluster_sync();
    // A load from another block takes long: these do not wait for each other.
    for (int i = threadIdx.x; i < parts * s.rows; i += PIPELINE_THREADS) {
        const int part = i / s.rows, row = i % s.rows;
        own.max_of[part][row] = remote(&own.max[row], part);
        own.total_of[part][row] = remote(&own.total[row], part);
    }
    __syncthreads();
    for (int i = rank * PIPELINE_THREADS + threadIdx.x; i < s.rows * DIM; i += parts * PIPELINE_THREADS) {
        const int row = i / DIM, element = i % DIM;
        Partial<1> partial;
        partial.raise_max(parts, [&](int part) { return own.max_of[part][row]; });
#pragma unroll 2
        for (int part = 0; part < parts; ++part) {
            const float out = remote(&own.out[row][element], part);
            partial.add(own.max_of[part][row], own.total_of[part][row], &out);
        }
        if (element < s.dim) {
            y[((long long)head * s.rows + row) * s.dim + element] = from_float<scalar_t>(partial.result(0));
        }
    }
    hopper::cluster_sync();  // the other blocks may still read this one's shared memory
}

}  // namespace

#define DECODE_CLUSTER_BULK(DIM, ROWS, BLOCKS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(PIPELINE_THREADS, BLOCKS)                                                     \
        attention_decode_cluster_bulk_##DIM##_##ROWS(DECODE_PARAMETERS()) {                                                     \
        decode_in_cluster<DIM, LaneGroups<DIM, ROWS>>(q, k, v, y, DecodeShape{rows, queries, keys, dim, causal, scale}, parts, \
                                                share);                                                               \
    }
DECODE_CLUSTER_BULK(64, 1, 2)
DECODE_CLUSTER_BULK(64, 4, 2)
DECODE_CLUSTER_BULK(64, 8, 1)
DECODE_CLUSTER_BULK(128, 1, 2)
DECODE_CLUSTER_BULK(128, 4, 2)
DECODE_CLUSTER_BULK(128, 8, 1)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "warpgroup.cuh"

DECODE_BY_WARPGROUPS(fma, whole, WHOLE_HEADS, 1)
DECODE_BY_WARPGROUPS(fma, whole, WHOLE_HEADS, 4)
DECODE_BY_WARPGROUPS(fma, whole, WHOLE_HEADS, 8)
DECODE_BY_WARPGROUPS(fma, stream_k, STREAM_K, 1)
DECODE_BY_WARPGROUPS(fma, stream_k, STREAM_K, 4)
DECODE_BY_WARPGROUPS(fma, split_kv, SPLIT_KV, 1)
DECODE_BY_WARPGROUPS(fma, split_kv, SPLIT_KV, 4)
DECODE_BY_WARPGROUPS(fma, split_kv, SPLIT_KV, 8)
#endif

#endif  // defined(KERNELGATE_F32) && __CUDA_ARCH__ >= 900
