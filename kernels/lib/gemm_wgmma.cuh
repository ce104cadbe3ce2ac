// The mainloop of matrix products on warpgroups (f16 and bf16, compute capability 9.0a), for any operand order and epilogue:
// c[m,n] = epilogue(the sum over k of a[m,k] * b[k,n]), c row-major, sums in f32.
//
// Letters: m rows of a and c, n columns of b and c, k the summed extent. A slice is 64 of k: 128 bytes of a row of a. The last
// warpgroup of a block is the producer: it copies slices of a and b into the pipeline by TMA. The others are consumers (wgmma).
// Blocks are persistent: the copies of the next tile run during the stores of this one. Tensor maps fill with zeros what lies
// outside a and b, and leave out what lies outside c. They need rows of a multiple of 16 bytes: an operand without is copied to
// the workspace first, c without is stored by elements. In a batch the outermost coordinate of a map is the item.
//
// An operand is K-major (its rows in memory run along k) or MN-major. Its map has boxes of 64 of k by the rows of a tile where it
// is K-major, of 64 columns by 64 of k where it is MN-major, and of a part of the rows where blocks multicast it to each other. The
// map of c has boxes of 64 columns by 64 rows. All are in the 128-byte swizzle.
#pragma once
#include "cluster.cuh"
#include "gemm.cuh"
#include "wgmma_epilogue.cuh"

namespace hopper {

constexpr int SLICE = 64;         // of k
constexpr int COLUMNS = 64;       // that one swizzled row holds
constexpr int WGMMA_K = 16;       // of k a product
constexpr int STORE_BUFFERS = 2;  // a warpgroup, of 64 x 64 outputs each
constexpr int STORE_BYTES = 64 * ROW_BYTES;
constexpr int COLUMNS_BYTES = SLICE * ROW_BYTES;  // 64 columns of a slice of a operand that is MN-major

struct Extents {
    int m, n, k;
    int batch = 1;
};

// Which way the rows of an operand run in memory.
constexpr int K_MAJOR = 0;
constexpr int MN_MAJOR = 1;

// The plan of a block: WARP_GROUPS x 64 rows by TILE_N columns of the product, STAGES slices in flight. CLUSTER blocks
// have tiles below each other; each fetches its part of b's slice for all of them. ACROSS: so many, one or two, have tiles beside
// each other, and do so with a's. BATCHED: maps have an item.
template <int WARP_GROUPS_, int TILE_N_, int STAGES_, int CLUSTER_, int A_ORDER_, int B_ORDER_, bool BATCHED_ = false,
          int ACROSS_ = 1>
struct Config {
    static constexpr int WARP_GROUPS = WARP_GROUPS_;
    static constexpr int TILE_M = 64 * WARP_GROUPS;
    static constexpr int TILE_N = TILE_N_;
    static constexpr int STAGES = STAGES_;
    static constexpr int CLUSTER = CLUSTER_;
    static constexpr int ACROSS = ACROSS_;
    static constexpr int BLOCKS = CLUSTER * ACROSS;
    static constexpr bool FEW_STAGES = STAGES <= 3 && BLOCKS > 1;
    static constexpr int SHARERS = CLUSTER + ACROSS - 1;  // blocks that copy into this one's stages, itself among them
    static constexpr int A_ORDER = A_ORDER_;
    static constexpr int B_ORDER = B_ORDER_;
    static constexpr bool BATCHED = BATCHED_;
    static constexpr int CONSUMER_THREADS = WARPGROUP_THREADS * WARP_GROUPS;
    static constexpr int THREADS = WARPGROUP_THREADS + CONSUMER_THREADS;
    static constexpr int A_BYTES = TILE_M * ROW_BYTES;
    static constexpr int B_BYTES = TILE_N * ROW_BYTES;
    static constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
    static constexpr int PIPELINE_BYTES = STAGES * STAGE_BYTES;
};

// The pipeline of stages as one role sees it. Its mbarriers stand BEHIND bytes behind the stages.
template <class C>
struct Pipeline : PipelineState<C::STAGES> {
    unsigned stages;
    unsigned full;   // mbarriers, 8 bytes a stage: the copies of a slice are in
    unsigned empty;  // the multiplying warps of the whole cluster are done with it
    using PipelineState<C::STAGES>::stage;

