// On tensor cores (mma.sync, compute capability 8.0 and up; f16 and bf16): an implicit GEMM of places by filters.
//
// Sixteen rows of A are four places of y side by side in the tile: row r is the place of z (r / 8, r % 2) of place r / 2 % 4, so
// that a thread and its neighbour of the next row hold all four of a window. Shared memory has 32 channels at a time, of a place
// or filter four chunks of 16 bytes, which ldmatrix reads of eight rows at once: an XOR keeps those in different banks.
#pragma once
#include "conv2d_pool.cuh"
#include "gemm_mma.cuh"

constexpr int SLICE = 32;              // channels at a time
constexpr int CHUNKS = SLICE / CHUNK;  // of a place or a filter

// Where chunk `chunk` of row `row` stands, in chunks.
__device__ __forceinline__ int swizzled(int row, int chunk) { return row * CHUNKS + (chunk ^ (row >> 1 & (CHUNKS - 1))); }

__device__ __forceinline__ void copy_image(const Pooled& of, const PooledTile& tile, unsigned image, int first) {
    const int wide = of.wide();
    for (int at = threadIdx.x; at < of.tall() * wide * CHUNKS; at += blockDim.x) {
        const int chunk = at % CHUNKS, place = at / CHUNKS, i = place / wide, j = place - i * wide;
        int row, column;
        const bool inside = tile.covers(of, i, j, row, column) && first + chunk * CHUNK < of.channels;
        // Rows of the image start at even places, so the columns alone decide about banks.
        const int to = i * wide * CHUNKS + swizzled(j, chunk);
        const scalar_t* const from = inside ? of.x_at(tile.image, row, column) + first + chunk * CHUNK : of.x;
        copy_async<16>(image + to * 16, from, inside);
    }
}

template <int FILTERS>
__device__ __forceinline__ void copy_filters(const Pooled& of, unsigned filters, int first_filter, int first) {
    const int taps = of.taps * of.taps;
    for (int at = threadIdx.x; at < taps * FILTERS * CHUNKS; at += blockDim.x) {
        const int chunk = at % CHUNKS, rest = at / CHUNKS, g = rest % FILTERS, tap = rest / FILTERS;
        const bool inside = first_filter + g < of.filters && first + chunk * CHUNK < of.channels;
        const scalar_t* const from = inside ? of.w_at(first_filter + g, tap) + first + chunk * CHUNK : of.w;
        copy_async<16>(filters + swizzled(tap * FILTERS + g, chunk) * 16, from, inside);
    }
}

// A warp has ROWS times sixteen rows of A, and all FILTERS = 8 * COLS filters.
template <int ROWS, int COLS>
__device__ __forceinline__ void on_tensor_cores(const Pooled& of) {
    constexpr int FILTERS = 8 * COLS, PLACES = 4;
    extern __shared__ __align__(128) unsigned char pooled_chunks[];
    const int taps = of.taps, wide = of.wide(), lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
    const unsigned filters = shared_address(pooled_chunks), image = filters + taps * taps * FILTERS * SLICE * 2;
    const int first_filter = int(blockIdx.y) * FILTERS, places = of.tile_rows * of.tile_cols;
    const int first_place = warp * ROWS * PLACES;
    // The place of the image under the first tap of this lane's rows of A, and under which half of a slice it is.
    int row_of[ROWS], column_of[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
        const int r = lane % 16, place = min(first_place + m * PLACES + r / 2 % 4, places - 1);
        const int p = place / of.tile_cols;
        row_of[m] = 2 * p + r / 8;
        column_of[m] = 2 * (place - p * of.tile_cols) + r % 2;
    }
    const int half = lane / 16;
    // B: eight filters and half a slice a lane group.
    const int b_row = lane / 16 * 8 + lane % 8, b_half = lane / 8 % 2;
    const bool is_whole = of.channels <= SLICE;
    if (is_whole) copy_filters<FILTERS>(of, filters, first_filter, 0);
    for (long long number = blockIdx.x; number < of.tiles; number += gridDim.x) {
        const PooledTile tile(of, number);
        float sums[ROWS][COLS][4] = {};
        for (int first = 0; first < of.channels; first += SLICE) {
            __syncthreads();  // what was there before has been read
            copy_image(of, tile, image, first);
            if (!is_whole) copy_filters<FILTERS>(of, filters, first_filter, first);
            copy_async_commit();
            copy_async_wait<0>();
            __syncthreads();
            if (first_place >= places) continue;
            for (int tap = 0, a = 0, b = 0; tap < taps * taps; ++tap) {
#pragma unroll
                for (int k = 0; k < CHUNKS; k += 2) {
                    unsigned of_image[ROWS][4];
#pragma unroll
                    for (int m = 0; m < ROWS; ++m) {
                        const int at = (row_of[m] + a) * wide * CHUNKS + swizzled(column_of[m] + b, k + half);
                        load_matrices(of_image[m], image + at * 16);
                    }
#pragma unroll
                    for (int n = 0; n < COLS; n += 2) {
                        unsigned weights[4];
                        load_matrices(weights, filters + swizzled(tap * FILTERS + n * 8 + b_row, k + b_half) * 16);
#pragma unroll
                        for (int m = 0; m < ROWS; ++m) {
                            multiply_add(sums[m][n], of_image[m], weights[0], weights[1]);
                            multiply_add(sums[m][n + 1], of_image[m], weights[2], weights[3]);
                        }
                    }
                }
                if (++b == taps) b = 0, ++a;
            }
        }
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
            // Of a window this thread has the left or the right half; its neighbour four lanes on the other.
            const int place = first_place + m * PLACES + lane / 8, p = place / of.tile_cols, q = place - p * of.tile_cols;
            const bool is_inside = place < places && tile.p + p < of.down() && tile.q + q < of.across();
            scalar_t* const to = is_inside ? of.y_at(tile.image, tile.p + p, tile.q + q) : of.y;
#pragma unroll
            for (int n = 0; n < COLS; ++n) {
                float result[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float least = smaller(sums[m][n][i], sums[m][n][i + 2]);
                    float largest = larger(sums[m][n][i], sums[m][n][i + 2]);
                    least = smaller(least, __shfl_xor_sync(ALL_LANES, least, 4));
                    largest = larger(largest, __shfl_xor_sync(ALL_LANES, largest, 4));
                    result[i] = pooled_of(least, largest, of.activation);
                }
                const int g = first_filter + n * 8 + lane % 4 * 2;
                if (is_inside && lane / 4 % 2 == n % 2 && g < of.filters) {
                    *reinterpret_cast<unsigned*>(to + g) = pack_detail::pack_word(result);
                }
            }
        }
    }
}
