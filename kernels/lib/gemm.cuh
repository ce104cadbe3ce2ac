// What the gemm kernels share: how the tiles of c are taken, and runs of neighbouring elements.
#pragma once
#include "kernelgate.cuh"

// Tile rows that are taken together, column after column, before the next band of tile rows starts: the blocks that
// run at the same time then share rows of a and columns of b in L2.
constexpr int BAND_TILES = 8;

__device__ __forceinline__ int tiles(int extent, int tile) { return (extent - 1) / tile + 1; }

struct TileOrigin {
    int row;
    int col;
};

// Where tile number `index` of tiles_m x tiles_n stands, in tiles.
__device__ __forceinline__ TileOrigin tile_of(int index, int tiles_m, int tiles_n) {
    const int band = index / (BAND_TILES * tiles_n);
    const int within = index - band * BAND_TILES * tiles_n;
    const int band_rows = min(BAND_TILES, tiles_m - band * BAND_TILES);  // the last band may be lower
    return {band * BAND_TILES + within % band_rows, within / band_rows};
}

struct Output {
    long long row;
    long long col;
};

// The output of this thread where blocks of 256 take one a thread: below c past its end.
__device__ __forceinline__ Output output_of_thread(int n) {
    const long long output = (long long)blockIdx.x * 256 + threadIdx.x;
    const long long row = output / n;
    return {row, output - row * n};
}

// COUNT neighbouring elements of a row, moved by one access where the row starts allow it.
template <int COUNT>
struct alignas(COUNT * sizeof(scalar_t)) Run {
    scalar_t value[COUNT];
};

// Elements outside the matrix read as zero. `aligned` promises that cols is a multiple of COUNT, as col always is:
// a run then lies inside the row as a whole or not at all.
template <int COUNT>
__device__ __forceinline__ Run<COUNT> load_run(const scalar_t* __restrict__ matrix, int rows, int cols, int row,
                                               int col, bool aligned) {
    Run<COUNT> run;
    const scalar_t* source = matrix + (long long)row * cols + col;
    if (aligned && row < rows && col < cols) {
        run = *reinterpret_cast<const Run<COUNT>*>(source);
    } else {
#pragma unroll
        for (int e = 0; e < COUNT; ++e) {
            run.value[e] = row < rows && col + e < cols ? source[e] : from_float<scalar_t>(0.0f);
        }
    }
    return run;
}

template <int COUNT>
__device__ __forceinline__ void store_run(scalar_t* __restrict__ matrix, int rows, int cols, int row, int col,
                                          const float (&sums)[COUNT], bool aligned) {
    if (row >= rows || col >= cols) return;
    Run<COUNT> run;
#pragma unroll
    for (int e = 0; e < COUNT; ++e) run.value[e] = from_float<scalar_t>(sums[e]);
    scalar_t* target = matrix + (long long)row * cols + col;
    if (aligned) {
        *reinterpret_cast<Run<COUNT>*>(target) = run;
    } else {
#pragma unroll
        for (int e = 0; e < COUNT; ++e) {
            if (col + e < cols) target[e] = run.value[e];
        }
    }
}

// What becomes of the sums of a product on their way to c: an epilogue makes the output at (row, col) of its sum. Either
// may lie outside c: nobody stores that output.
struct Unchanged {
    static __device__ __forceinline__ float of_one(float sum, int, int) { return sum; }
    // The same for tensor core products, whose lanes hold sums at (row, col), (row, col + 1), (row + 8, col),
    // (row + 8, col + 1), then those eight columns further: asks ahead for what WIDTH columns need, then makes the outputs
    // of one 64 columns after the other. `whole`: the rows of c start on 16 bytes.
    template <int WIDTH>
    struct Tile {
        __device__ __forceinline__ Tile(const Unchanged&, int, int, bool) {}
        __device__ __forceinline__ void finish(const Unchanged&, int, float*) {}
    };
    // The same for ROWS rows of a warpgroup's 64 columns of c, from tile.col and tile.row on, where the operands are
    // swapped: a lane holds sums at (row, col), (row + 1, col), (row, col + 8), (row + 1, col + 8), then those eight rows
    // further. What `fill` puts into the buffer of the outputs is there when `finish` comes.
    template <int ROWS>
    struct SwapAB {
        __device__ __forceinline__ SwapAB(const Unchanged&, TileOrigin) {}
        static __device__ __forceinline__ constexpr bool fills(const Unchanged&) { return false; }
        __device__ __forceinline__ void fill(const Unchanged&, TileOrigin, unsigned, bool) {}
        __device__ __forceinline__ void finish(const Unchanged&, unsigned, float*) {}
    };
};
