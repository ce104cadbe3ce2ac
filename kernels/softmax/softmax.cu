// Softmax over the last axis: y = exp(x - max) / sum(exp(x - max)). x, y [rows, cols] of one dtype; f32 arithmetic.
// A NaN or +inf in a row makes the whole row NaN, and so does a row of -inf alone; -inf elsewhere gives 0.
//
// The idea: a row is read once and stays on chip, in the registers of the thread group that fits its length (lanes of a warp,
// a warp, a block, a cluster of blocks), so that memory moves each byte once. Launch (no dynamic shared memory):
//   naive            any cols        grid rows                  block 256
//   vectorised       any cols        grid rows                  block 32 * clamp(ceil(cols / 1024), 1, 32)
//   registers_warp   .. 1024         grid ceil(rows / 4)        block (32, 4)
//   registers_block  .. 32768        grid rows                  block 32 * ceil(cols / 1024)
//   lanes_per_row    .. 256          grid ceil(rows * L / 128)  block (L, 128 / L), L = 1, 2, 4 .. 32, the least >= cols / 8
//   warp_per_row     .. 512          grid ceil(rows / 4)        block (32, 4)
//   small_block      .. 1024         grid rows                  block 32 * ceil(cols / 512)
//   block            .. 8192         grid rows                  block 32 * ceil(cols / 1024)
//   full_block       .. 16384        grid rows                  block 32 * ceil(cols / 1024)
//   cluster          .. 262144       grid rows * C, cluster C = 2 .. 16: the least with C * 10240 >= cols; sm_90 and later
//                                    block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//   f16 and bf16 only:
//   wide_warp        .. 768          grid ceil(rows / 4)        block (32, 4)
//   few_rows         .. 8192         grid rows                  block 32 * ceil(cols / 256)
//   all from warp_per_row on also as _unaligned, for cols that are no multiple of 8: such rows start anywhere
#include "softmax.cuh"

// Lesson 1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void softmax_naive(PARAMETERS) {
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

// Two passes over the row, the second from the caches: for rows of any length, by the whole block.
template <int WIDTH>
__device__ __forceinline__ void softmax_looped(const scalar_t* x, scalar_t* y, int cols) {
    x += BlockGroup::row() * cols;
    y += BlockGroup::row() * cols;
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

// The widest access that every row allows.
__device__ __forceinline__ void softmax_looped(const scalar_t* x, scalar_t* y, int cols) {
    if (cols % PACK_LEN == 0) {
        softmax_looped<PACK_LEN>(x, y, cols);
    } else {
        softmax_looped<1>(x, y, cols);
    }
}

// Lesson 2: 16-byte packs, shuffles, and the sum taken online beside the maximum: two passes over the row, not three.
extern "C" __global__ void __launch_bounds__(1024) softmax_vectorised(PARAMETERS) { softmax_looped(x, y, cols); }

// Lesson 3: the row is read once and stays in registers, 8 or 32 values a thread, all its loads in flight together. The group
// that owns it fits its length: some lanes of a warp (8 values each), a warp, a block.
extern "C" __global__ void __launch_bounds__(128) softmax_lanes_per_row(PARAMETERS) {
    softmax_in_registers<false, 8>(LaneGroup(int(blockDim.x), rows), x, y, cols);
}
extern "C" __global__ void __launch_bounds__(128) softmax_registers_warp(PARAMETERS) {
    softmax_in_registers<false, 32>(LaneGroup(WARP, rows), x, y, cols);
}
extern "C" __global__ void __launch_bounds__(1024) softmax_registers_block(PARAMETERS) {
    softmax_in_registers<false, 32>(BlockGroup(), x, y, cols);
}

// The row stays packed: half-width packs take half the registers of their values, so that more blocks fit an SM. Rows that
// start anywhere move in packs too. Blocks of long rows prefetch the row of a later block into L2 while they compute.
SOFTMAX_ENTRIES(softmax, false)
