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
//   v6  cols 2048, 3072, 4096     _block  grid rows   block cols / 32
//       cols 6144, 8192           _wide   grid rows   block cols / 64
//       f16 and bf16
// Rows that start on 16 bytes (cols * element size is a multiple of 16) move in 16-byte packs, others by elements.
#include "layernorm.cuh"
#include "product.cuh"

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

// x * Phi(x) for an x that is not -inf, which a normalised value never is: max(x, 0) - a * Phi(-a) with a = |x|, where the
// clamp lets NaN through. Phi(-a) = 2^P(a), P fitted to the error of the result, which is the tolerance of the operator
// where x comes from a sum: in f32 within 3 ulp of the result for x > 0 (degree 10); in f16 within 0.13 ulp for x > -3.5
// and 1.4e-8 left of it (degree 5); in bf16 within 0.09 ulp for x > -3 and 4e-7 left of it (degree 4).
struct GeluOfFinite {
#if defined(KERNELGATE_F32)
    static constexpr float TAIL_END = gelu_tail_end();
    static __device__ __forceinline__ float tail(float a) { return gelu_tail(a); }
#elif defined(KERNELGATE_F16)
    static constexpr float TAIL_END = 7.0f;
    static __device__ __forceinline__ float tail(float a) {
        float p = -3.3965247e-04f;
        p = fmaf(p, a, 6.014880258589983e-03f);
        p = fmaf(p, a, -4.886990785598755e-02f);
        p = fmaf(p, a, -4.63267058134079e-01f);
        p = fmaf(p, a, -1.1495699882507324f);
        p = fmaf(p, a, -1.0000922679901123f);
        return fast_exp2(p);
    }
#else
    static constexpr float TAIL_END = 5.5f;
    static __device__ __forceinline__ float tail(float a) {
        float p = 2.9275312554091215e-03f;
        p = fmaf(p, a, -3.909135237336159e-02f);
        p = fmaf(p, a, -4.758538603782654e-01f);
        p = fmaf(p, a, -1.1439262628555298f);
        p = fmaf(p, a, -1.000495195388794f);
        return fast_exp2(p);
    }
#endif
    static __device__ __forceinline__ float apply(float x) {
        float a;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(fabsf(x)), "f"(TAIL_END));
        return fmaf(-a, tail(a), fmaxf(x, 0.0f));
    }
};

// v5: the row is held as packs, plain accesses, packs for rows that start anywhere. On an H200, as a fraction of a
// copy: bf16 .91 at 8192x4096, .96 at 32768x8192, .75 at 8192x4095 (v3 .60); f32 .97 at 8192x4096 (v3 .88), .99 at
// 32768x8192, .90 at 8192x4095.
#define HELD(PATH, BOUNDS, VALUES, EARLY, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_v5_##PATH(LAYERNORM_PARAMETERS) {         \
        layernorm_held<GeluOfFinite, VALUES, EARLY, false, false>(__VA_ARGS__, {x, weight, bias, y, cols, eps}); \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_v5_##PATH##_odd(LAYERNORM_PARAMETERS) {   \
        layernorm_held<GeluOfFinite, VALUES, false, false, true>(__VA_ARGS__, {x, weight, bias, y, cols, eps});  \
    }
HELD(warp, (128), 16, true, LaneTeam(WARP, rows))
HELD(few, (64), 16, true, BlockTeam())
HELD(block, (128, sizeof(scalar_t) == 4 ? 4 : 8), 32, sizeof(scalar_t) == 4, BlockTeam())
HELD(large, (256, sizeof(scalar_t) == 4 ? 2 : 4), 32, sizeof(scalar_t) == 4, BlockTeam())
HELD(wide, (1024), 32, false, BlockTeam())
#if __CUDA_ARCH__ >= 900
HELD(cluster, (1024), 32, false, ClusterTeam())
#endif

