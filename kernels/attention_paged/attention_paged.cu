// Attention of one new token of each sequence over keys and values in pages: y[b, h] = sum_j p[j] * v[slot(b, j), h / group],
// p = softmax over j < lengths[b] of scale * (q[b, h] . k[slot(b, j), h / group]), where slot(b, j) is row j % page of page
// page_table[b, j / page]; a sequence without keys gives zeros
//   q, y [batch, heads * group, dim]; k, v [pages, page, heads, dim]; page_table [batch, table]; lengths [batch]; both of i32
//
// Launch (src/ops/attention_paged/launch.rs):
//   naive          grid batch * heads * group   block 256   dim <= 256
//   tma_<dim>      grid batch * heads * eights of the group * splits   block 128   cluster splits
//                  dim 64, 128 or 256, the next that holds the shape's; half width; dim a multiple of 8; page a multiple of 16
//                  shared 32,768 at 64, 65,536 at 128 and, with half as many warps, block 64, at 256
//
// tma: the splits of a head are a cluster, whose warps take sixteen keys in turns. A warp copies them and their values (TMA, by the
// row that the page table gives) into a pipeline of its own, and waits for no other warp.
#include "cached_attention.cuh"

#define PARAMETERS                                                                                                     \
    const scalar_t *__restrict__ q, const scalar_t *__restrict__ k, const scalar_t *__restrict__ v,                    \
        const int *__restrict__ page_table, const int *__restrict__ lengths, scalar_t *__restrict__ y, int heads,      \
        int group, int dim, int page, int table, float scale

// The definition, a query a block.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) attention_paged_naive(PARAMETERS) {
    const long long row = blockIdx.x;
    const int sequence = int(row / (heads * group)), head = int(row % (heads * group)) / group;
    const int* const pages = page_table + (long long)sequence * table;
    attend_query(row, q, k, v, y, lengths[sequence], dim, scale, [&](int j) {
        return (((long long)pages[j / page] * page + j % page) * heads + head) * dim;
    });
}

#if !defined(KERNELGATE_F32) && __CUDA_ARCH__ >= 900
#include "cluster.cuh"
#include "hopper.cuh"
#include "warp_mma.cuh"

namespace {

constexpr int STAGES = 2;
constexpr int STEP = 16;  // keys of a stage
constexpr int ROWS = 8;
constexpr int PIPELINE_WARPS = 4;
constexpr int TOGETHER = 8;  // partials that are read before the first is used

template <int DIM>
struct Storage {
    static constexpr int WARPS = DIM > 128 ? PIPELINE_WARPS / 2 : PIPELINE_WARPS;
    static constexpr int BOXES = DIM / 64;

    struct Stage {
        scalar_t keys[BOXES * SwizzledRows::BOX];
        scalar_t values[BOXES * SwizzledRows::BOX];
    };
    // The partials of the warps take the place of the stages.
    union {
        Stage stages[WARPS][STAGES];
        WarpPartials<DIM, ROWS, WARPS, 4> warps;
    };
};

// The partial of a block, which the cluster reads.
template <int DIM>
struct BlockPartial {
    float2 header[ROWS];  // largest score, sum of weights
    float out[ROWS][DIM];
};

// What the table of a sequence says about the steps of a warp: a lane a step, WARP steps at a time.
struct PageRows {
    const int* const pages;
    const int page;
    const int table;  // pages of a sequence
    const int first, stride;  // keys
    int row;

