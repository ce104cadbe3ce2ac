// Softmax and its logarithm over rows that stay on chip: the row in the registers of the thread group that owns it, its
// maximum, the sum of its exponentials, and what is made of both. LOG: x - max - log(sum) in place of exp(x - max) / sum.
#pragma once
#include "cluster_row.cuh"

#define PARAMETERS const scalar_t *__restrict__ x, scalar_t *__restrict__ y, int rows, int cols

// e^x for x <= 0. For half-width types one scaled exp2: its relative error, |x| * 2^-23, is far below their rounding
// wherever the result does not vanish. Results below 2^-126 are kept: bf16 can hold them.
__device__ __forceinline__ float exp_nonpositive(float x) {
#if defined(KERNELGATE_F32)
    return expf(x);
#else
    return exp2f(x * LOG2_E);
#endif
}

// What becomes of an element of a row once its sum is known. Until then a thread keeps its exponential, or its difference from
// the maximum: the sum of maximum and logarithm would cancel where the maximum is large.
template <bool LOG>
struct RowResult {
    float of_sum;
    __device__ __forceinline__ explicit RowResult(float row_sum) : of_sum(LOG ? logf(row_sum) : 1.0f / row_sum) {}
    __device__ __forceinline__ float operator()(float kept) const { return LOG ? kept - of_sum : kept * of_sum; }
};

// One pass over memory: the row stays in the registers of its group, VALUES a thread, and each
// exponential is taken once.
template <bool LOG, int WIDTH, int VALUES, typename Group>
__device__ __forceinline__ void softmax_in_registers(const Group& group, const scalar_t* x, scalar_t* y, int cols) {
    using Fragment = RowFragment<WIDTH, VALUES>;
    Fragment fragment(group, cols);
    fragment.load(x + group.row() * cols, Absent::MINUS_INFINITY);

    float largest = Maximum::identity();
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            largest = fmaxf(largest, fragment.value[k][j]);
        }
    }
    const float row_max = group.template reduce<Maximum, 0>(largest);

    FourSums sum;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            const float difference = fragment.value[k][j] - row_max;
            const float power = exp_nonpositive(difference);
            fragment.value[k][j] = LOG ? difference : power;
            sum.add(k * WIDTH + j, power);
        }
    }
    const RowResult<LOG> result_of(group.template reduce<Sum, 1>(sum.total()));

    scalar_t* const mine = y + group.row() * cols + fragment.first;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
        if (fragment.has(k)) {
            float result[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                result[j] = result_of(fragment.value[k][j]);
            }
            Access<WIDTH>::store_once(mine + k * fragment.stride, result);
        }
    }
}

// The widest access that every row allows.
template <bool LOG, int VALUES, typename Group>
__device__ __forceinline__ void softmax_in_registers(const Group& group, const scalar_t* x, scalar_t* y, int cols) {
    if (cols % PACK_LEN == 0) {
        softmax_in_registers<LOG, PACK_LEN, VALUES>(group, x, y, cols);
    } else {
        softmax_in_registers<LOG, 1, VALUES>(group, x, y, cols);
    }
}

// e^x for x <= 0. At half width one scaled exponential, which keeps results below 2^-126: bf16 can hold them.
__device__ __forceinline__ float exp_approximate(float x) {
#if defined(KERNELGATE_F32)
    return expf(x);
#else
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * LOG2_E));
    return y;
#endif
}

