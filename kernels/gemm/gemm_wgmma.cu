// gemm in f16 and bf16 for compute capability 9.0a: c[m,n] = a[m,k] * b[k,n], all row-major, sums in f32. The mainloop:
// gemm_wgmma.cuh. b is MN-major.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The launch rule chooses among all tiles by an estimate of the time (src/ops/gemm/wgmma.rs):
//   128x256          one thread issues all copies (TMA), wgmma reads both operands from shared memory, registers go from the
//                    producer to the consumers (setmaxnreg), blocks are persistent
//   _cluster2        two blocks with tiles below each other multicast half of b's slice each: a third fewer bytes from L2, which
//                    shows where rows start off 128 bytes and every box touches twice as many cache lines
//   64x128, 64x64    where larger tiles would leave multiprocessors idle
//   swap_ab_MxN      as many rows as make whole waves of tiles (gemm_swap_ab.cuh); few rows of c are taken first
//   swap_ab_Mx64     few rows, with the k of a tile split in a cluster; _split_k: few tiles with a long k
#define PRODUCT(NAME) gemm_##NAME
#define PRODUCT_POINTERS
#define PRODUCT_SCALARS
#define PRODUCT_EPILOGUE Unchanged()
#define FACTOR_B MN_MAJOR
#include "gemm_wgmma_entries.cuh"

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
