// RMSNorm over the last axis: y = x / sqrt(mean(x * x) + eps) * weight. x, y [rows, cols]; weight [cols]; all of one
// dtype; the arithmetic is f32.
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
//       .. 4096       _few      grid rows                  block 32 * ceil(cols / 512)
//       .. 8192       _large    grid rows                  block 32 * ceil(cols / 1024)
//       .. 32768      _wide     grid rows                  block 32 * ceil(cols / 1024)
//       .. 262144     _cluster  grid rows * C, cluster C = 2, 4, 8: the least with C * 32768 >= cols; sm_90 and later
//                               block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
//       each also as _odd, for cols that are no multiple of 8
//   v6  257 .. 384    _warp       grid ceil(rows / 4)  block 128   f32, cols no multiple of 8
//       .. 512        _two_warps  grid ceil(rows / 2)  block 128   f32, cols no multiple of 8
//   v7  513 .. 4096   _few        grid rows            block 32 * ceil(cols / 256)   f32, cols no multiple of 8
//       .. 8192       _many       grid rows            block 32 * ceil(cols / 512)   f32, cols no multiple of 8
// Rows that start on 16 bytes (cols * element size is a multiple of 16) move in 16-byte packs, others by elements.
#include "elements.cuh"
#include "held.cuh"

#define PARAMETERS                                                                                                     \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ weight, scalar_t *__restrict__ y, int rows, int cols, \
        float eps

// v1: the formula. One block a row, two passes over memory, a tree in shared memory.
extern "C" __global__ void rmsnorm_v1(PARAMETERS) {
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        squares += to_float(x[i]) * to_float(x[i]);
    }
    const float root = sqrtf(tree_reduce<Sum>(squares) / float(cols) + eps);
    for (int i = threadIdx.x; i < cols; i += TREE_THREADS) {
        y[i] = from_float<scalar_t>(to_float(x[i]) / root * to_float(weight[i]));
    }
}

struct RmsNorm {
    const scalar_t* x;
    const scalar_t* weight;
    scalar_t* y;
    int cols;
    float eps;
};

// Two passes over the row, the second from the caches: for rows of any length, by the whole block.
template <int WIDTH>
__device__ __forceinline__ void rmsnorm_looped(const RmsNorm& a) {
    const scalar_t* const x = a.x + BlockTeam::row() * a.cols;
    scalar_t* const y = a.y + BlockTeam::row() * a.cols;
    const int first = int(threadIdx.x) * WIDTH;
    const int stride = int(blockDim.x) * WIDTH;
    float value[WIDTH];

    FourSums squares;
    for (int column = first; column < a.cols; column += stride) {
        Access<WIDTH>::load(x + column).get(value);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            squares.add_square(j, value[j]);
        }
    }
    const float scale = inverse_root_mean(block_reduce<Sum, 0>(squares.total()), a.cols, a.eps);

    for (int column = first; column < a.cols; column += stride) {
        float weight[WIDTH];
        Access<WIDTH>::load_once(x + column).get(value);
        Access<WIDTH>::load(a.weight + column).get(weight);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            value[j] = value[j] * scale * weight[j];
        }
        Access<WIDTH>::store_once(y + column, value);
    }
}

// One pass over memory: the row stays in the registers of its team, VALUES a thread.
template <int WIDTH, int VALUES, typename Team>
__device__ __forceinline__ void rmsnorm_in_registers(const Team& team, const RmsNorm& a) {
    using Share = RowShare<WIDTH, VALUES>;
    Share share(team, a.cols);
    share.load(a.x + team.row() * a.cols, Absent::ZERO);
    const WeightShare<Team::EARLY && WIDTH == PACK_LEN, WIDTH, VALUES> weights(a.weight, share);

    FourSums squares;
#pragma unroll
    for (int k = 0; k < Share::ACCESSES; ++k) {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            squares.add_square(k * WIDTH + j, share.value[k][j]);
        }
    }
    const float scale = inverse_root_mean(team.template reduce<Sum, 0>(squares.total()), a.cols, a.eps);

    scalar_t* const mine = a.y + team.row() * a.cols + share.first;
