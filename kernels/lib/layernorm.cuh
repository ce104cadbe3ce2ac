// LayerNorm of one row, y = f((x - mean) / sqrt(variance + eps) * weight + bias), for the operators that end in it.
//
// The variance is the mean square of what is left after the mean, so that a large mean costs no digits.
#pragma once
#include "cluster_row.cuh"

// The last step of a row. What `apply` gets is PRESCALE times the argument: a factor that costs nothing when the
// normalisation's own factor has it already.
struct Identity {
    static constexpr float PRESCALE = 1.0f;
    static __device__ __forceinline__ float apply(float x) { return x; }
};

struct GeluFormula {
    static __device__ __forceinline__ float apply(float x) { return gelu_erf_formula(x); }
};

// Of every entry.
#define LAYERNORM_PARAMETERS                                                                                \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ weight, const scalar_t *__restrict__ bias, \
        scalar_t *__restrict__ y, int rows, int cols, float eps

// The formula as it is written: a block of TREE_THREADS a row, element by element, a tree in shared memory.
template <typename Function>
__device__ __forceinline__ void layernorm_formula(const scalar_t* __restrict__ x, const scalar_t* __restrict__ weight,
                                                  const scalar_t* __restrict__ bias, scalar_t* __restrict__ y, int cols,
                                                  float eps) {
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        sum += to_float(x[i]);
    }
    const float mean = tree_reduce<Sum>(sum) / float(cols);
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        const float centred = to_float(x[i]) - mean;
        squares += centred * centred;
    }
    const float sigma = sqrtf(tree_reduce<Sum>(squares) / float(cols) + eps);
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        const float normal = (to_float(x[i]) - mean) / sigma * to_float(weight[i]) + to_float(bias[i]);
        y[i] = from_float<scalar_t>(Function::apply(normal));
    }
}

struct LayerNorm {
    const scalar_t* x;
    const scalar_t* weight;
    const scalar_t* bias;
    scalar_t* y;
    int cols;
    float eps;
};

// Three passes over the row, two of them from the caches: for rows of any length, by the whole block.
template <typename Function, int WIDTH>
__device__ __forceinline__ void layernorm_looped(const LayerNorm& a) {
    const scalar_t* const x = a.x + BlockGroup::row() * a.cols;
    scalar_t* const y = a.y + BlockGroup::row() * a.cols;
    const int first = int(threadIdx.x) * WIDTH;
    const int stride = int(blockDim.x) * WIDTH;
    float value[WIDTH];

    FourSums sum;
    for (int column = first; column < a.cols; column += stride) {
        Access<WIDTH>::load(x + column).get(value);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            sum.add(j, value[j]);
        }
    }
    const float mean = mean_of(block_reduce<Sum, 0>(sum.total()), a.cols);

    FourSums squares;
    for (int column = first; column < a.cols; column += stride) {
        Access<WIDTH>::load(x + column).get(value);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            squares.add_square(j, value[j] - mean);
        }
    }
    const float scale = inverse_root_mean(block_reduce<Sum, 1>(squares.total()), a.cols, a.eps);

    for (int column = first; column < a.cols; column += stride) {
        float weight[WIDTH], bias[WIDTH];
        Access<WIDTH>::load_once(x + column).get(value);
        Access<WIDTH>::load(a.weight + column).get(weight);
        Access<WIDTH>::load(a.bias + column).get(bias);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            value[j] = Function::apply((value[j] - mean) * scale * weight[j] + bias[j]);
        }
        Access<WIDTH>::store_once(y + column, value);
    }
}

// One pass over memory: the row stays in the registers of its group, VALUES a thread.
template <typename Function, int WIDTH, int VALUES, typename Group>
__device__ __forceinline__ void layernorm_in_registers(const Group& group, const LayerNorm& a) {
    using Fragment = RowFragment<WIDTH, VALUES>;
    using Weights = WeightFragment<Group::EARLY_WEIGHTS && WIDTH == PACK_LEN, WIDTH, VALUES>;
    Fragment fragment(group, a.cols);
    fragment.load(a.x + group.row() * a.cols, Absent::ZERO);
    const Weights weights(a.weight, fragment);
    const Weights biases(a.bias, fragment);

    FourSums sum;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            sum.add(k * WIDTH + j, fragment.value[k][j]);
        }
    }
    const float mean = mean_of(group.template reduce<Sum, 0>(sum.total()), a.cols);

    FourSums squares;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
        const float shift = fragment.has(k) ? mean : 0.0f;  // an absent element is 0 and stays 0
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            fragment.value[k][j] -= shift;
            squares.add_square(k * WIDTH + j, fragment.value[k][j]);
        }
    }
    const float scale = inverse_root_mean(group.template reduce<Sum, 1>(squares.total()), a.cols, a.eps);

    scalar_t* const mine = a.y + group.row() * a.cols + fragment.first;
#pragma unroll
    for (int k = 0; k < Fragment::ACCESSES; ++k) {
        if (fragment.has(k)) {
            float weight[WIDTH], bias[WIDTH], result[WIDTH];
            weights.get(k, fragment, weight);
            biases.get(k, fragment, bias);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                result[j] = Function::apply(fragment.value[k][j] * scale * weight[j] + bias[j]);
            }
            Access<WIDTH>::store_once(mine + k * fragment.stride, result);
        }
    }
}

