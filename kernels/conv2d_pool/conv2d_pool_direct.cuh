// By multiplications in f32: for few channels, where tensor cores would multiply mostly zeros, and for f32.
//
// A thread computes FILTERS filters at PLACES neighbouring places of y, so four sums each; neighbouring threads have the other
// filters of the group, then the next places. Image and filters are f32 in shared memory: image [channel][row][column], filters
// [channel][tap][filter], which a thread reads in packs, the same ones as the threads of other places. The next channels, or
// those of the next tile, are on their way meanwhile.
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
// From a row of the image to the next: the threads of two neighbouring rows of y read different banks.
__device__ __forceinline__ int row_pitch(const Pooled& of) { return of.wide() + ((of.tile_cols - of.wide()) & 15); }
__device__ __forceinline__ int image_pitch(const Pooled& of) { return of.tall() * row_pitch(of) | 1; }

// The image under a tile, `count` channels from `first` on.
__device__ __forceinline__ void load_image(const Pooled& of, const PooledTile& tile, float* image, int first, int count) {
    const int wide = of.wide(), pitch = image_pitch(of), elements = count * of.tall() * wide;
    Counter at(count, wide);
#pragma unroll 4
    for (int element = threadIdx.x; element < elements; element += blockDim.x, at.advance()) {
        int row, column;
        const bool inside = tile.covers(of, at.high, at.middle, row, column);
        const scalar_t* const from = inside ? of.x_at(tile.image, row, column) + first + at.low : of.x;
        fetch(image + at.low * pitch + at.high * row_pitch(of) + at.middle, from, inside);
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

// Neighbours in packs, at a multiple of 16 bytes.
template <int LENGTH>
__device__ __forceinline__ void store_packs(scalar_t* to, const float* from) {
#pragma unroll
    for (int first = 0; first + PACK_LEN <= LENGTH; first += PACK_LEN) {
        float values[PACK_LEN];
#pragma unroll
        for (int i = 0; i < PACK_LEN; ++i) values[i] = from[first + i];
        store_pack(to + first, pack(values));
    }
}

// The filters of a thread: PACKS packs of WIDTH neighbours. In f32 the packs are apart by the group over PACKS, so that
// neighbouring threads read neighbouring packs of shared memory; half width is stored by eight, which lie side by side.
template <int FILTERS>
struct Filters {
    static constexpr int WIDTH = FILTERS < 4 ? FILTERS : 4, PACKS = FILTERS / WIDTH;
    int first, apart;

    __device__ __forceinline__ Filters(const Pooled& of, int thread) {
        apart = PACK_LEN > WIDTH ? WIDTH : of.group / PACKS;
        first = thread * (PACK_LEN > WIDTH ? FILTERS : WIDTH);
    }
    // The weights of a tap.
    __device__ __forceinline__ void load(const float* tap, float (&weight)[FILTERS]) const {
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const float* const from = tap + first + p * apart;
            float* const to = weight + p * WIDTH;
            if constexpr (WIDTH == 4) {
                const float4 four = *reinterpret_cast<const float4*>(from);
                to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
            } else {
                const float2 two = *reinterpret_cast<const float2*>(from);
                to[0] = two.x, to[1] = two.y;
            }
        }
    }
    // The results of a place, whose first filter of the group is `group`; none for filters beyond the last.
    __device__ __forceinline__ void store(scalar_t* y, int group, int filters, const float (&result)[FILTERS]) const {
        constexpr int STORED = PACK_LEN > WIDTH ? FILTERS : WIDTH;  // neighbours
        const bool whole = STORED % PACK_LEN == 0 && filters % STORED == 0;
#pragma unroll
        for (int p = 0; p < FILTERS; p += STORED) {
            const int g = group + first + p / STORED * apart;
            if (whole && g < filters) {
                store_packs<STORED>(y + g, result + p);
            } else {
#pragma unroll
                for (int k = 0; k < STORED; ++k) {
                    if (g + k < filters) y[g + k] = from_float<scalar_t>(result[p + k]);
                }
            }
        }
    }
};

// What a block has in shared memory at a time: channels of a tile.
struct Stage {
    long long number;  // of the tile
    PooledTile tile;
    int first;

    __device__ __forceinline__ Stage next(const Pooled& of) const {
        if (first + of.chunk < of.channels) return {number, tile, first + of.chunk};
        return {number + gridDim.x, PooledTile(of, number + gridDim.x), 0};
    }
    __device__ __forceinline__ int count(const Pooled& of) const { return min(of.chunk, of.channels - first); }
};

template <int FILTERS, int PLACES>
__device__ __forceinline__ void direct(const Pooled& of) {
    constexpr int COLUMNS = 2 * PLACES;  // of z
    extern __shared__ __align__(16) float pooled_memory[];
    const int taps = of.taps, across = row_pitch(of), of_channel = taps * taps * filter_pitch(of);
    // Two stages of the image, and of the filters where those of all channels do not stay.
    const bool resident = of.resident;
    float* const filters = pooled_memory;
    float* const image = pooled_memory + (resident ? of.channels : 2 * of.chunk) * of_channel;
    const int threads_a_place = of.group / FILTERS, threads_a_row = of.tile_cols / PLACES;
    const int place = int(threadIdx.x) / threads_a_place;
    const Filters<FILTERS> own(of, int(threadIdx.x) % threads_a_place);
    const int row = place / threads_a_row, column = (place - row * threads_a_row) * PLACES;
    const int first_filter = int(blockIdx.y) * of.group;
    const auto fetch_stage = [&](const Stage& stage, int slot) {
        if (stage.number < of.tiles) {
            const int count = stage.count(of);
            load_image(of, stage.tile, image + slot * of.chunk * image_pitch(of), stage.first, count);
            if (!resident) load_filters(of, filters + slot * of.chunk * of_channel, first_filter, stage.first, count);
        }
        copy_async_commit();
    };
    if (resident) load_filters(of, filters, first_filter, 0, of.channels);
    Stage stage{blockIdx.x, PooledTile(of, blockIdx.x), 0};
    fetch_stage(stage, 0);
    float sums[2][COLUMNS][FILTERS] = {};
    for (int slot = 0; stage.number < of.tiles; slot ^= 1) {
        const Stage next = stage.next(of);
        copy_async_wait<0>();
        __syncthreads();  // this stage is there, the one before has been read
        fetch_stage(next, slot ^ 1);
        const PooledTile tile = stage.tile;
        const bool computes = row < of.tile_rows && tile.p + row < of.down() && tile.q + column < of.across();
        const float* const of_image = image + slot * of.chunk * image_pitch(of) + 2 * row * across + 2 * column;
        const float* filter = filters + (resident ? stage.first : slot * of.chunk) * of_channel;
        const int count = computes ? stage.count(of) : 0;
        for (int c = 0; c < count; ++c) {
            const float* corner = of_image + c * image_pitch(of);
            for (int a = 0; a < taps; ++a, corner += across) {
#pragma unroll 3
                for (int b = 0; b < taps; ++b, filter += filter_pitch(of)) {
                    float window[2][COLUMNS], weight[FILTERS];
#pragma unroll
                    for (int j = 0; j < COLUMNS; ++j) {
                        window[0][j] = corner[b + j];
                        window[1][j] = corner[across + b + j];
                    }
                    own.load(filter, weight);
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
        stage = next;
        if (next.first != 0) continue;  // further channels of this tile
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
            own.store(of.y_at(tile.image, tile.p + row, tile.q + column + j), first_filter, of.filters, result);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
            for (int k = 0; k < FILTERS; ++k) sums[0][j][k] = sums[1][j][k] = 0.0f;
        }
    }
}
