// Swap A and B: C^T = B^T A^T, by persistent blocks. A tile has TILE_M columns of c, in 64s, and TILE_N of its rows, in 16s, as the
// N of a wgmma goes by sixteens: as many rows as make whole waves of tiles, and no box reaches past a tile. a is K-major.
#pragma once
#include "gemm_wgmma.cuh"
#include "wgmma_widths.cuh"

namespace hopper {

// Stores four 8x8 matrices of half-width elements transposed, a row a lane's address.
__device__ __forceinline__ void store_transposed(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

// Loads what that stores.
__device__ __forceinline__ void load_transposed(unsigned row, unsigned (&words)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
}

// Where a lane's address for the 16 rows `j` of a swizzled tile of 64 columns stands: four matrices of its warp's 16 columns.
__device__ __forceinline__ unsigned sixteen_rows(unsigned tile, int j) {
    const int lane = threadIdx.x % 32;
    const unsigned unit = threadIdx.x % WARPGROUP_THREADS / 32 * 2 + lane / 8 % 2;
    const int row = j * 16 + lane / 16 * 8 + lane % 8;
    return tile + row * ROW_BYTES + (unit ^ row % 8) * 16;
}

// Puts ROWS rows of a warpgroup's 64 columns of c into a swizzled tile, for a TMA store from there.
template <int ROWS>
__device__ __forceinline__ void stage_swap_ab(unsigned tile, const float* sums) {
#pragma unroll
    for (int j = 0; j < ROWS / 16; ++j) {
        const float* part = &sums[j * 8];
        store_transposed(sixteen_rows(tile, j), pair(part[0], part[1]), pair(part[2], part[3]), pair(part[4], part[5]),
                         pair(part[6], part[7]));
    }
}

// The tile of a block. Clusters are dealt out to the GPCs of the device in turn, eight of them: of those that run at the same time,
// tiles below each other go to every eighth, so that one GPC reads their columns of b (289x4416x7240 by 112x128 43.4 us for 46.2).
constexpr int GPCS = 8;
template <class C>
__device__ __forceinline__ TileOrigin swap_ab_tile(const TileScheduler<C, true>& scheduler, int index, unsigned rank) {
    const bool at_once = C::BLOCKS > 1 && !C::BATCHED && scheduler.tiles <= scheduler.step;
    if (!at_once || scheduler.tiles_n > BAND_TILES) return scheduler.tile(index, rank);
    const int first = index / (GPCS * scheduler.tiles_n) * GPCS;
    const int beside = min(GPCS, scheduler.clusters_m - first);
    const int within = index - first * scheduler.tiles_n;
    return tile_in_cluster<C>(first + within % beside, within / beside, rank);
}

// Blocks that stay and take tile after tile, as `persistent`; those of a cluster have tiles beside each other and fetch
// a for each other. C::A_ORDER is that of b. A warpgroup's outputs go out in one copy, the map of c having boxes of TILE_N
// rows by 64 columns, or element by element.
template <class C, class Epilogue>
__device__ __forceinline__ void swap_ab(const TensorMap& a, const TensorMap& b, const TensorMap& c_map,
                                          scalar_t* __restrict__ c, const Extents& extents, const Epilogue& epilogue) {
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int OUTPUT_BYTES = C::TILE_N * ROW_BYTES;  // of a warpgroup
    Pipeline<C> pipeline(shared_address(shared), C::WARP_GROUPS * OUTPUT_BYTES);
    const int group = threadIdx.x / WARPGROUP_THREADS;
    const unsigned rank = C::BLOCKS == 1 ? 0 : cluster_rank();
    pipeline_ready(pipeline);
    const TileScheduler<C, true> scheduler(extents.n, extents.m, extents.batch);
    const int slices = tiles(extents.k, SLICE);

    if (group == C::WARP_GROUPS) {
        if (C::WARP_GROUPS > 1) setmaxnreg_dec<40>();
        if (threadIdx.x == C::CONSUMER_THREADS) {
            for (int index = scheduler.first; index < scheduler.tiles; index += scheduler.step) {
                const TileOrigin tile = swap_ab_tile(scheduler, index, rank);
                produce_tile(pipeline, b, a, tile, scheduler.item(index), 0, slices, rank);
            }
        }
    } else {
        if (C::WARP_GROUPS > 1) setmaxnreg_inc<C::WARP_GROUPS == 2 ? 232 : 152>();
        const unsigned buffer = pipeline.stages + C::PIPELINE_BYTES + group * OUTPUT_BYTES;
        const bool first = threadIdx.x % WARPGROUP_THREADS == 0;
        const bool whole = extents.n % 8 == 0;  // the rows of c start on 16 bytes
        for (int index = scheduler.first; index < scheduler.tiles; index += scheduler.step) {
            const int item = scheduler.item(index);
            TileOrigin tile = swap_ab_tile(scheduler, index, rank);
            tile.row += group * 64;
            float sums[C::TILE_N / 2];
            typename Epilogue::template SwapAB<C::TILE_N> outputs(epilogue, tile);
            const bool fills = outputs.fills(epilogue);
            if (fills) {
                if (first) tma_store_wait_read<0>();  // the tile before
                named_barrier_sync(1 + group, WARPGROUP_THREADS);
                outputs.fill(epilogue, tile, buffer, whole);
            }
            consume_tile(pipeline, sums, group, slices);
            if (!fills) {
                if (first) tma_store_wait_read<0>();
                named_barrier_sync(1 + group, WARPGROUP_THREADS);
            }
            outputs.finish(epilogue, buffer, sums);
            stage_swap_ab<C::TILE_N>(buffer, sums);
            fence_proxy_async();
            named_barrier_sync(1 + group, WARPGROUP_THREADS);
            if (!whole) {
                scalar_t* of_item = c + (long long)item * extents.m * extents.n;
                store_staged<C::TILE_N>(of_item, extents.m, extents.n, TileOrigin{tile.col, tile.row}, buffer);
            } else if (first) {
                if (tile.row < extents.n && tile.col < extents.m) {
                    if (C::BATCHED) {
                        tma_store(c_map, tile.row, tile.col, item, buffer);
                    } else {
                        tma_store(c_map, tile.row, tile.col, buffer);
                    }
                }
                tma_store_commit();
            }
        }
        // Shared memory must stay until it is read.
        if (first) tma_store_wait_read<0>();
    }
    // A block must not leave while another one's copies or arrivals may still come.
    if (C::BLOCKS > 1) cluster_sync();
}

}  // namespace hopper
