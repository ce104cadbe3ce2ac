// Products in f16 and bf16 on mma.sync, for compute capability 8.0 and up, whatever becomes of the sums: c[m,n] =
// epilogue(the sum over k of a[m,k] * b[k,n]), each factor along k or across, c row-major, sums in f32.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. A slice is 32 of k.
#pragma once
#include "gemm_mma.cuh"

namespace {

constexpr int TILE_M = 128;
constexpr int TILE_N = 256;
constexpr int SLICE = 32;
constexpr int STAGES = 4;
constexpr int THREADS = 256;
constexpr int WARP_M = 64;
constexpr int WARP_N = 64;
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int STEPS = SLICE / 16;  // of k that one product takes

// Slices of both operands. ldmatrix reads the same chunk of eight neighbouring rows at once: the XOR puts those into
// eight different groups of four banks. Rows along k are 64 bytes (two a bank line), rows of a across 256, of b 512.
struct Stage {
    scalar_t a[TILE_M * SLICE];
    scalar_t b[TILE_N * SLICE];
};

// How a factor lies in memory: its slices of EXTENT rows of a or columns of b, and the matrices of 16 of k that a lane
// gets. Of 16 rows of a from `at` on: the first eight and the others of the low eight of k, then of the high eight. Of 16
// columns of b: the low and the high eight of k of the first eight columns, then of the others.
struct AlongK {
    static __device__ __forceinline__ int place(int row, int chunk) {
        return row * SLICE + (chunk ^ (row >> 1 & 3)) * CHUNK;
    }
    template <int EXTENT>
    static __device__ __forceinline__ void fetch(scalar_t* slice, const scalar_t* __restrict__ factor, int extent, int k,
                                                 int first, int k0, bool aligned) {
#pragma unroll
        for (int p = 0; p < EXTENT * SLICE / CHUNK / THREADS; ++p) {
            const int i = p * THREADS + threadIdx.x;
            const int row = i / (SLICE / CHUNK);
            const int chunk = i % (SLICE / CHUNK);
            fetch_chunk(&slice[place(row, chunk)], factor, extent, k, first + row, k0 + chunk * CHUNK, aligned);
        }
    }
    static __device__ __forceinline__ void load_a(unsigned (&part)[4], const scalar_t* slice, int step, int at) {
        const int lane = threadIdx.x % 32;
        load_matrices(part, &slice[place(at + lane % 16, step * 2 + lane / 16)]);
    }
    static __device__ __forceinline__ void load_b(unsigned (&part)[4], const scalar_t* slice, int step, int at) {
        const int lane = threadIdx.x % 32;
        load_matrices(part, &slice[place(at + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2)]);
    }
};

struct AcrossK {
    template <int EXTENT>
    static __device__ __forceinline__ int place(int row, int chunk) {
        return row * EXTENT + (chunk ^ (row & 7)) * CHUNK;
    }
    template <int EXTENT>
    static __device__ __forceinline__ void fetch(scalar_t* slice, const scalar_t* __restrict__ factor, int extent, int k,
                                                 int first, int k0, bool aligned) {
#pragma unroll
        for (int p = 0; p < SLICE * EXTENT / CHUNK / THREADS; ++p) {
            const int i = p * THREADS + threadIdx.x;
            const int row = i / (EXTENT / CHUNK);
            const int chunk = i % (EXTENT / CHUNK);
            fetch_chunk(&slice[place<EXTENT>(row, chunk)], factor, k, extent, k0 + row, first + chunk * CHUNK, aligned);
        }
    }
    static __device__ __forceinline__ void load_a(unsigned (&part)[4], const scalar_t* slice, int step, int at) {
        const int lane = threadIdx.x % 32;
        const int row = step * 16 + lane / 16 * 8 + lane % 8;
        load_matrices_transposed(part, &slice[place<TILE_M>(row, at / CHUNK + lane / 8 % 2)]);
    }
    static __device__ __forceinline__ void load_b(unsigned (&part)[4], const scalar_t* slice, int step, int at) {
        const int lane = threadIdx.x % 32;
        load_matrices_transposed(part, &slice[place<TILE_N>(step * 16 + lane % 16, at / CHUNK + lane / 16)]);
    }
};

// What a warp multiplies at once: 16 of k of its rows of a and columns of b.
struct Parts {
    unsigned a[WARP_M / 16][4];
    unsigned b[WARP_N / 16][4];
};

template <class OrderA, class OrderB>
__device__ __forceinline__ void load(Parts& parts, const Stage& stage, int step) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
        OrderA::load_a(parts.a[i], stage.a, step, warp / WARPS_N * WARP_M + i * 16);
    }
