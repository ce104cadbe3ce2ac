// bmm in f16 and bf16 for compute capability 9.0a: c[i] = op(a[i]) * op(b[i]) (bmm.cuh). How it is cut: gemm_hopper.cuh.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gemm_hopper.cuh"

using namespace hopper;

// v4, warp groups and bulk copies: the persistent products of gemm's v9, whose blocks walk over the tiles of one item after
// the other. Maps have the item as a third coordinate, so a tile at the edge of an item fills with zeros and stores nothing
// of the next. A factor that lies across k is multiplied as it is: products read either order from shared memory. On an
// H200 1.01 of cuBLASLt for eight items of 1024 cubed and .98 to .99 for four of 2048 cubed, in every layout; v3 .45.
//
// grid = as many blocks as run at once, at most one a tile. Dynamic shared memory = the stages, two 8 KiB buffers a
// multiplying warp group, 16 bytes a stage.
#define BMM_ENTRY(NAME, THREADS, GROUPS, COLS, STAGES, A, B)                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                       \
        bmm_##NAME(scalar_t* __restrict__ c, const __grid_constant__ TensorMap a_map,                              \
                   const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, int n, \
                   int k, int batch) {                                                                             \
        persistent<Config<GROUPS, COLS, STAGES, 1, A, B, true>>(a_map, b_map, c_map, c, Extents{m, n, k, batch},   \
                                                                Unchanged());                                      \
    }

// The tiles of a layout, as the launch rule knows them.
#define BMM_TILES(LAYOUT, A, B)                       \
    BMM_ENTRY(LAYOUT##_128x256, 384, 2, 256, 4, A, B) \
    BMM_ENTRY(LAYOUT##_128x128, 384, 2, 128, 6, A, B) \
    BMM_ENTRY(LAYOUT##_64x128, 256, 1, 128, 8, A, B)  \
    BMM_ENTRY(LAYOUT##_64x64, 256, 1, 64, 8, A, B)

BMM_TILES(nn, ALONG_K, ACROSS_K)
BMM_TILES(nt, ALONG_K, ALONG_K)
BMM_TILES(tn, ACROSS_K, ACROSS_K)
BMM_TILES(tt, ACROSS_K, ALONG_K)

// Copies the rows of a whole batch to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    bmm_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows, int cols,
              int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
