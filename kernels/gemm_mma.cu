// gemm in f16 and bf16 on mma.sync, for compute capability 8.0 and up: c[m,n] = a[m,k] * b[k,n], all row-major.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. A slice is 32 of k.
#include "gemm_mma.cuh"

#if !defined(KERNELGATE_F32)

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
// eight different groups of four banks. Rows of a are 64 bytes (two a bank line), rows of b 512.
struct Stage {
    scalar_t a[TILE_M * SLICE];
    scalar_t b[SLICE * TILE_N];

    static __device__ __forceinline__ int at_a(int row, int chunk) {
        return row * SLICE + (chunk ^ (row >> 1 & 3)) * CHUNK;
    }
    static __device__ __forceinline__ int at_b(int row, int chunk) {
        return row * TILE_N + (chunk ^ (row & 7)) * CHUNK;
    }
};

// What a warp multiplies at once: 16 of k of its rows of a and columns of b.
struct Parts {
    unsigned a[WARP_M / 16][4];
    unsigned b[WARP_N / 16][4];
};

__device__ __forceinline__ void load(Parts& parts, const Stage& stage, int step) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
        const int row = warp / WARPS_N * WARP_M + i * 16 + lane % 16;
        load_matrices(parts.a[i], &stage.a[Stage::at_a(row, step * 2 + lane / 16)]);
    }
#pragma unroll
    for (int j = 0; j < WARP_N / 16; ++j) {
        const int chunk = warp % WARPS_N * (WARP_N / CHUNK) + j * 2 + lane / 16;
        load_matrices_transposed(parts.b[j], &stage.b[Stage::at_b(step * 16 + lane % 16, chunk)]);
    }
}

// ALIGNED promises that k and n are multiples of CHUNK: rows then start at 16 bytes.
template <bool ALIGNED>
__device__ __forceinline__ void multiply(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                         scalar_t* __restrict__ c, int m, int n, int k) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);
    const TileOrigin tile = tile_of(blockIdx.x, tiles(m, TILE_M), tiles(n, TILE_N));
    const int row0 = tile.row * TILE_M;
    const int col0 = tile.col * TILE_N;
    const int slices = tiles(k, SLICE);

    // One slice past the last is fetched (as zeros) and loaded too: a branch there would keep the compiler from moving
    // the loads between the products.
    auto fetch = [&](int slice) {
        Stage& stage = stages[slice % STAGES];
#pragma unroll
        for (int p = 0; p < TILE_M * SLICE / CHUNK / THREADS; ++p) {
            const int i = p * THREADS + threadIdx.x;
            const int row = i / (SLICE / CHUNK);
            const int chunk = i % (SLICE / CHUNK);
            fetch_chunk(&stage.a[Stage::at_a(row, chunk)], a, m, k, row0 + row, slice * SLICE + chunk * CHUNK, ALIGNED);
        }
#pragma unroll
        for (int p = 0; p < SLICE * TILE_N / CHUNK / THREADS; ++p) {
            const int i = p * THREADS + threadIdx.x;
            const int row = i / (TILE_N / CHUNK);
            const int chunk = i % (TILE_N / CHUNK);
            fetch_chunk(&stage.b[Stage::at_b(row, chunk)], b, k, n, slice * SLICE + row, col0 + chunk * CHUNK, ALIGNED);
        }
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
    load(parts[0], stages[0], 0);
    for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Parts& coming = parts[(step + 1) % 2];
            if (step + 1 < STEPS) {
                load(coming, stages[slice % STAGES], step + 1);
            } else {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                load(coming, stages[(slice + 1) % STAGES], 0);
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
            const float upper[2] = {sums[i][j][0], sums[i][j][1]};
            const float lower[2] = {sums[i][j][2], sums[i][j][3]};
            store_run<2>(c, m, n, row, col, upper, n % 2 == 0);
            store_run<2>(c, m, n, row + 8, col, lower, n % 2 == 0);
        }
    }
}

}  // namespace

// v6 (f16 and bf16), the sm_80 path: eight warps share a tile of 128x256 (v4: four share 128x128, a third more bytes
// from L2 a product), four slices are under way, and a warp loads the matrices of the next 16 of k from shared memory
// while it multiplies these. At 4096 cubed .49 of cuBLASLt on an H200, v4 .38.
// grid = ceil(m/128) * ceil(n/256), block = 256, dynamic shared memory = 4 stages (96 KiB). k and n multiples of 8.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_v6(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
            int k) {
    multiply<true>(a, b, c, m, n, k);
}

// The same for every shape: through registers, element by element.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_v6_any(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
                int k) {
    multiply<false>(a, b, c, m, n, k);
}

#endif  // !defined(KERNELGATE_F32)
