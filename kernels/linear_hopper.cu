// linear in f16 and bf16 for compute capability 9.0a: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n])
// (+ residual[m,n]), all row-major, sums in f32. How it is cut: gemm_hopper.cuh. w lies along k, as x does.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gemm_hopper.cuh"
#include "linear.cuh"

using namespace hopper;

// v4, warp groups and bulk copies: the products of gemm's v9, with both factors along k and the epilogue on the sums in
// registers, 64 columns a time, between the product and the staging of the store. On an H200 512x5632x2048 takes 20.4 us
// with a bias (the bare product 19.5, cuBLASLt 19.2), 22.6 with GELU (cuBLASLt 20.5).
#define LINEAR_ENTRY(NAME, THREADS, BLOCKS, ...)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                               \
        linear_##NAME(scalar_t* __restrict__ y, const scalar_t* __restrict__ bias,                              \
                      const scalar_t* __restrict__ residual, const __grid_constant__ TensorMap x_map,           \
                      const __grid_constant__ TensorMap w_map, const __grid_constant__ TensorMap y_map, int m,  \
                      int n, int k, int activation, int has_residual) {                                         \
        const LinearEpilogue epilogue = {bias, residual, activation, has_residual, m, n};                       \
        __VA_ARGS__(x_map, w_map, y_map, y, Extents{m, n, k}, epilogue);                                        \
    }

HOPPER_TILES(LINEAR_ENTRY, ALONG_K)

// As gemm's, with the epilogue in the second pass.
#define LINEAR_PARTS(NAME, THREADS, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                      \
        linear_##NAME##_parts(float4* __restrict__ workspace, const __grid_constant__ TensorMap x_map,            \
                              const __grid_constant__ TensorMap w_map, long long offset, int m, int n, int k,     \
                              int parts) {                                                                        \
        sums_of_part<__VA_ARGS__>(x_map, w_map, workspace + offset, Extents{m, n, k}, parts);                     \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                             \
        linear_##NAME##_add(scalar_t* __restrict__ y, const scalar_t* __restrict__ bias,                          \
                            const scalar_t* __restrict__ residual, const float4* __restrict__ workspace,          \
                            long long offset, int m, int n, int k, int parts, int activation, int has_residual) { \
        const LinearEpilogue epilogue = {bias, residual, activation, has_residual, m, n};                         \
        add_parts<__VA_ARGS__>(workspace + offset, y, Extents{m, n, k}, parts, epilogue);                         \
    }

HOPPER_PARTS(LINEAR_PARTS, ALONG_K)

// As gemm_align.
extern "C" __global__ void __launch_bounds__(256)
    linear_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows,
                 int cols, int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
