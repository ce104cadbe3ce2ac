// What the inputs of all steps add to the gates, as one matrix product:
//   gates[row][4 unit + gate] = sum over k of from[row][k] weights[gate * hidden + unit][k], sums in f32
// with a row for each step and sequence. Both operands run along k; the four gates of a unit end up side by side.
#pragma once
#include "gemm_mma.cuh"

namespace lstm {

constexpr int GATES = 4;

// The operands: `parts` matrices [rows, width] of rows `pitch` elements apart, whose sum is the left operand.
struct Operands {
    const scalar_t* from;
    const scalar_t* weights;
    int parts;
    int rows;
    int width;
    int pitch;
    int hidden;

    // The row of the weights behind column `col` of the gates; the first row outside for a column outside.
    __device__ __forceinline__ int weight_row(int col) const {
        return col < GATES * hidden ? col % GATES * hidden + col / GATES : GATES * hidden;
    }
};

constexpr int TILE = 128;  // rows, and columns, of the gates a block

#if defined(KERNELGATE_F32)

constexpr int PRODUCT_THREADS = 256;
constexpr int SLICE = 16;
constexpr int RUN_LEN = 4;
constexpr int TILE_PITCH = TILE + 4;

// Slices of both operands, transposed: a thread reads its rows, or columns, of one k side by side.
struct Slices {
    float a[SLICE][TILE_PITCH];
    float b[SLICE][TILE_PITCH];
};

// On ordinary multiply-adds: 8 x 8 outputs a thread, rows and columns in two runs of four; the next slice comes through
// registers while this one is multiplied. ALIGNED promises that the width is a multiple of RUN_LEN.
template <bool ALIGNED>
__device__ __forceinline__ void input_gemm(const Operands& of, float* __restrict__ gates) {
    __shared__ Slices slices[2];
    const int columns = GATES * of.hidden;
    const TileOrigin tile = tile_of(blockIdx.x, tiles(of.rows, TILE), tiles(columns, TILE));
    const int row0 = tile.row * TILE;
    const int col0 = tile.col * TILE;
    const int fetch_row = threadIdx.x / (SLICE / RUN_LEN);
    const int fetch_k = threadIdx.x % (SLICE / RUN_LEN) * RUN_LEN;
    Run<RUN_LEN> a[2], b[2];
    auto fetch = [&](int k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = fetch_row + half * (TILE / 2);
            a[half] = load_run<RUN_LEN>(of.from, of.rows, of.width, row0 + at, k + fetch_k, ALIGNED);
            b[half] = load_run<RUN_LEN>(of.weights, columns, of.width, of.weight_row(col0 + at), k + fetch_k, ALIGNED);
        }
    };
    auto put = [&](Slices& to) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int e = 0; e < RUN_LEN; ++e) {
                to.a[fetch_k + e][fetch_row + half * (TILE / 2)] = a[half].value[e];
                to.b[fetch_k + e][fetch_row + half * (TILE / 2)] = b[half].value[e];
            }
        }
    };
    const int row = threadIdx.x / 16 * 4;
    const int col = threadIdx.x % 16 * 4;
    float sums[8][8] = {};
    fetch(0);
    put(slices[0]);
    __syncthreads();
    for (int k = 0; k < of.width; k += SLICE) {
        const Slices& now = slices[k / SLICE % 2];
        const bool more = k + SLICE < of.width;
        if (more) fetch(k + SLICE);
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            float of_a[8], of_b[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<float4*>(&of_a[4 * half]) =
                    *reinterpret_cast<const float4*>(&now.a[i][row + half * (TILE / 2)]);
                *reinterpret_cast<float4*>(&of_b[4 * half]) =
                    *reinterpret_cast<const float4*>(&now.b[i][col + half * (TILE / 2)]);
            }
#pragma unroll
            for (int r = 0; r < 8; ++r) {
#pragma unroll
                for (int q = 0; q < 8; ++q) sums[r][q] = fmaf(of_a[r], of_b[q], sums[r][q]);
            }
        }
        if (more) put(slices[(k / SLICE + 1) % 2]);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int to_row = row0 + row + r / 4 * (TILE / 2) + r % 4;
#pragma unroll
        for (int q = 0; q < 8; q += 4) {
            const int to_col = col0 + col + q / 4 * (TILE / 2);
            if (to_row < of.rows && to_col < columns) {
                *reinterpret_cast<float4*>(gates + (long long)to_row * columns + to_col) =
                    make_float4(sums[r][q], sums[r][q + 1], sums[r][q + 2], sums[r][q + 3]);
            }
        }
    }
}