#pragma unroll
    for (int j = 0; j < WARP_N / 16; ++j) {
        OrderB::load_b(parts.b[j], stage.b, step, warp % WARPS_N * WARP_N + j * 16);
    }
}

// Tile number `index`. ALIGNED promises that the rows of a and b are multiples of CHUNK: they then start at 16 bytes.
template <class OrderA, class OrderB, bool ALIGNED, class Epilogue>
__device__ __forceinline__ void multiply(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                         scalar_t* __restrict__ c, int m, int n, int k, int index,
                                         const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);
    const TileOrigin tile = tile_of(index, tiles(m, TILE_M), tiles(n, TILE_N));
    const int row0 = tile.row * TILE_M;
    const int col0 = tile.col * TILE_N;
    const int slices = tiles(k, SLICE);

    // One slice past the last is fetched (as zeros) and loaded too: a branch there would keep the compiler from moving
    // the loads between the products.
    auto fetch = [&](int slice) {
        Stage& stage = stages[slice % STAGES];
        OrderA::template fetch<TILE_M>(stage.a, a, m, k, row0, slice * SLICE, ALIGNED);
        OrderB::template fetch<TILE_N>(stage.b, b, n, k, col0, slice * SLICE, ALIGNED);
    };

    // A round commits one group, empty or not, so that a count of pending groups always means the same slice.
    for (int slice = 0; slice < STAGES - 1; ++slice) {
        fetch(slice);
        copy_async_commit();
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();

    float sums[WARP_M / 16][WARP_N / 8][4] = {};
    Parts parts[2];
    load<OrderA, OrderB>(parts[0], stages[0], 0);
    for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Parts& coming = parts[(step + 1) % 2];
            if (step + 1 < STEPS) {
                load<OrderA, OrderB>(coming, stages[slice % STAGES], step + 1);
            } else {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                load<OrderA, OrderB>(coming, stages[(slice + 1) % STAGES], 0);
            }
            // Into the stage before this one: everyone is done with it since the last barrier.
            if (step == 0) {
                if (slice + STAGES - 1 <= slices) fetch(slice + STAGES - 1);
                copy_async_commit();
            }
            const Parts& now = parts[step % 2];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j) {
                    multiply_add(sums[i][j], now.a[i], now.b[j / 2][j % 2 * 2], now.b[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
    copy_async_wait<0>();

    // A lane holds two neighbouring columns in each of two rows, eight apart, of every 16x8 piece.
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) {
            const int row = row0 + warp / WARPS_N * WARP_M + i * 16 + lane / 4;
            const int col = col0 + warp % WARPS_N * WARP_N + j * 8 + lane % 4 * 2;
            const float upper[2] = {epilogue.of_one(sums[i][j][0], row, col),
                                    epilogue.of_one(sums[i][j][1], row, col + 1)};
            const float lower[2] = {epilogue.of_one(sums[i][j][2], row + 8, col),
                                    epilogue.of_one(sums[i][j][3], row + 8, col + 1)};
            store_run<2>(c, m, n, row, col, upper, n % 2 == 0);
            store_run<2>(c, m, n, row + 8, col, lower, n % 2 == 0);
        }
    }
}

}  // namespace