#if !defined(KERNELGATE_F32)
// The whole row in packs of a block, VALUES a thread: cols = VALUES * blockDim.x. WEIGHTS_BY_PRODUCT: they are unpacked by
// products too, and again in the plain way where one of them is not finite.
template <int VALUES, bool WEIGHTS_BY_PRODUCT>
__device__ __forceinline__ void layernorm_gelu_by_product(const LayerNorm& a) {
    constexpr int PACKS = VALUES / PACK_LEN;
    constexpr int STRIDE = WARP * PACK_LEN;
    const unsigned int column = (threadIdx.x / WARP * (PACKS * WARP) + threadIdx.x % WARP) * PACK_LEN;
    const scalar_t* const x = a.x + BlockTeam::row() * a.cols + column;
    Pack packs[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        packs[k] = load_pack(x + k * STRIDE);
    }
    Moments moments;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        moments.add(packs[k]);
    }
    const float2 total = moments.of_block();
    const float mean = mean_of(total.x, a.cols);
    float squares = fmaf(-mean, total.x, total.y);  // about the mean
    // Where the mean is large against the deviation, the difference has lost digits; NaN comes here too.
    if (!(4.0f * squares > total.y)) {
        FourSums centred;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            float value[PACK_LEN];
            unpack(packs[k], value);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                centred.add_square(j, value[j] - mean);
            }
        }
        squares = block_reduce<Sum, 0>(centred.total());
    }
    const float scale = inverse_root_mean(squares, a.cols, a.eps);
    const float offset = -mean * scale;

    scalar_t* const y = a.y + BlockTeam::row() * a.cols + column;
    const auto finish = [&](int k, const float(&value)[PACK_LEN], const float(&weight)[PACK_LEN],
                            const float(&bias)[PACK_LEN]) {
        float result[PACK_LEN];
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
            result[j] = GeluOfFinite::apply(fmaf(fmaf(value[j], scale, offset), weight[j], bias[j]));
        }
        store_pack(y + k * STRIDE, pack(result));
    };
    const unsigned int identity = identity_word();
    FiniteCheck check;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const Pack weights = load_pack(a.weight + column + k * STRIDE);
        const Pack biases = load_pack(a.bias + column + k * STRIDE);
        float value[PACK_LEN], weight[PACK_LEN], bias[PACK_LEN];
        unpack_by_product(packs[k], identity, value);  // of a row that is not finite all is NaN anyway
        if (WEIGHTS_BY_PRODUCT) {
            unpack_by_product(weights, identity, weight);
            unpack_by_product(biases, identity, bias);
            check.add(weights);
            check.add(biases);
        } else {
            unpack(weights, weight);
            unpack(biases, bias);
        }
        finish(k, value, weight, bias);
    }
    if (WEIGHTS_BY_PRODUCT && !check.all_finite()) {
#pragma unroll 1
        for (int k = 0; k < PACKS; ++k) {
            float value[PACK_LEN], weight[PACK_LEN], bias[PACK_LEN];
            unpack(load_pack(x + k * STRIDE), value);
            unpack(load_pack(a.weight + column + k * STRIDE), weight);
            unpack(load_pack(a.bias + column + k * STRIDE), bias);
            finish(k, value, weight, bias);
        }
    }
}

// v6: short of issue slots, not of memory. For rows that are whole packs of every thread matrix products take the sums and
// the squares and unpack; the row is centred only where squares would cancel, which saves a barrier. On an H200, as a
// fraction of a copy: bf16 .93 at 8192x4096 (v5 .91), .97 at 32768x8192 (v5 .96). Of fewer values a thread there is no gain.
#define BY_PRODUCT(PATH, BOUNDS, VALUES, WEIGHTS)                                                         \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_gelu_v6_##PATH(LAYERNORM_PARAMETERS) { \
        layernorm_gelu_by_product<VALUES, WEIGHTS>({x, weight, bias, y, cols, eps});                      \
    }
BY_PRODUCT(block, (128, 8), 32, false)
BY_PRODUCT(wide, (128, 5), 64, true)
#endif
