// The entries of an operator whose product is on warpgroups (gemm_wgmma.cuh). The file that includes this defines
//   PRODUCT(NAME): the entry of that name
//   PRODUCT_POINTERS, PRODUCT_SCALARS: its own arguments, after the output and last, with the separating comma
//   PRODUCT_EPILOGUE: the epilogue made of those, m and n
//   FACTOR_B: the order of b
//   PRODUCT_BEGIN: what every entry does first, if it does anything.
#include "align_rows.cuh"
#include "dependent.cuh"
#include "gemm_swap_ab.cuh"
#include "gemm_unaligned.cuh"

using namespace hopper;

#if !defined(PRODUCT_BEGIN)
#define PRODUCT_BEGIN
#endif

// The tiles of a product whose a is K-major and whose b has the order FACTOR_B: ENTRY(name, threads, blocks that a
// multiprocessor holds, what to call). The launch rule chooses among them by an estimate of the time.
//
// MxN: persistent blocks with a tile of so many rows and columns of c; _cluster: so many of them, below each other, multicast
// b.
#define HOPPER_TILES(ENTRY)                                                              \
    ENTRY(128x256, 384, 1, persistent<Config<2, 256, 4, 1, K_MAJOR, FACTOR_B>>)          \
    ENTRY(128x256_cluster2, 384, 1, persistent<Config<2, 256, 4, 2, K_MAJOR, FACTOR_B>>) \
    ENTRY(128x192, 384, 1, persistent<Config<2, 192, 4, 1, K_MAJOR, FACTOR_B>>)          \
    ENTRY(128x192_cluster2, 384, 1, persistent<Config<2, 192, 4, 2, K_MAJOR, FACTOR_B>>) \
    ENTRY(64x128, 256, 1, persistent<Config<1, 128, 8, 1, K_MAJOR, FACTOR_B>>)           \
    ENTRY(64x128_cluster2, 256, 1, persistent<Config<1, 128, 8, 2, K_MAJOR, FACTOR_B>>)  \
    ENTRY(64x64, 256, 1, persistent<Config<1, 64, 12, 1, K_MAJOR, FACTOR_B>>)

// swap_ab_Mx64: at most M rows of c a tile, A and B swapped; the blocks of a cluster split the k of a tile. ENTRY(name, its tile).
#define HOPPER_SWAP_AB_SPLIT_K(ENTRY)                                   \
    ENTRY(swap_ab_16x64, Config<1, 16, 10, 1, FACTOR_B, K_MAJOR>)       \
    ENTRY(swap_ab_32x64, Config<1, 32, 9, 1, FACTOR_B, K_MAJOR>)        \
    ENTRY(swap_ab_64x64, Config<1, 64, 7, 1, FACTOR_B, K_MAJOR>)

// The same by rows that start anywhere (gemm_unaligned.cuh).
#define HOPPER_UNALIGNED(ENTRY)                                       \
    ENTRY(unaligned_16x64, UnalignedConfig<16, 10, FACTOR_B, K_MAJOR>) \
    ENTRY(unaligned_64x64, UnalignedConfig<64, 6, FACTOR_B, K_MAJOR>)

// The same where a, which has few rows, is brought by TMA: as it is, or from the workspace.
#define HOPPER_UNALIGNED_B(ENTRY)                                              \
    ENTRY(unaligned_b_64x64, UnalignedConfig<64, 6, FACTOR_B, K_MAJOR, true>)  \
    ENTRY(unaligned_b_128x64, UnalignedConfig<128, 4, FACTOR_B, K_MAJOR, true>)

