// Attention in f16 and bf16 for compute capability 9.0a: warp-specialised, by TMA and wgmma.
//
// The last warpgroup of a block is the producer: it copies queries, keys and values (tensor maps) into shared memory. Each of the
// others takes 64 queries and loops over KV blocks, the last ones first, so that only the first blocks need a mask. Scores are
// accumulators; weights, rounded to the dtype, stay in registers as A of the second wgmma. The warpgroups take turns at issuing
// wgmma (named barriers), so that the softmax of one runs beside the products of another. Maps have the rank of the tensors (head,
// row, element): what lies past the rows of a head is zero. They need rows of a multiple of 16 bytes: tensors without are copied
// to the workspace first (attention_align), and y without is stored from registers.
//
// Launch, wgmma_<dim>x<queries> for dims up to that one:
//   wgmma_64x128   grid min(units, multiprocessors)  block 384  shared 163,984   keys of a KV block: 128
//   wgmma_64x192   the same                          block 512  shared 114,768   128   not causal
//   wgmma_80x128   the same                          block 384  shared 196,688   128
//   wgmma_96x128   the same                          block 384  shared 196,688   128
//   wgmma_128x128  the same                          block 384  shared 196,688   128
//   wgmma_192x128  the same                          block 384  shared 221,272   112
//   wgmma_256x128  the same                          block 384  shared 229,464    80
//   align          grid any                          block 256
#include "common.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "align_rows.cuh"
#include "wgmma_epilogue.cuh"
#include "wgmma_widths.cuh"

using namespace hopper;

namespace {

constexpr int CHUNK = 64;         // elements of dim that a swizzled row holds
constexpr int GROUP_QUERIES = 64;  // of a warpgroup
constexpr int PRODUCT_K = 16;
constexpr int ALL_READ = 8;        // the barrier of all warpgroups behind their last values
constexpr int TURNS = 4;           // the first of the barriers by which warpgroups take turns

struct Extents {
    int group;
    int queries;
    int keys;
    int dim;
    int query_heads;  // of all sequences
    int tiles_per_unit;      // tiles that a block takes together: 2 with causal, 1 else
    int causal;
    float scale;
};

// The tile of a block: GROUPS x 64 queries against KEYS keys a step; STAGES steps of keys and of values in flight.
template <int DIM_, int KEYS_, int GROUPS_, int STAGES_>
struct Config {
    static constexpr int DIM = DIM_;
    static constexpr int KEYS = KEYS_;
    static constexpr int GROUPS = GROUPS_;
    static constexpr int STAGES = STAGES_;
    static constexpr int CHUNKS = (DIM + CHUNK - 1) / CHUNK;
    static constexpr int ROW = CHUNKS * CHUNK;  // elements that a row takes in shared memory
    static constexpr int QUERIES = GROUPS * GROUP_QUERIES;
    static constexpr int THREADS = WARPGROUP_THREADS * (GROUPS + 1);
    static constexpr int QUERY_BYTES = QUERIES * ROW * 2;
    static constexpr int KV_BLOCK_BYTES = KEYS * ROW * 2;
    // Outputs take the place of values where shared memory is too small for both.
    static constexpr bool OUTPUTS_IN_VALUES = DIM > 128;
    // What setmaxnreg leaves the producer, and gives the others.
    static constexpr int PRODUCER_REGISTERS = GROUPS == 3 ? 32 : DIM == 256 ? 24 : 40;
    static constexpr int CONSUMER_REGISTERS = GROUPS == 3 ? 160 : DIM == 256 ? 240 : 232;
    static constexpr int OUTPUT_BYTES = OUTPUTS_IN_VALUES ? 0 : QUERY_BYTES;
    static constexpr int OWN_BYTES = GROUP_QUERIES * ROW * 2;  // outputs of a warpgroup
};

// Where things stand in shared memory. A mbarrier is 8 bytes.
template <class C>
struct Layout {
    unsigned queries;
    unsigned keys;
    unsigned values;
    unsigned outputs;
    unsigned barriers;

