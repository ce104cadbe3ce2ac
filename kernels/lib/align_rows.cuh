// Rows that tensor maps take, made of rows that start anywhere.
#pragma once
#include "shifted.cuh"

// Copies a matrix of `cols` columns to rows of `pitch` elements, a multiple of 16 bytes: a thread writes 16 bytes at a time, out
// of the two words of 16 that they lie in. What stands behind a row in its last 16 bytes is nobody's. from and to are
// multiples of 16 bytes; grid = any, block = 256.
__device__ __forceinline__ void align_rows(const scalar_t* __restrict__ from, scalar_t* __restrict__ to, int rows,
                                           int cols, int pitch) {
    constexpr int LEN = 16 / sizeof(scalar_t);
    const long long n = (long long)rows * cols;
    const unsigned int packs = pitch / LEN;
    const unsigned int all = rows * packs;
    for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < all; i += gridDim.x * 256) {
        const unsigned int row = i / packs;
        const int col = int(i - row * packs) * LEN;
        const long long at = (long long)row * cols + col;
        scalar_t* const mine = to + (long long)row * pitch + col;
        const int shift = int(at % LEN);
        const scalar_t* const low = from + (at - shift);
        if (at - shift + 2 * LEN <= n) {
            const uint4 a = reinterpret_cast<const uint4*>(low)[0];
            const uint4 b = reinterpret_cast<const uint4*>(low)[1];
            *reinterpret_cast<uint4*>(mine) = shifted(a, b, shift * int(sizeof(scalar_t)));
        } else {
            // The end of the matrix: no word behind it is read.
            for (int j = 0; j < LEN && col + j < cols; ++j) {
                mine[j] = from[at + j];
            }
        }
    }
}
