// linear in f16 and bf16 for compute capability 9.0a: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n])
// (+ residual[m,n]), all row-major, sums in f32. The mainloop: gemm_wgmma.cuh. w is K-major, as x is.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "linear_swap_ab.cuh"

// gemm's tiles with both operands K-major and the epilogue on the sums in registers, 64 columns a time, between the mainloop and
// the staging of the store. With A and B swapped (linear_swap_ab.cuh) a lane's sums are of two columns of y, so its two biases
// are in its registers, and the residuals of a tile are copied to where its outputs will stand during the mainloop.
#define PRODUCT(NAME) linear_##NAME
#define PRODUCT_POINTERS LINEAR_POINTERS,
#define PRODUCT_SCALARS , LINEAR_SCALARS
#define PRODUCT_EPILOGUE \
    LinearEpilogue { behind_wait(bias), behind_wait(residual), activation, has_residual, m, n }
#define PRODUCT_BEGIN begin_dependent_launch()
#define FACTOR_B K_MAJOR
#include "gemm_wgmma_entries.cuh"

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