// One pass over memory, the row held as packs until its exponentials take their place. Groups of whole warps.
// PREFETCH: the row of a later block is prefetched into L2.
template <bool LOG, int VALUES, bool PREFETCH, bool UNALIGNED, typename Group>
__device__ __forceinline__ void softmax_packed(const Group& group, const scalar_t* x, scalar_t* y, int cols) {
    using Row = PackedRow<VALUES, false, UNALIGNED, false, SECTOR_LEN>;
    Row row(group, cols);
    row.load(x + group.row() * cols, Absent::MINUS_INFINITY);
    if constexpr (PREFETCH) {
        prefetch_row(group, x, cols);
    }

    float largest = Maximum::identity();
    row.each(0.0f, [&](int, float value) { largest = fmaxf(largest, value); });
    const float row_max = group.template reduce<Maximum, 0>(largest);

    float kept[Row::PACKS][PACK_LEN];
    FourSums sum;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        unpack(row.packs[k], kept[k]);
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
            const float difference = kept[k][j] - row_max;
            const float power = exp_approximate(difference);
            kept[k][j] = LOG ? difference : power;
            sum.add(j, power);
        }
    }
    const float difference = UNALIGNED ? to_float(row.single) - row_max : 0.0f;
    const float power = UNALIGNED ? exp_approximate(difference) : 0.0f;
    const float single = LOG ? difference : power;
    sum.add(0, power);
    const RowResult<LOG> result_of(group.template reduce<Sum, 1>(sum.total()));

    y += group.row() * cols;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        if (row.has(k)) {
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                kept[k][j] = result_of(kept[k][j]);
            }
            store_pack(y + row.column + k * row.stride, pack(kept[k]));
        }
    }
    if (UNALIGNED && row.edge >= 0) {
        y[row.edge] = from_float<scalar_t>(result_of(single));
    }
}

// The row stays packed: half-width packs take half the registers of their values, so that more blocks fit an SM. Rows that
// start anywhere move in packs too. Blocks of long rows prefetch the row of a later block into L2 while they compute.
#if defined(KERNELGATE_F32) && __CUDA_ARCH__ < 900
constexpr int BLOCKS_OF_AN_SM = 3;  // one more would not fit without spills
#else
constexpr int BLOCKS_OF_AN_SM = 4;
#endif
// The entries of an operator for rows of more than 256 columns, and of those of a cluster where there are any.
#define SOFTMAX_PACKED(OP, LOG, PATH, BOUNDS, VALUES, PREFETCH, ...)                                                    \
    extern "C" __global__ void __launch_bounds__ BOUNDS OP##_##PATH(PARAMETERS) {                                     \
        softmax_packed<LOG, VALUES, PREFETCH, false>(__VA_ARGS__, x, y, cols);                                        \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__ BOUNDS OP##_##PATH##_unaligned(PARAMETERS) {                         \
        softmax_packed<LOG, VALUES, PREFETCH, true>(__VA_ARGS__, x, y, cols);                                         \
    }
#if __CUDA_ARCH__ >= 900
#define SOFTMAX_CLUSTER(OP, LOG) SOFTMAX_PACKED(OP, LOG, cluster, (1024), 32, true, ClusterGroup<2>())
#else
#define SOFTMAX_CLUSTER(OP, LOG)
#endif
#if defined(KERNELGATE_F32)
#define SOFTMAX_HALF(OP, LOG)
#else
#define SOFTMAX_HALF(OP, LOG)                                                   \
    SOFTMAX_PACKED(OP, LOG, wide_warp, (128), 24, false, LaneGroup(WARP, rows)) \
    SOFTMAX_PACKED(OP, LOG, few_rows, (1024), PACK_LEN, false, BlockGroup())
#endif
#define SOFTMAX_ENTRIES(OP, LOG)                                                                                      \
    SOFTMAX_PACKED(OP, LOG, warp_per_row, (128), 16, false, LaneGroup(WARP, rows))                                    \
    SOFTMAX_PACKED(OP, LOG, small_block, (64), 16, false, BlockGroup())                                               \
    SOFTMAX_PACKED(OP, LOG, block, (256, BLOCKS_OF_AN_SM), 32, true, BlockGroup())                                    \
    SOFTMAX_PACKED(OP, LOG, full_block, (1024), 32, true, BlockGroup())                                               \
    SOFTMAX_HALF(OP, LOG)                                                                                             \
    SOFTMAX_CLUSTER(OP, LOG)
