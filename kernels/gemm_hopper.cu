// gemm in f16 and bf16 for compute capability 9.0a: c[m,n] = a[m,k] * b[k,n], all row-major, sums in f32.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. A slice is 64 of k: 128 bytes of a row of a.
// The last warp group of a block copies slices of a and b into a ring of stages, the others multiply them. Tensor maps
// fill with zeros what lies outside a and b, and leave out what lies outside c. They need rows of a multiple of 16
// bytes: an operand without is copied to the workspace first (gemm_align), c without is stored from registers.
//
// Every entry takes c and three maps: of a in boxes of 64 of k by TILE_M rows, of b in boxes of 64 columns by
// 64 / CLUSTER of k, of c in boxes of 64 columns by 64 rows, all in the 128-byte swizzle.
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "hopper_store.cuh"

using namespace hopper;

namespace {

constexpr int SLICE = 64;         // of k
constexpr int COLUMNS = 64;       // of b or c that one swizzled row holds
constexpr int WGMMA_K = 16;       // of k a product
constexpr int STORE_BUFFERS = 2;  // a warp group, of 64 x 64 outputs each
constexpr int STORE_BYTES = 64 * ROW_BYTES;

struct Extents {
    int m;
    int n;
    int k;
};

// The plan of a block: WARP_GROUPS x 64 rows by TILE_N columns of c, STAGES slices under way. CLUSTER blocks have tiles
// below each other; each fetches its part of b's slice for all of them.
template <int WARP_GROUPS_, int TILE_N_, int STAGES_, int CLUSTER_>
struct Config {
    static constexpr int WARP_GROUPS = WARP_GROUPS_;
    static constexpr int TILE_M = 64 * WARP_GROUPS;
    static constexpr int TILE_N = TILE_N_;
    static constexpr int STAGES = STAGES_;
    static constexpr int CLUSTER = CLUSTER_;
    static constexpr int THREADS = GROUP_THREADS * (1 + WARP_GROUPS);
    static constexpr int A_BYTES = TILE_M * ROW_BYTES;
    static constexpr int COLUMNS_BYTES = SLICE * ROW_BYTES;  // 64 columns of a slice of b
    static constexpr int B_BYTES = TILE_N / COLUMNS * COLUMNS_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
};

// The ring of stages as one role sees it.
template <class C>
struct Ring : Place<C::STAGES> {
    unsigned stages;
    unsigned full;   // barrier objects, 8 bytes a stage: the copies of a slice are in
    unsigned empty;  // the multiplying warps of the whole cluster are done with it
    using Place<C::STAGES>::stage;

    __device__ __forceinline__ Ring(unsigned shared)
        : stages(shared),
          full(shared + C::STAGES * C::STAGE_BYTES + C::WARP_GROUPS * STORE_BUFFERS * STORE_BYTES),
          empty(full + C::STAGES * 8) {}
    __device__ __forceinline__ unsigned a() const { return stages + stage * C::STAGE_BYTES; }
    __device__ __forceinline__ unsigned b() const { return a() + C::A_BYTES; }
    __device__ __forceinline__ unsigned is_full() const { return full + stage * 8; }
    __device__ __forceinline__ unsigned is_empty() const { return empty + stage * 8; }
};

template <class C>
__device__ __forceinline__ void ring_init(const Ring<C>& ring) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < C::STAGES; ++stage) {
            barrier_init(ring.full + stage * 8, 1);
            barrier_init(ring.empty + stage * 8, C::WARP_GROUPS * GROUP_WARPS * C::CLUSTER);
        }
        barrier_init_fence();
    }
}

