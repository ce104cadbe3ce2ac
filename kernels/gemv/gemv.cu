// Matrix times few vectors, as in the linear layers of a model that decodes: y[b, i] = sum_j x[b, j] * w[i, j], x [batch, k],
// w [n, k], y [batch, n], all of one dtype; the arithmetic is f32. Memory bounds it: w is read once.
//
// Launch (k a multiple of 8, but for naive; no dynamic shared memory but for cluster_*). The rule is src/ops/gemv/launch.rs:
//   naive               grid n * batch            block 256
//   warp_per_row        grid ceil(n / 8) * batch  block 256
//   block_per_row       grid n                    block 256   batch 1, k >= 4096
//   half_block_per_row  grid ceil(n / 2)          block 256   batch 1
//   row_tile            grid ceil(n / 16)         block 256   batch <= 8
//   lines               grid ceil(n / 12) * ceil(batch / 8)  block 256   f16 and bf16, batch > 1, n >= 12
//   lines               grid ceil(n / 16) * ceil(batch / 8)  block 256   f32, batch > 1, n >= 16
//   lines_wide          the same                             block 512   f32, n <= 16 rows a multiprocessor
//   cluster_32          grid blocks, ceil(n / 32), ceil(batch / 8)  block lines * 32            cluster: blocks   f32, batch > 1,
//     k a multiple of 32. blocks, lines (k / blocks / 32), map and shared as in src/ops/gemv/cluster.rs
//   cluster_16          the same with ceil(n / 16)      block ceil(lines / 2) * 32
#include "common.cuh"
#include "gemm_mma.cuh"
#if defined(KERNELGATE_F32) && __CUDA_ARCH__ >= 900
#include "gemv_cluster_mma.cuh"
#endif
#include "gemv_lines.cuh"

#define PARAMETERS \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ w, scalar_t *__restrict__ y, int batch, int n, int k

// The formula. A block an output, a tree in shared memory.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) gemv_naive(PARAMETERS) {
    const int row = int(blockIdx.x % n), of = int(blockIdx.x / n);
    float sum = 0.0f;
    for (int j = threadIdx.x; j < k; j += TREE_THREADS) {
        sum = fmaf(to_float(x[(long long)of * k + j]), to_float(w[(long long)row * k + j]), sum);
    }
    sum = tree_reduce<Sum>(sum);
    if (threadIdx.x == 0) {
        y[(long long)of * n + row] = from_float<scalar_t>(sum);
    }
}

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP;
constexpr int MOST_BATCH = 8;

// ROWS rows of w by WARPS_PER_ROW warps, up to BATCH vectors, AT_ONCE packs of each row in flight in a lane.
template <int BATCH, int ROWS, int WARPS_PER_ROW, int AT_ONCE>
struct RowsOfWarps {
    static constexpr int STRIDE = WARPS_PER_ROW * WARP;  // packs from one of a lane to its next

    const scalar_t* x;
    const scalar_t* rows[ROWS];
    int batch;
    int k;
    float sums[ROWS][BATCH] = {};

    // COUNT packs of each row, all in flight before the first is used.
    template <int COUNT>
    __device__ __forceinline__ void add_packs(int pack) {
        Pack of_w[ROWS][COUNT];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                of_w[r][i] = load_pack_streaming(rows[r] + (pack + i * STRIDE) * PACK_LEN);
            }
        }
        if (COUNT > 1) __syncwarp();  // the compiler would move each load down to its use
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (BATCH > 1 && b >= batch) continue;
                float of_x[PACK_LEN];
                unpack(load_pack(x + (long long)b * k + (pack + i * STRIDE) * PACK_LEN), of_x);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    float value[PACK_LEN];
                    unpack(of_w[r][i], value);
