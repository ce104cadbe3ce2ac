// How the outputs of a warpgroup leave its registers.
#pragma once
#include "gemm.cuh"
#include "hopper.cuh"

namespace hopper {

// Two floats, rounded, in one register; the first in its low half.
__device__ __forceinline__ unsigned pair(float low, float high) {
    const float both[2] = {low, high};
    return pack_detail::pack_word(both);
}

// The first output of a lane: its row of the two that are eight apart, its column of the two that are neighbours.
__device__ __forceinline__ TileOrigin first_output(TileOrigin tile) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x % WARPGROUP_THREADS / 32;
    return {tile.row + warp * 16 + lane / 4, tile.col + lane % 4 * 2};
}

// Stores WIDTH columns of a warpgroup's 64 rows of a matrix from registers: every shape.
template <int WIDTH>
__device__ __forceinline__ void store_direct(scalar_t* __restrict__ matrix, int rows, int cols, TileOrigin tile,
                                             const float* sums) {
    const TileOrigin first = first_output(tile);
    const int row = first.row;
#pragma unroll
    for (int j = 0; j < WIDTH / 8; ++j) {
        const int col = first.col + j * 8;
        const float upper[2] = {sums[4 * j], sums[4 * j + 1]}, lower[2] = {sums[4 * j + 2], sums[4 * j + 3]};
        store_run<2>(matrix, rows, cols, row, col, upper, cols % 2 == 0);
        store_run<2>(matrix, rows, cols, row + 8, col, lower, cols % 2 == 0);
    }
}

// Puts COLS columns of a warpgroup's 64 rows into a swizzled tile of 64, for a TMA store from there.
template <int COLS = 64>
__device__ __forceinline__ void stage_outputs(unsigned tile, const float* sums) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x % WARPGROUP_THREADS / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < COLS / 16; ++j) {
        const float* part = &sums[j * 8];
        const unsigned unit = j * 2 + lane / 16;
        store_matrices(tile + row * ROW_BYTES + (unit ^ row % 8) * 16, pair(part[0], part[1]), pair(part[2], part[3]),
                       pair(part[4], part[5]), pair(part[6], part[7]));
    }
}

// An element of a swizzled tile of 64 columns.
__device__ __forceinline__ scalar_t* element_of(unsigned tile, int row, int col) {
    const unsigned at = tile + row * ROW_BYTES + (col / 8 ^ row % 8) * 16 + col % 8 * sizeof(scalar_t);
    return static_cast<scalar_t*>(__cvta_shared_to_generic(at));
}

// Calls `each` for every element of a swizzled tile that lies inside a matrix of `rows` and `cols`, where the tile's first
// one is `first`; by a warpgroup, neighbours by neighbours.
template <int ROWS, class Each>
__device__ __forceinline__ void for_elements(int rows, int cols, TileOrigin first, unsigned tile, Each each) {
    const int col = threadIdx.x % 64;
    if (first.col + col >= cols) return;
    const int end = min(ROWS, rows - first.row);
#pragma unroll 8
    for (int row = threadIdx.x % WARPGROUP_THREADS / 64; row < end; row += WARPGROUP_THREADS / 64) {
        each((long long)(first.row + row) * cols + first.col + col, *element_of(tile, row, col));
    }
}

// Stores what stands in a tile element by element: every shape.
template <int ROWS>
__device__ __forceinline__ void store_staged(scalar_t* __restrict__ matrix, int rows, int cols, TileOrigin first,
                                             unsigned tile) {
    for_elements<ROWS>(rows, cols, first, tile, [&](long long at, const scalar_t& staged) { matrix[at] = staged; });
}

}  // namespace hopper