// One thread: copies slices [first, last) of a tile into the ring as stages come free.
template <class C>
__device__ __forceinline__ void fetch_tile(Ring<C>& ring, const TensorMap& a, const TensorMap& b, TileOrigin tile,
                                           int first, int last, unsigned rank) {
    constexpr int B_ROWS = SLICE / C::CLUSTER;  // this block's part of a slice of b
    for (int slice = first; slice < last; ++slice) {
        barrier_wait(ring.is_empty(), ring.parity ^ 1);
        barrier_expect(ring.is_full(), C::STAGE_BYTES);
        load_box(ring.a(), a, slice * SLICE, tile.row, ring.is_full());
#pragma unroll
        for (int chunk = 0; chunk < C::TILE_N / COLUMNS; ++chunk) {
            const unsigned to = ring.b() + chunk * C::COLUMNS_BYTES + rank * B_ROWS * ROW_BYTES;
            const int x = tile.col + chunk * COLUMNS;
            const int y = slice * SLICE + rank * B_ROWS;
            if (C::CLUSTER == 1) {
                load_box(to, b, x, y, ring.is_full());
            } else {
                load_box_into(to, b, x, y, ring.is_full(), (1 << C::CLUSTER) - 1);
            }
        }
        ring.next();
    }
}

// A warp gives a stage back, to every block that copies into it.
template <class C>
__device__ __forceinline__ void release(unsigned is_empty) {
    const unsigned lane = threadIdx.x % 32;
    if (C::CLUSTER == 1) {
        if (lane == 0) barrier_arrive(is_empty);
    } else {
        if (lane < C::CLUSTER) barrier_arrive_at(is_empty, lane);
    }
}

// One warp group: its 64 rows of the product of `slices` slices. The products of a slice are under way while the next
// slice is waited for; a stage is given back one slice later.
template <class C>
__device__ __forceinline__ void multiply_tile(Ring<C>& ring, float (&sums)[C::TILE_N / 2], int group, int slices) {
    unsigned previous = 0;
    for (int slice = 0; slice < slices; ++slice) {
        barrier_wait(ring.is_full(), ring.parity);
        const unsigned long long a = descriptor(ring.a() + group * 64 * ROW_BYTES, ROW_BYTES);
        const unsigned long long b = descriptor(ring.b(), C::COLUMNS_BYTES);
        product_fence();
#pragma unroll
        for (int part = 0; part < SLICE / WGMMA_K; ++part) {
            Product<C::TILE_N, 1>::add(sums, a + part * (WGMMA_K * 2 >> 4), b + part * (WGMMA_K * ROW_BYTES >> 4),
                                       slice > 0 || part > 0);
        }
        product_commit();
        if (slice > 0) {
            product_wait<1>();
            release<C>(previous);
        }
        previous = ring.is_empty();
        ring.next();
    }
    product_wait<0>();
    release<C>(previous);
}

// Stores a warp group's 64 rows through shared memory, 64 columns a time: while one buffer is being copied out, the
// next is filled.
template <class C>
__device__ __forceinline__ void store_tile(const TensorMap& c, unsigned buffers, const Extents& extents,
                                           TileOrigin tile, int group, const float (&sums)[C::TILE_N / 2]) {
    const bool first = threadIdx.x % GROUP_THREADS == 0;
#pragma unroll
    for (int chunk = 0; chunk < C::TILE_N / COLUMNS; ++chunk) {
        const unsigned buffer = buffers + (group * STORE_BUFFERS + chunk % STORE_BUFFERS) * STORE_BYTES;
        if (first) store_wait_read<STORE_BUFFERS - 1>();
        named_sync(1 + group, GROUP_THREADS);
        stage_outputs(buffer, &sums[chunk * 32]);
        async_fence();
        named_sync(1 + group, GROUP_THREADS);
        if (first) {
            const int col = tile.col + chunk * COLUMNS;
            if (col < extents.n && tile.row < extents.m) store_box(c, col, tile.row, buffer);
            store_commit();
        }
    }
}

// The tile of block `rank` among those of cluster `index`.
template <class C>
__device__ __forceinline__ TileOrigin tile_at(int index, int clusters_m, int tiles_n, unsigned rank) {
    const TileOrigin tile = tile_of(index, clusters_m, tiles_n);
    return {(tile.row * C::CLUSTER + (int)rank) * C::TILE_M, tile.col * C::TILE_N};
}

