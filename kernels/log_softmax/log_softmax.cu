// The logarithm of softmax over the last axis: y = x - max - log(sum(exp(x - max))). x, y [rows, cols] of one dtype; f32
// arithmetic. A NaN or +inf in a row makes the whole row NaN, and so does a row of -inf alone; -inf elsewhere stays.
//
// The idea: softmax's, whose rows on chip it shares; the row itself is kept, not its exponentials. Launch (no dynamic shared
// memory): `naive`, `lanes_per_row`, `warp_per_row`, `small_block`, `block`, `full_block` and `cluster` as in softmax.cu.
#include "softmax.cuh"

// Lesson 1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void log_softmax_naive(PARAMETERS) {
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
    const RowResult<true> result_of(tree_reduce<Sum>(sum));
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        y[i] = from_float<scalar_t>(result_of(to_float(x[i]) - row_max));
    }
}

extern "C" __global__ void __launch_bounds__(128) log_softmax_lanes_per_row(PARAMETERS) {
    softmax_in_registers<true, 8>(LaneGroup(int(blockDim.x), rows), x, y, cols);
}
SOFTMAX_ENTRIES(log_softmax, true)