#pragma unroll
                    for (int e = 0; e < PACK_LEN; ++e) sums[r][b] = fmaf(of_x[e], value[e], sums[r][b]);
                }
            }
        }
    }

    // What is left behind the last whole step: halves of it as long as one fits, then the packs that some lanes have.
    template <int COUNT>
    __device__ __forceinline__ void add_rest(int at, int packs, int lane) {
        if (at + COUNT * STRIDE <= packs) {
            add_packs<COUNT>(at + lane);
            at += COUNT * STRIDE;
        }
        if constexpr (COUNT > 1) {
            add_rest<COUNT / 2>(at, packs, lane);
        } else if (at + lane < packs) {
            add_packs<1>(at + lane);
        }
    }

    static constexpr int OF_BLOCK = WARPS / WARPS_PER_ROW * ROWS;

    // The rows of block `block`.
    static __device__ __forceinline__ void run(const scalar_t* x, const scalar_t* w, scalar_t* y, int batch, int n,
                                               int k, int block) {
        const int lane = threadIdx.x % STRIDE, warp_set = threadIdx.x / STRIDE;
        const int first = block * OF_BLOCK + warp_set * ROWS;
        const int packs = k / PACK_LEN;
        RowsOfWarps own{x, {}, batch, k};
#pragma unroll
        for (int r = 0; r < ROWS; ++r) own.rows[r] = w + (long long)min(first + r, n - 1) * k;
        int at = 0;
        for (; at + AT_ONCE * STRIDE <= packs; at += AT_ONCE * STRIDE) own.template add_packs<AT_ONCE>(at + lane);
        own.template add_rest<AT_ONCE / 2>(at, packs, lane);
        own.store(y, n, first, lane, warp_set);
    }

    __device__ __forceinline__ void store(scalar_t* y, int n, int first, int lane, int warp_set) const {
        __shared__ float of_warp[WARPS][ROWS][BATCH];
        const int warp = threadIdx.x / WARP;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const float sum = warp_reduce<Sum>(sums[r][b]);
                if (threadIdx.x % WARP == 0) of_warp[warp][r][b] = sum;
            }
        }
        __syncthreads();
        for (int i = lane; i < ROWS * BATCH; i += STRIDE) {
            const int r = i / BATCH, b = i % BATCH;
            if (first + r >= n || b >= batch) continue;
            float total = 0.0f;
#pragma unroll
            for (int part = 0; part < WARPS_PER_ROW; ++part) total += of_warp[warp_set * WARPS_PER_ROW + part][r][b];
            y[(long long)b * n + first + r] = from_float<scalar_t>(total);
        }
    }
};

#if defined(KERNELGATE_F32)

__device__ __forceinline__ void few(const scalar_t* x, const scalar_t* w, scalar_t* y, int batch, int n, int k) {
    constexpr int ROWS = 16;
    using Four = RowsOfWarps<MOST_BATCH, 2, 4, 2>;  // rows a pass: more would leave few loads in flight
    constexpr int PASSES = ROWS / Four::OF_BLOCK;
    const int first = blockIdx.x * PASSES;
    for (int block = first; block < first + PASSES && block * Four::OF_BLOCK < n; ++block) {
        Four::run(x, w, y, batch, n, k, block);
        __syncthreads();  // its sums have been read
    }
}

#else

