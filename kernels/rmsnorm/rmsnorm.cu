// RMSNorm over the last axis: y = x / sqrt(mean(x * x) + eps) * weight. x, y [rows, cols]; weight [cols]; all of one
// dtype; the arithmetic is f32.
//
// The idea: a row is read once and stays packed in the registers of the thread group that fits its length; the weights are
// loaded beside it. Launch (no dynamic shared memory); _unaligned is for cols that are no multiple of 8:
//   naive               any cols    grid rows                  block 256
//   lanes_per_row       .. 256      grid ceil(rows * L / 128)  block (L, 128 / L), L = 1, 2, 4 .. 32, the least >= cols / 8
//   warp_per_row        .. 512      grid ceil(rows / 4)        block (32, 4)
//   small_block         .. 4096     grid rows                  block 32 * ceil(cols / 512)
//   large_block         .. 8192     grid rows                  block 32 * ceil(cols / 1024)
//   full_block          .. 16384    grid rows                  block 32 * ceil(cols / 1024)
//   cluster             .. 262144   grid rows * C, cluster C = 2 .. 16: the least with C * 10240 >= cols; sm_90 and later
//                                   block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//   f16 and bf16 only:
//   wide_warp           .. 1024     grid ceil(rows / 4)        block (32, 4)
//   few_rows            .. 8192     grid rows                  block 32 * ceil(cols / 256)
//   all from warp_per_row on also as _unaligned; in f32 those up to 8192 columns give way to
//   elements_warp       .. 384      grid ceil(rows / 4)        block 128
//   elements_two_warps  .. 512      grid ceil(rows / 2)        block 128
//   line_block          .. 4096     grid rows                  block 32 * ceil(cols / 256)
//   line_large_block    .. 8192     grid rows                  block 32 * ceil(cols / 512)
#include "cluster_row.cuh"
#include "dependent.cuh"
#include "element_row.cuh"

#define PARAMETERS                                                                                                     \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ weight, scalar_t *__restrict__ y, int rows, int cols, \
        float eps

// Lesson 1: the formula. One block a row, two passes over memory, a tree in shared memory.
extern "C" __global__ void rmsnorm_naive(PARAMETERS) {
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        squares += to_float(x[i]) * to_float(x[i]);
    }
    const float root = sqrtf(tree_reduce<Sum>(squares) / float(cols) + eps);
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        y[i] = from_float<scalar_t>(to_float(x[i]) / root * to_float(weight[i]));
    }
}

struct RmsNorm {
    const scalar_t* x;
    const scalar_t* weight;
    scalar_t* y;
    int cols;
    float eps;
};

// One pass over memory: the row stays in the registers of its group, VALUES a thread.
template <int WIDTH, int VALUES, typename Group>
__device__ __forceinline__ void rmsnorm_in_registers(const Group& group, const RmsNorm& a) {
    using Fragment = RowFragment<WIDTH, VALUES>;
    Fragment fragment(group, a.cols);
    fragment.load(a.x + group.row() * a.cols, Absent::ZERO);
    const WeightFragment<Group::EARLY_WEIGHTS && WIDTH == PACK_LEN, WIDTH, VALUES> weights(a.weight, fragment);

    FourSums squares;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            squares.add_square(k * WIDTH + j, fragment.value[k][j]);
        }
    }
    const float scale = inverse_root_mean(group.template reduce<Sum, 0>(squares.total()), a.cols, a.eps);

    scalar_t* const mine = a.y + group.row() * a.cols + fragment.first;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
        if (fragment.has(k)) {
            float weight[WIDTH], result[WIDTH];
            weights.get(k, fragment, weight);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                result[j] = fragment.value[k][j] * scale * weight[j];
            }
            Access<WIDTH>::store_once(mine + k * fragment.stride, result);
        }
    }
}

// The widest access that every row allows.
template <int VALUES, typename Group>
__device__ __forceinline__ void rmsnorm_in_registers(const Group& group, const RmsNorm& a) {
    if (a.cols % PACK_LEN == 0) {
        rmsnorm_in_registers<PACK_LEN, VALUES>(group, a);
    } else {
        rmsnorm_in_registers<1, VALUES>(group, a);
    }
}

// Short rows: some lanes of a warp own a row, 8 values each.
extern "C" __global__ void __launch_bounds__(128) rmsnorm_lanes_per_row(PARAMETERS) {
    begin_dependent_launch();
    rmsnorm_in_registers<8>(LaneGroup(int(blockDim.x), rows), {behind_wait(x), behind_wait(weight), y, cols, eps});
}

// One pass over memory, the row held as packs. Groups of whole warps.
// PREFETCH: the row of a later block is prefetched into L2.
template <typename Row, bool EARLY_WEIGHTS, bool PREFETCH, typename Group>
__device__ __forceinline__ void rmsnorm_packed(const Group& group, const RmsNorm& a) {
    Row row(group, a.cols);
    row.load(a.x + group.row() * a.cols, Absent::ZERO);
    const PackedWeights<EARLY_WEIGHTS, Row> weights(a.weight, row, a.cols);
    if constexpr (PREFETCH) {
        prefetch_row(group, a.x, a.cols);
    }

    FourSums squares;
    row.each(0.0f, [&](int turn, float x) { squares.add_square(turn, x); });
    const float scale = inverse_root_mean(group.template reduce<Sum, 0>(squares.total()), a.cols, a.eps);

    scalar_t* const y = a.y + group.row() * a.cols;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        if (row.has(k)) {
            float x[PACK_LEN], weight[PACK_LEN];
            unpack(row.packs[k], x);
            weights.get(k, row, weight);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                x[j] = x[j] * scale * weight[j];
            }
            store_pack(y + row.column + k * row.stride, pack(x));
        }
    }
    if (Row::has_edges && row.edge >= 0) {
        y[row.edge] = from_float<scalar_t>(to_float(row.single) * scale * weights.edge(row));
    }
}

