// linear in f16 and bf16 on mma.sync, for compute capability 8.0 and up: y[m,n] = activation(x[m,k] * w[n,k] transposed +
// bias[n]) (+ residual[m,n]).
#include "linear.cuh"

#if !defined(KERNELGATE_F32)
#include "gemm_mma_tile.cuh"

// v3 (f16 and bf16), the sm_80 path: the product of gemm's v6; matrices of w come from shared memory as they are, where
// those of gemm's b are transposed on the way.
// grid = ceil(m/128) * ceil(n/256), block = 256, dynamic shared memory = 4 stages (96 KiB). k a multiple of 8.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear_v3(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, LINEAR_POINTERS,
              scalar_t* __restrict__ y, int m, int n, int k, LINEAR_SCALARS) {
    multiply<AlongK, AlongK, true>(x, w, y, m, n, k, blockIdx.x, LINEAR_EPILOGUE);
}

// The same for every shape: through registers, element by element.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    linear_v3_any(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, LINEAR_POINTERS,
                  scalar_t* __restrict__ y, int m, int n, int k, LINEAR_SCALARS) {
    multiply<AlongK, AlongK, false>(x, w, y, m, n, k, blockIdx.x, LINEAR_EPILOGUE);
}

#endif  // !defined(KERNELGATE_F32)
