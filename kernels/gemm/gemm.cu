// gemm: c[m,n] = a[m,k] * b[k,n], all row-major, sums in f32.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. Base pointers are 16-byte aligned; a row of a
// starts aligned only when k allows it, a row of b or c only when n does: every kernel tests that before a wide
// access. Grids are one-dimensional: grid.y ends at 65535, which ceil(m / 16) can pass.
#include "gemm.cuh"
#if !defined(KERNELGATE_F32)
#include "gemm_mma.cuh"
#endif

namespace {

__device__ __forceinline__ TileOrigin tile_origin(int m, int n, int tile_m, int tile_n) {
    const TileOrigin tile = tile_of(blockIdx.x, tiles(m, tile_m), tiles(n, tile_n));
    return {tile.row * tile_m, tile.col * tile_n};
}

}  // namespace

// Naive: a thread an output. Neighbouring threads read neighbouring columns of b, and one element of a together.
// grid = ceil(m*n / 256), block = 256, no dynamic shared memory. Every shape.
extern "C" __global__ void __launch_bounds__(256)
    gemm_naive(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
            int k) {
    const Output at = output_of_thread(n);
    if (at.row >= m) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        sum = fmaf(to_float(a[at.row * k + i]), to_float(b[(long long)i * n + at.col]), sum);
    }
    c[at.row * n + at.col] = from_float<scalar_t>(sum);
}

// Shared-memory tiles: a block reads each 16x16 tile of a and b once, so an element crosses L2 once for 16 outputs
// instead of once for each.
// grid = ceil(m/16) * ceil(n/16), block = 256, no dynamic shared memory. Every shape.
extern "C" __global__ void __launch_bounds__(256)
    gemm_tiled(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
            int k) {
    constexpr int TILE = 16;
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const TileOrigin origin = tile_origin(m, n, TILE, TILE);
    const int tile_row = threadIdx.x / TILE;
    const int tile_col = threadIdx.x % TILE;
    const int row = origin.row + tile_row;
    const int col = origin.col + tile_col;

    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        const bool a_inside = row < m && k0 + tile_col < k;
        const bool b_inside = k0 + tile_row < k && col < n;
        a_tile[tile_row][tile_col] = a_inside ? to_float(a[(long long)row * k + k0 + tile_col]) : 0.0f;
        b_tile[tile_row][tile_col] = b_inside ? to_float(b[(long long)(k0 + tile_row) * n + col]) : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum = fmaf(a_tile[tile_row][i], b_tile[i][tile_col], sum);
        __syncthreads();  // the next iteration overwrites the tiles
    }
    if (row < m && col < n) c[(long long)row * n + col] = from_float<scalar_t>(sum);
}

namespace simt {

constexpr int TILE_M = 128;
constexpr int TILE_N = 128;
constexpr int TILE_K = 8;
constexpr int THREADS = 256;
constexpr int RUN_LEN = 4;
// Four floats of padding keep the 16-byte alignment of the rows and spread the transposed stores over the banks.
constexpr int PITCH_A = TILE_M + 4;
constexpr int RUNS_A = TILE_M * TILE_K / (RUN_LEN * THREADS);
constexpr int RUNS_B = TILE_K * TILE_N / (RUN_LEN * THREADS);

// One k slice of both operands, as f32.
struct Tiles {
    float a[TILE_K][PITCH_A];  // transposed: a thread then reads its rows of one k side by side
    float b[TILE_K][TILE_N];
};

// What a thread carries from global to shared memory while the block computes on the other buffer.
struct InFlight {
    Run<RUN_LEN> a[RUNS_A];
    Run<RUN_LEN> b[RUNS_B];
};

struct RunSpot {
    int row;
    int col;
};

__device__ __forceinline__ RunSpot spot_a(int p) {
    constexpr int PER_ROW = TILE_K / RUN_LEN;
    const int index = p * THREADS + (int)threadIdx.x;
    return {index / PER_ROW, index % PER_ROW * RUN_LEN};
}

__device__ __forceinline__ RunSpot spot_b(int p) {
    constexpr int PER_ROW = TILE_N / RUN_LEN;
    const int index = p * THREADS + (int)threadIdx.x;
    return {index / PER_ROW, index % PER_ROW * RUN_LEN};
}

__device__ __forceinline__ void put(Tiles& slice, const InFlight& runs) {
#pragma unroll
    for (int p = 0; p < RUNS_A; ++p) {
        const RunSpot spot = spot_a(p);
#pragma unroll
        for (int e = 0; e < RUN_LEN; ++e) slice.a[spot.col + e][spot.row] = to_float(runs.a[p].value[e]);
    }
#pragma unroll
    for (int p = 0; p < RUNS_B; ++p) {
        const RunSpot spot = spot_b(p);
        const auto& value = runs.b[p].value;
        *reinterpret_cast<float4*>(&slice.b[spot.row][spot.col]) =
            make_float4(to_float(value[0]), to_float(value[1]), to_float(value[2]), to_float(value[3]));
    }
}

}  // namespace simt