    __device__ __forceinline__ Layout(unsigned shared)
        : queries(shared),
          keys(queries + C::QUERY_BYTES),
          values(keys + C::STAGES * C::KV_BLOCK_BYTES),
          outputs(C::OUTPUTS_IN_VALUES ? values : values + C::STAGES * C::KV_BLOCK_BYTES),
          barriers(values + C::STAGES * C::KV_BLOCK_BYTES + C::OUTPUT_BYTES) {}
    __device__ __forceinline__ unsigned queries_full() const { return barriers; }
    __device__ __forceinline__ unsigned queries_empty() const { return barriers + 8; }
    __device__ __forceinline__ unsigned keys_full(int stage) const { return barriers + 16 + stage * 32; }
    __device__ __forceinline__ unsigned keys_empty(int stage) const { return keys_full(stage) + 8; }
    __device__ __forceinline__ unsigned values_full(int stage) const { return keys_full(stage) + 16; }
    __device__ __forceinline__ unsigned values_empty(int stage) const { return keys_full(stage) + 24; }
    __device__ __forceinline__ unsigned outputs_read() const { return keys_full(C::STAGES); }

    __device__ __forceinline__ void init() const {
        constexpr int READERS = C::GROUPS * WARPGROUP_WARPS;
        mbarrier_init(queries_full(), 1);
        mbarrier_init(queries_empty(), READERS);
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(keys_full(stage), 1);
            mbarrier_init(keys_empty(stage), READERS);
            mbarrier_init(values_full(stage), 1);
            mbarrier_init(values_empty(stage), READERS);
        }
        if (C::OUTPUTS_IN_VALUES) mbarrier_init(outputs_read(), C::GROUPS);
        mbarrier_init_fence();
    }
};

// The queries of a block of one head, and the steps over its keys.
struct Tile {
    int head;   // of the queries
    int first;  // query
    int steps;
};

// The tiles of a block, in turn. With causal, later queries see more keys: a long tile and a short one of the same head
// make a unit, and units are as long as each other. Blocks at work at the same time share heads, whose keys and values
// then come from L2.
template <class C>
struct TileScheduler {
    const Extents& s;
    int index = 0;

    __device__ __forceinline__ bool next(Tile& tile) {
        const int of_head = tiles(s.queries, C::QUERIES);
        const int units = tiles(of_head, s.tiles_per_unit);
        const int unit = blockIdx.x + index / s.tiles_per_unit * gridDim.x;
        const bool is_second = index % s.tiles_per_unit == 1;
        const int from_end = unit % units, from_start = of_head - 1 - from_end;
        tile.head = unit / units;
        tile.first = (is_second ? from_end : from_start) * C::QUERIES;
        const int last = min(tile.first + C::QUERIES, s.queries);
        const int seen = s.causal ? min(s.keys, last + s.keys - s.queries) : s.keys;
        tile.steps = max(1, (seen + C::KEYS - 1) / C::KEYS);  // queries that see no key loop one step, and see nothing
        // The tile in the middle is its unit's only one.
        index += s.tiles_per_unit == 2 && !is_second && from_end == from_start ? 2 : 1;
        return tile.head < s.query_heads;
    }
};

template <int ROWS, int CHUNKS>
__device__ __forceinline__ void load_rows(unsigned to, const TensorMap& map, int row, int head, unsigned barrier) {
    mbarrier_expect_tx(barrier, ROWS * CHUNKS * ROW_BYTES);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        tma_load(to + chunk * ROWS * ROW_BYTES, map, chunk * CHUNK, row, head, barrier);
    }
}

// One thread: copies what the tiles of this block need, as stages come free. Values are needed a step after their keys.
template <class C>
__device__ __forceinline__ void fetch(const Layout<C>& at, const TensorMap& q, const TensorMap& k, const TensorMap& v,
                                      const Extents& s) {
    PipelineState<C::STAGES> keys, values;
    unsigned parity = 1;
    bool outputs_pending = false;  // where the first values of a tile go
    Tile tile;
    TileScheduler<C> scheduler{s};
    while (scheduler.next(tile)) {
        const int head = tile.head / s.group;
        for (int step = tile.steps - 1; step >= -1; --step) {
            if (step >= 0) {
                mbarrier_wait(at.keys_empty(keys.stage), keys.parity ^ 1);
                load_rows<C::KEYS, C::CHUNKS>(at.keys + keys.stage * C::KV_BLOCK_BYTES, k, step * C::KEYS, head,
                                              at.keys_full(keys.stage));
                keys.next();
            }
            if (step == tile.steps - 1) {
                mbarrier_wait(at.queries_empty(), parity);
                parity ^= 1;
                outputs_pending = C::OUTPUTS_IN_VALUES;
                load_rows<C::QUERIES, C::CHUNKS>(at.queries, q, tile.first, tile.head, at.queries_full());
            } else {
                if (outputs_pending) mbarrier_wait(at.outputs_read(), parity);
                outputs_pending = false;
                mbarrier_wait(at.values_empty(values.stage), values.parity ^ 1);
                load_rows<C::KEYS, C::CHUNKS>(at.values + values.stage * C::KV_BLOCK_BYTES, v, (step + 1) * C::KEYS, head,
                                              at.values_full(values.stage));
                values.next();
            }
        }
    }
}

