// The product of lstm_input_gemm.cuh by wgmma and TMA (compute capability 9.0a).
#pragma once
#include "hopper.cuh"
#include "lstm_input_gemm.cuh"

namespace lstm {

constexpr int WGMMA_SLICE = 64;  // of k: a swizzled row
constexpr int WGMMA_STAGES = 3;
constexpr int CONSUMER_WARPGROUPS = TILE / 64;
constexpr int WGMMA_THREADS = CONSUMER_WARPGROUPS * hopper::WARPGROUP_THREADS + WARP;  // and the copying warp
constexpr int WGMMA_OPERAND_BYTES = TILE * hopper::ROW_BYTES;
constexpr int WGMMA_STAGE_BYTES = 2 * WGMMA_OPERAND_BYTES;

// The pipeline of stages as one role sees it.
struct WgmmaPipeline : hopper::PipelineState<WGMMA_STAGES> {
    unsigned memory;

    __device__ __forceinline__ explicit WgmmaPipeline(unsigned memory) : memory(memory) {}
    __device__ __forceinline__ unsigned a() const { return memory + stage * WGMMA_STAGE_BYTES; }
    __device__ __forceinline__ unsigned b() const { return a() + WGMMA_OPERAND_BYTES; }
    __device__ __forceinline__ unsigned full() const { return memory + WGMMA_STAGES * WGMMA_STAGE_BYTES + stage * 16; }
    __device__ __forceinline__ unsigned empty() const { return full() + 8; }
};

// Blocks of 128 x 128 gates, two a multiprocessor: one stores while the other multiplies. `from` shows the parts of the
// left operand below each other, `weights` [hidden, 4, width] in boxes of 32 units.
__device__ __forceinline__ void input_gemm_wgmma(const hopper::TensorMap& from, const hopper::TensorMap& weights,
                                                    float* __restrict__ gates, int rows, int hidden, int width,
                                                    int parts) {
    extern __shared__ __align__(1024) unsigned char bulk_memory[];
    WgmmaPipeline pipeline(shared_address(bulk_memory));
    const int columns = GATES * hidden;
    const TileOrigin tile = tile_of(blockIdx.x, tiles(rows, TILE), tiles(columns, TILE));
    const int row0 = tile.row * TILE;
    const int col0 = tile.col * TILE;
    const int of_part = tiles(width, WGMMA_SLICE);
    const int group = threadIdx.x / hopper::WARPGROUP_THREADS;
    if (threadIdx.x == 0) {
        for (; pipeline.stage < WGMMA_STAGES; ++pipeline.stage) {
            hopper::mbarrier_init(pipeline.full(), 1);
            hopper::mbarrier_init(pipeline.empty(), CONSUMER_WARPGROUPS * hopper::WARPGROUP_WARPS);
        }
        hopper::mbarrier_init_fence();
        pipeline.stage = 0;
    }
    __syncthreads();

    if (group == CONSUMER_WARPGROUPS) {
        for (int slice = 0; threadIdx.x % WARP == 0 && slice < parts * of_part; ++slice) {
            const int part = slice / of_part;
            const int k = (slice - part * of_part) * WGMMA_SLICE;
            hopper::mbarrier_wait(pipeline.empty(), pipeline.parity ^ 1);
            hopper::mbarrier_expect_tx(pipeline.full(), WGMMA_STAGE_BYTES);
            hopper::tma_load(pipeline.a(), from, k, part * rows + row0, pipeline.full());
            hopper::tma_load(pipeline.b(), weights, k, 0, col0 / GATES, pipeline.full());
            pipeline.next();
        }
        return;
    }

    const bool releases = threadIdx.x % WARP == 0;
    float sums[TILE / 2];
    unsigned previous = 0;
    for (int slice = 0; slice < parts * of_part; ++slice) {
        hopper::mbarrier_wait(pipeline.full(), pipeline.parity);
        const unsigned long long a = hopper::descriptor(pipeline.a() + group * 64 * hopper::ROW_BYTES, hopper::ROW_BYTES);
        const unsigned long long b = hopper::descriptor(pipeline.b(), hopper::ROW_BYTES);
        hopper::wgmma_fence();
#pragma unroll
        for (int step = 0; step < WGMMA_SLICE / 16; ++step) {
            hopper::Wgmma<TILE, 0>::add(sums, a + step * 2, b + step * 2, slice > 0 || step > 0);
        }
        hopper::wgmma_commit();
        if (slice > 0) {
            hopper::wgmma_wait<1>();
            if (releases) hopper::mbarrier_arrive(previous);
        }
        previous = pipeline.empty();
        pipeline.next();
    }
    hopper::wgmma_wait<0>();
    hopper::fence_operand(sums);

    const int lane = threadIdx.x % WARP;
    const int row = row0 + threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        const int col = col0 + j * 8 + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (row + half * 8 < rows && col < columns) {
                *reinterpret_cast<float2*>(gates + (long long)(row + half * 8) * columns + col) =
                    make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
            }
        }
    }
}

}  // namespace lstm
