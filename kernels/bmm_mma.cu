// bmm in f16 and bf16 on mma.sync, for compute capability 8.0 and up: c[i] = op(a[i]) * op(b[i]) (bmm.cuh).
#include "bmm.cuh"

#if !defined(KERNELGATE_F32)
#include "gemm_mma_tile.cuh"

namespace {

template <class OrderA, class OrderB, bool ALIGNED>
__device__ __forceinline__ void multiply_item(const scalar_t* a, const scalar_t* b, scalar_t* c, int m, int n, int k) {
    const Item at = item_of(tiles(m, TILE_M) * tiles(n, TILE_N));
    const Matrices of_item(a, b, c, m, n, k, at.item);
    multiply<OrderA, OrderB, ALIGNED>(of_item.a, of_item.b, of_item.c, m, n, k, at.block, Unchanged());
}

}  // namespace

// v3 (f16 and bf16), the sm_80 path: the product of gemm's v6 for every item, its blocks one item after the other. Matrices
// of a factor across k are transposed on their way from shared memory into registers, those of one along k come as they
// are. On an H200 eight items of 1024 cubed take 60 us in layout tn and 62 in nt, .45 and .44 of cuBLASLt.
// grid = batch * ceil(m/128) * ceil(n/256), block = 256, dynamic shared memory = 4 stages (96 KiB). Rows of a and b of a
// multiple of 8 elements; _any: every shape, element by element.
#define BMM_ENTRY(NAME, ORDER_A, ORDER_B, ALIGNED)                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                       \
        bmm_v3_##NAME(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c,    \
                      int m, int n, int k) {                                                                       \
        multiply_item<ORDER_A, ORDER_B, ALIGNED>(a, b, c, m, n, k);                                                \
    }

BMM_ENTRY(nn, AlongK, AcrossK, true)
BMM_ENTRY(nt, AlongK, AlongK, true)
BMM_ENTRY(tn, AcrossK, AcrossK, true)
BMM_ENTRY(tt, AcrossK, AlongK, true)
BMM_ENTRY(nn_any, AlongK, AcrossK, false)
BMM_ENTRY(nt_any, AlongK, AlongK, false)
BMM_ENTRY(tn_any, AcrossK, AcrossK, false)
BMM_ENTRY(tt_any, AcrossK, AlongK, false)

#endif  // !defined(KERNELGATE_F32)