    __device__ __forceinline__ Pipeline(unsigned shared, int behind)
        : stages(shared), full(shared + C::PIPELINE_BYTES + behind), empty(full + C::STAGES * 8) {}
    __device__ __forceinline__ unsigned a() const { return stages + stage * C::STAGE_BYTES; }
    __device__ __forceinline__ unsigned b() const { return a() + C::A_BYTES; }
    __device__ __forceinline__ unsigned is_full() const { return full + stage * 8; }
    __device__ __forceinline__ unsigned is_empty() const { return empty + stage * 8; }
};

// PRODUCERS arrive when a stage is full.
template <class C, int PRODUCERS = 1>
__device__ __forceinline__ void pipeline_init(const Pipeline<C>& pipeline) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(pipeline.full + stage * 8, PRODUCERS);
            mbarrier_init(pipeline.empty + stage * 8, C::WARP_GROUPS * WARPGROUP_WARPS * C::SHARERS);
        }
        mbarrier_init_fence();
    }
}

// The same for a pipeline that a cluster shares: every block may use it then.
template <class C>
__device__ __forceinline__ void pipeline_ready(const Pipeline<C>& pipeline) {
    pipeline_init(pipeline);
    if (C::BLOCKS == 1) {
        __syncthreads();
    } else {
        cluster_sync();
    }
}

// Copies EXTENT rows or columns of a operand, from `at` on, and 64 of k, from `k` on. SHARING blocks that need the same, those
// of the `mask`, copy a part each, for all of them: this one the `rank`-th.
template <int ORDER, int EXTENT, int SHARING, bool BATCHED>
__device__ __forceinline__ void fetch(unsigned to, const TensorMap& map, int at, int k, int item, unsigned barrier,
                                      unsigned rank, unsigned short mask = 1) {
    constexpr int BOXES = ORDER == K_MAJOR ? 1 : EXTENT / COLUMNS;
    constexpr int BOX_ROWS = (ORDER == K_MAJOR ? EXTENT : SLICE) / SHARING;
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
        const unsigned there = to + box * COLUMNS_BYTES + rank * BOX_ROWS * ROW_BYTES;
        const int x = ORDER == K_MAJOR ? k : at + box * COLUMNS;
        const int y = (ORDER == K_MAJOR ? at : k) + rank * BOX_ROWS;
        if (SHARING > 1 && BATCHED) {
            tma_load_multicast(there, map, x, y, item, barrier, mask);
        } else if (SHARING > 1) {
            tma_load_multicast(there, map, x, y, barrier, mask);
        } else if (BATCHED) {
            tma_load(there, map, x, y, item, barrier);
        } else {
            tma_load(there, map, x, y, barrier);
        }
    }
}

// One thread: copies slices [first, last) of a tile into the pipeline as stages come free.
template <class C>
__device__ __forceinline__ void produce_tile(Pipeline<C>& pipeline, const TensorMap& a, const TensorMap& b, TileOrigin tile,
                                           int item, int first, int last, unsigned rank) {
    const unsigned down = C::ACROSS == 1 ? rank : rank % C::CLUSTER;
    const unsigned across = C::ACROSS == 1 ? 0 : rank / C::CLUSTER;
    constexpr unsigned BESIDE = C::ACROSS == 1 ? 1 : 1 | 1 << C::CLUSTER;  // blocks with the same rows
    constexpr unsigned BELOW = (1 << C::CLUSTER) - 1;                     // with the same columns
    for (int slice = first; slice < last; ++slice) {
        mbarrier_wait(pipeline.is_empty(), pipeline.parity ^ 1);
        mbarrier_expect_tx(pipeline.is_full(), C::STAGE_BYTES);
        fetch<C::A_ORDER, C::TILE_M, C::ACROSS, C::BATCHED>(pipeline.a(), a, tile.row, slice * SLICE, item, pipeline.is_full(),
                                                            across, BESIDE << down);
        fetch<C::B_ORDER, C::TILE_N, C::CLUSTER, C::BATCHED>(pipeline.b(), b, tile.col, slice * SLICE, item, pipeline.is_full(),
                                                             down, BELOW << across * C::CLUSTER);
        pipeline.next();
    }
}

