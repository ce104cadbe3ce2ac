// LayerNorm over the last axis: y = (x - mean) / sqrt(variance + eps) * weight + bias, the variance without Bessel's
// correction. x, y [rows, cols]; weight, bias [cols]; all of one dtype; the arithmetic is f32.
//
// The idea: a row is read once and stays in the registers of the thread group that fits its length, so that memory moves each
// byte once; the mean is subtracted before the squares are summed, so that a large mean costs no digits. Rows whose length is
// no multiple of 8 start anywhere: _unaligned entries move them in packs all the same. Launch (no dynamic shared memory):
//   naive               any cols    grid rows                  block 256
//   vectorised          any cols    grid rows                  block 32 * clamp(ceil(cols / 1024), 1, 32)
//   registers_warp      .. 1024     grid ceil(rows / 4)        block (32, 4)
//   registers_block     .. 32768    grid rows                  block 32 * ceil(cols / 1024)
//   lanes_per_row       .. 256      grid ceil(rows * L / 128)  block (L, 128 / L), L = 1, 2, 4 .. 32, the least >= cols / 8
//   warp_per_row        .. 512      grid ceil(rows / 4)        block (32, 4)
//   small_block         .. 1024     grid rows                  block 32 * ceil(cols / 512)
//   block               .. 4096     grid rows                  block 32 * ceil(cols / 1024)
//   large_block         .. 8192     grid rows                  block 32 * ceil(cols / 1024)
//   cluster             .. 262144   grid rows * C, cluster C = 2 .. 16: the least with C * 10240 >= cols; sm_90 and later
//                                   block 32 * ceil(S / 1024), S = 8 * ceil(cols / (8 * C))
// f16 and bf16:
//   few_rows            .. 8192     grid rows                  block 32 * ceil(cols / 256)
//   wide_warp           .. 768      grid ceil(rows / 4)        block (32, 4)
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
//   line_block          .. 8192     grid rows                  block 32 * ceil(cols / 1024)
#include "layernorm_elements.cuh"
#include "layernorm_mma.cuh"

// Lesson 1: the formula. One block a row, three passes over memory, a tree in shared memory.
extern "C" __global__ void layernorm_naive(LAYERNORM_PARAMETERS) {
    layernorm_formula<Identity>(x, weight, bias, y, cols, eps);
}

// Lesson 2: 16-byte packs and shuffles. A quarter to an eighth of the load instructions, and one barrier a reduction where
// the tree has ten. The row is still read three times.
extern "C" __global__ void __launch_bounds__(1024) layernorm_vectorised(LAYERNORM_PARAMETERS) {
    layernorm_looped<Identity>({x, weight, bias, y, cols, eps});
}

// Lesson 3: the row is read once and stays in registers, 8 or 32 values a thread, all its loads in flight together. The group
// that owns it fits its length: some lanes of a warp (8 values each), a warp, a block.
extern "C" __global__ void __launch_bounds__(128) layernorm_lanes_per_row(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 8>(LaneGroup(int(blockDim.x), rows), {x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128) layernorm_registers_warp(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 32>(LaneGroup(WARP, rows), {x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(1024) layernorm_registers_block(LAYERNORM_PARAMETERS) {
    layernorm_in_registers<Identity, 32>(BlockGroup(), {x, weight, bias, y, cols, eps});
}

// The row stays packed: half-width packs take half the registers of their values, so that more blocks fit an SM. Tensor cores
// add up whole packs, and blocks of long rows prefetch the row of a later block into L2 while they compute.
#if defined(KERNELGATE_F32)
constexpr int BLOCKS_OF_AN_SM = 4;
#elif defined(KERNELGATE_BF16) && __CUDA_ARCH__ >= 900
constexpr int BLOCKS_OF_AN_SM = 6;
#else
constexpr int BLOCKS_OF_AN_SM = 5;  // one more would not fit without spills
#endif
#define ALIGNED(PATH, BOUNDS, VALUES, EARLY_WEIGHTS, PREFETCH, ...)                                \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_##PATH(LAYERNORM_PARAMETERS) {   \
        layernorm_packed<Identity, PackedRow<VALUES, false, false>, EARLY_WEIGHTS, PREFETCH, true>( \
            __VA_ARGS__, {x, weight, bias, y, cols, eps});                                         \
    }
#define UNALIGNED(PATH, BOUNDS, VALUES, EARLY_WEIGHTS, PREFETCH, ...)                                        \
    extern "C" __global__ void __launch_bounds__ BOUNDS layernorm_##PATH##_unaligned(LAYERNORM_PARAMETERS) { \
        layernorm_unaligned<Identity, VALUES, PREFETCH>(__VA_ARGS__, {x, weight, bias, y, cols, eps});       \
    }
LAYERNORM_PACKED(ALIGNED, UNALIGNED)
ALIGNED(block, (128, BLOCKS_OF_AN_SM), 32, true, sizeof(scalar_t) == 4, BlockGroup())

#if !defined(KERNELGATE_F32)
// Aligned weights of three packs a thread are loaded early; shifted ones would take too many registers.
ALIGNED(wide_warp, (128), 24, true, false, LaneGroup(WARP, rows))
extern "C" __global__ void __launch_bounds__(128) layernorm_wide_warp_unaligned(LAYERNORM_PARAMETERS) {
    layernorm_packed<Identity, PackedRow<24, false, true>, false, false, false>(LaneGroup(WARP, rows),
                                                                                {x, weight, bias, y, cols, eps});
}

// Short of issue slots, not of memory: tensor cores take the sums and the squares and unpack the row, which is centred only
// where squares would cancel; that saves a barrier.
extern "C" __global__ void __launch_bounds__(128, 6) layernorm_mma_block(LAYERNORM_PARAMETERS) {
    layernorm_mma<Identity>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(128, 8) layernorm_mma_block_unaligned(LAYERNORM_PARAMETERS) {
    layernorm_mma_unaligned<Identity>({x, weight, bias, y, cols, eps});
}
LAYERNORM_MMA_LONG(layernorm, Identity)
#else
// Short unaligned rows by neighbouring elements: a warp moves whole sectors wherever a row starts.
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK) layernorm_elements_warp(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<Identity, ElementsOfWarp>({x, weight, bias, y, cols, eps}, rows);
}
// With room for 12 blocks on an SM all loads stand before the first use; left to itself the compiler puts half of the weights
// behind the mean.
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12) layernorm_elements_two_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<Identity, ElementsOfTwoWarps>({x, weight, bias, y, cols, eps}, rows);
}
extern "C" __global__ void __launch_bounds__(ELEMENTS_BLOCK, 12) layernorm_elements_four_warps(LAYERNORM_PARAMETERS) {
    layernorm_by_elements<Identity, ElementsOfFourWarps>({x, weight, bias, y, cols, eps}, rows);
}

// Longer unaligned rows: the packs begin at a whole cache line, and the weights are loaded early.
extern "C" __global__ void __launch_bounds__(128, 7) layernorm_line_small_block(LAYERNORM_PARAMETERS) {
    layernorm_from_line<Identity, 16, true>({x, weight, bias, y, cols, eps});
}
extern "C" __global__ void __launch_bounds__(256, 2) layernorm_line_block(LAYERNORM_PARAMETERS) {
    layernorm_from_line<Identity, 32, true>({x, weight, bias, y, cols, eps});
}
#endif
