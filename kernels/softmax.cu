// Softmax over the last axis: y = exp(x - max) / sum(exp(x - max)). x, y [rows, cols] of one dtype; f32 arithmetic.
// A NaN or +inf in a row makes the whole row NaN, and so does a row of -inf alone; -inf elsewhere gives 0.
//
// Launch of each entry (no dynamic shared memory); for a shape that a version does not serve, the version before:
//   v1  any cols               grid rows                  block 256
//   v2  any cols               grid rows                  block 32 * clamp(ceil(cols / 1024), 1, 32)
//   v3  cols <= 256    _lanes  grid ceil(rows * L / 128)  block (L, 128 / L), L = 1, 2, 4 .. 32, the least >= cols / 8
//       cols <= 1024   _warp   grid ceil(rows / 4)        block (32, 4)
//       cols <= 32768  _block  grid rows                  block 32 * ceil(cols / 1024)
//   v4  cols > 16384 _cluster  grid rows * C, cluster C = 2, 4, 8: the least with C * 16384 >= cols, at most 8
//                              block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//                              sm_90 and later, cols <= 262144
//   v5  257 .. 512    _warp     grid ceil(rows / 4)        block (32, 4)
//       .. 1024       _few      grid rows                  block 32 * ceil(cols / 512)
//       .. 8192       _block    grid rows                  block 32 * ceil(cols / 1024)
//       .. 32768      _wide     grid rows                  block 32 * ceil(cols / 1024)
//       .. 262144     _cluster  grid rows * C, cluster C = 2, 4, 8: the least with C * 32768 >= cols; sm_90 and later
//                               block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//       each also as _odd, for cols that are no multiple of 8
// Rows that start on 16 bytes (cols * element size is a multiple of 16) move in 16-byte packs, others by elements.
#include "held.cuh"

#define PARAMETERS const scalar_t *__restrict__ x, scalar_t *__restrict__ y, int rows, int cols

// v1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void softmax_v1(PARAMETERS) {
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;
    float largest = Maximum::identity();
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        largest = fmaxf(largest, to_float(x[i]));
    }
    const float row_max = tree_reduce<Maximum>(largest);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        sum += expf(to_float(x[i]) - row_max);
    }
    const float row_sum = tree_reduce<Sum>(sum);
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        y[i] = from_float<scalar_t>(expf(to_float(x[i]) - row_max) / row_sum);
    }
}

// e^x for x <= 0. For half-width types one scaled exp2: its relative error, |x| * 2^-23, is far below their rounding
// wherever the result does not vanish. Results below 2^-126 are kept: bf16 can hold them.
__device__ __forceinline__ float exp_nonpositive(float x) {
#if defined(KERNELGATE_F32)
    return expf(x);
#else
    return exp2f(x * LOG2_E);
#endif
}

// Two passes over the row, the second from the caches: for rows of any length, by the whole block.
template <int WIDTH>
__device__ __forceinline__ void softmax_looped(const scalar_t* x, scalar_t* y, int cols) {
    x += BlockTeam::row() * cols;
    y += BlockTeam::row() * cols;
    const int first = int(threadIdx.x) * WIDTH;
    const int stride = int(blockDim.x) * WIDTH;
    float value[WIDTH];

    // The maximum so far and the sum of exp(x - it): a larger maximum rescales the sum. As long as only -inf has been
    // seen the sum is taken from 0, because -inf - -inf is NaN and other threads may still hold finite values.
    float largest = Maximum::identity();
    float sum = 0.0f;
    for (int column = first; column < cols; column += stride) {
        Access<WIDTH>::load(x + column).get(value);
        float next = largest;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            next = fmaxf(next, value[j]);
        }
        const float from = next == Maximum::identity() ? 0.0f : next;
        sum *= exp_nonpositive(largest - from);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            sum += exp_nonpositive(value[j] - from);
        }
        largest = next;
    }
    const float row_max = block_reduce<Maximum, 0>(largest);
    const float row_sum = block_reduce<Sum, 1>(sum * exp_nonpositive(largest - row_max));
    const float scale = 1.0f / row_sum;

    for (int column = first; column < cols; column += stride) {
        Access<WIDTH>::load_once(x + column).get(value);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            value[j] = exp_nonpositive(value[j] - row_max) * scale;
        }
        Access<WIDTH>::store_once(y + column, value);
    }
}

// One pass over memory: the row stays in the registers of its team, VALUES a thread, and each
// exponential is taken once.
template <int WIDTH, int VALUES, typename Team>
__device__ __forceinline__ void softmax_in_registers(const Team& team, const scalar_t* x, scalar_t* y, int cols) {
    using Share = RowShare<WIDTH, VALUES>;
    Share share(team, cols);
    share.load(x + team.row() * cols, Absent::MINUS_INFINITY);

    float largest = Maximum::identity();
#pragma unroll
    for (int k = 0; k < Share::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            largest = fmaxf(largest, share.value[k][j]);
        }
    }
    const float row_max = team.template reduce<Maximum, 0>(largest);

    FourSums sum;
#pragma unroll
    for (int k = 0; k < Share::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            share.value[k][j] = exp_nonpositive(share.value[k][j] - row_max);
            sum.add(k * WIDTH + j, share.value[k][j]);
        }
    }
    const float scale = 1.0f / team.template reduce<Sum, 1>(sum.total());

    scalar_t* const mine = y + team.row() * cols + share.first;
#pragma unroll
    for (int k = 0; k < Share::ACCESSES; ++k) {
        if (share.has(k)) {
            float result[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                result[j] = share.value[k][j] * scale;
            }
            Access<WIDTH>::store_once(mine + k * share.stride, result);
        }
    }
}

