// bmm in f16 and bf16 for compute capability 9.0a: c[i] = op(a[i]) * op(b[i]) (bmm.cuh). How it is cut: gemm_hopper.cuh.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gemm_hopper_exchanged.cuh"

using namespace hopper;

// v4, warp groups and bulk copies: the persistent products of gemm's v9, whose blocks walk over the tiles of one item after
// the other. Maps have the item as a third coordinate, so a tile at the edge of an item fills with zeros and stores nothing
// of the next. A factor that lies across k is multiplied as it is: products read either order from shared memory. On an
// H200 1.01 of cuBLASLt for eight items of 1024 cubed and .98 to .99 for four of 2048 cubed, in every layout; v3 .45.
//
// v5, the factors exchanged, tiles of as many rows as make whole waves of the whole batch (gemm's v10): four items of 1536
// cubed 44.7 us, v4 52.7. Pairs of blocks that fetch b for each other, where rows straddle lines: eight items of 1000 cubed
// 30.0 us, v4 35.4. Small tiles of which a multiprocessor has two or three, so that with a short k the products of one run
// during the stores of another: 64x256x256x64 NT 5.84 us (v4 6.33), 12x197x197x64 NT 3.85 (5.65). 34 shapes .99 of cuBLASLt
// in the geometric mean, v4 .91.
//
// grid = as many clusters as run at once, at most one a tile. Dynamic shared memory = the stages, two 8 KiB buffers a
// multiplying warp group (with the factors exchanged a row of 128 bytes for every row of a tile and 64 columns of it), 16
// bytes a stage.
#define BMM_ENTRY(NAME, THREADS, BLOCKS, WORK, ...)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                  \
        bmm_##NAME(scalar_t* __restrict__ c, const __grid_constant__ TensorMap a_map,                              \
                   const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, int n, \
                   int k, int batch) {                                                                             \
        WORK<Config<__VA_ARGS__, true>>(a_map, b_map, c_map, c, Extents{m, n, k, batch}, Unchanged());             \
    }

// The tiles of a layout, as the launch rule knows them. MxN: of so many rows and columns of c; _cluster: so many blocks, with
// tiles below each other, fetch b for each other. rowsMxN: the factors exchanged; _x: a multiprocessor has so many.
#define BMM_TILES(LAYOUT, A, B)                                                  \
    BMM_ENTRY(LAYOUT##_128x256, 384, 1, persistent, 2, 256, 4, 1, A, B)          \
    BMM_ENTRY(LAYOUT##_128x128, 384, 1, persistent, 2, 128, 6, 1, A, B)          \
    BMM_ENTRY(LAYOUT##_64x128, 256, 1, persistent, 1, 128, 8, 1, A, B)           \
    BMM_ENTRY(LAYOUT##_64x64, 256, 1, persistent, 1, 64, 8, 1, A, B)             \
    BMM_ENTRY(LAYOUT##_128x256_cluster2, 384, 1, persistent, 2, 256, 4, 2, A, B) \
    BMM_ENTRY(LAYOUT##_rows128x128, 384, 1, exchanged, 2, 128, 6, 1, B, A)       \
    BMM_ENTRY(LAYOUT##_rows192x128, 384, 1, exchanged, 2, 192, 4, 1, B, A)       \
    BMM_ENTRY(LAYOUT##_rows128x64_x2, 256, 2, exchanged, 1, 128, 3, 1, B, A)     \
    BMM_ENTRY(LAYOUT##_rows64x64_x3, 256, 3, exchanged, 1, 64, 4, 1, B, A)

BMM_TILES(nn, ALONG_K, ACROSS_K)
BMM_TILES(nt, ALONG_K, ALONG_K)
BMM_TILES(tn, ACROSS_K, ACROSS_K)
BMM_TILES(tt, ACROSS_K, ALONG_K)

// Boxes of a factor that lies across k have 64 columns: with other rows than 64s of a tile a lies along.
BMM_ENTRY(nn_rows112x128, 384, 1, exchanged, 2, 112, 6, 1, ACROSS_K, ALONG_K)
BMM_ENTRY(nt_rows112x128, 384, 1, exchanged, 2, 112, 6, 1, ALONG_K, ALONG_K)

// Copies the rows of a whole batch to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    bmm_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows, int cols,
              int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
