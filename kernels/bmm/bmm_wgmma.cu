// bmm in f16 and bf16 for compute capability 9.0a: c[i] = op(a[i]) * op(b[i]) (bmm.cuh). The mainloop: gemm_wgmma.cuh.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "align_rows.cuh"
#include "gemm_swap_ab.cuh"
#include "gemm_unaligned.cuh"

using namespace hopper;

// gemm's tiles, one item after the other. Maps have the item as a third coordinate, so a tile at the edge of an item
// fills with zeros and stores nothing of the next. An MN-major operand is multiplied as it is: wgmma reads either order.
// swap_ab_128x64_x2 and swap_ab_64x64_x3 are small tiles of which a multiprocessor has two or three blocks, so that with a short
// k the mainloop of one runs during the stores of another. The blocks of a cluster split the k of swap_ab_64x64, for few tiles with a
// long k, and of unaligned_64x64, which takes rows that start anywhere without a copy first.
//
// grid = as many clusters as run at once, at most one a tile. Dynamic shared memory = the stages, two 8 KiB buffers a
// consumer warpgroup (with A and B swapped a row of 128 bytes for every row of a tile and 64 columns of it), 16
// bytes a stage.
#define BMM_ENTRY(NAME, THREADS, BLOCKS, WORK, ...)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                  \
        bmm_##NAME(scalar_t* __restrict__ c, const __grid_constant__ TensorMap a_map,                              \
                   const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, int n, \
                   int k, int batch) {                                                                             \
        WORK<Config<__VA_ARGS__, true>>(a_map, b_map, c_map, c, Extents{m, n, k, batch}, Unchanged());             \
    }

// grid = a cluster a tile, block = 256, dynamic shared memory = the stages and 16 bytes a stage.
#define BMM_SPLIT_K_ENTRY(NAME, ...)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                           \
        bmm_##NAME(scalar_t* __restrict__ c, const __grid_constant__ TensorMap a_map,                              \
                   const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap, int m, int n, int k, \
                   int batch) {                                                                                    \
        swap_ab_split_k<Config<__VA_ARGS__, true>>(Maps{b_map, a_map}, c, Extents{m, n, k, batch}, Unchanged());   \
    }

// The same of a and b themselves, whose rows may start anywhere; 16 bytes more a stage for each row and column of the tile.
#define BMM_UNALIGNED_ENTRY(NAME, TILE_N, STAGES, A, B)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                                \
        bmm_##NAME(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m,     \
                   int n, int k, int batch) {                                                                           \
        const Matrix of_a = A == K_MAJOR ? Matrix{a, m, k} : Matrix{a, k, m};                                           \
        const Matrix of_b = B == K_MAJOR ? Matrix{b, n, k} : Matrix{b, k, n};                                           \
        swap_ab_split_k<UnalignedConfig<TILE_N, STAGES, B, A, false, true>>(UnalignedOperands{of_b, of_a}, c,           \
                                                                            Extents{m, n, k, batch}, Unchanged());      \
    }

// The tiles of a layout, as the launch rule knows them. MxN: of so many rows and columns of c; _cluster: so many blocks, with
// tiles below each other, multicast b. swap_ab_MxN: A and B swapped; _x: a multiprocessor has so many blocks.
#define BMM_TILES(LAYOUT, A, B)                                                      \
    BMM_ENTRY(LAYOUT##_128x256, 384, 1, persistent, 2, 256, 4, 1, A, B)              \
    BMM_ENTRY(LAYOUT##_128x256_cluster2, 384, 1, persistent, 2, 256, 4, 2, A, B)     \
    BMM_ENTRY(LAYOUT##_128x192, 384, 1, persistent, 2, 192, 4, 1, A, B)              \
    BMM_ENTRY(LAYOUT##_64x128, 256, 1, persistent, 1, 128, 8, 1, A, B)               \
    BMM_ENTRY(LAYOUT##_64x64, 256, 1, persistent, 1, 64, 12, 1, A, B)                \
    BMM_ENTRY(LAYOUT##_swap_ab_128x64, 256, 1, swap_ab, 1, 128, 8, 1, B, A)          \
    BMM_ENTRY(LAYOUT##_swap_ab_128x128, 384, 1, swap_ab, 2, 128, 6, 1, B, A)         \
    BMM_ENTRY(LAYOUT##_swap_ab_192x128, 384, 1, swap_ab, 2, 192, 4, 1, B, A)         \
    BMM_ENTRY(LAYOUT##_swap_ab_128x64_x2, 256, 2, swap_ab, 1, 128, 3, 1, B, A)       \
    BMM_ENTRY(LAYOUT##_swap_ab_64x64_x3, 256, 3, swap_ab, 1, 64, 4, 1, B, A)         \
    BMM_SPLIT_K_ENTRY(LAYOUT##_swap_ab_64x64, 1, 64, 7, 1, B, A)                     \
    BMM_UNALIGNED_ENTRY(LAYOUT##_unaligned_64x64, 64, 6, A, B)

// Boxes of a operand that is MN-major have 64 columns: with other rows than 64s of a tile a is K-major.
#define BMM_TILES_OF_16(LAYOUT, B)                                                        \
    BMM_ENTRY(LAYOUT##_swap_ab_112x128, 384, 1, swap_ab, 2, 112, 6, 1, B, K_MAJOR)          \
    BMM_ENTRY(LAYOUT##_swap_ab_144x128, 384, 1, swap_ab, 2, 144, 5, 1, B, K_MAJOR)          \
    BMM_ENTRY(LAYOUT##_swap_ab_144x192_cluster2, 512, 1, swap_ab, 3, 144, 4, 2, B, K_MAJOR) \
    BMM_ENTRY(LAYOUT##_swap_ab_176x128, 384, 1, swap_ab, 2, 176, 4, 1, B, K_MAJOR)          \
    BMM_ENTRY(LAYOUT##_swap_ab_208x128_cluster2, 384, 1, swap_ab, 2, 208, 4, 2, B, K_MAJOR)

BMM_TILES(nn, K_MAJOR, MN_MAJOR)
BMM_TILES(nt, K_MAJOR, K_MAJOR)
BMM_TILES(tn, MN_MAJOR, MN_MAJOR)
BMM_TILES(tt, MN_MAJOR, K_MAJOR)
BMM_TILES_OF_16(nn, MN_MAJOR)
BMM_TILES_OF_16(nt, K_MAJOR)

// Copies the rows of a whole batch to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    bmm_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows, int cols,
              int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