// A warp gives back what it has read.
__device__ __forceinline__ void release(unsigned barrier) {
    if (threadIdx.x % WARP == 0) mbarrier_arrive(barrier);
}

// The softmax of two rows, whose scores lie four lanes wide: what it has seen so far, in units of log 2.
struct RowPair {
    float max[2] = {Maximum::identity(), Maximum::identity()};  // of scores before `scale`
    float total[2] = {0.0f, 0.0f};                               // of this lane's columns
    float correction[2];                                         // what earlier sums have to be multiplied with

    // Turns scores into weights against the largest so far.
    template <int COUNT>
    __device__ __forceinline__ void weigh(float (&scores)[COUNT], float scale) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest[2] = {max[half], max[half]};
#pragma unroll
            for (int j = 2 * half; j < COUNT; j += 4) {
                largest[0] = fmaxf(largest[0], scores[j]);
                largest[1] = fmaxf(largest[1], scores[j + 1]);
            }
            const float raised = warp_reduce<Maximum>(fmaxf(largest[0], largest[1]), 4);
            // A row that has seen no key yet has nothing to correct, and -inf - -inf is no number.
            const float against = raised == Maximum::identity() ? 0.0f : raised * scale;
            correction[half] = fast_exp2(fmaf(max[half], scale, -against));
            max[half] = raised;
            float sums[2] = {0.0f, 0.0f};
#pragma unroll
            for (int j = 2 * half; j < COUNT; j += 4) {
                scores[j] = fast_exp2(fmaf(scores[j], scale, -against));
                scores[j + 1] = fast_exp2(fmaf(scores[j + 1], scale, -against));
                sums[0] += scores[j];
                sums[1] += scores[j + 1];
            }
            total[half] = fmaf(total[half], correction[half], sums[0] + sums[1]);
        }
    }
};

// Multiplies the two rows of each lane.
template <int COUNT>
__device__ __forceinline__ void multiply_rows(float (&sums)[COUNT], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sums[i] *= factor[i / 2 % 2];
}

// Weights as the A operands of products over sixteen keys each.
template <int KEYS>
__device__ __forceinline__ void round_weights(unsigned (&weights)[KEYS / PRODUCT_K][4], const float (&scores)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; ++i) weights[i / 4][i % 4] = pair(scores[2 * i], scores[2 * i + 1]);
}

template <class C>
__device__ __forceinline__ void score(float (&scores)[C::KEYS / 2], unsigned queries, unsigned keys) {
    const unsigned long long a = descriptor(queries, ROW_BYTES), b = descriptor(keys, ROW_BYTES);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < C::DIM; d += PRODUCT_K) {
        const int within = d % CHUNK * 2;
        Wgmma<C::KEYS, 0>::add(scores, a + ((d / CHUNK * C::QUERIES * ROW_BYTES + within) >> 4),
                                 b + ((d / CHUNK * C::KEYS * ROW_BYTES + within) >> 4), d > 0);
    }
    wgmma_commit();
}

template <class C>
__device__ __forceinline__ void add_values(float (&sums)[C::DIM / 2], const unsigned (&weights)[C::KEYS / PRODUCT_K][4],
                                           unsigned values) {
    const unsigned long long b = descriptor(values, C::KEYS * ROW_BYTES);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < C::KEYS / PRODUCT_K; ++part) {
        WgmmaRegisterA<C::DIM>::add(sums, weights[part], b + (part * PRODUCT_K * ROW_BYTES >> 4), 1);
    }
    wgmma_commit();
}