// Register tiles: a thread owns 8x8 outputs, so a value read from shared memory feeds eight multiply-adds; two
// buffers and loads held in registers let the next k slice arrive during the arithmetic on this one.
// grid = ceil(m/128) * ceil(n/128), block = 256, no dynamic shared memory. Every shape; 4 elements an access where
// k % 4 == 0 (a) or n % 4 == 0 (b, c), single ones otherwise.
extern "C" __global__ void __launch_bounds__(simt::THREADS, 2)
    gemm_register_tile(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
            int k) {
    using namespace simt;
    __shared__ __align__(16) Tiles buffers[2];
    const TileOrigin origin = tile_origin(m, n, TILE_M, TILE_N);
    const bool a_aligned = k % RUN_LEN == 0;
    const bool n_aligned = n % RUN_LEN == 0;

    // A warp covers 32x64 outputs as 4x8 threads; a thread's rows and columns come in two runs of four, so that the
    // warp reads 64 and 128 neighbouring bytes of shared memory in one go.
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = warp / 2 * 32 + lane / 8 * 4;
    const int col = warp % 2 * 64 + lane % 8 * 4;
    constexpr int ROW_STEP = 16;
    constexpr int COL_STEP = 32;

    InFlight next;
    auto fetch = [&](int k0) {
#pragma unroll
        for (int p = 0; p < RUNS_A; ++p) {
            const RunSpot spot = spot_a(p);
            next.a[p] = load_run<RUN_LEN>(a, m, k, origin.row + spot.row, k0 + spot.col, a_aligned);
        }
#pragma unroll
        for (int p = 0; p < RUNS_B; ++p) {
            const RunSpot spot = spot_b(p);
            next.b[p] = load_run<RUN_LEN>(b, k, n, k0 + spot.row, origin.col + spot.col, n_aligned);
        }
    };

    float sums[8][2][4] = {};
    fetch(0);
    put(buffers[0], next);
    __syncthreads();
    for (int k0 = 0, current = 0; k0 < k; k0 += TILE_K, current ^= 1) {
        const bool more = k0 + TILE_K < k;
        if (more) fetch(k0 + TILE_K);
        const Tiles& slice = buffers[current];
#pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float a_part[8];
            float b_part[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                *reinterpret_cast<float4*>(&a_part[half * 4]) =
                    *reinterpret_cast<const float4*>(&slice.a[i][row + half * ROW_STEP]);
                *reinterpret_cast<float4*>(&b_part[half * 4]) =
                    *reinterpret_cast<const float4*>(&slice.b[i][col + half * COL_STEP]);
            }
#pragma unroll
            for (int r = 0; r < 8; ++r) {
#pragma unroll
                for (int q = 0; q < 8; ++q) sums[r][q / 4][q % 4] = fmaf(a_part[r], b_part[q], sums[r][q / 4][q % 4]);
            }
        }
        // The other buffer was last read before the previous barrier, so one barrier a slice is enough.
        if (more) {
            put(buffers[current ^ 1], next);
            __syncthreads();
        }
    }

#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int c_row = origin.row + row + r / 4 * ROW_STEP + r % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            store_run<4>(c, m, n, c_row, origin.col + col + half * COL_STEP, sums[r][half], n_aligned);
        }
    }
}

#if !defined(KERNELGATE_F32)

namespace tensor {

constexpr int TILE_M = 128;
constexpr int TILE_N = 128;
constexpr int TILE_K = 32;
// Three stages of 16 KiB fill the 48 KiB that a block may have without opting in, and two blocks fit every sm_80+.
constexpr int STAGES = 3;
constexpr int THREADS = 128;
constexpr int CHUNKS_A = TILE_M * TILE_K / (CHUNK * THREADS);
constexpr int CHUNKS_B = TILE_K * TILE_N / (CHUNK * THREADS);
constexpr int WARP_M = 64;
constexpr int WARP_N = 64;

// Where chunk `chunk` of a tile row stands. ldmatrix reads the same chunk of eight neighbouring rows at once; the XOR
// puts those into eight different groups of four banks. Rows of a are 64 bytes (two a bank line), rows of b 256.
__device__ __forceinline__ int element_a(int row, int chunk) { return row * TILE_K + (chunk ^ (row >> 1 & 3)) * CHUNK; }
__device__ __forceinline__ int element_b(int row, int chunk) { return row * TILE_N + (chunk ^ (row & 7)) * CHUNK; }

}  // namespace tensor