// A warp gives a stage back, to every block that copies into it.
template <class C>
__device__ __forceinline__ void release(unsigned is_empty) {
    const unsigned lane = threadIdx.x % 32;
    if (C::BLOCKS == 1) {
        if (lane == 0) mbarrier_arrive(is_empty);
    } else if (C::ACROSS == 1) {
        if (lane < C::CLUSTER) mbarrier_arrive_remote(is_empty, lane);
    } else if (lane < C::SHARERS) {
        const unsigned rank = cluster_rank();  // to those below each other, then to the one beside this
        const unsigned below = rank / C::CLUSTER * C::CLUSTER + lane;
        mbarrier_arrive_remote(is_empty, lane < C::CLUSTER ? below : rank ^ C::CLUSTER);
    }
}

// What leads a descriptor to the next 16 of k.
__device__ __forceinline__ constexpr int descriptor_step(int order) {
    return (order == K_MAJOR ? WGMMA_K * 2 : WGMMA_K * ROW_BYTES) >> 4;
}

// One warpgroup: its 64 rows of the product of `slices` slices. Those of one are in flight while the next is waited for.
template <class C>
__device__ __forceinline__ void consume_tile(Pipeline<C>& pipeline, float (&sums)[C::TILE_N / 2], int group, int slices) {
    unsigned previous = 0;  // the stage whose products are in flight, by its mbarrier
    for (int slice = 0; slice < slices; ++slice) {
        if (C::FEW_STAGES && previous != 0 && !mbarrier_test_wait(pipeline.is_full(), pipeline.parity)) {
            wgmma_wait<0>();  // the copies are late: one more is on its way once that stage is given back
            release<C>(previous);
            previous = 0;
        }
        mbarrier_wait(pipeline.is_full(), pipeline.parity);
        const unsigned long long a = descriptor(pipeline.a() + group * 64 * ROW_BYTES, COLUMNS_BYTES);
        const unsigned long long b = descriptor(pipeline.b(), COLUMNS_BYTES);
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < SLICE / WGMMA_K; ++part) {
            Wgmma<C::TILE_N, C::B_ORDER, C::A_ORDER>::add(sums, a + part * descriptor_step(C::A_ORDER),
                                                            b + part * descriptor_step(C::B_ORDER),
                                                            slice > 0 || part > 0);
        }
        wgmma_commit();
        if (C::FEW_STAGES ? previous != 0 : slice > 0) {
            wgmma_wait<1>();
            release<C>(previous);
        }
        previous = pipeline.is_empty();
        pipeline.next();
    }
    wgmma_wait<0>();
    release<C>(previous);
}

// Stores a warpgroup's 64 rows through shared memory, 64 columns a time: where the rows of c start on 16 bytes (`whole`)
// by copies, and while one buffer is being copied out, the next is filled; else by elements, to `c`, the item's.
template <class C, class Epilogue>
__device__ __forceinline__ void store_tile(const TensorMap& c_map, scalar_t* __restrict__ c, bool whole, unsigned buffers,
                                           const Extents& extents, TileOrigin tile, int item, int group,
                                           float (&sums)[C::TILE_N / 2], const Epilogue& epilogue,
                                           typename Epilogue::template Tile<C::TILE_N>& outputs) {
    const bool first = threadIdx.x % WARPGROUP_THREADS == 0;
#pragma unroll
    for (int chunk = 0; chunk < C::TILE_N / COLUMNS; ++chunk) {
        const unsigned buffer = buffers + (group * STORE_BUFFERS + chunk % STORE_BUFFERS) * STORE_BYTES;
        const int col = tile.col + chunk * COLUMNS;
        float* part = &sums[chunk * 32];
        outputs.finish(epilogue, chunk, part);
        if (first) {
            // An odd number of chunks: the last one of the tile before has the buffer of this tile's first.
            if (chunk == 0 && C::TILE_N / COLUMNS % STORE_BUFFERS != 0) {
                tma_store_wait_read<0>();
            } else {
                tma_store_wait_read<STORE_BUFFERS - 1>();
            }
        }
        named_barrier_sync(1 + group, WARPGROUP_THREADS);
        stage_outputs(buffer, part);
        fence_proxy_async();
        named_barrier_sync(1 + group, WARPGROUP_THREADS);
        if (!whole) {
            store_staged<64>(c, extents.m, extents.n, TileOrigin{tile.row, col}, buffer);
        } else if (first) {
            if (col < extents.n && tile.row < extents.m) {
                if (C::BATCHED) {
                    tma_store(c_map, col, tile.row, item, buffer);
                } else {
                    tma_store(c_map, col, tile.row, buffer);
                }
            }
            tma_store_commit();
        }
    }
}