#pragma unroll
    for (int k = 0; k < Share::ACCESSES; ++k) {
        if (share.has(k)) {
            float weight[WIDTH], result[WIDTH];
            weights.get(k, share, weight);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                result[j] = share.value[k][j] * scale * weight[j];
            }
            Access<WIDTH>::store_once(mine + k * share.stride, result);
        }
    }
}

// The widest access that every row allows.
__device__ __forceinline__ void rmsnorm_looped(const RmsNorm& a) {
    if (a.cols % PACK_LEN == 0) {
        rmsnorm_looped<PACK_LEN>(a);
    } else {
        rmsnorm_looped<1>(a);
    }
}
template <int VALUES, typename Team>
__device__ __forceinline__ void rmsnorm_in_registers(const Team& team, const RmsNorm& a) {
    if (a.cols % PACK_LEN == 0) {
        rmsnorm_in_registers<PACK_LEN, VALUES>(team, a);
    } else {
        rmsnorm_in_registers<1, VALUES>(team, a);
    }
}

// v2: 16-byte packs and shuffles. A quarter to an eighth of the load instructions, and one barrier a reduction where
// the tree has ten. The row is still read twice.
extern "C" __global__ void __launch_bounds__(1024) rmsnorm_v2(PARAMETERS) { rmsnorm_looped({x, weight, y, cols, eps}); }

