// linear in f32 on fma: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n]) (+ residual[m,n]).
#include "linear.cuh"

#if defined(KERNELGATE_F32)
#include "gemm_simt.cuh"

// The mainloop of gemm_simt.cuh, with both operands transposed by copies of 4 bytes. Few tiles: `parts` blocks
// share a tile and store sums over their part of k one behind the other in `out`, of which linear_simt_reduce makes outputs.
// grid = ceil(m/128) * ceil(n/128) * parts, block = 128, dynamic shared memory = 4 stages, and 64 KiB where parts is 1 or a
// block sums more slices than `stretch`. n a multiple of 4.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_simt(const float* __restrict__ x, const float* __restrict__ w, LINEAR_POINTERS, float* __restrict__ out, int m,
              int n, int k, int parts, int stretch, LINEAR_SCALARS) {
    multiply<KMajor, KMajor, true>(x, w, out, m, n, k, one_product(parts), LINEAR_EPILOGUE, InStretches(stretch));
}

// The same for every n: outputs are stored one by one.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_simt_any(const float* __restrict__ x, const float* __restrict__ w, LINEAR_POINTERS, float* __restrict__ out,
                  int m, int n, int k, int parts, int stretch, LINEAR_SCALARS) {
    multiply<KMajor, KMajor, false>(x, w, out, m, n, k, one_product(parts), LINEAR_EPILOGUE, InStretches(stretch));
}

// The second pass, over `parts` matrices of m x n sums.
// grid = ceil(m*n / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    linear_simt_reduce(const float* __restrict__ sums, LINEAR_POINTERS, float* __restrict__ y, int m, int n, int parts,
                  LINEAR_SCALARS) {
    split_k_reduce(sums, y, (long long)m * n, n, parts, LINEAR_EPILOGUE);
}

#endif  // defined(KERNELGATE_F32)
