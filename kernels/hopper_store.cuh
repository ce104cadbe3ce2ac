// How the outputs of a warp group leave its registers, and how operands get rows that tensor maps take.
#pragma once
#include "gemm.cuh"
#include "hopper.cuh"

namespace hopper {

// Two floats, rounded, in one register; the first in its low half.
__device__ __forceinline__ unsigned pair(float low, float high) {
    const float both[2] = {low, high};
    return pack_detail::pack_word(both);
}

// Stores WIDTH columns of a warp group's 64 rows of a matrix from registers: every shape.
template <int WIDTH>
__device__ __forceinline__ void store_direct(scalar_t* __restrict__ matrix, int rows, int cols, TileOrigin tile,
                                             const float* sums) {
    const int lane = threadIdx.x % 32;
    const int row = tile.row + threadIdx.x % GROUP_THREADS / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < WIDTH / 8; ++j) {
        const int col = tile.col + j * 8 + lane % 4 * 2;
        const float upper[2] = {sums[4 * j], sums[4 * j + 1]};
        const float lower[2] = {sums[4 * j + 2], sums[4 * j + 3]};
        store_run<2>(matrix, rows, cols, row, col, upper, cols % 2 == 0);
        store_run<2>(matrix, rows, cols, row + 8, col, lower, cols % 2 == 0);
    }
}

// Puts 64 columns of a warp group's 64 rows into a swizzled tile, for a bulk copy from there.
__device__ __forceinline__ void stage_outputs(unsigned tile, const float* sums) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x % GROUP_THREADS / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float* part = &sums[j * 8];
        const unsigned unit = j * 2 + lane / 16;
        store_matrices(tile + row * ROW_BYTES + (unit ^ row % 8) * 16, pair(part[0], part[1]), pair(part[2], part[3]),
                       pair(part[4], part[5]), pair(part[6], part[7]));
    }
}

// Copies a matrix of `cols` columns to rows of `pitch` elements.
__device__ __forceinline__ void align_rows(const scalar_t* __restrict__ from, scalar_t* __restrict__ to, int rows,
                                           int cols, int pitch) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int col = threadIdx.x; col < cols; col += blockDim.x) {
            to[(long long)row * pitch + col] = from[(long long)row * cols + col];
        }
    }
}

}  // namespace hopper
