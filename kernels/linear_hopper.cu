// linear in f16 and bf16 for compute capability 9.0a: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n])
// (+ residual[m,n]), all row-major, sums in f32. How it is cut: gemm_hopper.cuh. w lies along k, as x does.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "linear_exchanged.cuh"

// v4, warp groups and bulk copies: the products of gemm's v9, with both factors along k and the epilogue on the sums in
// registers, 64 columns a time, between the product and the staging of the store. On an H200 512x5632x2048 takes 20.4 us
// with a bias (the bare product 19.5, cuBLASLt 19.2), 22.6 with GELU (cuBLASLt 20.5).
//
// v5, the factors exchanged (gemm's v10): a lane's sums are of two columns of y, so its two biases are in its registers, and
// the residuals of a tile are copied to where its outputs will stand while the factors are multiplied. 1536 cubed 12.8 us
// (v4 15.0), 3072x1024x4096 with a residual 39.0 (53.8), 512x5632x2048 19.6 (20.7), with GELU 21.3 (22.6); 32 shapes .980 of
// cuBLASLt in the geometric mean, v4 .922.
#define PRODUCT(NAME) linear_##NAME
#define PRODUCT_POINTERS LINEAR_POINTERS,
#define PRODUCT_SCALARS , LINEAR_SCALARS
#define PRODUCT_EPILOGUE LINEAR_EPILOGUE
#define FACTOR_B ALONG_K
#include "gemm_hopper_entries.cuh"

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
