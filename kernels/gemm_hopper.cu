// gemm in f16 and bf16 for compute capability 9.0a: c[m,n] = a[m,k] * b[k,n], all row-major, sums in f32. How it is cut:
// gemm_hopper.cuh. b lies across k.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gemm_hopper.cuh"

using namespace hopper;

// v7, warp groups (128x256): one thread issues all copies (TMA), 64x256x16 products read both operands from shared memory
// (wgmma) and leave the other threads nothing to do but wait, and registers go from the copying group to the multiplying
// ones. Blocks stay and take tile after tile: the copies of the next one run during the stores of this one. On an H200
// 1.03 of cuBLASLt at 8192 cubed and 1.00 at 4096 cubed, where v6 has .49.
//
// v8, clusters (128x256_cluster2): two blocks with tiles below each other fetch half of b's slice each, for both
// (multicast). A third fewer bytes from L2, which shows where rows start off 128 bytes and every box touches twice as
// many cache lines: 8000x8008x8024 .98 of cuBLASLt, v7 .85.
//
// v9, the tile follows the shape: smaller ones where 128x256 would leave multiprocessors idle, few rows with the factors
// exchanged, few tiles with a long k in parts. The launch rule chooses among all entries by an estimate of the time.
// 1024 cubed 6.5 us, v7 13.4; 512x5632x2048 19.5 us, v7 24.0; 16x4096x4096 11.6 us and 64x64x65536 11.1 us, where tiles of
// 64x64 take 17.3 and 157.
//
// Persistent: grid = as many clusters as run at once, at most one a tile; others: one a tile. Dynamic shared memory = the
// stages, two 8 KiB buffers a multiplying warp group where blocks are persistent, 16 bytes a stage.
#define GEMM_ENTRY(NAME, THREADS, BLOCKS, ...)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                           \
        gemm_##NAME(scalar_t* __restrict__ c, const __grid_constant__ TensorMap a_map,                      \
                    const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, \
                    int n, int k) {                                                                         \
        __VA_ARGS__(a_map, b_map, c_map, c, Extents{m, n, k}, Unchanged());                                 \
    }

HOPPER_TILES(GEMM_ENTRY, ACROSS_K)

// _parts: grid = tiles * parts, dynamic shared memory = the stages and 16 bytes a stage; workspace = 4 bytes a sum of a
// tile and part. _add: grid = sums of all tiles / 128, block = 256, no dynamic shared memory.
#define GEMM_PARTS(NAME, THREADS, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                \
        gemm_##NAME##_parts(float4* __restrict__ workspace, const __grid_constant__ TensorMap a_map,        \
                            const __grid_constant__ TensorMap b_map, long long offset, int m, int n, int k, \
                            int parts) {                                                                    \
        sums_of_part<__VA_ARGS__>(a_map, b_map, workspace + offset, Extents{m, n, k}, parts);               \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                       \
        gemm_##NAME##_add(scalar_t* __restrict__ c, const float4* __restrict__ workspace, long long offset, \
                          int m, int n, int k, int parts) {                                                 \
        add_parts<__VA_ARGS__>(workspace + offset, c, Extents{m, n, k}, parts, Unchanged());                \
    }

HOPPER_PARTS(GEMM_PARTS, ACROSS_K)

// Copies a matrix of `cols` columns to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    gemm_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows,
               int cols, int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