template <class C>
__device__ __forceinline__ void persistent(const TensorMap& a, const TensorMap& b, const TensorMap& c_map,
                                           scalar_t* __restrict__ c, const Extents& extents) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<C> ring(shared_address(shared));
    const int group = threadIdx.x / GROUP_THREADS;
    const unsigned rank = C::CLUSTER == 1 ? 0 : cluster_rank();
    ring_init(ring);
    if (C::CLUSTER == 1) {
        __syncthreads();
    } else {
        cluster_sync();
    }

    const int clusters_m = tiles(tiles(extents.m, C::TILE_M), C::CLUSTER);
    const int tiles_n = tiles(extents.n, C::TILE_N);
    const int cluster_tiles = clusters_m * tiles_n;
    const int slices = tiles(extents.k, SLICE);
    const int begin = blockIdx.x / C::CLUSTER;
    const int step = gridDim.x / C::CLUSTER;

    if (group == C::WARP_GROUPS) {
        if (C::WARP_GROUPS == 2) keep_registers<40>();
        if (threadIdx.x == C::WARP_GROUPS * GROUP_THREADS) {
            for (int index = begin; index < cluster_tiles; index += step) {
                const TileOrigin tile = tile_at<C>(index, clusters_m, tiles_n, rank);
                fetch_tile(ring, a, b, tile, 0, slices, rank);
            }
        }
    } else {
        if (C::WARP_GROUPS == 2) take_registers<232>();
        const unsigned buffers = ring.stages + C::STAGES * C::STAGE_BYTES;
        const bool c_aligned = extents.n % 8 == 0;
        for (int index = begin; index < cluster_tiles; index += step) {
            TileOrigin tile = tile_at<C>(index, clusters_m, tiles_n, rank);
            tile.row += group * 64;
            float sums[C::TILE_N / 2];
            multiply_tile(ring, sums, group, slices);
            if (c_aligned) {
                store_tile<C>(c_map, buffers, extents, tile, group, sums);
            } else {
                store_direct<C::TILE_N>(c, extents.m, extents.n, tile, sums);
            }
        }
        // Shared memory must stay until it is read.
        if (threadIdx.x % GROUP_THREADS == 0) store_wait_read<0>();
    }
    // A block must not leave while another one's copies or arrivals may still come.
    if (C::CLUSTER > 1) cluster_sync();
}

// One tile a cluster of SPLIT blocks, each of which takes a part of k; the sums meet through shared memory, every block
// adding up and storing the part of the columns that is its own. Always in the same order: the same bits each time.
template <class C, int SPLIT>
__device__ __forceinline__ void split(const TensorMap& a, const TensorMap& b, const TensorMap&,
                                      scalar_t* __restrict__ c, const Extents& extents) {
    extern __shared__ __align__(1024) unsigned char shared[];
    static_assert(C::STAGES * C::STAGE_BYTES >= C::TILE_M * C::TILE_N * 4, "the sums fit into the stages");
    Ring<C> ring(shared_address(shared));
    const int group = threadIdx.x / GROUP_THREADS;
    const unsigned rank = cluster_rank();
    ring_init(ring);
    __syncthreads();

    const TileOrigin tile = tile_at<C>(blockIdx.x / SPLIT, tiles(extents.m, C::TILE_M), tiles(extents.n, C::TILE_N), 0);
    const int slices = tiles(extents.k, SLICE);
    const int share = tiles(slices, SPLIT);
    const int first = min(slices, (int)rank * share);
    const int last = min(slices, first + share);

    constexpr int MULTIPLIERS = C::WARP_GROUPS * GROUP_THREADS;
    constexpr int OWN = C::TILE_N / 2 / SPLIT;  // sums that a thread adds up
    if (group == C::WARP_GROUPS) {
        if (threadIdx.x == MULTIPLIERS) fetch_tile(ring, a, b, tile, first, last, 0);
    } else {
        float sums[C::TILE_N / 2] = {};
        if (first < last) multiply_tile(ring, sums, group, last - first);
        named_sync(1, MULTIPLIERS);  // both warp groups are done with the stages
#pragma unroll
        for (int i = 0; i < C::TILE_N / 2; i += 4) {
            float4* to = reinterpret_cast<float4*>(shared) + i / 4 * MULTIPLIERS + threadIdx.x;
            *to = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
        }
    }
    cluster_sync();
    if (group < C::WARP_GROUPS) {
        float own[OWN] = {};
#pragma unroll
        for (int i = 0; i < OWN; i += 4) {
            const unsigned from = ring.stages + (((int)rank * OWN + i) / 4 * MULTIPLIERS + threadIdx.x) * 16;
#pragma unroll
            for (int other = 0; other < SPLIT; ++other) {
                const float4 part = load_from(from, other);
                own[i] += part.x;
                own[i + 1] += part.y;
                own[i + 2] += part.z;
                own[i + 3] += part.w;
            }
        }
        const TileOrigin mine = {tile.row + group * 64, tile.col + (int)rank * (C::TILE_N / SPLIT)};
        store_direct<C::TILE_N / SPLIT>(c, extents.m, extents.n, mine, own);
    }
    cluster_sync();  // the other blocks may still read this one's shared memory
}

}  // namespace

