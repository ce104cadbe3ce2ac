// The kernels of an operator whose product gemm_hopper.cuh cuts. The file that includes this defines
//   PRODUCT(NAME): the entry of that name
//   PRODUCT_POINTERS, PRODUCT_SCALARS: its own arguments, after the output and last, with the comma that parts them
//   PRODUCT_EPILOGUE: what it makes of those, m and n
//   FACTOR_B: how b lies.
#include "gemm_hopper_exchanged.cuh"

using namespace hopper;

// Every way to cut a product whose a lies along k and whose b lies as FACTOR_B says: ENTRY(name, threads, blocks that a
// multiprocessor holds, what to call). The launch rule chooses among them by an estimate of the time.
//
// MxN: persistent blocks with a tile of so many rows and columns of c; _cluster: so many of them, below each other, fetch
// b for each other. rowsN: at most N rows of c and 64 columns, the factors exchanged; _split: a cluster of so many blocks
// shares the k of a tile.
#define HOPPER_TILES(ENTRY)                                                              \
    ENTRY(128x256, 384, 1, persistent<Config<2, 256, 4, 1, ALONG_K, FACTOR_B>>)          \
    ENTRY(128x256_cluster2, 384, 1, persistent<Config<2, 256, 4, 2, ALONG_K, FACTOR_B>>) \
    ENTRY(128x192, 384, 1, persistent<Config<2, 192, 4, 1, ALONG_K, FACTOR_B>>)          \
    ENTRY(128x192_cluster2, 384, 1, persistent<Config<2, 192, 4, 2, ALONG_K, FACTOR_B>>) \
    ENTRY(128x128, 384, 1, persistent<Config<2, 128, 6, 1, ALONG_K, FACTOR_B>>)          \
    ENTRY(64x128, 256, 1, persistent<Config<1, 128, 8, 1, ALONG_K, FACTOR_B>>)           \
    ENTRY(64x128_cluster2, 256, 1, persistent<Config<1, 128, 8, 2, ALONG_K, FACTOR_B>>)  \
    ENTRY(64x64, 256, 1, persistent<Config<1, 64, 8, 1, ALONG_K, FACTOR_B>>)             \
    ENTRY(rows16, 256, 2, narrow<Config<1, 16, 10, 1, FACTOR_B, ALONG_K>, 1>)            \
    ENTRY(rows16_split2, 256, 2, narrow<Config<1, 16, 10, 1, FACTOR_B, ALONG_K>, 2>)     \
    ENTRY(rows32, 256, 2, narrow<Config<1, 32, 9, 1, FACTOR_B, ALONG_K>, 1>)             \
    ENTRY(rows32_split2, 256, 2, narrow<Config<1, 32, 9, 1, FACTOR_B, ALONG_K>, 2>)      \
    ENTRY(rows64, 256, 2, narrow<Config<1, 64, 7, 1, FACTOR_B, ALONG_K>, 1>)             \
    ENTRY(rows64_split2, 256, 2, narrow<Config<1, 64, 7, 1, FACTOR_B, ALONG_K>, 2>)

// As HOPPER_TILES. rowsMxN: persistent blocks with a tile of M rows of c and N columns, the factors exchanged; _cluster:
// so many of them, beside each other, fetch a for each other.
#define HOPPER_EXCHANGED(ENTRY)                                                             \
    ENTRY(rows112x128, 384, 1, exchanged<Config<2, 112, 6, 1, FACTOR_B, ALONG_K>>)          \
    ENTRY(rows128x64, 256, 1, exchanged<Config<1, 128, 8, 1, FACTOR_B, ALONG_K>>)           \
    ENTRY(rows128x128, 384, 1, exchanged<Config<2, 128, 6, 1, FACTOR_B, ALONG_K>>)          \
    ENTRY(rows144x128, 384, 1, exchanged<Config<2, 144, 5, 1, FACTOR_B, ALONG_K>>)          \
    ENTRY(rows144x192_cluster2, 512, 1, exchanged<Config<3, 144, 4, 2, FACTOR_B, ALONG_K>>) \
    ENTRY(rows176x128, 384, 1, exchanged<Config<2, 176, 4, 1, FACTOR_B, ALONG_K>>)          \
    ENTRY(rows192x128, 384, 1, exchanged<Config<2, 192, 4, 1, FACTOR_B, ALONG_K>>)          \
    ENTRY(rows208x128, 384, 1, exchanged<Config<2, 208, 4, 1, FACTOR_B, ALONG_K>>)

// Every way to do it in two passes: ENTRY(name, threads of the first, how it is cut). The first leaves sums of parts of k
// in the workspace, the second adds them up.
#define HOPPER_PARTS(ENTRY)                                      \
    ENTRY(128x128, 384, Config<2, 128, 6, 1, ALONG_K, FACTOR_B>) \
    ENTRY(64x128, 256, Config<1, 128, 8, 1, ALONG_K, FACTOR_B>)

// Persistent: grid = as many clusters as run at once, at most one a tile; others: one a tile. Dynamic shared memory = the
// stages, two 8 KiB buffers a multiplying warp group where blocks are persistent (a row of 128 bytes for every row of a tile
// and 64 columns of it where they have the factors exchanged), 16 bytes a stage.
#define HOPPER_ENTRY(NAME, THREADS, BLOCKS, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                     \
        PRODUCT(NAME)(scalar_t* __restrict__ c, PRODUCT_POINTERS const __grid_constant__ TensorMap a_map,             \
                      const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, int n, \
                      int k PRODUCT_SCALARS) {                                                                        \
        __VA_ARGS__(a_map, b_map, c_map, c, Extents{m, n, k}, PRODUCT_EPILOGUE);                                      \
    }

HOPPER_TILES(HOPPER_ENTRY)
HOPPER_EXCHANGED(HOPPER_ENTRY)

// _parts: grid = tiles * parts, dynamic shared memory = the stages and 16 bytes a stage; workspace = 4 bytes a sum of a
// tile and part. _add: grid = sums of all tiles / 128, block = 256, no dynamic shared memory.
#define HOPPER_PART(NAME, THREADS, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                  \
        PRODUCT(NAME##_parts)(float4* __restrict__ workspace, const __grid_constant__ TensorMap a_map,        \
                              const __grid_constant__ TensorMap b_map, long long offset, int m, int n, int k, \
                              int parts) {                                                                    \
        sums_of_part<__VA_ARGS__>(a_map, b_map, workspace + offset, Extents{m, n, k}, parts);                 \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                         \
        PRODUCT(NAME##_add)(scalar_t* __restrict__ c, PRODUCT_POINTERS const float4* __restrict__ workspace,  \
                            long long offset, int m, int n, int k, int parts PRODUCT_SCALARS) {               \
        add_parts<__VA_ARGS__>(workspace + offset, c, Extents{m, n, k}, parts, PRODUCT_EPILOGUE);             \
    }

HOPPER_PARTS(HOPPER_PART)

// Copies a matrix of `cols` columns to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    PRODUCT(align)(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows,
                   int cols, int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}
