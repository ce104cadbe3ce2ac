// LayerNorm over the last axis: y = (x - mean) / sqrt(variance + eps) * weight + bias, the variance without Bessel's
// correction. x, y [rows, cols]; weight, bias [cols]; all of one dtype; the arithmetic is f32.
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
//       .. 8192       _many       grid rows  block 32 * ceil(cols / 1024)   f32, cols no multiple of 8
// Rows that start on 16 bytes (cols * element size is a multiple of 16) move in 16-byte packs, others by elements.
#include "layernorm_elements.cuh"
#include "layernorm_product.cuh"

// v1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void layernorm_v1(LAYERNORM_PARAMETERS) {
    layernorm_formula<Identity>(x, weight, bias, y, cols, eps);
}

// v2: 16-byte packs and shuffles. A quarter to an eighth of the load instructions, and one barrier a reduction where
// the tree has ten. The row is still read three times.
extern "C" __global__ void __launch_bounds__(1024) layernorm_v2(LAYERNORM_PARAMETERS) {
    layernorm_looped<Identity>({x, weight, bias, y, cols, eps});
}

// v3: the row is read once and stays in registers, 8 or 32 values a thread, all its loads in flight together. The team
// that owns it fits its length: some lanes of a warp (8 values each), a warp, a block.
extern "C" __global__ void __launch_bounds__(128) layernorm_v3_lanes(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 8>(LaneTeam(int(blockDim.x), rows), {x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128) layernorm_v3_warp(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 32>(LaneTeam(WARP, rows), {x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(1024) layernorm_v3_block(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 32>(BlockTeam(), {x, weight, bias, y, cols, eps});
}

#if __CUDA_ARCH__ >= 900
// v4: a row that outgrows a block, or leaves no room for a second one beside it, is cut over the blocks of a cluster,
// which reduce through distributed shared memory. Up to 262,144 columns are read once.
extern "C" __global__ void __launch_bounds__(1024) layernorm_v4_cluster(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 32>(ClusterTeam(), {x, weight, bias, y, cols, eps});
}
#endif

// v5: the row is held as packs, plain accesses, sums by matrix products, packs for rows that start anywhere, and the row
// of a later block is asked for. On an H200, as a fraction of a copy: bf16 .98 at 8192x4096 (v3 .94), .99 at
// 32768x8192, .86 at 8192x4095 (v3 .65); f32 .99 at 8192x4096, 1.00 at 32768x8192, .92 at 8192x4095.
#if defined(KERNELGATE_F32)
constexpr int BLOCKS_OF_AN_SM = 4;
#elif defined(KERNELGATE_BF16) && __CUDA_ARCH__ >= 900
constexpr int BLOCKS_OF_AN_SM = 6;
#else
constexpr int BLOCKS_OF_AN_SM = 5;  // one more would not fit without spills
#endif
#define HELD(PATH, BOUNDS, VALUES, EARLY, AHEAD, ...)                                                     \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_v5_##PATH(LAYERNORM_PARAMETERS) {       \
        layernorm_held<Identity, HeldRow<VALUES, false, false>, EARLY, AHEAD, true>(                      \
            __VA_ARGS__, {x, weight, bias, y, cols, eps});                                                \
    }                                                                                                     \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_v5_##PATH##_odd(LAYERNORM_PARAMETERS) { \
        layernorm_odd<Identity, VALUES, AHEAD>(__VA_ARGS__, {x, weight, bias, y, cols, eps});             \
    }
LAYERNORM_HELD(HELD)
HELD(block, (128, BLOCKS_OF_AN_SM), 32, true, sizeof(scalar_t) == 4, BlockTeam())

#if !defined(KERNELGATE_F32)
// v6: squares by matrix products too, centred only where they would cancel, which saves a barrier; the weights of rows
// that start anywhere are shifted by four instructions a pack where v5 takes fifteen. On an H200, as a fraction of a
// copy: 1.00 at 8192x4096 (v5 bf16 .98, f16 .92), bf16 .93 at 8192x4095 (v5 .86).
extern "C" __global__ void __launch_bounds__(128, 6) layernorm_v6_block(LAYERNORM_PARAMETERS) {
    layernorm_whole_by_product<Identity>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128, 8) layernorm_v6_block_odd(LAYERNORM_PARAMETERS) {
    layernorm_odd_by_product<Identity>({x, weight, bias, y, cols, eps});
}
#endif

#if defined(KERNELGATE_F32)
// v7: short rows that start anywhere move by elements, their weights ahead of them.
// On an H200 16,384 rows take 18.1 us at 511 columns (v5 20.1, a copy 17.4), 12.3 at 321 (13.9, 11.7), 10.2 at 257 (11.6, 9.7);
// 2048x1023 6.3 us (6.7, 6.2), 8192x700 14.3 (15.3, 13.3).
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) layernorm_v7_warp(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<Identity, ElementsOfWarp>({x, weight, bias, y, cols, eps}, rows);
}
// With room for 12 blocks on an SM all loads stand before the first use; left to itself the compiler puts half of the weights
// behind the mean (19.0 us at 511 columns, 7.1 at 2048x1023).
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12) layernorm_v7_two_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<Identity, ElementsOfTwoWarps>({x, weight, bias, y, cols, eps}, rows);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12) layernorm_v7_four_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<Identity, ElementsOfFourWarps>({x, weight, bias, y, cols, eps}, rows);
}

// v8: of rows that start anywhere the packs begin at a whole line, and the weights come early. On an H200 8192x4095 takes
// 66.7 us (v5 71.4, a copy 65.6), 8192x2047 34.5 (38.7, 33.7), 2048x2047 11.3 (14.9, 10.7), 8192x8191 132.7 (136.9, 128.4).
extern "C" __global__ void __launch_bounds__(128, 7) layernorm_v8_few(LAYERNORM_PARAMETERS) {
    layernorm_by_lines<Identity, 16, true>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(256, 2) layernorm_v8_many(LAYERNORM_PARAMETERS) {
    layernorm_by_lines<Identity, 32, true>({x, weight, bias, y, cols, eps});
}
#endif