// The widest access that every row allows.
__device__ __forceinline__ void softmax_looped(const scalar_t* x, scalar_t* y, int cols) {
    if (cols % PACK_LEN == 0) {
        softmax_looped<PACK_LEN>(x, y, cols);
    } else {
        softmax_looped<1>(x, y, cols);
    }
}
template <int VALUES, typename Team>
__device__ __forceinline__ void softmax_in_registers(const Team& team, const scalar_t* x, scalar_t* y, int cols) {
    if (cols % PACK_LEN == 0) {
        softmax_in_registers<PACK_LEN, VALUES>(team, x, y, cols);
    } else {
        softmax_in_registers<1, VALUES>(team, x, y, cols);
    }
}

// v2: 16-byte packs, shuffles, and the sum taken online beside the maximum: two passes over the row, not three.
extern "C" __global__ void __launch_bounds__(1024) softmax_v2(PARAMETERS) { softmax_looped(x, y, cols); }

// v3: the row is read once and stays in registers, 8 or 32 values a thread, all its loads in flight together. The team
// that owns it fits its length: some lanes of a warp (8 values each), a warp, a block.
extern "C" __global__ void __launch_bounds__(128) softmax_v3_lanes(PARAMETERS) {
    softmax_in_registers<8>(LaneTeam(int(blockDim.x), rows), x, y, cols);
}
extern "C" __global__ void __launch_bounds__(128) softmax_v3_warp(PARAMETERS) {
    softmax_in_registers<32>(LaneTeam(WARP, rows), x, y, cols);
}
extern "C" __global__ void __launch_bounds__(1024) softmax_v3_block(PARAMETERS) {
    softmax_in_registers<32>(BlockTeam(), x, y, cols);
}

#if __CUDA_ARCH__ >= 900
// v4: a row that outgrows a block, or leaves no room for a second one beside it, is cut over the blocks of a cluster,
// which reduce through distributed shared memory. Up to 262,144 columns are read once.
extern "C" __global__ void __launch_bounds__(1024) softmax_v4_cluster(PARAMETERS) {
    softmax_in_registers<32>(ClusterTeam(), x, y, cols);
}
#endif

// e^(x - m) for x <= m. At half width one scaled exponential, which keeps results below 2^-126: bf16 can hold them.
__device__ __forceinline__ float exp_of_difference(float x, float m) {
#if defined(KERNELGATE_F32)
    return expf(x - m);
#else
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"((x - m) * LOG2_E));
    return y;
#endif
}

// One pass over memory, the row held as packs until its exponentials take their place. Teams of whole warps.
// AHEAD: the row that a later block will read is asked for.
template <int VALUES, bool AHEAD, bool ODD, typename Team>
__device__ __forceinline__ void softmax_held(const Team& team, const scalar_t* x, scalar_t* y, int cols) {
    using Row = HeldRow<VALUES, false, ODD, false, SECTOR_LEN>;
    Row row(team, cols);
    row.load(x + team.row() * cols, Absent::MINUS_INFINITY);
    if constexpr (AHEAD) {
        fetch_ahead(team, x, cols);
    }

    float largest = Maximum::identity();
    row.each(0.0f, [&](int, float value) { largest = fmaxf(largest, value); });
    const float row_max = team.template reduce<Maximum, 0>(largest);

    float power[Row::PACKS][PACK_LEN];
    FourSums sum;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        unpack(row.packs[k], power[k]);
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
            power[k][j] = exp_of_difference(power[k][j], row_max);
            sum.add(j, power[k][j]);
        }
    }
    const float single = ODD ? exp_of_difference(to_float(row.single), row_max) : 0.0f;
    sum.add(0, single);
    const float scale = 1.0f / team.template reduce<Sum, 1>(sum.total());

    y += team.row() * cols;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        if (row.has(k)) {
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                power[k][j] *= scale;
            }
            store_pack(y + row.column + k * row.stride, pack(power[k]));
        }
    }
    if (ODD && row.edge >= 0) {
        y[row.edge] = from_float<scalar_t>(single * scale);
    }
}

// v5: the row is held as packs, plain accesses, packs for rows that start anywhere, and the row of a later block is asked
// for. On an H200, as a fraction of a copy: bf16 1.00 at 8192x4096 (v3 .96), 1.00 at 32768x8192, .99 at 8192x4095 (v3 .78);
// f32 .985 (v3 .93).
#if defined(KERNELGATE_F32) && __CUDA_ARCH__ < 900
constexpr int BLOCKS_OF_AN_SM = 3;  // one more would not fit without spills
#else
constexpr int BLOCKS_OF_AN_SM = 4;
#endif
#define HELD(PATH, BOUNDS, VALUES, AHEAD, ...)                                                \
    extern "C" __global__ void __launch_bounds__ BOUNDS softmax_v5_##PATH(PARAMETERS) {       \
        softmax_held<VALUES, AHEAD, false>(__VA_ARGS__, x, y, cols);                          \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__ BOUNDS softmax_v5_##PATH##_odd(PARAMETERS) { \
        softmax_held<VALUES, AHEAD, true>(__VA_ARGS__, x, y, cols);                           \
    }
HELD(warp, (128), 16, false, LaneTeam(WARP, rows))
HELD(few, (64), 16, false, BlockTeam())
HELD(block, (256, BLOCKS_OF_AN_SM), 32, true, BlockTeam())
HELD(wide, (1024), 32, true, BlockTeam())
#if __CUDA_ARCH__ >= 900
HELD(cluster, (1024), 32, sizeof(scalar_t) == 2, ClusterTeam())
#endif