    __device__ __forceinline__ PageRows(const int* pages, int page, int table, int first, int stride)
        : pages(pages), page(page), table(table), first(first), stride(stride) {
        load(0);
    }
    __device__ __forceinline__ void load(int step) {
        const int key = first + (step + int(threadIdx.x) % WARP) * stride;
        row = key / page < table ? pages[key / page] * page + key % page : 0;
    }
    // The row of k and v at which the keys of a step begin; steps come one after the other.
    __device__ __forceinline__ int of_step(int step) {
        if (step > 0 && step % WARP == 0) load(step);
        return __shfl_sync(ALL_LANES, row, step % WARP);
    }
};

template <int DIM>
__device__ __forceinline__ void decode(const scalar_t* q, const int* page_table, const int* lengths, scalar_t* y,
                                       const hopper::TensorMap& k, const hopper::TensorMap& v, int heads, int group,
                                       int dim, int page, int table, float scale) {
    using Shared = Storage<DIM>;
    constexpr int THREADS = Shared::WARPS * WARP;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ unsigned long long full[Shared::WARPS][STAGES];
    __shared__ BlockPartial<DIM> block;
    Shared& storage = *reinterpret_cast<Shared*>(memory);

    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int splits = int(cluster_size()), rank = int(hopper::cluster_rank());
    // Up to eight query heads of a head of keys: a larger group reads its keys again, from L2.
    const int parts = (group + ROWS - 1) / ROWS, part = int(blockIdx.x) / splits % parts;
    const int head = int(blockIdx.x) / splits / parts, sequence = head / heads;  // of the keys of all sequences
    const long long first_row = (long long)head * group + part * ROWS;
    if (lane == 0) {
        for (int stage = 0; stage < STAGES; ++stage) hopper::mbarrier_init(shared_address(&full[warp][stage]), 1);
        hopper::mbarrier_init_fence();
    }
    __syncwarp();

    // Warps of all blocks take steps in turns: the first pages are known before the length is.
    const int first = (rank * Shared::WARPS + warp) * STEP, stride = splits * Shared::WARPS * STEP;
    PageRows rows(page_table + (long long)sequence * table, page, table, first, stride);
    const DecodeShape s{min(ROWS, group - part * ROWS), 1, lengths[sequence], dim, 0, scale};
    const auto copy = [&](int step) {
        if (first + step * stride >= s.keys) return;
        const int row = rows.of_step(step);
        if (lane != 0) return;
        typename Shared::Stage& stage = storage.stages[warp][step % STAGES];
        const unsigned barrier = shared_address(&full[warp][step % STAGES]);
        hopper::mbarrier_expect_tx(barrier, int(sizeof(stage)));
#pragma unroll
        for (int box = 0; box < Shared::BOXES; ++box) {
            const unsigned keys = shared_address(stage.keys + box * SwizzledRows::BOX);
            hopper::tma_load_evict_first(keys, k, box * 64, head % heads, row, barrier);
        }
#pragma unroll
        for (int box = 0; box < Shared::BOXES; ++box) {
            const unsigned values = shared_address(stage.values + box * SwizzledRows::BOX);
            hopper::tma_load_evict_first(values, v, box * 64, head % heads, row, barrier);
        }
    };
    for (int step = 0; step < STAGES; ++step) copy(step);

    WarpMma<DIM> mma(s);
    mma.load_queries(q + first_row * dim);
    hopper::PipelineState<STAGES> place;
#pragma unroll 1
    for (int step = 0; first + step * stride < s.keys; ++step) {
        const int at = first + step * stride;
        typename Shared::Stage& stage = storage.stages[warp][place.stage];
        hopper::mbarrier_wait(shared_address(&full[warp][place.stage]), place.parity);
        if (at + STEP > s.keys) {
            // Slots of a page behind the last key may hold anything, and zero times infinity is no number.
            for (int i = lane; i < Shared::BOXES * SwizzledRows::BOX; i += WARP) {
                if (i % SwizzledRows::BOX / 64 >= s.keys - at) stage.values[i] = from_float<scalar_t>(0.0f);
            }
            __syncwarp();
        }
        mma.step(stage.keys, stage.values, at);
        __syncwarp();
        copy(step + STAGES);
        place.next();
    }
    __syncthreads();  // all stages have been read
    mma.put(storage.warps);
    __syncthreads();

    const auto store = [&](int row, int element, const Partial<2>& partial) {
        const float results[2] = {partial.result(0), partial.result(1)};
        scalar_t* const to = y + (first_row + row) * dim + element;
        if (element < dim) *reinterpret_cast<unsigned*>(to) = pack_detail::pack_word(results);
    };
#pragma unroll 1
    for (int i = threadIdx.x; i < s.rows * (DIM / 2); i += THREADS) {
        const int row = i / (DIM / 2), element = i % (DIM / 2) * 2;
        const Partial<2> partial = storage.warps.template reduce<2, Shared::WARPS>(row, element);
        if (splits == 1) {
            store(row, element, partial);
            continue;
        }
        if (element == 0) block.header[row] = make_float2(partial.max, partial.total);
        *reinterpret_cast<float2*>(&block.out[row][element]) = make_float2(partial.out[0], partial.out[1]);
    }
    if (splits == 1) return;

    // Each block finishes its part of the outputs.
    hopper::cluster_sync();
#pragma unroll 1
    for (int i = rank * THREADS + threadIdx.x; i < s.rows * (DIM / 2); i += splits * THREADS) {
        const int row = i / (DIM / 2), element = i % (DIM / 2) * 2;
        Partial<2> partial;
#pragma unroll 1
        for (int from = 0; from < splits; from += TOGETHER) {
            float2 header[TOGETHER], out[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                header[i] = make_float2(Maximum::identity(), 0.0f);
                out[i] = make_float2(0.0f, 0.0f);
                if (from + i >= splits) continue;
                header[i] = *reinterpret_cast<const float2*>(mapa_generic(&block.header[row].x, from + i));
                out[i] = *reinterpret_cast<const float2*>(mapa_generic(&block.out[row][element], from + i));
            }
            partial.merge(header, out);
        }
        store(row, element, partial);
    }
    hopper::cluster_sync();  // nobody leaves whose partial is still read
}

}  // namespace

#define ATTENTION_PAGED_TMA(DIM)                                                                                       \
    extern "C" __global__ void __launch_bounds__(Storage<DIM>::WARPS* WARP) attention_paged_tma_##DIM(                 \
        const scalar_t* __restrict__ q, const int* __restrict__ page_table, const int* __restrict__ lengths,           \
        scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,                                         \
        const __grid_constant__ hopper::TensorMap v, int heads, int group, int dim, int page, int table,               \
        float scale) {                                                                                                 \
        decode<DIM>(q, page_table, lengths, y, k, v, heads, group, dim, page, table, scale);                           \
    }
ATTENTION_PAGED_TMA(64)
ATTENTION_PAGED_TMA(128)
ATTENTION_PAGED_TMA(256)
#endif
