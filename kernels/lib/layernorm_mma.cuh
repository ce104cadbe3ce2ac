// LayerNorm of rows of more than 1024 half-width elements, sums, squares and unpacking by matrix products: for the operators
// that are short of issue slots and not of memory.
#pragma once
#include "layernorm.cuh"
#include "mma_reduce.cuh"

#if !defined(KERNELGATE_F32)
constexpr int WHOLE_COLUMNS = 4096;  // of the rows that every thread of a block holds as much of
template <bool UNALIGNED>
using MmaRow = PackedRow<32, false, UNALIGNED, !UNALIGNED>;

// factor * pack for a power of two: in bf16 two elements an instruction. Half of a small f16 may be no f16.
__device__ __forceinline__ void unpack_scaled(float factor, Pack pack, float (&x)[PACK_LEN]) {
#if defined(KERNELGATE_BF16)
    if (factor != 1.0f) {
        const __nv_bfloat162 pair = __float2bfloat162_rn(factor);
        const unsigned int both = reinterpret_cast<const unsigned int&>(pair);
        constexpr unsigned int MINUS_ZEROS = 0x80008000u;  // a product alone is an instruction of sm_90
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pack.words.x) : "r"(both), "r"(MINUS_ZEROS));
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pack.words.y) : "r"(both), "r"(MINUS_ZEROS));
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pack.words.z) : "r"(both), "r"(MINUS_ZEROS));
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pack.words.w) : "r"(both), "r"(MINUS_ZEROS));
    }
    unpack(pack, x);
#else
    unpack(pack, x);
#pragma unroll
    for (int j = 0; j < PACK_LEN; ++j) {
        x[j] *= factor;
    }
#endif
}

// Of what this thread holds of a row.
template <typename Row>
__device__ __forceinline__ Moments moments_of(const Row& row) {
    Moments moments;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        moments.add(row.packs[k]);
    }
    if (Row::has_edges && threadIdx.x < WARP) {
        const unsigned short bits = reinterpret_cast<const unsigned short&>(row.single);
        moments.add(Pack{make_uint4(bits, 0, 0, 0)});
    }
    return moments;
}

// The mean of a row, and 1 / sqrt(its variance + eps).
struct Normal {
    float mean, scale;

    // total: the sum and the sum of squares of the row. The group's slot 2 is free.
    template <typename Group, typename Row>
    __device__ __forceinline__ Normal(const Group& group, float2 total, const Row& row, int cols, float eps) {
        mean = mean_of(total.x, cols);
        float squares = fmaf(-mean, total.x, total.y);  // about the mean
        // Where the mean is large against the deviation, the difference has lost digits; NaN comes here too.
        if (!(4.0f * squares > total.y)) {
            FourSums centred;
            row.each(mean, [&](int turn, float x) { centred.add_square(turn, x); });
            squares = group.template reduce<Sum, 2>(centred.total());
        }
        scale = inverse_root_mean(squares, cols, eps);
    }
};

// The last step of a pack: `scale` and `offset` are scaled for the function, the bias gets it here.
template <typename Function>
__device__ __forceinline__ Pack normalised(Pack x, Pack weights, Pack biases, unsigned int identity, float scale,
                                           float offset) {
    float value[PACK_LEN], weight[PACK_LEN], bias[PACK_LEN];
    unpack_mma(x, identity, value);  // of a row that is not finite all is NaN anyway
    unpack(weights, weight);
    unpack_scaled(Function::PRESCALE, biases, bias);
#pragma unroll
    for (int j = 0; j < PACK_LEN; ++j) {
        value[j] = Function::apply(fmaf(fmaf(value[j], scale, offset), weight[j], bias[j]));
    }
    return pack(value);
}

// Rows of WHOLE_COLUMNS. The weights are fetched while the row is on its way, the row of a later block when this one is
// there: prefetched before, it would come between the row and the weights.
template <typename Function>
__device__ __forceinline__ void layernorm_mma(const LayerNorm& a) {
    using Row = MmaRow<false>;
    const BlockGroup group;
    Row row(group, WHOLE_COLUMNS);
    row.load(a.x + group.row() * WHOLE_COLUMNS, Absent::ZERO);
    const PackedWeights<true, Row> weights(a.weight, row, WHOLE_COLUMNS);
    const PackedWeights<true, Row> biases(a.bias, row, WHOLE_COLUMNS);

    const Moments moments = moments_of(row);
    prefetch_row(group, a.x, WHOLE_COLUMNS);
    const Normal normal(group, moments.of_block<true>(), row, WHOLE_COLUMNS, a.eps);
    const float scale = Function::PRESCALE * normal.scale;
    const unsigned int identity = identity_word();
    scalar_t* const y = a.y + group.row() * WHOLE_COLUMNS + row.column;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        store_pack(y + k * row.stride, normalised<Function>(row.packs[k], weights.packs[k], biases.packs[k], identity,
                                                            scale, -normal.mean * scale));
    }
}

// PACK_LEN elements from low[2 * WORDS] on, or from the one behind it: `selector` picks bytes of two neighbouring words.
// With `further` 0 the second pack is not read.
template <int WORDS>
__device__ __forceinline__ Pack load_at_word(const scalar_t* low, int further, unsigned int selector) {
    const uint4 a = load_pack(low).words;
    const uint4 b = load_pack(low + further).words;
    const unsigned int words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    return Pack{make_uint4(
        __byte_perm(words[WORDS], words[WORDS + 1], selector), __byte_perm(words[WORDS + 1], words[WORDS + 2], selector),
        __byte_perm(words[WORDS + 2], words[WORDS + 3], selector),
        __byte_perm(words[WORDS + 3], words[WORDS + 4], selector))};
}