// The tile of block `rank` of the cluster that is the `row`-th from above and the `col`-th from the left.
template <class C>
__device__ __forceinline__ TileOrigin tile_in_cluster(int row, int col, unsigned rank) {
    if (C::ACROSS == 1) return {(row * C::CLUSTER + (int)rank) * C::TILE_M, col * C::TILE_N};
    return {(row * C::CLUSTER + (int)rank % C::CLUSTER) * C::TILE_M,
            (col * C::ACROSS + (int)rank / C::CLUSTER) * C::TILE_N};
}

// The same of cluster `index` of an item.
template <class C>
__device__ __forceinline__ TileOrigin tile_at(int index, int clusters_m, int tiles_n, unsigned rank) {
    const TileOrigin tile = tile_of(index, clusters_m, tiles_n);
    return tile_in_cluster<C>(tile.row, tile.col, rank);
}

// The clusters' tiles of every item, by the rows and columns of the product, and which of them a block that stays takes.
// SWAP_AB: those are columns and rows of c. Where its rows are few, a column of its tiles is taken after the other: what
// runs at the same time then shares columns of b, of which there is more to read (384x4096x4096 21.5 us, by bands 32.5).
template <class C, bool SWAP_AB = false>
struct TileScheduler {
    int clusters_m;
    int tiles_n;
    int of_item;
    int tiles;
    int first, step;

    __device__ __forceinline__ TileScheduler(int rows, int cols, int items)
        : clusters_m(::tiles(::tiles(rows, C::TILE_M), C::CLUSTER)),
          tiles_n(::tiles(::tiles(cols, C::TILE_N), C::ACROSS)),
          of_item(clusters_m * tiles_n),
          tiles(of_item * items),
          first(blockIdx.x / C::BLOCKS),
          step(gridDim.x / C::BLOCKS) {}
    __device__ __forceinline__ int item(int index) const { return C::BATCHED ? index / of_item : 0; }
    __device__ __forceinline__ TileOrigin tile(int index, unsigned rank) const {
        const int within = index - item(index) * of_item;
        if (SWAP_AB && tiles_n <= BAND_TILES && tiles_n < clusters_m) {
            const int cluster = within / tiles_n;
            return tile_in_cluster<C>(cluster, within - cluster * tiles_n, rank);
        }
        return tile_at<C>(within, clusters_m, tiles_n, rank);
    }
};

// Blocks that stay and take tile after tile: the copies of the next one run during the stores of this one.
template <class C, class Epilogue>
__device__ __forceinline__ void persistent(const TensorMap& a, const TensorMap& b, const TensorMap& c_map,
                                           scalar_t* __restrict__ c, const Extents& extents, const Epilogue& epilogue) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Pipeline<C> pipeline(shared_address(shared), C::WARP_GROUPS * STORE_BUFFERS * STORE_BYTES);
    const int group = threadIdx.x / WARPGROUP_THREADS;
    const unsigned rank = C::BLOCKS == 1 ? 0 : cluster_rank();
    pipeline_ready(pipeline);
    const TileScheduler<C> scheduler(extents.m, extents.n, extents.batch);
    const int slices = tiles(extents.k, SLICE);

    if (group == C::WARP_GROUPS) {
        if (C::WARP_GROUPS == 2) setmaxnreg_dec<40>();
        if (threadIdx.x == C::CONSUMER_THREADS) {
            for (int index = scheduler.first; index < scheduler.tiles; index += scheduler.step) {
                produce_tile(pipeline, a, b, scheduler.tile(index, rank), scheduler.item(index), 0, slices, rank);
            }
        }
    } else {
        if (C::WARP_GROUPS == 2) setmaxnreg_inc<232>();
        const unsigned buffers = pipeline.stages + C::PIPELINE_BYTES;
        const bool whole = extents.n % 8 == 0;  // the rows of c start on 16 bytes
        for (int index = scheduler.first; index < scheduler.tiles; index += scheduler.step) {
            const int item = scheduler.item(index);
            TileOrigin tile = scheduler.tile(index, rank);
            tile.row += group * 64;
            float sums[C::TILE_N / 2];
            const TileOrigin first = first_output(tile);
            typename Epilogue::template Tile<C::TILE_N> outputs(epilogue, first.row, first.col, whole);
            consume_tile(pipeline, sums, group, slices);
            scalar_t* of_item = c + (long long)item * extents.m * extents.n;
            store_tile<C>(c_map, of_item, whole, buffers, extents, tile, item, group, sums, epilogue, outputs);
        }
        // Shared memory must stay until it is read.
        if (threadIdx.x % WARPGROUP_THREADS == 0) tma_store_wait_read<0>();
    }
    // A block must not leave while another one's copies or arrivals may still come.
    if (C::BLOCKS > 1) cluster_sync();
}

