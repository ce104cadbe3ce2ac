// gemm in f32 on ordinary multiply-adds: c[m,n] = a[m,k] * b[k,n], all row-major.
#include "gemm.cuh"

#if defined(KERNELGATE_F32)
#include "gemm_simt.cuh"

// v5 (f32 only), issue slots: 16x8 outputs a thread read 24 values of shared memory for 128 multiply-adds (v3: 16 for
// 64, where the loads are the limit), those of the next k while this one is multiplied. Copies of 4 bytes past the
// registers transpose a on the way, and little is left to compute for them. Few tiles: `parts` blocks share a tile and
// store sums over their part of k one behind the other in `out`, which gemm_v5_add adds up in a fixed order.
// At 4096 cubed 1.01 of cuBLASLt on an H200 (v3 .78), at 1024 cubed 1.02.
// grid = ceil(m/128) * ceil(n/128) * parts, block = 128, dynamic shared memory = 4 stages, and 64 KiB where a block sums
// more slices than `stretch`. n a multiple of 4.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_v5(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k,
            int parts, int stretch) {
    multiply<AlongK, AcrossK<true>, true>(a, b, out, m, n, k, one_product(parts), Unchanged(), InStretches(stretch));
}

// The same for every n: b is copied element by element too.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_v5_any(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k,
                int parts, int stretch) {
    multiply<AlongK, AcrossK<false>, false>(a, b, out, m, n, k, one_product(parts), Unchanged(), InStretches(stretch));
}

// The second pass of v5: c = the sum of `parts` matrices of `count` elements that stand one behind the other.
// grid = ceil(count / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    gemm_v5_add(const float* __restrict__ sums, float* __restrict__ c, long long count, int parts) {
    add_parts(sums, c, count, 1, parts, Unchanged());
}

#endif  // defined(KERNELGATE_F32)