// The packs of a shifted row, whose weights begin 2 * WORDS elements into a pack, or one more.
template <typename Function, int WORDS, typename Row>
__device__ __forceinline__ void store_shifted(const Row& row, const LayerNorm& a, scalar_t* y, float scale,
                                              float offset) {
    const unsigned int selector = row.head % 2 ? 0x5432u : 0x3210u;
    const int further = row.head ? PACK_LEN : 0;
    const int column = row.column - row.head;
    const unsigned int identity = identity_word();
#pragma unroll
    for (int k = 0; k < row.PACKS; ++k) {
        const int at = row.has(k) ? column + k * row.stride : 0;  // all lanes take part in the products
        const Pack weights = load_at_word<WORDS>(a.weight + at, further, selector);
        const Pack biases = load_at_word<WORDS>(a.bias + at, further, selector);
        const Pack result = normalised<Function>(row.packs[k], weights, biases, identity, scale, offset);
        if (row.has(k)) {
            store_pack(y + k * row.stride, result);
        }
    }
}

// The rest of a row that starts anywhere. All threads of its group shift their weights by the same: by words through a choice
// of code, by an element through one instruction a word.
template <typename Function, typename Row>
__device__ __forceinline__ void store_unaligned(const Row& row, const LayerNorm& a, const Normal& normal, scalar_t* y) {
    const float scale = Function::PRESCALE * normal.scale;
    const float offset = -normal.mean * scale;
    switch (row.head / 2) {
        case 0:
            store_shifted<Function, 0>(row, a, y + row.column, scale, offset);
            break;
        case 1:
            store_shifted<Function, 1>(row, a, y + row.column, scale, offset);
            break;
        case 2:
            store_shifted<Function, 2>(row, a, y + row.column, scale, offset);
            break;
        default:
            store_shifted<Function, 3>(row, a, y + row.column, scale, offset);
            break;
    }
    if (row.edge >= 0) {
        const float bias = Function::PRESCALE * to_float(a.bias[row.edge]);
        const float last = fmaf(fmaf(to_float(row.single), scale, offset), to_float(a.weight[row.edge]), bias);
        y[row.edge] = from_float<scalar_t>(Function::apply(last));
    }
}

// Rows of a block of at most four warps.
template <typename Function>
__device__ __forceinline__ void layernorm_mma_unaligned(const LayerNorm& a) {
    const BlockGroup group;
    MmaRow<true> row(group, a.cols);
    row.load(a.x + group.row() * a.cols, Absent::ZERO);
    prefetch_row(group, a.x, a.cols);
    const Normal normal(group, moments_of(row).of_block<false>(), row, a.cols, a.eps);
    store_unaligned<Function>(row, a, normal, a.y + group.row() * a.cols);
}

// Longer rows, of larger blocks or of a cluster, which load their weights late.
template <typename Function, bool UNALIGNED, typename Group>
__device__ __forceinline__ void layernorm_mma_long(const Group& group, const LayerNorm& a) {
    using Row = PackedRow<32, false, UNALIGNED>;
    Row row(group, a.cols);
    row.load(a.x + group.row() * a.cols, Absent::ZERO);
    prefetch_vector(a.weight, a.cols);
    prefetch_vector(a.bias, a.cols);
    prefetch_row(group, a.x, a.cols);
    const Normal normal(group, moments_of(row).of_group(group), row, a.cols, a.eps);
    scalar_t* const y = a.y + group.row() * a.cols;
    if constexpr (UNALIGNED) {
        store_unaligned<Function>(row, a, normal, y);
    } else {
        const float scale = Function::PRESCALE * normal.scale;
        const unsigned int identity = identity_word();
#pragma unroll
        for (int k = 0; k < Row::PACKS; ++k) {
            const int at = row.has(k) ? row.column + k * row.stride : 0;  // all lanes take part in the products
            const Pack result = normalised<Function>(row.packs[k], load_pack(a.weight + at), load_pack(a.bias + at), identity,
                                                     scale, -normal.mean * scale);
            if (row.has(k)) {
                store_pack(y + at, result);
            }
        }
    }
}

// Their entries. Of a cluster's blocks more are on a multiprocessor by 40 registers a thread; a row that starts anywhere would
// spill them.
#define LAYERNORM_MMA_LONG(OP, FUNCTION)                                                                             \
    extern "C" __global__ void __launch_bounds__(512) OP##_mma_full_block(LAYERNORM_PARAMETERS) {                    \
        layernorm_mma_long<FUNCTION, false>(BlockGroup(), {x, weight, bias, y, cols, eps});                          \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(512) OP##_mma_full_block_unaligned(LAYERNORM_PARAMETERS) {          \
        layernorm_mma_long<FUNCTION, true>(BlockGroup(), {x, weight, bias, y, cols, eps});                           \
    }                                                                                                                \
    LAYERNORM_MMA_CLUSTER(OP, FUNCTION)
#if __CUDA_ARCH__ >= 900
#define LAYERNORM_MMA_CLUSTER(OP, FUNCTION)                                                                          \
    extern "C" __global__ void __launch_bounds__(512, 3) OP##_mma_cluster(LAYERNORM_PARAMETERS) {                    \
        layernorm_mma_long<FUNCTION, false>(ClusterGroup<3>(), {x, weight, bias, y, cols, eps});                     \
    }
#else
#define LAYERNORM_MMA_CLUSTER(OP, FUNCTION)
#endif
#endif