// --- parts of k: the sums of every multiplying thread, four side by side ---

template <class C>
constexpr int FOURS = C::TILE_M * C::TILE_N / 4;  // of a tile

__device__ __forceinline__ float4 sum_of(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ float4 four_of(const float* sums, int i) {
    return make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

template <class C>
__device__ __forceinline__ void store_partials(float4* __restrict__ to, const float (&sums)[C::TILE_N / 2]) {
#pragma unroll
    for (int i = 0; i < C::TILE_N / 8; ++i) {
        to[i * C::CONSUMER_THREADS + threadIdx.x] = four_of(sums, i);
    }
}

// Four sums at (row, col), (row, col + 1), (row + 8, col), (row + 8, col + 1) of a tile.
struct Four {
    int row, col;
    float sums[4];
};

// Those that store_partials puts at `at`.
template <class C>
__device__ __forceinline__ Four four_at(int at, float4 sums) {
    const int thread = at % C::CONSUMER_THREADS;
    return {thread / 32 * 16 + thread % 32 / 4, at / C::CONSUMER_THREADS * 8 + thread % 4 * 2,
            {sums.x, sums.y, sums.z, sums.w}};
}

// A product's operands by TMA.
struct Maps {
    const TensorMap& a;
    const TensorMap& b;
    static constexpr int PRODUCERS = 1;  // arrivals that fill a stage

    // By the producer warpgroup: slices [first, last) of a tile of an item.
    template <class C>
    __device__ __forceinline__ void produce(Pipeline<C>& pipeline, TileOrigin tile, int item, int first, int last) const {
        if (threadIdx.x == C::CONSUMER_THREADS) produce_tile(pipeline, a, b, tile, item, first, last, 0);
    }
};

// Slices [first, last) of one tile, by a block that takes no other. Whether this thread multiplied and has `sums`.
template <class C, class Operands>
__device__ __forceinline__ bool consume_one_tile(const Operands& operands, TileOrigin tile, int item, int first,
                                                 int last, float (&sums)[C::TILE_N / 2]) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Pipeline<C> pipeline(shared_address(shared), 0);
    const int group = threadIdx.x / WARPGROUP_THREADS;
    pipeline_init<C, Operands::PRODUCERS>(pipeline);
    __syncthreads();
    if (group == C::WARP_GROUPS) {
        operands.template produce<C>(pipeline, tile, item, first, last);
        return false;
    }
    if (first < last) consume_tile(pipeline, sums, group, last - first);
    return true;
}

// Few rows of a: A and B swapped, split-K within a cluster. The product is that of b and a transposed, 64 columns of c by
// TILE_N of its rows, so that no more rows are multiplied than there are. One tile a cluster, each of whose blocks takes a part
// of k; the partial sums are reduced through shared memory, where the stages were, and each block stores a part of the outputs.
// Always added in the same order: the same bits each time. C::A_ORDER is that of b, and the operands are b and a.
template <class C, class Operands, class Epilogue>
__device__ __forceinline__ void swap_ab_split_k(const Operands& operands, scalar_t* __restrict__ c, const Extents& extents,
                                       const Epilogue& epilogue) {
    extern __shared__ __align__(1024) unsigned char shared[];
    static_assert(C::PIPELINE_BYTES >= C::TILE_M * C::TILE_N * 4, "the sums fit into the stages");
    const int split = int(cluster_size());
    const int tiles_m = tiles(extents.n, C::TILE_M);
    const int tiles_n = tiles(extents.m, C::TILE_N);
    const int cluster = blockIdx.x / split;
    const int item = C::BATCHED ? cluster / (tiles_m * tiles_n) : 0;
    const TileOrigin tile = tile_at<C>(cluster - item * tiles_m * tiles_n, tiles_m, tiles_n, 0);
    if (C::BATCHED) c += (long long)item * extents.m * extents.n;
    auto store = [&](int at, float4 total) {
        const Four four = four_at<C>(at, total);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = tile.col + four.col + e % 2;
            const int col = tile.row + four.row + e / 2 * 8;
            if (row < extents.m && col < extents.n) {
                c[(long long)row * extents.n + col] = from_float<scalar_t>(epilogue.of_one(four.sums[e], row, col));
            }
        }
    };
    const int slices = tiles(extents.k, SLICE);
    const int share = tiles(slices, split);
    const int rank = cluster_rank();
    const int first = min(slices, rank * share);
    float sums[C::TILE_N / 2] = {};
    const bool multiplied = consume_one_tile<C>(operands, tile, item, first, min(slices, first + share), sums);
    if (split == 1) {
        if (!multiplied) return;
#pragma unroll
        for (int i = 0; i < C::TILE_N / 8; ++i) store(i * C::CONSUMER_THREADS + threadIdx.x, four_of(sums, i));
        return;
    }
    if (multiplied) {
        named_barrier_sync(1, C::CONSUMER_THREADS);  // all are done with the stages
        store_partials<C>(reinterpret_cast<float4*>(shared), sums);
    }
    cluster_sync();
    const int fours = tiles(FOURS<C>, split);
    const int last = min(FOURS<C>, (rank + 1) * fours);
    for (int at = rank * fours + threadIdx.x; at < last; at += C::THREADS) {
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 2
        for (int block = 0; block < split; ++block) {
            total = sum_of(total, load_remote(shared_address(shared) + at * 16, block));
        }
        store(at, total);
    }
    cluster_sync();  // the other blocks may still read this one's shared memory
}