// v3: the row is read once and stays in registers, 8 or 32 values a thread, all its loads in flight together. The team
// that owns it fits its length: some lanes of a warp (8 values each), a warp, a block.
extern "C" __global__ void __launch_bounds__(128) rmsnorm_v3_lanes(PARAMETERS) {
    rmsnorm_in_registers<8>(LaneTeam(int(blockDim.x), rows), {x, weight, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128) rmsnorm_v3_warp(PARAMETERS) {
    rmsnorm_in_registers<32>(LaneTeam(WARP, rows), {x, weight, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(1024) rmsnorm_v3_block(PARAMETERS) {
    rmsnorm_in_registers<32>(BlockTeam(), {x, weight, y, cols, eps});
}

#if __CUDA_ARCH__ >= 900
// v4: a row that outgrows a block, or leaves no room for a second one beside it, is cut over the blocks of a cluster,
// which reduce through distributed shared memory. Up to 262,144 columns are read once.
extern "C" __global__ void __launch_bounds__(1024) rmsnorm_v4_cluster(PARAMETERS) {
    rmsnorm_in_registers<32>(ClusterTeam(), {x, weight, y, cols, eps});
}
#endif

// One pass over memory, the row held as packs. Teams of whole warps.
// AHEAD: the row that a later block will read is asked for.
template <typename Row, bool EARLY, bool AHEAD, typename Team>
__device__ __forceinline__ void rmsnorm_held(const Team& team, const RmsNorm& a) {
    Row row(team, a.cols);
    row.load(a.x + team.row() * a.cols, Absent::ZERO);
    const HeldWeights<EARLY, Row> weights(a.weight, row);
    if constexpr (AHEAD) {
        fetch_ahead(team, a.x, a.cols);
    }

    FourSums squares;
    row.each(0.0f, [&](int turn, float x) { squares.add_square(turn, x); });
    const float scale = inverse_root_mean(team.template reduce<Sum, 0>(squares.total()), a.cols, a.eps);

    scalar_t* const y = a.y + team.row() * a.cols;
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        if (row.has(k)) {
            float x[PACK_LEN], weight[PACK_LEN];
            unpack(row.packs[k], x);
            weights.get(k, row, weight);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                x[j] = x[j] * scale * weight[j];
            }
            store_pack(y + row.column + k * row.stride, pack(x));
        }
    }
    if (Row::has_edges && row.edge >= 0) {
        y[row.edge] = from_float<scalar_t>(to_float(row.single) * scale * weights.edge(row));
    }
}

// Of a row that starts anywhere: in one warp, weights of half width are fetched early. In f32 their registers cost more.
// The packs of short rows begin at a sector; long ones of half width lose by it.
template <int VALUES, bool SPREAD, bool AHEAD, typename Team>
__device__ __forceinline__ void rmsnorm_odd(const Team& team, const RmsNorm& a) {
    using Row = HeldRow<VALUES, SPREAD, true, false, VALUES == 16 ? SECTOR_LEN : PACK_LEN>;
    rmsnorm_held<Row, Team::EARLY && sizeof(scalar_t) == 2, AHEAD>(team, a);
}

// v5: the row is held as packs, plain accesses, half the values a thread and its weights early, packs for rows that
// start anywhere, and the row of a later block is asked for. On an H200, as a fraction of a copy: bf16 1.00 at 8192x4096
// (v3 .955), 1.00 at 32768x8192, .95 at 8192x4095 (v3 .70); f32 .995 at 8192x4096 (v3 .94), .96 at 8192x4095.
#define HELD(PATH, BOUNDS, VALUES, SPREAD, EARLY, AHEAD, ...)                                               \
    extern "C" __global__ void __launch_bounds__ BOUNDS rmsnorm_v5_##PATH(PARAMETERS) {                     \
        rmsnorm_held<HeldRow<VALUES, SPREAD, false>, EARLY, AHEAD>(__VA_ARGS__, {x, weight, y, cols, eps}); \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__ BOUNDS rmsnorm_v5_##PATH##_odd(PARAMETERS) {               \
        rmsnorm_odd<VALUES, SPREAD, AHEAD>(__VA_ARGS__, {x, weight, y, cols, eps});                         \
    }
HELD(warp, (128), 16, false, true, false, LaneTeam(WARP, rows))
HELD(few, (512, sizeof(scalar_t) == 4 ? 2 : 3), 16, true, true, true, BlockTeam())
HELD(large, (256, sizeof(scalar_t) == 4 ? 2 : 3), 32, sizeof(scalar_t) == 4, true, true, BlockTeam())
HELD(wide, (1024), 32, false, false, true, BlockTeam())
#if __CUDA_ARCH__ >= 900
HELD(cluster, (1024), 32, false, false, sizeof(scalar_t) == 2, ClusterTeam())
#endif

#if defined(KERNELGATE_F32)
template <typename Row>
__device__ __forceinline__ void rmsnorm_by_elements(PARAMETERS) {
    const Row row(rows, cols);
    float weights[Row::VALUES], value[Row::VALUES];
    row.load_weights(weight, weights);
    row.load(x, value);
    const float squares = row.template sum_of<0>([&](int k) { return value[k] * value[k]; });
    const float scale = inverse_root_mean(squares, cols, eps);
    row.each([&](int k) { y[row.start + k * Row::STRIDE] = value[k] * scale * weights[k]; });
}

// v6: short rows that start anywhere move by elements, their weights ahead of them.
// On an H200 16,384 rows take 18.3 us at 511 columns (v5 19.4, a copy 17.5), 12.2 at 321 (13.0, 11.7), 10.2 at 257 (10.8, 9.7).
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) rmsnorm_v6_warp(PARAMETERS) {
    rmsnorm_by_elements<ElementsOfWarp>(x, weight, y, rows, cols, eps);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) rmsnorm_v6_two_warps(PARAMETERS) {
    rmsnorm_by_elements<ElementsOfTwoWarps>(x, weight, y, rows, cols, eps);
}

// v7: of rows that start anywhere the packs begin at a whole line, and the weights come early. On an H200 8192x4095 takes
// 65.9 us (v5 68.1, Liger 67.4, a copy 65.4), 8192x2047 34.1 (35.6, a copy 33.8), 2048x1023 6.3 (6.7, 6.3), 8192x8191 128.1
// (135.5, 127.2).
extern "C" __global__ void __launch_bounds__(512, 2) rmsnorm_v7_few(PARAMETERS) {
    rmsnorm_held<HeldRow<8, false, true, false, LINE_LEN>, true, true>(BlockTeam(), {x, weight, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(512) rmsnorm_v7_many(PARAMETERS) {
    rmsnorm_held<HeldRow<16, false, true, false, LINE_LEN>, true, true>(BlockTeam(), {x, weight, y, cols, eps});
}
#endif
