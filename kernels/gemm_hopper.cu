// gemm in f16 and bf16 for compute capability 9.0a: c[m,n] = a[m,k] * b[k,n], all row-major, sums in f32. How it is cut:
// gemm_hopper.cuh. b lies across k.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
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
// v10, the factors exchanged for all shapes (gemm_hopper_exchanged.cuh): the width of a warp-group product, which goes by
// sixteens, is that of rows of c. So a tile has as many rows as make whole waves of tiles, and no copy brings more than the
// tile needs. 1536 cubed 12.3 us, v9 14.5; 2560 cubed 49.3 us, v9 60.3; 3072x1024x4096 37.4 us, v9 47.7; 25 shapes .986 of
// cuBLASLt in the geometric mean, v9 .933. Few rows of c are walked first: 256x4096x4096 15.5 us, v9 16.9, by bands 17.0.
#define PRODUCT(NAME) gemm_##NAME
#define PRODUCT_POINTERS
#define PRODUCT_SCALARS
#define PRODUCT_EPILOGUE Unchanged()
#define FACTOR_B ACROSS_K
#include "gemm_hopper_entries.cuh"

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
