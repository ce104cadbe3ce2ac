// The tensors of a convolution with pooling behind it, and the tiles of its output.
#pragma once
#include "pooling.cuh"

#define POOLED_PARAMETERS                                                                                               \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ w, scalar_t *__restrict__ y, long long tiles,           \
        int channels, int height, int width, int filters, int taps, int activation, int tile_rows, int tile_cols,        \
        int group, int chunk, int resident
#define POOLED                                                                                                          \
    { x, w, y, tiles, channels, height, width, filters, taps, activation, tile_rows, tile_cols, group, chunk, resident }

struct Pooled {
    const scalar_t* x;
    const scalar_t* w;
    scalar_t* y;
    long long tiles;
    int channels, height, width, filters, taps, activation, tile_rows, tile_cols, group, chunk, resident;

    __device__ __forceinline__ int down() const { return height / 2; }
    __device__ __forceinline__ int across() const { return width / 2; }
    // Places of the image under a tile.
    __device__ __forceinline__ int tall() const { return 2 * tile_rows + taps - 1; }
    __device__ __forceinline__ int wide() const { return 2 * tile_cols + taps - 1; }
    __device__ __forceinline__ const scalar_t* x_at(long long n, int row, int column) const {
        return x + ((n * height + row) * width + column) * channels;
    }
    __device__ __forceinline__ const scalar_t* w_at(int filter, int tap) const {
        return w + ((long long)filter * taps * taps + tap) * channels;
    }
    __device__ __forceinline__ scalar_t* y_at(long long n, int p, int q) const {
        return y + ((n * down() + p) * across() + q) * filters;
    }
};

// A tile of y: its image and its first place.
struct PooledTile {
    long long image;
    int p, q;

    __device__ __forceinline__ PooledTile(const Pooled& of, long long number) {
        const int tiles_across = (of.across() + of.tile_cols - 1) / of.tile_cols;
        const int tiles_down = (of.down() + of.tile_rows - 1) / of.tile_rows;
        q = int(number % tiles_across) * of.tile_cols;
        number /= tiles_across;
        p = int(number % tiles_down) * of.tile_rows;
        image = number / tiles_down;
    }
    // Whether a place of the image under the tile is one of the image.
    __device__ __forceinline__ bool covers(const Pooled& of, int i, int j, int& row, int& column) const {
        row = 2 * p + i - of.taps / 2;
        column = 2 * q + j - of.taps / 2;
        return row >= 0 && row < of.height && column >= 0 && column < of.width;
    }
};

// The largest activation between two sums. A thread has many of them: the bent activations are a function of their own.
__device__ __noinline__ float largest_bent(float least, float largest, int activation) {
    return largest_activated(least, largest, activation);
}
__device__ __forceinline__ float pooled_of(float least, float largest, int activation) {
    if (activation > RELU) return largest_bent(least, largest, activation);
    return activation == RELU ? activated(largest, RELU) : largest;
}
