// What a linear layer does to the sums of a product whose A and B are swapped (gemm_swap_ab.cuh): a lane's sums
// are of two columns of y, so it holds two biases. The residuals of a tile are copied to where its outputs will stand, while
// the operands are multiplied.
#pragma once
#include "gemm_swap_ab.cuh"
#include "linear.cuh"

template <int ROWS>
struct LinearEpilogue::SwapAB {
    unsigned bias[2];  // of this lane's columns, as they are in memory

    __device__ __forceinline__ SwapAB(const LinearEpilogue& e, TileOrigin tile) {
        const int col = hopper::first_output(tile).row;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int here = col + i * 8;
            bias[i] = here < e.n ? ask_for_one(e.bias + here) : 0u;
        }
    }

    __device__ __forceinline__ bool fills(const LinearEpilogue& e) const { return e.has_residual; }

    // 16 bytes a lane and time, eight of which are a row; or single elements.
    __device__ __forceinline__ void fill(const LinearEpilogue& e, TileOrigin tile, unsigned buffer, bool whole) const {
        if (!whole) {
            // Zeros stand for what lies outside, as copies leave them.
            hopper::for_elements<ROWS>(ROWS, 64, TileOrigin{0, 0}, buffer,
                                       [](long long, scalar_t& filled) { filled = from_float<scalar_t>(0.0f); });
            hopper::for_elements<ROWS>(e.m, e.n, TileOrigin{tile.col, tile.row}, buffer,
                                       [&](long long at, scalar_t& filled) { filled = e.residual[at]; });
            return;
        }
        const int thread = threadIdx.x % hopper::WARPGROUP_THREADS;
        const int unit = thread % 8;
        const int col = tile.row + unit * 8;
#pragma unroll
        for (int row = thread / 8; row < ROWS; row += hopper::WARPGROUP_THREADS / 8) {
            const bool inside = tile.col + row < e.m && col < e.n;
            const long long at = (long long)(tile.col + row) * e.n + col;
            const unsigned to = buffer + row * hopper::ROW_BYTES + (unit ^ row % 8) * 16;
            copy_async<16>(to, e.residual + (inside ? at : 0), inside);
        }
        copy_async_commit();
    }

    __device__ __forceinline__ void finish(const LinearEpilogue& e, unsigned buffer, float* sums) const {
        float biases[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float both[2];
            pack_detail::unpack_word(bias[i], both);
            biases[i] = both[0];
        }
#pragma unroll
        for (int i = 0; i < ROWS / 2; ++i) sums[i] += biases[i / 2 % 2];
        if (e.activation != NONE) Curve(e.activation).of_all<ROWS / 2>(sums);
        if (!e.has_residual) return;
        copy_async_wait<0>();
        hopper::named_barrier_sync(1 + threadIdx.x / hopper::WARPGROUP_THREADS, hopper::WARPGROUP_THREADS);
#pragma unroll
        for (int j = 0; j < ROWS / 16; ++j) {
            unsigned pairs[4];
            hopper::load_transposed(hopper::sixteen_rows(buffer, j), pairs);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float added[2];
                pack_detail::unpack_word(pairs[i], added);
                sums[8 * j + 2 * i] += added[0];
                sums[8 * j + 2 * i + 1] += added[1];
            }
        }
    }
};