// As HOPPER_TILES. swap_ab_MxN: persistent blocks with a tile of M rows of c and N columns, A and B swapped; _clusterI: so many
// of them, beside each other, multicast a; _clusterIxJ: J of them below each other multicast b, too.
#define HOPPER_SWAP_AB(ENTRY)                                                                             \
    ENTRY(swap_ab_32x64_cluster2, 256, 1, swap_ab<Config<1, 32, 16, 2, FACTOR_B, K_MAJOR>>)               \
    ENTRY(swap_ab_32x64_cluster4, 256, 1, swap_ab<Config<1, 32, 16, 4, FACTOR_B, K_MAJOR>>)               \
    ENTRY(swap_ab_64x64_cluster4, 256, 1, swap_ab<Config<1, 64, 12, 4, FACTOR_B, K_MAJOR>>)               \
    ENTRY(swap_ab_64x128_cluster4, 384, 1, swap_ab<Config<2, 64, 8, 4, FACTOR_B, K_MAJOR>>)               \
    ENTRY(swap_ab_80x64_cluster4, 256, 1, swap_ab<Config<1, 80, 11, 4, FACTOR_B, K_MAJOR>>)               \
    ENTRY(swap_ab_96x64_cluster4, 256, 1, swap_ab<Config<1, 96, 10, 4, FACTOR_B, K_MAJOR>>)               \
    ENTRY(swap_ab_96x128_cluster2x2, 384, 1, swap_ab<Config<2, 96, 7, 2, FACTOR_B, K_MAJOR, false, 2>>)   \
    ENTRY(swap_ab_112x128, 384, 1, swap_ab<Config<2, 112, 6, 1, FACTOR_B, K_MAJOR>>)                      \
    ENTRY(swap_ab_112x128_cluster2x2, 384, 1, swap_ab<Config<2, 112, 6, 2, FACTOR_B, K_MAJOR, false, 2>>) \
    ENTRY(swap_ab_112x128_cluster4, 384, 1, swap_ab<Config<2, 112, 6, 4, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_128x64, 256, 1, swap_ab<Config<1, 128, 8, 1, FACTOR_B, K_MAJOR>>)                       \
    ENTRY(swap_ab_128x64_cluster4, 256, 1, swap_ab<Config<1, 128, 8, 4, FACTOR_B, K_MAJOR>>)              \
    ENTRY(swap_ab_128x128, 384, 1, swap_ab<Config<2, 128, 6, 1, FACTOR_B, K_MAJOR>>)                      \
    ENTRY(swap_ab_128x128_cluster2, 384, 1, swap_ab<Config<2, 128, 6, 2, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_128x128_cluster2x2, 384, 1, swap_ab<Config<2, 128, 6, 2, FACTOR_B, K_MAJOR, false, 2>>) \
    ENTRY(swap_ab_144x128, 384, 1, swap_ab<Config<2, 144, 5, 1, FACTOR_B, K_MAJOR>>)                      \
    ENTRY(swap_ab_144x128_cluster4, 384, 1, swap_ab<Config<2, 144, 5, 4, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_144x192_cluster2, 512, 1, swap_ab<Config<3, 144, 4, 2, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_160x128_cluster2x2, 384, 1, swap_ab<Config<2, 160, 5, 2, FACTOR_B, K_MAJOR, false, 2>>) \
    ENTRY(swap_ab_160x128_cluster4, 384, 1, swap_ab<Config<2, 160, 5, 4, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_176x64_cluster2, 256, 1, swap_ab<Config<1, 176, 6, 2, FACTOR_B, K_MAJOR>>)              \
    ENTRY(swap_ab_176x128, 384, 1, swap_ab<Config<2, 176, 4, 1, FACTOR_B, K_MAJOR>>)                      \
    ENTRY(swap_ab_176x128_cluster2, 384, 1, swap_ab<Config<2, 176, 4, 2, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_192x64_cluster4, 256, 1, swap_ab<Config<1, 192, 6, 4, FACTOR_B, K_MAJOR>>)              \
    ENTRY(swap_ab_192x128, 384, 1, swap_ab<Config<2, 192, 4, 1, FACTOR_B, K_MAJOR>>)                      \
    ENTRY(swap_ab_192x192_cluster2, 512, 1, swap_ab<Config<3, 192, 3, 2, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_208x128, 384, 1, swap_ab<Config<2, 208, 4, 1, FACTOR_B, K_MAJOR>>)                      \
    ENTRY(swap_ab_208x128_cluster2, 384, 1, swap_ab<Config<2, 208, 4, 2, FACTOR_B, K_MAJOR>>)             \
    ENTRY(swap_ab_208x128_cluster2x2, 384, 1, swap_ab<Config<2, 208, 4, 2, FACTOR_B, K_MAJOR, false, 2>>)

// Split-K in two passes: ENTRY(name, threads of the first, its tile). The first leaves partial sums in the workspace, the second
// reduces them.
#define HOPPER_SPLIT_K(ENTRY)                                      \
    ENTRY(128x128, 384, Config<2, 128, 6, 1, K_MAJOR, FACTOR_B>) \
    ENTRY(64x128, 256, Config<1, 128, 8, 1, K_MAJOR, FACTOR_B>)

// Persistent: grid = as many clusters as run at once, at most one a tile; others: one a tile. Dynamic shared memory = the
// stages, two 8 KiB buffers a consumer warpgroup where blocks are persistent (a row of 128 bytes for every row of a tile
// and 64 columns of it where A and B are swapped), 16 bytes a stage.
#define HOPPER_ENTRY(NAME, THREADS, BLOCKS, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                     \
        PRODUCT(NAME)(scalar_t* __restrict__ c, PRODUCT_POINTERS const __grid_constant__ TensorMap a_map,             \
                      const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, int n, \
                      int k PRODUCT_SCALARS) {                                                                        \
        PRODUCT_BEGIN;                                                                                                \
        __VA_ARGS__(a_map, b_map, c_map, c, Extents{m, n, k}, PRODUCT_EPILOGUE);                                      \
    }

