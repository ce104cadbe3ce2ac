// The product of lstm_product.cuh by warp groups and bulk tensor copies (compute capability 9.0a).
#pragma once
#include "hopper.cuh"
#include "lstm_product.cuh"

namespace lstm {

constexpr int BULK_SLICE = 64;  // of k: a swizzled row
constexpr int BULK_STAGES = 3;
constexpr int MULTIPLYING_GROUPS = TILE / 64;
constexpr int BULK_THREADS = MULTIPLYING_GROUPS * hopper::GROUP_THREADS + WARP;  // and the copying warp
constexpr int BULK_OPERAND_BYTES = TILE * hopper::ROW_BYTES;
constexpr int BULK_STAGE_BYTES = 2 * BULK_OPERAND_BYTES;

// The ring of stages as one role sees it.
struct BulkRing : hopper::Place<BULK_STAGES> {
    unsigned memory;

    __device__ __forceinline__ explicit BulkRing(unsigned memory) : memory(memory) {}
    __device__ __forceinline__ unsigned a() const { return memory + stage * BULK_STAGE_BYTES; }
    __device__ __forceinline__ unsigned b() const { return a() + BULK_OPERAND_BYTES; }
    __device__ __forceinline__ unsigned full() const { return memory + BULK_STAGES * BULK_STAGE_BYTES + stage * 16; }
    __device__ __forceinline__ unsigned empty() const { return full() + 8; }
};

// Blocks of 128 x 128 gates, two a multiprocessor: one stores while the other multiplies. `from` shows the parts of the
// left operand below each other, `weights` [hidden, 4, width] in boxes of 32 units.
__device__ __forceinline__ void multiply_gates_bulk(const hopper::TensorMap& from, const hopper::TensorMap& weights,
                                                    float* __restrict__ gates, int rows, int hidden, int width,
                                                    int parts) {
    extern __shared__ __align__(1024) unsigned char bulk_memory[];
    BulkRing ring(shared_address(bulk_memory));
    const int columns = GATES * hidden;
    const TileOrigin tile = tile_of(blockIdx.x, tiles(rows, TILE), tiles(columns, TILE));
    const int row0 = tile.row * TILE;
    const int col0 = tile.col * TILE;
    const int of_part = tiles(width, BULK_SLICE);
    const int group = threadIdx.x / hopper::GROUP_THREADS;
    if (threadIdx.x == 0) {
        for (; ring.stage < BULK_STAGES; ++ring.stage) {
            hopper::barrier_init(ring.full(), 1);
            hopper::barrier_init(ring.empty(), MULTIPLYING_GROUPS * hopper::GROUP_WARPS);
        }
        hopper::barrier_init_fence();
        ring.stage = 0;
    }
    __syncthreads();

    if (group == MULTIPLYING_GROUPS) {
        for (int slice = 0; threadIdx.x % WARP == 0 && slice < parts * of_part; ++slice) {
            const int part = slice / of_part;
            const int k = (slice - part * of_part) * BULK_SLICE;
            hopper::barrier_wait(ring.empty(), ring.parity ^ 1);
            hopper::barrier_expect(ring.full(), BULK_STAGE_BYTES);
            hopper::load_box(ring.a(), from, k, part * rows + row0, ring.full());
            hopper::load_box(ring.b(), weights, k, 0, col0 / GATES, ring.full());
            ring.next();
        }
        return;
    }

    const bool releases = threadIdx.x % WARP == 0;
    float sums[TILE / 2];
    unsigned previous = 0;
    for (int slice = 0; slice < parts * of_part; ++slice) {
        hopper::barrier_wait(ring.full(), ring.parity);
        const unsigned long long a = hopper::descriptor(ring.a() + group * 64 * hopper::ROW_BYTES, hopper::ROW_BYTES);
        const unsigned long long b = hopper::descriptor(ring.b(), hopper::ROW_BYTES);
        hopper::product_fence();
#pragma unroll
        for (int step = 0; step < BULK_SLICE / 16; ++step) {
            hopper::Product<TILE, 0>::add(sums, a + step * 2, b + step * 2, slice > 0 || step > 0);
        }
        hopper::product_commit();
        if (slice > 0) {
            hopper::product_wait<1>();
            if (releases) hopper::barrier_arrive(previous);
        }
        previous = ring.empty();
        ring.next();
    }
    hopper::product_wait<0>();
    hopper::hold(sums);

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