// Sixteen rows of w against eight vectors a product of tensor cores: arithmetic costs nothing beside the memory then.
// A sum may run in any order, so a lane takes its part of both operands as packs of eight: elements 0 and 1, 2 and 3 stand
// for the places of the first product that the lane holds, 4 to 7 for those of the second.
__device__ __forceinline__ void few(const scalar_t* x, const scalar_t* w, scalar_t* y, int batch, int n, int k) {
    constexpr int ROWS = 16;
    constexpr int AT_ONCE = 4;  // steps of four packs a row
    __shared__ float of_warp[WARPS][ROWS][MOST_BATCH];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int first = blockIdx.x * ROWS;
    const int packs = k / PACK_LEN;
    const scalar_t* const upper = w + (long long)min(first + lane / 4, n - 1) * k;
    const scalar_t* const lower = w + (long long)min(first + lane / 4 + 8, n - 1) * k;
    const scalar_t* const vector = x + (long long)min(lane / 4, batch - 1) * k;
    const bool has_vector = lane / 4 < batch;
    const Pack none{make_uint4(0, 0, 0, 0)};
    float sums[4] = {};
    for (int at = warp * AT_ONCE * 4; at < packs; at += WARPS * AT_ONCE * 4) {
        Pack of_w[AT_ONCE][2], of_x[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int pack = at + i * 4 + lane % 4;
            const bool inside = pack < packs;
            of_w[i][0] = inside ? load_pack_streaming(upper + pack * PACK_LEN) : none;
            of_w[i][1] = inside ? load_pack_streaming(lower + pack * PACK_LEN) : none;
            of_x[i] = inside && has_vector ? load_pack(vector + pack * PACK_LEN) : none;
        }
        __syncwarp();  // the compiler would move each load down to its use
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const uint4 a = of_w[i][0].words, b = of_w[i][1].words, v = of_x[i].words;
            const unsigned low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
            multiply_add(sums, low, v.x, v.y);
            multiply_add(sums, high, v.z, v.w);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) of_warp[warp][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
    __syncthreads();
    const int row = threadIdx.x % ROWS, of = threadIdx.x / ROWS;
    if (of < batch && first + row < n) {
        float total = 0.0f;
#pragma unroll
        for (int part = 0; part < WARPS; ++part) total += of_warp[part][row][of];
        y[(long long)of * n + first + row] = from_float<scalar_t>(total);
    }
}

#endif

}  // namespace

// Packs, four of them in flight together, a warp a row, a pass over w a vector.
extern "C" __global__ void __launch_bounds__(THREADS) gemv_warp_per_row(PARAMETERS) {
    const int blocks = (n - 1) / WARPS + 1;  // a vector
    const int of = int(blockIdx.x) / blocks;
    RowsOfWarps<1, 1, 1, 4>::run(x + (long long)of * k, w, y + (long long)of * n, 1, n, k, int(blockIdx.x) % blocks);
}

// Few rows at a time, which are near each other in memory; several vectors on tensor cores, in f32 by fma.
extern "C" __global__ void __launch_bounds__(THREADS) gemv_block_per_row(PARAMETERS) {
    RowsOfWarps<1, 1, 8, 2>::run(x, w, y, batch, n, k, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(THREADS) gemv_half_block_per_row(PARAMETERS) {
    RowsOfWarps<1, 1, 4, 4>::run(x, w, y, batch, n, k, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(THREADS) gemv_row_tile(PARAMETERS) { few(x, w, y, batch, n, k); }

#if defined(KERNELGATE_F32)
// Several vectors against whole lines of w, by fma.
extern "C" __global__ void __launch_bounds__(256, 2) gemv_lines(PARAMETERS) { few_vectors<4, 8, 2, 1>(x, w, y, batch, n, k); }
// The same for a matrix whose blocks are no more than multiprocessors.
extern "C" __global__ void __launch_bounds__(512, 1) gemv_lines_wide(PARAMETERS) {
    few_vectors<4, 16, 2, 1>(x, w, y, batch, n, k);
}
#if __CUDA_ARCH__ >= 900
// The same by clusters that split the columns (split-K), on tensor cores: a block needs a part of the vectors only, and several
// share a multiprocessor.
extern "C" __global__ void __launch_bounds__(clusters::MOST_WARPS<4> * WARP)
    gemv_cluster_32(PARAMETERS, int lines, const __grid_constant__ hopper::TensorMap map) {
    clusters::few_vectors<4>(x, w, y, batch, n, k, lines, map);
}
// Two groups of eight rows a cluster, for long rows and for few.
extern "C" __global__ void __launch_bounds__(clusters::MOST_WARPS<2> * WARP)
    gemv_cluster_16(PARAMETERS, int lines, const __grid_constant__ hopper::TensorMap map) {
    clusters::few_vectors<2>(x, w, y, batch, n, k, lines, map);
}
#endif
#else
// Several vectors against whole lines of w, on tensor cores.
extern "C" __global__ void __launch_bounds__(256, 3) gemv_lines(PARAMETERS) {
    few_vectors<3, 8, 2, 4>(x, w, y, batch, n, k);
}
#endif