// grid = a cluster a tile, block = 256, dynamic shared memory = the stages and 16 bytes a stage.
#define HOPPER_SWAP_AB_SPLIT_K_ENTRY(NAME, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                              \
        PRODUCT(NAME)(scalar_t* __restrict__ c, PRODUCT_POINTERS const __grid_constant__ TensorMap a_map,             \
                      const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap, int m, int n,       \
                      int k PRODUCT_SCALARS) {                                                                        \
        PRODUCT_BEGIN;                                                                                                \
        swap_ab_split_k<__VA_ARGS__>(Maps{b_map, a_map}, c, Extents{m, n, k}, PRODUCT_EPILOGUE);                      \
    }

// The same of a and b themselves; 16 bytes more a stage for each row and column of the tile.
#define HOPPER_UNALIGNED_ENTRY(NAME, ...)                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                              \
        PRODUCT(NAME)(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, PRODUCT_POINTERS                \
                      scalar_t* __restrict__ c, int m, int n, int k PRODUCT_SCALARS) {                                \
        PRODUCT_BEGIN;                                                                                                \
        const Matrix of_a{behind_wait(a), m, k};                                                                      \
        const Matrix of_b = FACTOR_B == K_MAJOR ? Matrix{behind_wait(b), n, k} : Matrix{behind_wait(b), k, n};        \
        swap_ab_split_k<__VA_ARGS__>(UnalignedOperands{of_b, of_a}, c, Extents{m, n, k}, PRODUCT_EPILOGUE);           \
    }

// The same of b itself and a map of a.
#define HOPPER_UNALIGNED_B_ENTRY(NAME, ...)                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                              \
        PRODUCT(NAME)(const scalar_t* __restrict__ b, PRODUCT_POINTERS scalar_t* __restrict__ c,                      \
                      const __grid_constant__ TensorMap a_map, int m, int n, int k PRODUCT_SCALARS) {                 \
        PRODUCT_BEGIN;                                                                                                \
        const Matrix of_b = FACTOR_B == K_MAJOR ? Matrix{behind_wait(b), n, k} : Matrix{behind_wait(b), k, n};        \
        swap_ab_split_k<__VA_ARGS__>(UnalignedA{of_b, a_map}, c, Extents{m, n, k}, PRODUCT_EPILOGUE);                 \
    }

HOPPER_TILES(HOPPER_ENTRY)
HOPPER_SWAP_AB(HOPPER_ENTRY)
HOPPER_SWAP_AB_SPLIT_K(HOPPER_SWAP_AB_SPLIT_K_ENTRY)
HOPPER_UNALIGNED(HOPPER_UNALIGNED_ENTRY)
HOPPER_UNALIGNED_B(HOPPER_UNALIGNED_B_ENTRY)

// _split_k: grid = tiles * parts, dynamic shared memory = the stages and 16 bytes a stage; workspace = 4 bytes a sum of a
// tile and part. _split_k_reduce: grid = sums of all tiles / 1024 where there are at most 16 parts, else / 128; block = 256, no
// dynamic shared memory.
#define HOPPER_SPLIT_K_ENTRY(NAME, THREADS, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                  \
        PRODUCT(NAME##_split_k)(float4* __restrict__ workspace, const __grid_constant__ TensorMap a_map,        \
                              const __grid_constant__ TensorMap b_map, long long offset, int m, int n, int k, \
                              int parts) {                                                                    \
        PRODUCT_BEGIN;                                                                                        \
        split_k_partials<__VA_ARGS__>(a_map, b_map, workspace + offset, Extents{m, n, k}, parts);                 \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                         \
        PRODUCT(NAME##_split_k_reduce)(scalar_t* __restrict__ c, PRODUCT_POINTERS const float4* __restrict__ workspace,  \
                            long long offset, int m, int n, int k, int parts PRODUCT_SCALARS) {               \
        PRODUCT_BEGIN;                                                                                        \
        split_k_reduce<__VA_ARGS__>(behind_wait(workspace) + offset, c, Extents{m, n, k}, parts, PRODUCT_EPILOGUE);             \
    }

HOPPER_SPLIT_K(HOPPER_SPLIT_K_ENTRY)

// Copies a matrix of `cols` columns to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    PRODUCT(align)(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows,
                   int cols, int pitch) {
    PRODUCT_BEGIN;
    align_rows(behind_wait(from), workspace + offset, rows, cols, pitch);
}