// Tensor cores (f16 and bf16 only): four warps of 64x64 outputs each multiply by mma.sync.m16n8k16; cp.async
// keeps two k slices on their way past the registers, and an XOR swizzle keeps ldmatrix free of bank conflicts.
// grid = ceil(m/128) * ceil(n/128), block = 128, no dynamic shared memory (48 KiB static). Every shape; asynchronous
// copies where k % 8 == 0 (a) or n % 8 == 0 (b), copies through registers otherwise.
extern "C" __global__ void __launch_bounds__(tensor::THREADS, 2)
    gemm_mma(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
            int k) {
    using namespace tensor;
    __shared__ __align__(128) scalar_t a_tiles[STAGES][TILE_M * TILE_K];
    __shared__ __align__(128) scalar_t b_tiles[STAGES][TILE_K * TILE_N];
    const TileOrigin origin = tile_origin(m, n, TILE_M, TILE_N);
    const bool a_aligned = k % CHUNK == 0;
    const bool b_aligned = n % CHUNK == 0;
    const int slices = tiles(k, TILE_K);

    auto fetch = [&](int slice) {
        const int k0 = slice * TILE_K;
        const int stage = slice % STAGES;
#pragma unroll
        for (int p = 0; p < CHUNKS_A; ++p) {
            constexpr int PER_ROW = TILE_K / CHUNK;
            const int index = p * THREADS + threadIdx.x;
            const int row = index / PER_ROW;
            const int chunk = index % PER_ROW;
            fetch_chunk(&a_tiles[stage][element_a(row, chunk)], a, m, k, origin.row + row, k0 + chunk * CHUNK,
                        a_aligned);
        }
#pragma unroll
        for (int p = 0; p < CHUNKS_B; ++p) {
            constexpr int PER_ROW = TILE_N / CHUNK;
            const int index = p * THREADS + threadIdx.x;
            const int row = index / PER_ROW;
            const int chunk = index % PER_ROW;
            fetch_chunk(&b_tiles[stage][element_b(row, chunk)], b, k, n, k0 + row, origin.col + chunk * CHUNK,
                        b_aligned);
        }
    };

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp / 2 * WARP_M;
    const int warp_col = warp % 2 * WARP_N;

    float sums[WARP_M / 16][WARP_N / 8][4] = {};
    for (int slice = 0; slice < STAGES - 1; ++slice) {
        if (slice < slices) fetch(slice);
        copy_async_commit();
    }
    for (int slice = 0; slice < slices; ++slice) {
        // An iteration commits one group, empty or not, so that a count of pending groups always means the same slice.
        copy_async_wait<STAGES - 2>();
        // Everyone's copies of this slice are in now, and everyone is done with the stage that is filled next.
        __syncthreads();
        if (slice + STAGES - 1 < slices) fetch(slice + STAGES - 1);
        copy_async_commit();

        const scalar_t* a_tile = a_tiles[slice % STAGES];
        const scalar_t* b_tile = b_tiles[slice % STAGES];
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) {
            unsigned a_parts[WARP_M / 16][4];
            unsigned b_parts[WARP_N / 16][4];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i) {
                load_matrices(a_parts[i], &a_tile[element_a(warp_row + i * 16 + lane % 16, step * 2 + lane / 16)]);
            }
#pragma unroll
            for (int j = 0; j < WARP_N / 16; ++j) {
                load_matrices_transposed(
                    b_parts[j], &b_tile[element_b(step * 16 + lane % 16, warp_col / CHUNK + j * 2 + lane / 16)]);
            }
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j) {
                    multiply_add(sums[i][j], a_parts[i], b_parts[j / 2][j % 2 * 2], b_parts[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
    copy_async_wait<0>();

    // A lane holds two neighbouring columns in each of two rows, eight apart, of every 16x8 tile.
    const bool c_aligned = n % 2 == 0;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) {
            const int row = origin.row + warp_row + i * 16 + lane / 4;
            const int col = origin.col + warp_col + j * 8 + lane % 4 * 2;
            const float upper[2] = {sums[i][j][0], sums[i][j][1]};
            const float lower[2] = {sums[i][j][2], sums[i][j][3]};
            store_run<2>(c, m, n, row, col, upper, c_aligned);
            store_run<2>(c, m, n, row + 8, col, lower, c_aligned);
        }
    }
}

#endif  // !defined(KERNELGATE_F32)