// Split-K for few tiles and a long k: block i takes part i / tiles of tile i % tiles; its sums go to the workspace, part after part.
template <class C>
__device__ __forceinline__ void split_k_partials(const TensorMap& a, const TensorMap& b, float4* __restrict__ workspace,
                                             const Extents& extents, int parts) {
    const int tiles_m = tiles(extents.m, C::TILE_M);
    const int tiles_n = tiles(extents.n, C::TILE_N);
    const int part = blockIdx.x / (tiles_m * tiles_n);
    const TileOrigin tile = tile_at<C>(blockIdx.x % (tiles_m * tiles_n), tiles_m, tiles_n, 0);
    const int slices = tiles(extents.k, SLICE);
    const int share = tiles(slices, parts);
    const int first = min(slices, part * share);
    float sums[C::TILE_N / 2] = {};
    if (consume_one_tile<C>(Maps{a, b}, tile, 0, first, min(slices, first + share), sums)) {
        store_partials<C>(workspace + (long long)blockIdx.x * FOURS<C>, sums);
    }
}

// The outputs of those parts, always added in the same order. Few parts: a warp of a block adds those of 32 fours of its own. More:
// a block has 32 fours, its eight warps add up every eighth part, then the first one those eight sums.
constexpr int ADDING_WARPS = 8;
constexpr int FEW_PARTS = 16;
template <class C, class Epilogue>
__device__ __forceinline__ void split_k_reduce(const float4* __restrict__ workspace, scalar_t* __restrict__ c,
                                          const Extents& extents, int parts, const Epilogue& epilogue) {
    __shared__ float4 totals[ADDING_WARPS][32];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int tiles_m = tiles(extents.m, C::TILE_M);
    const int tiles_n = tiles(extents.n, C::TILE_N);
    const bool few = parts <= FEW_PARTS;
    const long long at = ((long long)blockIdx.x * (few ? ADDING_WARPS : 1) + (few ? warp : 0)) * 32 + lane;
    const int step = few ? 1 : ADDING_WARPS;
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int part = few ? 0 : warp; part < parts; part += step) {
        total = sum_of(total, workspace[(long long)part * tiles_m * tiles_n * FOURS<C> + at]);
    }
    if (!few) {
        totals[warp][lane] = total;
        __syncthreads();
        if (warp > 0) return;
#pragma unroll
        for (int other = 1; other < ADDING_WARPS; ++other) total = sum_of(total, totals[other][lane]);
    }
    const TileOrigin tile = tile_at<C>(at / FOURS<C>, tiles_m, tiles_n, 0);
    const Four four = four_at<C>(at % FOURS<C>, total);
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
        const int row = tile.row + four.row + lower * 8;
        const int col = tile.col + four.col;
        const float pair[2] = {epilogue.of_one(four.sums[2 * lower], row, col),
                               epilogue.of_one(four.sums[2 * lower + 1], row, col + 1)};
        store_run<2>(c, extents.m, extents.n, row, col, pair, extents.n % 2 == 0);
    }
}

}  // namespace hopper
