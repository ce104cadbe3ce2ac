// gemm in f16 and bf16 on mma.sync, for compute capability 8.0 and up: c[m,n] = a[m,k] * b[k,n], all row-major.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32)
#include "gemm_mma_tile.cuh"

// v6 (f16 and bf16), the sm_80 path: eight warps share a tile of 128x256 (v4: four share 128x128, a third more bytes
// from L2 a product), four slices are under way, and a warp loads the matrices of the next 16 of k from shared memory
// while it multiplies these. At 4096 cubed .49 of cuBLASLt on an H200, v4 .38.
// grid = ceil(m/128) * ceil(n/256), block = 256, dynamic shared memory = 4 stages (96 KiB). k and n multiples of 8.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_v6(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
            int k) {
    multiply<AlongK, AcrossK, true>(a, b, c, m, n, k, blockIdx.x, Unchanged());
}

// The same for every shape: through registers, element by element.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm_v6_any(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int m, int n,
                int k) {
    multiply<AlongK, AcrossK, false>(a, b, c, m, n, k, blockIdx.x, Unchanged());
}

#endif  // !defined(KERNELGATE_F32)
