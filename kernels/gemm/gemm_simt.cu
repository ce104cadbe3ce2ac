// gemm in f32 on fma: c[m,n] = a[m,k] * b[k,n], all row-major.
#include "gemm.cuh"

#if defined(KERNELGATE_F32)
#include "gemm_simt.cuh"

// 16x8 outputs a thread read 24 values of shared memory for 128 multiply-adds (gemm_register_tile: 16 for 64, where the loads
// are the limit), those of the next k while this one is multiplied. Copies of 4 bytes past the
// registers transpose a on the way, and little is left to compute for them. Few tiles: `parts` blocks share a tile and
// store sums over their part of k one behind the other in `out`, which gemm_simt_reduce adds up in a fixed order.
// grid = ceil(m/128) * ceil(n/128) * parts, block = 128, dynamic shared memory = 4 stages, and 64 KiB where a block sums
// more slices than `stretch`. n a multiple of 4.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_simt(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k,
            int parts, int stretch) {
    multiply<KMajor<128>, MnMajor<128, true>>(a, b, out, m, n, k, one_product(parts), RowMajor{true}, Unchanged(), stretch);
}

// The same for every n: b is copied element by element too.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_simt_any(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k,
                int parts, int stretch) {
    multiply<KMajor<128>, MnMajor<128, false>>(a, b, out, m, n, k, one_product(parts), RowMajor{false}, Unchanged(), stretch);
}

// The second pass: c = the sum of `parts` matrices of `count` elements that stand one behind the other.
// grid = ceil(count / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    gemm_simt_reduce(const float* __restrict__ sums, float* __restrict__ c, long long count, int parts) {
    split_k_reduce(sums, c, count, 1, parts, Unchanged());
}

#endif  // defined(KERNELGATE_F32)
