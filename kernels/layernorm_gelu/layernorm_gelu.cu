// LayerNorm over the last axis and GELU (erf) of the result in one kernel: y = gelu(layernorm(x)), nothing rounded in
// between, one read and one write where two kernels need two of each. x, y [rows, cols]; weight, bias [cols]; all of
// one dtype; the arithmetic is f32.
//
// The idea: LayerNorm's kernels with a GELU of few instructions as their last step, since the issue slots are what is short.
// Launch (no dynamic shared memory):
//   naive               any cols    grid rows                  block 256
//   lanes_per_row       .. 256      grid ceil(rows * L / 128)  block (L, 128 / L), L = 1, 2, 4 .. 32, the least >= cols / 8
//   warp_per_row        .. 512      grid ceil(rows / 4)        block (32, 4)
//   small_block         .. 1024     grid rows                  block 32 * ceil(cols / 512)
//   block               .. 4096     grid rows                  block 32 * ceil(cols / 1024)
//   large_block         .. 8192     grid rows                  block 32 * ceil(cols / 1024)
//   cluster             .. 262144   grid rows * C, cluster C = 2 .. 16: the least with C * 10240 >= cols; sm_90 and later
//                                   block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
// f16 and bf16:
//   few_rows            .. 8192     grid rows                  block 32 * ceil(cols / 256)
//   wide_warp           .. 768      grid ceil(rows / 2)        block (32, 2)
//   mma_block           4096        grid rows                  block 128
//   mma_full_block      .. 16384    grid rows                  block 32 * ceil(cols / 1024)
//   mma_cluster         .. 131072   as cluster, C = 8 at the most; no _unaligned
//   _unaligned: few_rows, wide_warp, warp_per_row, small_block, large_block, mma_full_block, cluster as above, and
//   mma_block_unaligned .. 4095     grid rows                  block 32 * ceil(cols / 1024)
// f32:
//   full_block          .. 16384    grid rows                  block 32 * ceil(cols / 1024); also _unaligned
// f32, cols no multiple of 8 (above 8192 full_block_unaligned and cluster_unaligned):
//   elements_warp       .. 384      grid ceil(rows / 4)        block 128
//   elements_two_warps  .. 512      grid ceil(rows / 2)        block 128
//   elements_four_warps .. 1024     grid rows                  block 128
//   line_small_block    .. 2048     grid rows                  block 32 * ceil(cols / 512)
//   line_block          .. 4096     grid rows                  block 32 * ceil(cols / 1024)
//   line_large_block    .. 8192     grid rows                  block 32 * ceil(cols / 1024)
#include "layernorm_elements.cuh"
#include "layernorm_mma.cuh"

// Lesson 1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void layernorm_gelu_naive(LAYERNORM_PARAMETERS) {
    layernorm_formula<GeluFormula>(x, weight, bias, y, cols, eps);
}

// Short rows: some lanes of a warp own a row, 8 values each.
extern "C" __global__ void __launch_bounds__(128) layernorm_gelu_lanes_per_row(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Gelu, 8>(LaneGroup(int(blockDim.x), rows), {x, weight, bias, y, cols, eps});
}

// x * Phi(x), a = |x| and Phi(-a) = 2^P(a), P fitted to the error of the result, which is the tolerance of the operator
// where x comes from a sum.
#if defined(KERNELGATE_F32)
// For an x that is not -inf, which a normalised value never is: max(x, 0) - a * Phi(-a), where the clamp lets NaN through.
// Within 3 ulp of the result for x > 0.
struct GeluOfNormalised {
    static constexpr float PRESCALE = 1.0f;
    static __device__ __forceinline__ float apply(float x) {
        float a;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(x)), "f"(gelu_tail_end()));
        return fmaf(-a, gelu_tail(a), fmaxf(x, 0.0f));
    }
};
#else
// x / 2 + a / 2 * (1 - 2 * Phi(-a)): the highest coefficient of P is negative, so that it needs no clamp, and infinities
// and NaN come out as the formula has them. Before the rounding: f16 within 0.022 ulp and 4.4e-8 a (degree 5); bf16 within
// 0.44 ulp and 1.8e-6 a (degree 3), which with the rounding stays inside the tolerance of a row of 257 and more columns.
struct GeluOfNormalised {
    static constexpr float PRESCALE = 0.5f;
    static __device__ __forceinline__ float apply(float half) {
        const float a = fabsf(half);
#if defined(KERNELGATE_F16)
        constexpr float P[] = {1.0f - 1.0000156164169312f,       2.0f * -1.150735855102539f,
                               4.0f * -4.604284167289734e-01f,   8.0f * -5.1264889538288116e-02f,
                               16.0f * 6.8304878659546375e-03f, 32.0f * -4.3584901141002774e-04f};
#else
        constexpr float P[] = {1.0f - 1.0024945735931396f, 2.0f * -1.1219568252563477f, 4.0f * -5.118429064750671e-01f,
                               8.0f * -2.0605554804205894e-02f};
#endif
        constexpr int DEGREE = int(sizeof(P) / sizeof(float)) - 1;
        float p = P[DEGREE];  // 1 + P(2a)
#pragma unroll
        for (int i = DEGREE - 1; i >= 0; --i) {
            p = fmaf(p, a, P[i]);
        }
        return fmaf(a, 1.0f - fast_exp2(p), half);
    }
};
#endif