// Of a row that starts anywhere: in one warp, and for a pack a thread, weights of half width are fetched early. In f32 their
// registers cost more. The packs of short rows begin at a sector; long ones of half width lose by it.
template <int VALUES, bool SPREAD, bool PREFETCH, typename Group>
__device__ __forceinline__ void rmsnorm_unaligned(const Group& group, const RmsNorm& a) {
    using Row = PackedRow<VALUES, SPREAD, true, false, VALUES == 16 ? SECTOR_LEN : PACK_LEN>;
    constexpr bool EARLY_WEIGHTS = (Group::EARLY_WEIGHTS || VALUES == PACK_LEN) && sizeof(scalar_t) == 2;
    rmsnorm_packed<Row, EARLY_WEIGHTS, PREFETCH>(group, a);
}

// Half the values a thread of other kernels and early weights; blocks of long rows prefetch the row of a later block into L2.
#define ALIGNED(PATH, BOUNDS, VALUES, SPREAD, EARLY_WEIGHTS, PREFETCH, ...)                           \
    extern "C" __global__ void __launch_bounds__ BOUNDS rmsnorm_##PATH(PARAMETERS) {                  \
        begin_dependent_launch();                                                                     \
        rmsnorm_packed<PackedRow<VALUES, SPREAD, false>, EARLY_WEIGHTS, PREFETCH>(                    \
            __VA_ARGS__, {behind_wait(x), behind_wait(weight), y, cols, eps});                                                  \
    }
#define UNALIGNED(PATH, BOUNDS, VALUES, SPREAD, EARLY_WEIGHTS, PREFETCH, ...)                   \
    extern "C" __global__ void __launch_bounds__ BOUNDS rmsnorm_##PATH##_unaligned(PARAMETERS) { \
        begin_dependent_launch();                                                               \
        rmsnorm_unaligned<VALUES, SPREAD, PREFETCH>(__VA_ARGS__, {behind_wait(x), behind_wait(weight), y, cols, eps});    \
    }
#define BOTH(...)          \
    ALIGNED(__VA_ARGS__)   \
    UNALIGNED(__VA_ARGS__)
#if defined(KERNELGATE_F32)
#define SHORT(...) ALIGNED(__VA_ARGS__)
#else
#define SHORT(...) BOTH(__VA_ARGS__)
#endif
SHORT(warp_per_row, (128), 16, false, true, false, LaneGroup(WARP, rows))
SHORT(small_block, (512, sizeof(scalar_t) == 4 ? 2 : 3), 16, true, true, true, BlockGroup())
SHORT(large_block, (256, sizeof(scalar_t) == 4 ? 2 : 3), 32, sizeof(scalar_t) == 4, true, true, BlockGroup())
#if !defined(KERNELGATE_F32)
BOTH(wide_warp, (128), 32, false, true, false, LaneGroup(WARP, rows))
BOTH(few_rows, (1024), PACK_LEN, false, true, false, BlockGroup())
#endif
BOTH(full_block, (1024), 32, false, false, true, BlockGroup())
#if __CUDA_ARCH__ >= 900
BOTH(cluster, (1024), 32, false, false, true, ClusterGroup<1>())
#endif

#if defined(KERNELGATE_F32)
template <typename Row>
__device__ __forceinline__ void rmsnorm_by_elements(PARAMETERS) {
    begin_dependent_launch();
    x = behind_wait(x);
    weight = behind_wait(weight);
    const Row row(rows, cols);
    float weights[Row::VALUES], value[Row::VALUES];
    row.load_weights(weight, weights);
    row.load(x, value);
    const float squares = row.template sum_of<0>([&](int k) { return value[k] * value[k]; });
    const float scale = inverse_root_mean(squares, cols, eps);
    row.each([&](int k) { y[row.start + k * Row::STRIDE] = value[k] * scale * weights[k]; });
}

// Short unaligned rows by neighbouring elements: a warp moves whole sectors wherever a row starts.
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) rmsnorm_elements_warp(PARAMETERS) {
    rmsnorm_by_elements<ElementsOfWarp>(x, weight, y, rows, cols, eps);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) rmsnorm_elements_two_warps(PARAMETERS) {
    rmsnorm_by_elements<ElementsOfTwoWarps>(x, weight, y, rows, cols, eps);
}

// Longer unaligned rows: the packs begin at a whole cache line, and the weights are loaded early.
extern "C" __global__ void __launch_bounds__(512, 2) rmsnorm_line_block(PARAMETERS) {
    begin_dependent_launch();
    rmsnorm_packed<PackedRow<8, false, true, false, LINE_LEN>, true, true>(BlockGroup(), {behind_wait(x), behind_wait(weight), y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(512) rmsnorm_line_large_block(PARAMETERS) {
    begin_dependent_launch();
    rmsnorm_packed<PackedRow<16, false, true, false, LINE_LEN>, true, true>(BlockGroup(), {behind_wait(x), behind_wait(weight), y, cols, eps});
}
#endif
