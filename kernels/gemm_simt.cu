// gemm in f32 on ordinary multiply-adds: c[m,n] = a[m,k] * b[k,n], all row-major.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. A slice is 8 of k.
#include "async.cuh"
#include "gemm.cuh"

#if defined(KERNELGATE_F32)

namespace {

constexpr int TILE_M = 128;
constexpr int TILE_N = 128;
constexpr int SLICE = 8;
constexpr int STAGES = 4;
constexpr int THREADS = 128;
constexpr int ROWS = 16;  // of c a thread
constexpr int COLS = 8;
constexpr int RUN_LEN = 4;
constexpr int WARP_M = 4 * ROWS;  // a warp is 4 x 8 threads
constexpr int WARP_N = 8 * COLS;
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int ROW_STEP = 16;  // a thread's rows come in runs of four, its columns too: a warp then reads neighbours
constexpr int COL_STEP = 32;
constexpr int PITCH_A = TILE_M + 4;  // eight of k and four rows, as a warp writes them, meet in different banks

// Slices of both operands: those of a transposed, so that a thread reads its rows of one k side by side.
struct Stage {
    float a[SLICE][PITCH_A];
    float b[SLICE][TILE_N];
};

// Brings the slices of [k0, k1) into shared memory, one after the other; what lies behind is zeros. ALIGNED promises
// that n is a multiple of RUN_LEN.
template <bool ALIGNED>
struct Source {
    static constexpr int A_STEP = THREADS / SLICE;  // rows that all threads copy at once
    static constexpr int B_STEP = THREADS / (TILE_N / RUN_LEN);
    static constexpr int A_COPIES = TILE_M / A_STEP;
    static constexpr int B_COPIES = SLICE / B_STEP;

    const float* a_next;
    const float* b_next;
    int n;
    int cols_left;  // of b, from this thread's first column on
    int k_left;     // behind the slices that were fetched
    int a_offset[A_COPIES];

    __device__ __forceinline__ Source(const float* a, const float* b, TileOrigin tile, int m, int n, int k, int k0,
                                      int k1)
        : n(n), cols_left(n - tile.col - b_col()), k_left(k1 - k0) {
        a_next = a + (long long)tile.row * k + k0 + a_k();
        b_next = b + (long long)(k0 + b_k()) * n + tile.col + b_col();
        // Rows past the last are read as the last: nobody stores what comes of them.
#pragma unroll
        for (int i = 0; i < A_COPIES; ++i) a_offset[i] = min(a_row() + i * A_STEP, m - 1 - tile.row) * k;
    }
    static __device__ __forceinline__ int a_k() { return threadIdx.x % SLICE; }
    static __device__ __forceinline__ int a_row() { return threadIdx.x / SLICE; }
    static __device__ __forceinline__ int b_k() { return threadIdx.x / (TILE_N / RUN_LEN); }
    static __device__ __forceinline__ int b_col() { return threadIdx.x % (TILE_N / RUN_LEN) * RUN_LEN; }

    __device__ __forceinline__ void fetch(Stage& stage) {
        const unsigned a_to = shared_address(&stage.a[a_k()][a_row()]);
        const unsigned b_to = shared_address(&stage.b[b_k()][b_col()]);
        const bool a_inside = a_k() < k_left;
#pragma unroll
        for (int i = 0; i < A_COPIES; ++i) copy_async<4>(a_to + i * A_STEP * 4, a_next + a_offset[i], a_inside);
#pragma unroll
        for (int i = 0; i < B_COPIES; ++i) {
            const unsigned to = b_to + i * B_STEP * TILE_N * 4;
            const float* from = b_next + i * B_STEP * n;
            const bool b_inside = b_k() + i * B_STEP < k_left;
            if (ALIGNED) {
                copy_async<16>(to, from, b_inside && cols_left > 0);
            } else {
#pragma unroll
                for (int e = 0; e < RUN_LEN; ++e) copy_async<4>(to + e * 4, from + e, b_inside && cols_left > e);
            }
        }
        a_next += SLICE;
        b_next += (long long)SLICE * n;
        k_left -= SLICE;
    }
};

// What a thread multiplies at once: one k of its rows of a and columns of b.
struct Parts {
    float a[ROWS];
    float b[COLS];

