// Sum and mean over the last axis: y[i] = sum of x[i, :], and that sum / cols. x [rows, cols], y [rows], both of one
// dtype; the arithmetic is f32. Memory is read once and hardly written.
//
// The idea: one trip to memory. All loads of a row are in flight at once, and nothing is kept in the caches, since nothing is
// read twice. Launch (both operators; no dynamic shared memory):
//   naive                 any cols   grid rows            block 256
//   pack_loop_warp        .. 1024    grid ceil(rows / 4)  block (32, 4)
//   pack_loop_block       longer     grid rows            block 32 * clamp(ceil(cols / 1024), 2, 16)
//   one_trip_warp         513 ..     grid rows            block 32                           cols < 1024
//   one_trip_warp_full    1024       grid rows            block 32
//   one_trip_block        .. 16384   grid rows            block 32 * ceil(cols / 512)
#include "packed_row.cuh"

#define PARAMETERS const scalar_t *__restrict__ x, scalar_t *__restrict__ y, int rows, int cols

// Lesson 1: the formula. One block a row, a tree in shared memory.
__device__ __forceinline__ float row_sum_formula(const scalar_t* x, int cols) {
    x += (long long)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        sum += to_float(x[i]);
    }
    return tree_reduce<Sum>(sum);
}
extern "C" __global__ void row_sum_naive(PARAMETERS) {
    const float sum = row_sum_formula(x, cols);
    if (threadIdx.x == 0) {
        y[blockIdx.x] = from_float<scalar_t>(sum);
    }
}
extern "C" __global__ void row_mean_naive(PARAMETERS) {
    const float sum = row_sum_formula(x, cols);
    if (threadIdx.x == 0) {
        y[blockIdx.x] = from_float<scalar_t>(sum / float(cols));
    }
}

// What thread `rank` of `size` adds up of a row that starts at `row`, which need not be a multiple of 16 bytes: packs,
// AT_ONCE of them on their way together, and the elements before the first and behind the last pack.
__device__ __forceinline__ float share_of_sum(const scalar_t* row, long long start, int cols, int rank, int size) {
    constexpr int AT_ONCE = 4;
    const int head = min(int(-start & (PACK_LEN - 1)), cols);
    const int packs = (cols - head) / PACK_LEN;
    const int tail = head + packs * PACK_LEN;
    FourSums sum;
    for (int first = rank; first < packs; first += AT_ONCE * size) {
        Pack held[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            held[k] = Pack{make_uint4(0, 0, 0, 0)};
            if (first + k * size < packs) {
                held[k] = load_pack(row + head + (first + k * size) * PACK_LEN);
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            float value[PACK_LEN];
            unpack(held[k], value);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                sum.add(j, value[j]);
            }
        }
    }
    if (rank < head) {
        sum.add(0, to_float(row[rank]));
    }
    if (rank < cols - tail) {
        sum.add(1, to_float(row[tail + rank]));
    }
    return sum.total();
}

template <typename Group>
__device__ __forceinline__ float row_sum(const Group& group, const scalar_t* x, int cols, int rank, int size) {
    const long long start = group.row() * cols;
    const int columns = group.template columns<1>(cols);  // none for a group without a row
    return group.template reduce<Sum, 0>(share_of_sum(x + start, start, columns, rank, size));
}

// Lesson 2: packs, four a thread in flight together, a warp or a block a row. Rows of any length.
extern "C" __global__ void __launch_bounds__(128) row_sum_pack_loop_warp(PARAMETERS) {
    const LaneGroup group(WARP, rows);
    const float sum = row_sum(group, x, cols, group.rank, WARP);
    if (group.has_row && group.rank == 0) {
        y[group.row()] = from_float<scalar_t>(sum);
    }
}
extern "C" __global__ void __launch_bounds__(512) row_sum_pack_loop_block(PARAMETERS) {
    const float sum = row_sum(BlockGroup(), x, cols, int(threadIdx.x), int(blockDim.x));
    if (threadIdx.x == 0) {
        y[blockIdx.x] = from_float<scalar_t>(sum);
    }
}
extern "C" __global__ void __launch_bounds__(128) row_mean_pack_loop_warp(PARAMETERS) {
    const LaneGroup group(WARP, rows);
    const float sum = row_sum(group, x, cols, group.rank, WARP);
    if (group.has_row && group.rank == 0) {
        y[group.row()] = from_float<scalar_t>(sum / float(cols));
    }
}
extern "C" __global__ void __launch_bounds__(512) row_mean_pack_loop_block(PARAMETERS) {
    const float sum = row_sum(BlockGroup(), x, cols, int(threadIdx.x), int(blockDim.x));
    if (threadIdx.x == 0) {
        y[blockIdx.x] = from_float<scalar_t>(sum / float(cols));
    }
}

// What thread `rank` of `size` adds up of a row of at most VALUES * size elements that starts at `row`: all of it is asked
// for before the first value is used, and leaves the caches first, since nothing is read twice. The elements before the
// first and behind the last pack go to a thread each. FULL: just as many elements as that, in packs, which saves the tests.
template <int VALUES, bool FULL>
__device__ __forceinline__ float share_at_once(const scalar_t* row, long long start, int cols, int rank, int size) {
    constexpr int PACKS = VALUES / PACK_LEN;
    const int head = FULL ? 0 : int(-start & (PACK_LEN - 1));
    const int packs = (cols - head) / PACK_LEN;
    const scalar_t* const mine = row + head + rank * PACK_LEN;
    Pack held[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        held[k] = Pack{make_uint4(0, 0, 0, 0)};
        if (FULL || rank + k * size < packs) {
            held[k] = load_pack_streaming(mine + k * size * PACK_LEN);
        }
    }
    FourSums sum;
    if (!FULL) {
        const int single = rank < head ? rank : rank + packs * PACK_LEN;
        if (single < cols) {
            sum.add(0, to_float(row[single]));
        }
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        float value[PACK_LEN];
        unpack(held[k], value);
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
            sum.add(j, value[j]);
        }
    }
    return sum.total();
}

// Of the row of a block: thread 0 has the sum.
template <bool FULL>
__device__ __forceinline__ float row_sum_by_warp(const scalar_t* x, int cols) {
    const long long start = (long long)blockIdx.x * cols;
    return warp_reduce<Sum>(share_at_once<32, FULL>(x + start, start, cols, int(threadIdx.x), WARP));
}
__device__ __forceinline__ float row_sum_by_block(const scalar_t* x, int cols) {
    const long long start = (long long)blockIdx.x * cols;
    const int threads = int(blockDim.x);
    return block_reduce<Sum, 0>(share_at_once<16, false>(x + start, start, cols, int(threadIdx.x), threads));
}

// Every load of a row is in flight at once, by a block of one warp or 16 elements a thread.
#define ROW_TOTALS(PATH, THREADS, SUM)                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS) row_sum_one_trip_##PATH(PARAMETERS) {  \
        const float sum = SUM(x, cols);                                                    \
        if (threadIdx.x == 0) {                                                            \
            y[blockIdx.x] = from_float<scalar_t>(sum);                                     \
        }                                                                                  \
    }                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS) row_mean_one_trip_##PATH(PARAMETERS) { \
        const float sum = SUM(x, cols);                                                    \
        if (threadIdx.x == 0) {                                                            \
            y[blockIdx.x] = from_float<scalar_t>(sum / float(cols));                       \
        }                                                                                  \
    }
ROW_TOTALS(warp, WARP, row_sum_by_warp<false>)
ROW_TOTALS(warp_full, WARP, row_sum_by_warp<true>)
ROW_TOTALS(block, 1024, row_sum_by_block)
