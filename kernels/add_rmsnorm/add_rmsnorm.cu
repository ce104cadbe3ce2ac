// Residual addition and RMSNorm of the sum in one kernel: total = x + residual, y = total / sqrt(mean(total * total) +
// eps) * weight, nothing rounded in between. x, residual, y, total [rows, cols]; weight [cols]; all of one dtype; the
// arithmetic is f32. Two reads and two writes where two kernels need three and two.
//
// The idea: both rows are read once, their sum leaves at once and stays in registers as f32 for the normalisation. Launch (no
// dynamic shared memory); _unaligned is for cols that are no multiple of 8:
//   naive             any cols   grid rows            block 256
//   warp_per_row      .. 512     grid ceil(rows / 4)  block (32, 4)                    also _unaligned
//   block             .. 10240   grid rows            block 32 * ceil(cols / 512)      also _unaligned
//   cluster           .. 262144  grid rows * C        block 32 * ceil(S / 512)         also _unaligned; sm_90 and later
//                                cluster C = 2 .. 16: the least with C * 10240 >= cols; S = 8 * ceil(cols / (8 * C))
//   few_rows          .. 1024    grid rows            block 32 * ceil(cols / 256)      f16 and bf16; also _unaligned
//   line_block        .. 4096    grid rows            block 32 * ceil(cols / 256)      f32, cols no multiple of 8
//   line_large_block  .. 8192    grid rows            block 32 * ceil(cols / 512)      f32, cols no multiple of 8
#include "cluster_row.cuh"

#define PARAMETERS                                                                                              \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ residual, const scalar_t *__restrict__ weight, \
        scalar_t *__restrict__ y, scalar_t *__restrict__ total, int rows, int cols, float eps

// Lesson 1: the formula. One block a row, the sums taken twice, a tree in shared memory.
extern "C" __global__ void add_rmsnorm_naive(PARAMETERS) {
    const long long start = (long long)blockIdx.x * cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        const float sum = to_float(x[start + i]) + to_float(residual[start + i]);
        squares += sum * sum;
    }
    const float root = sqrtf(tree_reduce<Sum>(squares) / float(cols) + eps);
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        const float sum = to_float(x[start + i]) + to_float(residual[start + i]);
        total[start + i] = from_float<scalar_t>(sum);
        y[start + i] = from_float<scalar_t>(sum / root * to_float(weight[i]));
    }
}

struct AddRmsNorm {
    const scalar_t* x;
    const scalar_t* residual;
    const scalar_t* weight;
    scalar_t* y;
    scalar_t* total;
    int cols;
    float eps;
};

// One pass over memory: both rows arrive as packs, their sum leaves at once and stays in registers as f32.
// PREFETCH: the rows of a later block are prefetched into L2.
template <typename Row, bool EARLY_WEIGHTS, bool PREFETCH, typename Group>
__device__ __forceinline__ void add_rmsnorm_packed(const Group& group, const AddRmsNorm& a) {
    const long long start = group.row() * a.cols;
    Row row(group, a.cols);
    Row residual = row;
    row.load(a.x + start, Absent::ZERO);
    residual.load(a.residual + start, Absent::ZERO);
    const PackedWeights<EARLY_WEIGHTS, Row> weights(a.weight, row, a.cols);
    if constexpr (PREFETCH) {
        prefetch_row<2>(group, a.x, a.cols);
        prefetch_row<2>(group, a.residual, a.cols);
    }

    float sum[Row::PACKS][PACK_LEN];
    FourSums squares;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        float other[PACK_LEN];
        unpack(row.packs[k], sum[k]);
        unpack(residual.packs[k], other);
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
            sum[k][j] += other[j];
            squares.add_square(j, sum[k][j]);
        }
        if (row.has(k)) {
            store_pack(a.total + start + row.column + k * row.stride, pack(sum[k]));
        }
    }
    const float single = to_float(row.single) + to_float(residual.single);
    if (Row::has_edges) {
        squares.add_square(0, single);
    }
    const float scale = inverse_root_mean(group.template reduce<Sum, 0>(squares.total()), a.cols, a.eps);

#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        if (row.has(k)) {
            float weight[PACK_LEN];
            weights.get(k, row, weight);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                sum[k][j] = sum[k][j] * scale * weight[j];
            }
            store_pack(a.y + start + row.column + k * row.stride, pack(sum[k]));
        }
    }
    if (Row::has_edges && row.edge >= 0) {
        a.total[start + row.edge] = from_float<scalar_t>(single);
        a.y[start + row.edge] = from_float<scalar_t>(single * scale * weights.edge(row));
    }
}

// The rows stay packed; blocks prefetch the rows of a later block into L2.
#define PACKED(PATH, BOUNDS, PREFETCH, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__ BOUNDS add_rmsnorm_##PATH(PARAMETERS) {                   \
        add_rmsnorm_packed<PackedRow<16, false, false>, true, PREFETCH>(__VA_ARGS__,                                 \
                                                                 {x, residual, weight, y, total, cols, eps}); \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__ BOUNDS add_rmsnorm_##PATH##_unaligned(PARAMETERS) {             \
        add_rmsnorm_packed<PackedRow<16, false, true, false, SECTOR_LEN>, false, PREFETCH>(                          \
            __VA_ARGS__, {x, residual, weight, y, total, cols, eps});                                         \
    }
PACKED(warp_per_row, (128), false, LaneGroup(WARP, rows))
PACKED(block, (1024), true, BlockGroup())
#if __CUDA_ARCH__ >= 900
PACKED(cluster, (1024), true, ClusterGroup<1>())
#endif

#if !defined(KERNELGATE_F32)
// Few rows: a pack a thread, all loads on their way at once.
extern "C" __global__ void __launch_bounds__(1024) add_rmsnorm_few_rows(PARAMETERS) {
    add_rmsnorm_packed<PackedRow<PACK_LEN, false, false>, true, false>(BlockGroup(),
                                                                       {x, residual, weight, y, total, cols, eps});
}
extern "C" __global__ void __launch_bounds__(1024) add_rmsnorm_few_rows_unaligned(PARAMETERS) {
    add_rmsnorm_packed<PackedRow<PACK_LEN, false, true>, true, false>(BlockGroup(),
                                                                      {x, residual, weight, y, total, cols, eps});
}
#else
// Unaligned rows: the packs begin at a whole cache line, half as many a thread, and the weights are loaded early.
extern "C" __global__ void __launch_bounds__(512, 2) add_rmsnorm_line_block(PARAMETERS) {
    add_rmsnorm_packed<PackedRow<8, false, true, false, LINE_LEN>, true, true>(BlockGroup(),
                                                                            {x, residual, weight, y, total, cols, eps});
}
// One block an SM, by its registers: two of 62 registers each were slower.
extern "C" __global__ void __launch_bounds__(512, 1) add_rmsnorm_line_large_block(PARAMETERS) {
    add_rmsnorm_packed<PackedRow<16, false, true, false, LINE_LEN>, true, true>(BlockGroup(),
                                                                             {x, residual, weight, y, total, cols, eps});
}
#endif
