// By multiplications in f32: for few channels, where tensor cores would multiply mostly zeros, and for f32.
//
// A thread computes FILTERS filters at PLACES neighbouring places of y, so four sums each; neighbouring threads have the other
// filters of the group, then the next places. Image and filters are f32 in shared memory: image [channel][row][column], filters
// [channel][tap][filter], which a thread reads in packs, the same ones as the threads of other places.
#pragma once
#include "async.cuh"
#include "conv2d_pool.cuh"

// A number of three digits that counts up by the threads of a block without a division.
struct Counter {
    int low, middle, high, low_step, middle_step, high_step, low_base, middle_base;

    __device__ __forceinline__ Counter(int low_base, int middle_base) : low_base(low_base), middle_base(middle_base) {
        split(int(threadIdx.x), low, middle, high);
        split(int(blockDim.x), low_step, middle_step, high_step);
    }
    __device__ __forceinline__ void split(int number, int& low, int& middle, int& high) const {
        const int rest = number / low_base;
        low = number - rest * low_base;
        high = rest / middle_base;
        middle = rest - high * middle_base;
    }
    __device__ __forceinline__ void advance() {
        low += low_step, middle += middle_step, high += high_step;
        if (low >= low_base) low -= low_base, ++middle;
        if (middle >= middle_base) middle -= middle_base, ++high;
    }
};

// An element as f32 in shared memory, 0 where it is not inside; in f32 past the registers, so that all are under way at once.
__device__ __forceinline__ void fetch(float* to, const scalar_t* from, bool inside) {
#if defined(KERNELGATE_F16) || defined(KERNELGATE_BF16)
    *to = inside ? to_float(*from) : 0.0f;
#else
    copy_async<4>(shared_address(to), from, inside);
#endif
}

// Floats from a tap of the filters to the next, and from a channel of the image to the next: channels lie side by side in memory,
// and neighbouring threads would write them to one bank.
__device__ __forceinline__ int filter_pitch(const Pooled& of) { return of.group + 4; }
__device__ __forceinline__ int image_pitch(const Pooled& of) { return of.tall() * of.wide() | 1; }

// The image under a tile, `count` channels from `first` on.
__device__ __forceinline__ void load_image(const Pooled& of, const PooledTile& tile, float* image, int first, int count) {
    const int wide = of.wide(), pitch = image_pitch(of), elements = count * of.tall() * wide;
    Counter at(count, wide);
#pragma unroll 4
    for (int element = threadIdx.x; element < elements; element += blockDim.x, at.advance()) {
        int row, column;
        const bool inside = tile.covers(of, at.high, at.middle, row, column);
        const scalar_t* const from = inside ? of.x_at(tile.image, row, column) + first + at.low : of.x;
        fetch(image + at.low * pitch + at.high * wide + at.middle, from, inside);
    }
}

// The filters of a group; 0 for those beyond the last.
__device__ __forceinline__ void load_filters(const Pooled& of, float* filters, int first_filter, int first, int count) {
    const int taps = of.taps * of.taps, pitch = filter_pitch(of), elements = count * taps * of.group;
    Counter at(count, taps);
#pragma unroll 4
    for (int element = threadIdx.x; element < elements; element += blockDim.x, at.advance()) {
        const bool inside = first_filter + at.high < of.filters;
        const scalar_t* const from = inside ? of.w_at(first_filter + at.high, at.middle) + first + at.low : of.w;
        fetch(filters + (at.low * taps + at.middle) * pitch + at.high, from, inside);
    }
}

// Two or four neighbours in shared memory.
__device__ __forceinline__ void load_neighbours(const float* from, float (&to)[2]) {
    const float2 two = *reinterpret_cast<const float2*>(from);
    to[0] = two.x, to[1] = two.y;
}
__device__ __forceinline__ void load_neighbours(const float* from, float (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    }
}