// What one warpgroup does: its 64 queries of every tile.
template <class C>
struct Attend {
    const Layout<C>& at;
    const Extents& s;
    const TensorMap& y_map;
    scalar_t* y;
    int group;
    PipelineState<C::STAGES> keys, values;
    unsigned parity = 0;  // of the queries

    // Warpgroups take turns at issuing products: the softmax of one runs beside the products of another.
    __device__ __forceinline__ void wait_turn() const {
        named_barrier_sync(TURNS + group, 2 * WARPGROUP_THREADS);
    }
    __device__ __forceinline__ void pass_turn() const {
        named_barrier_arrive(TURNS + (group + 1) % C::GROUPS, 2 * WARPGROUP_THREADS);
    }

    // Scores of keys from `key` on that a row does not see are no scores.
    __device__ __forceinline__ void mask(float (&scores)[C::KEYS / 2], int row, int key) const {
        const int lane_key = key + threadIdx.x % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int seen = s.causal ? min(s.keys, row + half * 8 + 1 + s.keys - s.queries) : s.keys;
#pragma unroll
            for (int j = 0; j < C::KEYS / 8; ++j) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& score = scores[4 * j + 2 * half + i];
                    score = 8 * j + i < seen - lane_key ? score : Maximum::identity();
                }
            }
        }
    }

    __device__ __forceinline__ void run(const Tile& tile) {
        const unsigned queries = at.queries + group * GROUP_QUERIES * ROW_BYTES;
        const int first = tile.first + group * GROUP_QUERIES;
        const int row = first + threadIdx.x % WARPGROUP_THREADS / WARP * 16 + threadIdx.x % WARP / 4;
        const float scale = s.scale * LOG2_E;
        // KV blocks that end before this key hold only keys that all rows see.
        const int common = s.causal ? min(s.keys, first + 1 + s.keys - s.queries) : s.keys;

        float scores[C::KEYS / 2];
        float sums[C::DIM / 2];
        unsigned weights[C::KEYS / PRODUCT_K][4];
        RowPair rows;
        int step = tile.steps - 1;

        const auto weigh_scores = [&] {
            fence_operand(scores);
            release(at.keys_empty(keys.stage));
            keys.next();
            if ((step + 1) * C::KEYS > common) mask(scores, row, step * C::KEYS);
            rows.weigh(scores, scale);
        };
        const auto multiply_values = [&] {
            mbarrier_wait(at.values_full(values.stage), values.parity);
            add_values<C>(sums, weights, at.values + values.stage * C::KV_BLOCK_BYTES);
        };
        const auto finish_values = [&] {
            wgmma_wait<0>();
            fence_operand(sums);
            release(at.values_empty(values.stage));
            values.next();
        };

        mbarrier_wait(at.queries_full(), parity);
        parity ^= 1;
        mbarrier_wait(at.keys_full(keys.stage), keys.parity);
        score<C>(scores, queries, at.keys + keys.stage * C::KV_BLOCK_BYTES);
        if (C::OUTPUTS_IN_VALUES && threadIdx.x % WARPGROUP_THREADS == 0) {
            tma_store_wait_read<0>();
            mbarrier_arrive(at.outputs_read());
        }
        wgmma_wait<0>();
        weigh_scores();
        round_weights<C::KEYS>(weights, scores);
#pragma unroll
        for (int i = 0; i < C::DIM / 2; ++i) sums[i] = 0.0f;

        // The scores of a step and the values of the one before are multiplied together; the softmax runs while the
        // second product is in flight.
        for (--step; step >= 0; --step) {
            mbarrier_wait(at.keys_full(keys.stage), keys.parity);
            wait_turn();
            score<C>(scores, queries, at.keys + keys.stage * C::KV_BLOCK_BYTES);
            multiply_values();
            pass_turn();
            wgmma_wait<1>();
            weigh_scores();
            finish_values();
            round_weights<C::KEYS>(weights, scores);
            multiply_rows(sums, rows.correction);
        }
        release(at.queries_empty());
        multiply_values();
        finish_values();

        float share[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float total = warp_reduce<Sum>(rows.total[half], 4);
            share[half] = total > 0.0f ? 1.0f / total : 0.0f;
        }
        multiply_rows(sums, share);
        store(tile.head, first, sums);
    }

    __device__ __forceinline__ void store(int head, int first, const float (&sums)[C::DIM / 2]) const {
        if (s.dim % 8 != 0) {
            scalar_t* const to = y + (long long)head * s.queries * s.dim;
            store_direct<C::DIM>(to, s.queries, s.dim, TileOrigin{first, 0}, sums);
            return;
        }
        const unsigned own = at.outputs + group * C::OWN_BYTES;
        const bool one = threadIdx.x % WARPGROUP_THREADS == 0;
        if (C::OUTPUTS_IN_VALUES) {
            named_barrier_sync(ALL_READ, C::GROUPS * WARPGROUP_THREADS);
        } else {
            if (one) tma_store_wait_read<0>();
            named_barrier_sync(1 + group, WARPGROUP_THREADS);
        }
#pragma unroll
        for (int chunk = 0; chunk < C::DIM / CHUNK; ++chunk) {
            stage_outputs(own + chunk * GROUP_QUERIES * ROW_BYTES, &sums[chunk * CHUNK / 2]);
        }
        stage_outputs<C::DIM % CHUNK>(own + C::DIM / CHUNK * GROUP_QUERIES * ROW_BYTES, &sums[C::DIM / CHUNK * CHUNK / 2]);
        fence_proxy_async();
        named_barrier_sync(1 + group, WARPGROUP_THREADS);
        if (one && first < s.queries) {
#pragma unroll
            for (int chunk = 0; chunk < C::CHUNKS; ++chunk) {
                if (chunk * CHUNK < s.dim) {
                    tma_store(y_map, chunk * CHUNK, first, head, own + chunk * GROUP_QUERIES * ROW_BYTES);
                }
            }
            tma_store_commit();
        }
    }
};