// One pass over memory, the row held as packs. Groups of whole warps. MMA_SUM: the row's sum by matrix products.
// PREFETCH: the row of a later block is prefetched into L2.
template <typename Function, typename Row, bool EARLY_WEIGHTS, bool PREFETCH, bool MMA_SUM, typename Group>
__device__ __forceinline__ void layernorm_packed(const Group& group, const LayerNorm& a) {
    Row row(group, a.cols);
    row.load(a.x + group.row() * a.cols, Absent::ZERO);
    const PackedWeights<EARLY_WEIGHTS, Row> weights(a.weight, row, a.cols);
    const PackedWeights<EARLY_WEIGHTS, Row> biases(a.bias, row, a.cols);
    if constexpr (PREFETCH) {
        prefetch_row(group, a.x, a.cols);
    }

    const float mean = mean_of(group.template combine<Sum, 0>(warp_sum<MMA_SUM>(row)), a.cols);
    FourSums squares;
    row.each(mean, [&](int turn, float centred) { squares.add_square(turn, centred); });
    const float scale = inverse_root_mean(group.template reduce<Sum, 1>(squares.total()), a.cols, a.eps);

    scalar_t* const y = a.y + group.row() * a.cols + row.column;
    const float offset = -mean * scale;  // (x - mean) * scale in one instruction, rounded once
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        if (row.has(k)) {
            float x[PACK_LEN], weight[PACK_LEN], bias[PACK_LEN];
            unpack(row.packs[k], x);
            weights.get(k, row, weight);
            biases.get(k, row, bias);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                x[j] = Function::apply(Function::PRESCALE * fmaf(fmaf(x[j], scale, offset), weight[j], bias[j]));
            }
            store_pack(y + k * row.stride, pack(x));
        }
    }
    if (Row::has_edges && row.edge >= 0) {
        const float normal = fmaf(to_float(row.single), scale, offset);
        a.y[group.row() * a.cols + row.edge] =
            from_float<scalar_t>(Function::apply(Function::PRESCALE * fmaf(normal, weights.edge(row), biases.edge(row))));
    }
}

// Of a row that starts anywhere: in one warp, and for a pack a thread, weights of half width are fetched early. In f32 their
// registers cost more.
template <typename Function, int VALUES, bool PREFETCH, typename Group>
__device__ __forceinline__ void layernorm_unaligned(const Group& group, const LayerNorm& a) {
    constexpr bool EARLY_WEIGHTS = (Group::EARLY_WEIGHTS || VALUES == PACK_LEN) && sizeof(scalar_t) == 2;
    layernorm_packed<Function, PackedRow<VALUES, false, true>, EARLY_WEIGHTS, PREFETCH, false>(group, a);
}

// The same of a block, its packs from a whole line on.
template <typename Function, int VALUES, bool EARLY_WEIGHTS>
__device__ __forceinline__ void layernorm_from_line(const LayerNorm& a) {
    layernorm_packed<Function, PackedRow<VALUES, false, true, false, LINE_LEN>, EARLY_WEIGHTS, true, false>(BlockGroup(), a);
}

// The widest access that every row allows.
template <typename Function>
__device__ __forceinline__ void layernorm_looped(const LayerNorm& a) {
    if (a.cols % PACK_LEN == 0) {
        layernorm_looped<Function, PACK_LEN>(a);
    } else {
        layernorm_looped<Function, 1>(a);
    }
}
template <typename Function, int VALUES, typename Group>
__device__ __forceinline__ void layernorm_in_registers(const Group& group, const LayerNorm& a) {
    if (a.cols % PACK_LEN == 0) {
        layernorm_in_registers<Function, PACK_LEN, VALUES>(group, a);
    } else {
        layernorm_in_registers<Function, 1, VALUES>(group, a);
    }
}

// The entries that every operator shares: each range of columns aligned and unaligned, but where an operator of this dtype
// has something faster for unaligned rows. KIND(path, launch bounds, values a thread, EARLY_WEIGHTS, PREFETCH, group).
#define LAYERNORM_PACKED(ALIGNED, UNALIGNED)                                                                   \
    ALIGNED(warp_per_row, (128), 16, true, false, LaneGroup(WARP, rows))                                       \
    ALIGNED(small_block, (64), 16, true, false, BlockGroup())                                                  \
    ALIGNED(large_block, (256, sizeof(scalar_t) == 4 ? 2 : 4), 32, sizeof(scalar_t) == 4, true, BlockGroup())  \
    LAYERNORM_PACKED_OF_WIDTH(ALIGNED, UNALIGNED)                                                              \
    LAYERNORM_PACKED_CLUSTER(ALIGNED, UNALIGNED)
#if defined(KERNELGATE_F32)
#define LAYERNORM_PACKED_OF_WIDTH(ALIGNED, UNALIGNED)            \
    ALIGNED(full_block, (1024), 32, false, true, BlockGroup())   \
    UNALIGNED(full_block, (1024), 32, false, true, BlockGroup())
#else
#define LAYERNORM_PACKED_OF_WIDTH(ALIGNED, UNALIGNED)                       \
    UNALIGNED(warp_per_row, (128), 16, true, false, LaneGroup(WARP, rows))  \
    UNALIGNED(small_block, (64), 16, true, false, BlockGroup())             \
    UNALIGNED(large_block, (256, 4), 32, false, true, BlockGroup())         \
    ALIGNED(few_rows, (1024), PACK_LEN, true, false, BlockGroup())          \
    UNALIGNED(few_rows, (1024), PACK_LEN, true, false, BlockGroup())
#endif
#if __CUDA_ARCH__ >= 900
#define LAYERNORM_PACKED_CLUSTER(ALIGNED, UNALIGNED)                              \
    ALIGNED(cluster, (1024), 32, false, true, ClusterGroup<2>())                  \
    UNALIGNED(cluster, (1024), 32, false, true, ClusterGroup<2>())
#else
#define LAYERNORM_PACKED_CLUSTER(ALIGNED, UNALIGNED)
#endif
