// Copies of images and filters for the tensor core kernels of conv2d: channels inside, a multiple of 16 bytes from
// column to column, zeros where the tensors have nothing.
#pragma once
#include "gemm.cuh"

#if !defined(KERNELGATE_F32)

// Transposes 64 channels at 64 places of an image, with zeros for channels that fill up a pitch.
__device__ __forceinline__ void transpose_tile(const scalar_t* __restrict__ from, scalar_t* __restrict__ to, int channels,
                                          int plane, int pitch, int first_channel, int first_place) {
    constexpr int SIDE = 64;
    __shared__ unsigned words[SIDE][SIDE / 2 + 1];
    const scalar_t zero = from_float<scalar_t>(0.0f);
    const int column = threadIdx.x % 32, row = threadIdx.x / 32;
    const int place = first_place + 2 * column;
#pragma unroll
    for (int step = 0; step < SIDE / 8; ++step) {
        const int channel = first_channel + row + step * 8;
        const scalar_t* source = from + (long long)channel * plane + place;
        Run<2> two = {zero, zero};
        if (channel < channels) {
            if (plane % 2 == 0) {
                if (place < plane) two = *reinterpret_cast<const Run<2>*>(source);
            } else {
                if (place < plane) two.value[0] = source[0];
                if (place + 1 < plane) two.value[1] = source[1];
            }
        }
        words[row + step * 8][column] = reinterpret_cast<const unsigned&>(two);
    }
    __syncthreads();
    const scalar_t* staged = reinterpret_cast<const scalar_t*>(words);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
        const int at = step * 32 + (int)threadIdx.x / 8;
        const int chunk = threadIdx.x % 8 * 8;
        Run<8> eight;
#pragma unroll
        for (int i = 0; i < 8; ++i) eight.value[i] = staged[(chunk + i) * (SIDE + 2) + at];
        if (first_place + at < plane && first_channel + chunk < pitch) {
            *reinterpret_cast<Run<8>*>(to + (long long)(first_place + at) * pitch + first_channel + chunk) = eight;
        }
    }
}

// A tensor of images, and its copy: rows of `row` elements, `pitch` from column to column, the first column `left`
// columns in. What the tensor does not have is zero.
struct Copied {
    const scalar_t* from;
    scalar_t* to;
    int channels, height, width, pitch, left, row, inside;

    // Makes 8 elements of the copy, the `unit`-th.
    __device__ __forceinline__ void make(unsigned unit) const {
        const unsigned units = row / 8;
        const long long line = unit / units;  // a row of an image
        const int first = unit % units * 8;
        const long long image = unsigned(line) / height;
        const int i = unsigned(line) % height;
        int column = first / pitch;
        int channel = first - column * pitch;
        column -= left;
        Run<8> eight;
        if (inside && channels % 8 == 0 && pitch % 8 == 0) {  // all of one column, and all there or none
            const bool is_there = channel < channels && column >= 0 && column < width;
            const uint4 zeros = make_uint4(0, 0, 0, 0);
            const uint4* source = reinterpret_cast<const uint4*>(from + (line * width + column) * channels + channel);
            *reinterpret_cast<uint4*>(to + (long long)unit * 8) = is_there ? *source : zeros;
            return;
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            const bool is_there = channel < channels && column >= 0 && column < width;
            const long long at = inside ? (line * width + column) * channels + channel
                                        : ((image * channels + channel) * height + i) * width + column;
            eight.value[e] = is_there ? from[at] : from_float<scalar_t>(0.0f);
            if (++channel == pitch) {
                channel = 0;
                ++column;
            }
        }
        *reinterpret_cast<Run<8>*>(to + (long long)unit * 8) = eight;
    }
};

// Copies images and filters to the workspace, channels inside, `pitch` elements from column to column. The first
// `transposing` blocks take 64 channels at 64 places of an image each, in turn; the others, 8 elements a thread, `x_units`
// of the images, in rows of `x_row` elements that begin with `left` columns of zeros, then `w_units` of the filters.
// grid = transposing + any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    conv2d_pack(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, scalar_t* __restrict__ workspace,
                long long w_offset, int channels, int height, int width, int tall, int wide, int pitch, int left,
                int x_row, int w_row, int transposing, int x_units, int w_units, int inside) {
    if ((int)blockIdx.x < transposing) {
        const int plane = height * width;
        const int across = tiles(plane, 64), down = tiles(pitch, 64);
        const int image = blockIdx.x / (across * down);
        const int tile = blockIdx.x - image * across * down;
        transpose_tile(x + (long long)image * channels * plane, workspace + (long long)image * plane * pitch, channels,
                  plane, pitch, tile % down * 64, tile / down * 64);
        return;
    }
    const Copied images = {x, workspace, channels, height, width, pitch, left, x_row, inside};
    const Copied filters = {w, workspace + w_offset, channels, tall, wide, pitch, 0, w_row, inside};
    const long long step = (long long)(gridDim.x - transposing) * blockDim.x;
    long long unit = (long long)(blockIdx.x - transposing) * blockDim.x + threadIdx.x;
    for (; unit < (long long)x_units + w_units; unit += step) {
        if (unit < x_units) {
            images.make(unsigned(unit));
        } else {
            filters.make(unsigned(unit - x_units));
        }
    }
}

#endif  // !defined(KERNELGATE_F32)