#define GEMM_ENTRY(NAME, BODY, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(Config<__VA_ARGS__>::THREADS, 1)                           \
        NAME(scalar_t* __restrict__ c, const __grid_constant__ TensorMap a_map,                             \
             const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map, int m, int n, \
             int k) {                                                                                       \
        BODY(a_map, b_map, c_map, c, Extents{m, n, k});                                                     \
    }

// v7, warp groups: one thread issues all copies (TMA), 64x256x16 products read both operands from shared memory (wgmma)
// and leave the other threads nothing to do but wait, and registers go from the copying group to the multiplying ones.
// Blocks stay and take tile after tile: the copies of the next one run during the stores of this one. On an H200 1.03
// of cuBLASLt at 8192 cubed and 1.00 at 4096 cubed, where v6 has .49.
// grid = min(tiles of 128x256, multiprocessors), block = 384, dynamic shared memory = 4 stages of 48 KiB + 32 KiB.
GEMM_ENTRY(gemm_v7, (persistent<Config<2, 256, 4, 1>>), 2, 256, 4, 1)

// v8, clusters: two blocks with tiles below each other fetch half of b's slice each, for both (multicast). A third
// fewer bytes from L2, which shows where rows start off 128 bytes and every box touches twice as many cache lines:
// 8000x8008x8024 .98 of cuBLASLt, v7 .85.
// grid = 2 min(tiles of 256x256, multiprocessors / 2), the rest as v7; clusters of 2.
GEMM_ENTRY(gemm_v8, (persistent<Config<2, 256, 4, 2>>), 2, 256, 4, 2)

// v9, the tile follows the shape: smaller ones where 128x256 would leave multiprocessors idle, and few tiles with a
// long k are split over it in clusters. The launch rule chooses among v7, v8 and these by an estimate of the time.
// 1024 cubed 6.5 us, v7 13.6; 512x5632x2048 19.6 us, v7 24.0.
GEMM_ENTRY(gemm_v9_128x192, (persistent<Config<2, 192, 4, 1>>), 2, 192, 4, 1)
GEMM_ENTRY(gemm_v9_128x128, (persistent<Config<2, 128, 6, 1>>), 2, 128, 6, 1)
GEMM_ENTRY(gemm_v9_64x128, (persistent<Config<1, 128, 8, 1>>), 1, 128, 8, 1)
GEMM_ENTRY(gemm_v9_64x64, (persistent<Config<1, 64, 8, 1>>), 1, 64, 8, 1)
GEMM_ENTRY(gemm_v9_64x128_split2, (split<Config<1, 128, 8, 1>, 2>), 1, 128, 8, 1)
GEMM_ENTRY(gemm_v9_64x128_split4, (split<Config<1, 128, 8, 1>, 4>), 1, 128, 8, 1)
GEMM_ENTRY(gemm_v9_64x128_split8, (split<Config<1, 128, 8, 1>, 8>), 1, 128, 8, 1)

// Copies a matrix of `cols` columns to rows of `pitch` elements, `offset` elements into the workspace, for tensor maps.
// grid = any, block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    gemm_align(const scalar_t* __restrict__ from, scalar_t* __restrict__ workspace, long long offset, int rows,
               int cols, int pitch) {
    align_rows(from, workspace + offset, rows, cols, pitch);
}

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