// Neighbours in packs, at a multiple of 16 bytes.
template <int LENGTH>
__device__ __forceinline__ void store_packs(scalar_t* to, const float (&from)[LENGTH]) {
#pragma unroll
    for (int first = 0; first + PACK_LEN <= LENGTH; first += PACK_LEN) {
        float values[PACK_LEN];
#pragma unroll
        for (int i = 0; i < PACK_LEN; ++i) values[i] = from[first + i];
        store_pack(to + first, pack(values));
    }
}

template <int FILTERS, int PLACES>
__device__ __forceinline__ void direct(const Pooled& of) {
    constexpr int COLUMNS = 2 * PLACES;  // of z
    extern __shared__ __align__(16) float pooled_memory[];
    const int taps = of.taps, wide = of.wide(), pitch = filter_pitch(of);
    float* const filters = pooled_memory;
    float* const image = pooled_memory + of.chunk * taps * taps * pitch;
    const int threads_a_place = of.group / FILTERS, threads_a_row = of.tile_cols / PLACES;
    const int place = int(threadIdx.x) / threads_a_place, g = int(threadIdx.x) % threads_a_place * FILTERS;
    const int row = place / threads_a_row, column = (place - row * threads_a_row) * PLACES;
    const int first_filter = int(blockIdx.y) * of.group;
    const bool is_whole = of.channels <= of.chunk;
    if (is_whole) load_filters(of, filters, first_filter, 0, of.channels);
    for (long long number = blockIdx.x; number < of.tiles; number += gridDim.x) {
        const PooledTile tile(of, number);
        const bool computes = row < of.tile_rows && tile.p + row < of.down() && tile.q + column < of.across();
        float sums[2][COLUMNS][FILTERS] = {};
        for (int first = 0; first < of.channels; first += of.chunk) {
            const int count = min(of.chunk, of.channels - first);
            __syncthreads();  // what was there before has been read
            load_image(of, tile, image, first, count);
            if (!is_whole) load_filters(of, filters, first_filter, first, count);
            copy_async_commit();
            copy_async_wait<0>();
            __syncthreads();
            if (!computes) continue;
            for (int c = 0; c < count; ++c) {
                const float* corner = image + c * image_pitch(of) + 2 * row * wide + 2 * column;
                const float* filter = filters + c * taps * taps * pitch + g;
                for (int a = 0; a < taps; ++a, corner += wide) {
#pragma unroll 3
                    for (int b = 0; b < taps; ++b, filter += pitch) {
                        float window[2][COLUMNS], weight[FILTERS];
#pragma unroll
                        for (int j = 0; j < COLUMNS; ++j) {
                            window[0][j] = corner[b + j];
                            window[1][j] = corner[wide + b + j];
                        }
                        load_neighbours(filter, weight);
#pragma unroll
                        for (int k = 0; k < FILTERS; ++k) {
#pragma unroll
                            for (int j = 0; j < COLUMNS; ++j) {
                                sums[0][j][k] = fmaf(window[0][j], weight[k], sums[0][j][k]);
                                sums[1][j][k] = fmaf(window[1][j], weight[k], sums[1][j][k]);
                            }
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < PLACES; ++j) {
            if (!computes || tile.q + column + j >= of.across()) continue;
            float result[FILTERS];
#pragma unroll
            for (int k = 0; k < FILTERS; ++k) {
                const float left[2] = {sums[0][2 * j][k], sums[1][2 * j][k]};
                const float right[2] = {sums[0][2 * j + 1][k], sums[1][2 * j + 1][k]};
                const float least = smaller(smaller(left[0], left[1]), smaller(right[0], right[1]));
                const float largest = larger(larger(left[0], left[1]), larger(right[0], right[1]));
                result[k] = pooled_of(least, largest, of.activation);
            }
            scalar_t* const to = of.y_at(tile.image, tile.p + row, tile.q + column + j) + first_filter + g;
            if (FILTERS % PACK_LEN == 0 && of.filters % FILTERS == 0) {
                if (first_filter + g < of.filters) store_packs(to, result);
            } else {
#pragma unroll
                for (int k = 0; k < FILTERS; ++k) {
                    if (first_filter + g + k < of.filters) to[k] = from_float<scalar_t>(result[k]);
                }
            }
        }
    }
}