template <class C>
__device__ __forceinline__ void attend(scalar_t* y, const TensorMap& q, const TensorMap& k, const TensorMap& v,
                                       const TensorMap& y_map, const Extents& s) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Layout<C> at(shared_address(shared));
    const int group = threadIdx.x / WARPGROUP_THREADS;
    if (threadIdx.x == 0) at.init();
    __syncthreads();

    if (group == C::GROUPS) {
        setmaxnreg_dec<C::PRODUCER_REGISTERS>();
        if (threadIdx.x == C::GROUPS * WARPGROUP_THREADS) fetch<C>(at, q, k, v, s);
    } else {
        setmaxnreg_inc<C::CONSUMER_REGISTERS>();
        Attend<C> attend{at, s, y_map, y, group};
        if (group == C::GROUPS - 1) attend.pass_turn();  // the first turn is that of the first group
        Tile tile;
        TileScheduler<C> scheduler{s};
        while (scheduler.next(tile)) attend.run(tile);
        if (group == 0) attend.wait_turn();  // nobody leaves a barrier half full
        if (threadIdx.x % WARPGROUP_THREADS == 0) tma_store_wait_read<0>();  // shared memory must stay until it is read
    }
}

}  // namespace

#define ATTENTION_ENTRY(NAME, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(Config<__VA_ARGS__>::THREADS, 1)                                 \
        NAME(scalar_t* __restrict__ y, const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,  \
             const __grid_constant__ TensorMap v, const __grid_constant__ TensorMap y_map, int group, int queries, \
             int keys, int dim, int query_heads, int tiles_per_unit, int causal, float scale) {                         \
        attend<Config<__VA_ARGS__>>(y, q, k, v, y_map,                                                            \
                                    Extents{group, queries, keys, dim, query_heads, tiles_per_unit, causal, scale});    \
    }

ATTENTION_ENTRY(attention_wgmma_64x128, 64, 128, 2, 4)
ATTENTION_ENTRY(attention_wgmma_64x192, 64, 128, 3, 2)
ATTENTION_ENTRY(attention_wgmma_80x128, 80, 128, 2, 2)
ATTENTION_ENTRY(attention_wgmma_96x128, 96, 128, 2, 2)
ATTENTION_ENTRY(attention_wgmma_128x128, 128, 128, 2, 2)
ATTENTION_ENTRY(attention_wgmma_192x128, 192, 112, 2, 2)
ATTENTION_ENTRY(attention_wgmma_256x128, 256, 80, 2, 2)

// Copies rows of `cols` elements to rows of `pitch`, `offset` elements into the workspace, for tensor maps.
extern "C" __global__ void __launch_bounds__(256)
    attention_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows,
                    int cols, int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