    __device__ __forceinline__ void load(const Stage& stage, int i, int row, int col) {
#pragma unroll
        for (int r = 0; r < ROWS; r += 4) {
            *reinterpret_cast<float4*>(&a[r]) = *reinterpret_cast<const float4*>(&stage.a[i][row + r / 4 * ROW_STEP]);
        }
#pragma unroll
        for (int q = 0; q < COLS; q += 4) {
            *reinterpret_cast<float4*>(&b[q]) = *reinterpret_cast<const float4*>(&stage.b[i][col + q / 4 * COL_STEP]);
        }
    }
};

template <bool ALIGNED>
__device__ __forceinline__ void multiply(const float* __restrict__ a, const float* __restrict__ b,
                                         float* __restrict__ out, int m, int n, int k, int parts) {
    extern __shared__ __align__(16) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);
    const int tiles_m = tiles(m, TILE_M);
    const int tiles_n = tiles(n, TILE_N);
    const int part = (int)blockIdx.x / (tiles_m * tiles_n);
    TileOrigin tile = tile_of((int)blockIdx.x - part * tiles_m * tiles_n, tiles_m, tiles_n);
    tile = {tile.row * TILE_M, tile.col * TILE_N};
    const int share = tiles(tiles(k, SLICE), parts) * SLICE;
    const int k0 = min(k, part * share);
    const int k1 = min(k, k0 + share);
    const int slices = (k1 - k0 + SLICE - 1) / SLICE;
    Source<ALIGNED> source(a, b, tile, m, n, k, k0, k1);

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row = warp / WARPS_N * WARP_M + lane / 8 * 4;
    const int col = warp % WARPS_N * WARP_N + lane % 8 * 4;

    // Slices past the last are fetched (as zeros) and loaded too: a branch here would keep the compiler from moving the
    // loads between the multiply-adds.
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        source.fetch(stages[stage]);
        copy_async_commit();
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    float sums[ROWS][COLS] = {};
    Parts parts_of_k[2];
    parts_of_k[0].load(stages[0], 0, row, col);
    int stage = 0;
    for (int slice = 0; slice < slices; ++slice) {
        const int next = stage + 1 == STAGES ? 0 : stage + 1;
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            Parts& coming = parts_of_k[(i + 1) % 2];
            if (i + 1 < SLICE) {
                coming.load(stages[stage], i + 1, row, col);
            } else {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                coming.load(stages[next], 0, row, col);
            }
            if (i == 0) {
                // Into the stage before this one: everyone is done with it since the last barrier.
                source.fetch(stages[stage == 0 ? STAGES - 1 : stage - 1]);
                copy_async_commit();
            }
            const Parts& now = parts_of_k[i % 2];
            // Columns outside: rows outside took 3 % longer, to and fro 2 % (the compiler's choice of register banks).
#pragma unroll
            for (int q = 0; q < COLS; ++q) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) sums[r][q] = fmaf(now.a[r], now.b[q], sums[r][q]);
            }
        }
        stage = next;
    }
    copy_async_wait<0>();

    out += (long long)part * m * n;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int c_row = tile.row + row + r / 4 * ROW_STEP + r % 4;
#pragma unroll
        for (int q = 0; q < COLS; q += 4) {
            const float run[4] = {sums[r][q], sums[r][q + 1], sums[r][q + 2], sums[r][q + 3]};
            store_run<4>(out, m, n, c_row, tile.col + col + q / 4 * COL_STEP, run, ALIGNED);
        }
    }
}

}  // namespace

// v5 (f32 only), issue slots: 16x8 outputs a thread read 24 values of shared memory for 128 multiply-adds (v3: 16 for
// 64, where the loads are the limit), those of the next k while this one is multiplied. Copies of 4 bytes past the
// registers transpose a on the way, and little is left to compute for them. Few tiles: `parts` blocks share a tile and
// store sums over their part of k one behind the other in `out`, which gemm_v5_add adds up in a fixed order.
// At 4096 cubed .95 of cuBLAS on an H200 (v3 .78), at 1024 cubed 56 us (v3 117).
// grid = ceil(m/128) * ceil(n/128) * parts, block = 128, dynamic shared memory = 4 stages. n a multiple of 4.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_v5(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k,
            int parts) {
    multiply<true>(a, b, out, m, n, k, parts);
}

// The same for every n: b is copied element by element too.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_v5_any(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k,
                int parts) {
    multiply<false>(a, b, out, m, n, k, parts);
}

// The second pass of v5: c = the sum of `parts` matrices of `count` elements that stand one behind the other.
// grid = ceil(count / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    gemm_v5_add(const float* __restrict__ sums, float* __restrict__ c, long long count, int parts) {
    const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    float sum = sums[i];
    for (int part = 1; part < parts; ++part) sum += sums[part * count + i];
    c[i] = sum;
}

#endif  // defined(KERNELGATE_F32)
