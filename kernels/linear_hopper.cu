// linear in f16 and bf16 for compute capability 9.0a: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n])
// (+ residual[m,n]), all row-major, sums in f32. How it is cut: gemm_hopper.cuh. w lies along k, as x does.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "linear.cuh"

// v4, warp groups and bulk copies: the products of gemm's v9, with both factors along k and the epilogue on the sums in
// registers, 64 columns a time, between the product and the staging of the store. On an H200 512x5632x2048 takes 20.4 us
// with a bias (the bare product 19.5, cuBLASLt 19.2), 22.6 with GELU (cuBLASLt 20.5).
#define PRODUCT(NAME) linear_##NAME
#define PRODUCT_POINTERS LINEAR_POINTERS,
#define PRODUCT_SCALARS , LINEAR_SCALARS
#define PRODUCT_EPILOGUE LINEAR_EPILOGUE
#define FACTOR_B ALONG_K
#include "gemm_hopper_entries.cuh"

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