// The row stays packed, as in LayerNorm.
#define ALIGNED(PATH, BOUNDS, VALUES, EARLY_WEIGHTS, PREFETCH, ...)                                                      \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_##PATH(LAYERNORM_PARAMETERS) {                    \
        layernorm_packed<GeluOfNormalised, PackedRow<VALUES, false, false>, EARLY_WEIGHTS, PREFETCH,                     \
                         PREFETCH && sizeof(scalar_t) == 2>(__VA_ARGS__, {x, weight, bias, y, cols, eps});               \
    }
#define UNALIGNED(PATH, BOUNDS, VALUES, EARLY_WEIGHTS, PREFETCH, ...)                                             \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_##PATH##_unaligned(LAYERNORM_PARAMETERS) { \
        layernorm_unaligned<GeluOfNormalised, VALUES, PREFETCH>(__VA_ARGS__, {x, weight, bias, y, cols, eps});    \
    }
LAYERNORM_PACKED(ALIGNED, UNALIGNED)
ALIGNED(block, (128, sizeof(scalar_t) == 4 ? 4 : 8), 32, sizeof(scalar_t) == 4, true, BlockGroup())

#if !defined(KERNELGATE_F32)
// Aligned weights are loaded early; shifted ones would take too many registers.
ALIGNED(wide_warp, (64), 32, true, false, LaneGroup(WARP, rows))
extern "C" __global__ void __launch_bounds__(64) layernorm_gelu_wide_warp_unaligned(LAYERNORM_PARAMETERS) {
    layernorm_packed<GeluOfNormalised, PackedRow<24, false, true>, false, false, false>(
        LaneGroup(WARP, rows), {x, weight, bias, y, cols, eps});
}

// Short of issue slots, not of memory: tensor cores take the sums and the squares and unpack the row, which is centred only
// where squares would cancel; that saves a barrier.
extern "C" __global__ void __launch_bounds__(128, 6) layernorm_gelu_mma_block(LAYERNORM_PARAMETERS) {
    layernorm_mma<GeluOfNormalised>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128, 8) layernorm_gelu_mma_block_unaligned(LAYERNORM_PARAMETERS) {
    layernorm_mma_unaligned<GeluOfNormalised>({x, weight, bias, y, cols, eps});
}
LAYERNORM_MMA_LONG(layernorm_gelu, GeluOfNormalised)
#else
// Short unaligned rows by neighbouring elements: a warp moves whole sectors wherever a row starts. Room for 12 blocks on an
// SM: as in LayerNorm.
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) layernorm_gelu_elements_warp(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<GeluOfNormalised, ElementsOfWarp>({x, weight, bias, y, cols, eps}, rows);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12)
    layernorm_gelu_elements_two_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<GeluOfNormalised, ElementsOfTwoWarps>({x, weight, bias, y, cols, eps}, rows);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12)
    layernorm_gelu_elements_four_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<GeluOfNormalised, ElementsOfFourWarps>({x, weight, bias, y, cols, eps}, rows);
}

// Longer unaligned rows: the packs begin at a whole cache line, and the weights are loaded early up to 4096 columns.
extern "C" __global__ void __launch_bounds__(128, 7) layernorm_gelu_line_small_block(LAYERNORM_PARAMETERS) {
    layernorm_from_line<GeluOfNormalised, 16, true>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128, 4) layernorm_gelu_line_block(LAYERNORM_PARAMETERS) {
    layernorm_from_line<GeluOfNormalised, 32, true>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(256, 4) layernorm_gelu_line_large_block(LAYERNORM_PARAMETERS) {
    layernorm_from_line<GeluOfNormalised, 32, false>({x, weight, bias, y, cols, eps});
}
#endif
