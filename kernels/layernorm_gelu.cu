// LayerNorm over the last axis and GELU (erf) of the result in one kernel: y = gelu(layernorm(x)), nothing rounded in
// between, one read and one write where two kernels need two of each. x, y [rows, cols]; weight, bias [cols]; all of
// one dtype; the arithmetic is f32.
//
// Launch of each entry (no dynamic shared memory); for a shape that a version does not serve, the version before:
//   v1  any cols               grid rows                  block 256
//   v2  any cols               grid rows                  block 32 * clamp(ceil(cols / 1024), 1, 32)
//   v3  cols <= 256    _lanes  grid ceil(rows * L / 128)  block (L, 128 / L), L = 1, 2, 4 .. 32, the least >= cols / 8
//       cols <= 1024   _warp   grid ceil(rows / 4)        block (32, 4)
//       cols <= 32768  _block  grid rows                  block 32 * ceil(cols / 1024)
//   v4  cols > 16384 _cluster  grid rows * C, cluster C = 2, 4, 8: the least with C * 16384 >= cols, at most 8
//                              block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//                              sm_90 and later, cols <= 262144
//   v5  257 .. 512    _warp     grid ceil(rows / 4)        block (32, 4)
//       .. 1024       _few      grid rows                  block 32 * ceil(cols / 512)
//       .. 4096       _block    grid rows                  block 32 * ceil(cols / 1024)
//       .. 8192       _large    grid rows                  block 32 * ceil(cols / 1024)
//       .. 32768      _wide     grid rows                  block 32 * ceil(cols / 1024)
//       .. 262144     _cluster  grid rows * C, cluster C = 2, 4, 8: the least with C * 32768 >= cols; sm_90 and later
//                               block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//       each also as _odd, for cols that are no multiple of 8
//   v6  4096          _block      grid rows  block 128                      f16 and bf16
//       1025 .. 4095  _block_odd  grid rows  block 32 * ceil(cols / 1024)   f16 and bf16, no multiple of 8
//   v7  257 .. 384    _warp       grid ceil(rows / 4)  block 128            f32, cols no multiple of 8
//       .. 512        _two_warps  grid ceil(rows / 2)  block 128            f32, cols no multiple of 8
//       .. 1024       _four_warps grid rows            block 128            f32, cols no multiple of 8
//   v8  1025 .. 2048  _few        grid rows  block 32 * ceil(cols / 512)    f32, cols no multiple of 8
//       .. 4096       _many       grid rows  block 32 * ceil(cols / 1024)   f32, cols no multiple of 8
//       .. 8192       _large      grid rows  block 32 * ceil(cols / 1024)   f32, cols no multiple of 8
// Rows that start on 16 bytes (cols * element size is a multiple of 16) move in 16-byte packs, others by elements.
#include "layernorm_elements.cuh"
#include "layernorm_product.cuh"

// v1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void layernorm_gelu_v1(LAYERNORM_PARAMETERS) {
    layernorm_formula<GeluFormula>(x, weight, bias, y, cols, eps);
}

// v2: 16-byte packs and shuffles. A quarter to an eighth of the load instructions, and one barrier a reduction where
// the tree has ten. The row is still read three times.
extern "C" __global__ void __launch_bounds__(1024) layernorm_gelu_v2(LAYERNORM_PARAMETERS) {
    layernorm_looped<Gelu>({x, weight, bias, y, cols, eps});
}

