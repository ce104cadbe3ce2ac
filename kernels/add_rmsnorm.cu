// Residual addition and RMSNorm of the sum in one kernel: total = x + residual, y = total / sqrt(mean(total * total) +
// eps) * weight, nothing rounded in between. x, residual, y, total [rows, cols]; weight [cols]; all of one dtype; the
// arithmetic is f32. Two reads and two writes where two kernels need three and two.
//
// Launch of each entry (no dynamic shared memory):
//   v1  any cols                 grid rows            block 256
//   v2  cols <= 512     _warp    grid ceil(rows / 4)  block (32, 4)
//       cols <= 16384   _block   grid rows            block 32 * ceil(cols / 512)
//       more            _looped  grid rows            block 1024
//       _warp and _block also as _odd, for cols that are no multiple of 8
//   v3  513 .. 4096     _few     grid rows            block 32 * ceil(cols / 256)   f32, cols no multiple of 8
//       .. 8192         _many    grid rows            block 32 * ceil(cols / 512)   f32, cols no multiple of 8
//       others as v2
#include "held.cuh"

#define PARAMETERS                                                                                              \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ residual, const scalar_t *__restrict__ weight, \
        scalar_t *__restrict__ y, scalar_t *__restrict__ total, int rows, int cols, float eps

// v1: the formula. One block a row, the sums taken twice, a tree in shared memory.
extern "C" __global__ void add_rmsnorm_v1(PARAMETERS) {
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
// AHEAD: the rows that a later block will read are asked for.
template <typename Row, bool EARLY, bool AHEAD, typename Team>
__device__ __forceinline__ void add_rmsnorm_held(const Team& team, const AddRmsNorm& a) {
    const long long start = team.row() * a.cols;
    Row row(team, a.cols);
    Row residual = row;
    row.load(a.x + start, Absent::ZERO);
    residual.load(a.residual + start, Absent::ZERO);
    const HeldWeights<EARLY, Row> weights(a.weight, row);
    if constexpr (AHEAD) {
        fetch_ahead<2>(team, a.x, a.cols);
        fetch_ahead<2>(team, a.residual, a.cols);
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
    const float scale = inverse_root_mean(team.template reduce<Sum, 0>(squares.total()), a.cols, a.eps);

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

// v2: the rows are held as packs and read once, those of a later block are asked for. On an H200 at 8192x4096, as a fraction
// of a copy: .99 (without asking .97); at 8192x4095 in bf16 .97.
#define HELD(PATH, BOUNDS, AHEAD, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__ BOUNDS add_rmsnorm_v2_##PATH(PARAMETERS) {                   \
        add_rmsnorm_held<HeldRow<16, false, false>, true, AHEAD>(__VA_ARGS__,                                 \
                                                                 {x, residual, weight, y, total, cols, eps}); \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__ BOUNDS add_rmsnorm_v2_##PATH##_odd(PARAMETERS) {             \
        add_rmsnorm_held<HeldRow<16, false, true, false, SECTOR_LEN>, false, AHEAD>(                          \
            __VA_ARGS__, {x, residual, weight, y, total, cols, eps});                                         \
    }
HELD(warp, (128), false, LaneTeam(WARP, rows))
HELD(block, (1024), true, BlockTeam())

// Rows that outgrow the registers of a block: two passes, the second from the caches.
template <int WIDTH>
__device__ __forceinline__ void add_rmsnorm_looped(const AddRmsNorm& a) {
    const long long start = BlockTeam::row() * a.cols;
    const int first = int(threadIdx.x) * WIDTH;
    const int stride = int(blockDim.x) * WIDTH;
    float sum[WIDTH], other[WIDTH];
    FourSums squares;
    for (int column = first; column < a.cols; column += stride) {
        Access<WIDTH>::load(a.x + start + column).get(sum);
        Access<WIDTH>::load(a.residual + start + column).get(other);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            squares.add_square(j, sum[j] + other[j]);
        }
    }
    const float scale = inverse_root_mean(block_reduce<Sum, 0>(squares.total()), a.cols, a.eps);
    for (int column = first; column < a.cols; column += stride) {
        float weight[WIDTH];
        Access<WIDTH>::load(a.x + start + column).get(sum);
        Access<WIDTH>::load(a.residual + start + column).get(other);
        Access<WIDTH>::load(a.weight + column).get(weight);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            sum[j] += other[j];
            other[j] = sum[j] * scale * weight[j];
        }
        Access<WIDTH>::store(a.total + start + column, sum);
        Access<WIDTH>::store(a.y + start + column, other);
    }
}
extern "C" __global__ void __launch_bounds__(1024) add_rmsnorm_v2_looped(PARAMETERS) {
    if (cols % PACK_LEN == 0) {
        add_rmsnorm_looped<PACK_LEN>({x, residual, weight, y, total, cols, eps});
    } else {
        add_rmsnorm_looped<1>({x, residual, weight, y, total, cols, eps});
    }
}

#if defined(KERNELGATE_F32)
// v3: of rows that start anywhere the packs begin at a whole line, half as many a thread, and the weights come early. On an
// H200 8192x4095 takes 130.5 us (v2 138.8, Liger 134.5, a copy 128.4), 8192x2047 66.9 (70.7, 65.6), 2048x2047 19.5 (23.1,
// 18.8), 8192x8191 258.4 (266.3, 253.7).
extern "C" __global__ void __launch_bounds__(512, 2) add_rmsnorm_v3_few(PARAMETERS) {
    add_rmsnorm_held<HeldRow<8, false, true, false, LINE_LEN>, true, true>(BlockTeam(),
                                                                            {x, residual, weight, y, total, cols, eps});
}
// One block an SM, by its registers: with two of 62 registers 8192x8191 takes 263.8 us.
extern "C" __global__ void __launch_bounds__(512, 1) add_rmsnorm_v3_many(PARAMETERS) {
    add_rmsnorm_held<HeldRow<16, false, true, false, LINE_LEN>, true, true>(BlockTeam(),
                                                                             {x, residual, weight, y, total, cols, eps});
}
#endif
