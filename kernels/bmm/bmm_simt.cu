// bmm in f32 on fma: c[i] = op(a[i]) * op(b[i]) (bmm.cuh).
#include "bmm.cuh"

#if defined(KERNELGATE_F32)
#include "gemm_simt.cuh"

namespace {

using KMajor128 = KMajor<128>;
template <bool ALIGNED>
using MnMajor128 = MnMajor<128, ALIGNED>;

template <class FactorA, class FactorB, bool ALIGNED>
__device__ __forceinline__ void multiply_item(const float* a, const float* b, float* out, int batch, int m, int n, int k,
                                              int parts, int stretch) {
    const Item at = item_of(tiles(m, FactorA::EXTENT) * tiles(n, FactorB::EXTENT) * parts);
    const Matrices of_item(a, b, out, m, n, k, at.item);
    const Share work = {at.block, parts, batch};
    multiply<FactorA, FactorB>(of_item.a, of_item.b, of_item.c, m, n, k, work, RowMajor{ALIGNED}, Unchanged(), stretch);
}

}  // namespace

// The mainloop of gemm_simt.cuh for every item, its blocks one item after the other. An MN-major operand is copied by 16 bytes,
// a K-major one is transposed by copies of 4 bytes. Few tiles: `parts` blocks share a tile (split-K) and store sums over their
// part of k in `out`, part after part of the whole batch, which bmm_simt_reduce adds up in a fixed order.
// grid = batch * ceil(m/128) * ceil(n/128) * parts, block = 128, dynamic shared memory = 4 stages, and 64 KiB where a block
// sums more slices than `stretch`: the longest sum that many equal products leave within the tolerance. n a multiple of 4, and
// m too where a is transposed; _any: every shape, element by element.
#define BMM_ENTRY(NAME, FACTOR_A, FACTOR_B, ALIGNED)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                      \
        bmm_simt_##NAME(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int batch, \
                      int m, int n, int k, int parts, int stretch) {                                              \
        multiply_item<FACTOR_A, FACTOR_B, ALIGNED>(a, b, out, batch, m, n, k, parts, stretch);                    \
    }

BMM_ENTRY(nn, KMajor128, MnMajor128<true>, true)
BMM_ENTRY(nt, KMajor128, KMajor128, true)
BMM_ENTRY(tn, MnMajor128<true>, MnMajor128<true>, true)
BMM_ENTRY(tt, MnMajor128<true>, KMajor128, true)
BMM_ENTRY(nn_any, KMajor128, MnMajor128<false>, false)
BMM_ENTRY(nt_any, KMajor128, KMajor128, false)
BMM_ENTRY(tn_any, MnMajor128<false>, MnMajor128<false>, false)
BMM_ENTRY(tt_any, MnMajor128<false>, KMajor128, false)

// The second pass: c = the sum of `parts` batches of `count` elements that stand one behind the other.
// grid = ceil(count / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    bmm_simt_reduce(const float* __restrict__ sums, float* __restrict__ c, long long count, int parts) {
    split_k_reduce(sums, c, count, 1, parts, Unchanged());
}

#endif  // defined(KERNELGATE_F32)