// v3: the row is read once and stays in registers, 8 or 32 values a thread, all its loads in flight together. The team
// that owns it fits its length: some lanes of a warp (8 values each), a warp, a block.
extern "C" __global__ void __launch_bounds__(128) layernorm_gelu_v3_lanes(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Gelu, 8>(LaneTeam(int(blockDim.x), rows), {x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128) layernorm_gelu_v3_warp(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Gelu, 32>(LaneTeam(WARP, rows), {x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(1024) layernorm_gelu_v3_block(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Gelu, 32>(BlockTeam(), {x, weight, bias, y, cols, eps});
}

#if __CUDA_ARCH__ >= 900
// v4: a row that outgrows a block, or leaves no room for a second one beside it, is cut over the blocks of a cluster,
// which reduce through distributed shared memory. Up to 262,144 columns are read once.
extern "C" __global__ void __launch_bounds__(1024) layernorm_gelu_v4_cluster(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Gelu, 32>(ClusterTeam(), {x, weight, bias, y, cols, eps});
}
#endif

// x * Phi(x), a = |x| and Phi(-a) = 2^P(a), P fitted to the error of the result, which is the tolerance of the operator
// where x comes from a sum.
#if defined(KERNELGATE_F32)
// For an x that is not -inf, which a normalised value never is: max(x, 0) - a * Phi(-a), where the clamp lets NaN through.
// Within 3 ulp of the result for x > 0.
struct GeluOfNormalised {
    static constexpr float SHARE = 1.0f;
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
    static constexpr float SHARE = 0.5f;
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

// v5: the row is held as packs, plain accesses, packs for rows that start anywhere, the row of a later block is asked for,
// and a GELU of seven instructions at half width. On an H200, as a fraction of a copy: bf16 .91 to .93 at 8192x4096, .995 at
// 32768x8192, .82 at 8192x4095 (v3 .60); f32 .975 at 8192x4096 (v3 .88), .99 at 32768x8192, .90 at 8192x4095.
#define HELD(PATH, BOUNDS, VALUES, EARLY, AHEAD, ...)                                                                  \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_v5_##PATH(LAYERNORM_PARAMETERS) {               \
        layernorm_held<GeluOfNormalised, HeldRow<VALUES, false, false>, EARLY, AHEAD, AHEAD && sizeof(scalar_t) == 2>( \
            __VA_ARGS__, {x, weight, bias, y, cols, eps});                                                             \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_v5_##PATH##_odd(LAYERNORM_PARAMETERS) {         \
        layernorm_odd<GeluOfNormalised, VALUES, AHEAD>(__VA_ARGS__, {x, weight, bias, y, cols, eps});                  \
    }
LAYERNORM_HELD(HELD)
HELD(block, (128, sizeof(scalar_t) == 4 ? 4 : 8), 32, sizeof(scalar_t) == 4, true, BlockTeam())

#if !defined(KERNELGATE_F32)
// v6: short of issue slots, not of memory. Matrix products take the sums and the squares and unpack the row, which is
// centred only where squares would cancel; that saves a barrier. The weights are fetched early, and those of rows that
// start anywhere shifted by four instructions a pack where v5 takes fifteen. On an H200, as a fraction of a copy: bf16
// .97 at 8192x4096 (v5 .91), .88 at 8192x4095 (v5 .82).
extern "C" __global__ void __launch_bounds__(128, 6) layernorm_gelu_v6_block(LAYERNORM_PARAMETERS) {
    layernorm_whole_by_product<GeluOfNormalised>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128, 8) layernorm_gelu_v6_block_odd(LAYERNORM_PARAMETERS) {
    layernorm_odd_by_product<GeluOfNormalised>({x, weight, bias, y, cols, eps});
}
#endif

#if defined(KERNELGATE_F32)
// v7: short rows that start anywhere move by elements, their weights ahead of them.
// On an H200 16384x511 takes 19.1 us (v5 22.1, a copy 18.2), 16384x257 11.1 (13.5, 10.2), 2048x1023 6.5 (7.2, 6.1), 8192x700 15.4
// (17.7, 13.3).
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) layernorm_gelu_v7_warp(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<GeluOfNormalised, ElementsOfWarp>({x, weight, bias, y, cols, eps}, rows);
}
// Room for 12 blocks on an SM: as in layernorm.
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12) layernorm_gelu_v7_two_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<GeluOfNormalised, ElementsOfTwoWarps>({x, weight, bias, y, cols, eps}, rows);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12) layernorm_gelu_v7_four_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<GeluOfNormalised, ElementsOfFourWarps>({x, weight, bias, y, cols, eps}, rows);
}

// v8: of rows that start anywhere the packs begin at a whole line, and the weights come early up to
// 4096 columns. On an H200 8192x4095 takes 68.6 us (v5 72.2, a copy 65.6), 8192x2047 35.4 (40.1, 33.7), 2048x2047 11.4 (15.6,
// 10.5), 8192x8191 136.8 (138.1, 128.0).
extern "C" __global__ void __launch_bounds__(128, 7) layernorm_gelu_v8_few(LAYERNORM_PARAMETERS) {
    layernorm_by_lines<GeluOfNormalised, 16, true>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128, 4) layernorm_gelu_v8_many(LAYERNORM_PARAMETERS) {
    layernorm_by_lines<GeluOfNormalised, 32, true>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(256, 4) layernorm_gelu_v8_large(LAYERNORM_PARAMETERS) {
    layernorm_by_lines<GeluOfNormalised, 32, false>({x, weight, bias, y, cols, eps});
}
#endif