#else

constexpr int PRODUCT_THREADS = 256;
constexpr int SLICE = 32;
constexpr int STAGES = 4;
constexpr int WARP_ROWS = 64;
constexpr int WARP_COLS = 32;
constexpr int WARPS_ACROSS = TILE / WARP_COLS;

// Slices of both operands. ldmatrix reads the same chunk of eight neighbouring rows at once: the XOR puts those into
// different groups of four banks.
struct Slices {
    scalar_t a[TILE * SLICE];
    scalar_t b[TILE * SLICE];

    static __device__ __forceinline__ int at(int row, int chunk) {
        return row * SLICE + (chunk ^ (row >> 1 & 3)) * CHUNK;
    }
};

// On mma.sync: eight warps, 64 x 32 outputs each; slices come by cp.async, three ahead. ALIGNED promises that the width
// is a multiple of CHUNK.
template <bool ALIGNED>
__device__ __forceinline__ void input_gemm(const Operands& of, float* __restrict__ gates) {
    extern __shared__ __align__(128) unsigned char shared[];
    Slices* const pipeline = reinterpret_cast<Slices*>(shared);
    const int columns = GATES * of.hidden;
    const TileOrigin tile = tile_of(blockIdx.x, tiles(of.rows, TILE), tiles(columns, TILE));
    const int row0 = tile.row * TILE;
    const int col0 = tile.col * TILE;
    const int of_part = tiles(of.width, SLICE);
    const int slices = of.parts * of_part;
    constexpr int CHUNKS = SLICE / CHUNK;
    constexpr int COPIES = TILE * CHUNKS / PRODUCT_THREADS;
    const int chunk = threadIdx.x % CHUNKS;
    int fetch_rows[COPIES], weight_rows[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        fetch_rows[i] = (i * PRODUCT_THREADS + threadIdx.x) / CHUNKS;
        weight_rows[i] = of.weight_row(col0 + fetch_rows[i]);
    }
    auto fetch = [&](int slice) {
        Slices& to = pipeline[slice % STAGES];
        const int part = slice / of_part;
        const int k = (slice - part * of_part) * SLICE + chunk * CHUNK;
        const scalar_t* const from = of.from + (long long)part * of.rows * of.pitch;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const int at = Slices::at(fetch_rows[i], chunk);
            fetch_chunk(&to.a[at], from, of.rows, of.pitch, row0 + fetch_rows[i], k, ALIGNED || of.pitch % CHUNK == 0);
            fetch_chunk(&to.b[at], of.weights, columns, of.width, weight_rows[i], k, ALIGNED);
        }
    };
    for (int slice = 0; slice < STAGES - 1; ++slice) {
        if (slice < slices) fetch(slice);
        copy_async_commit();
    }

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_ACROSS * WARP_ROWS;
    const int warp_col = warp % WARPS_ACROSS * WARP_COLS;
    float sums[WARP_ROWS / 16][WARP_COLS / 8][4] = {};
    for (int slice = 0; slice < slices; ++slice) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        // Into the stage before this one: everyone is done with it since the barrier.
        if (slice + STAGES - 1 < slices) fetch(slice + STAGES - 1);
        copy_async_commit();
        const Slices& now = pipeline[slice % STAGES];
#pragma unroll
        for (int step = 0; step < SLICE / 16; ++step) {
            unsigned a[WARP_ROWS / 16][4], b[WARP_COLS / 16][4];
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; ++i) {
                load_matrices(a[i], &now.a[Slices::at(warp_row + i * 16 + lane % 16, step * 2 + lane / 16)]);
            }
#pragma unroll
            for (int j = 0; j < WARP_COLS / 16; ++j) {
                const int row = warp_col + j * 16 + lane / 16 * 8 + lane % 8;
                load_matrices(b[j], &now.b[Slices::at(row, step * 2 + lane / 8 % 2)]);
            }
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; ++i) {
#pragma unroll
                for (int j = 0; j < WARP_COLS / 8; ++j) {
                    multiply_add(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
    copy_async_wait<0>();

    // A lane holds two neighbouring columns in each of two rows, eight apart, of every 16 x 8 tile.
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WARP_COLS / 8; ++j) {
            const int col = col0 + warp_col + j * 8 + lane % 4 * 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = row0 + warp_row + i * 16 + half * 8 + lane / 4;
                if (row < of.rows && col < columns) {
                    *reinterpret_cast<float2*>(gates + (long long)row * columns + col) =
                        make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
                }
            }
        }
    }
}

#endif

}  // namespace lstm
