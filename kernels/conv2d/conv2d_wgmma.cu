// conv2d in f16 and bf16 for compute capability 9.0a: an implicit GEMM of the filters with what lies under them, sums in f32.
//
// Letters: a place is one of the batch * down * across outputs of a filter; k counts channels under taps. A group is CHANNELS
// channels under one tap, a slice is 64 of k. The last warp (or warpgroup) of a block is the producer: it copies slices into the
// pipeline, rows of the filters by a tiled tensor map, and what lies under a tap for consecutive places by an im2col one, which
// skips by the stride and fills with zeros beside the image. The warpgroups before it are consumers: rows of the result are
// filters, columns places.
//
// Both maps want channels inside and a multiple of 8 of them from place to place. Images and filters that are not so are copied to
// the workspace first (conv2d_pack). With few channels the copy makes one run of all columns of a filter (2 x 4 or 3 x 4 channels
// in place of 2 or 3 taps): the im2col map then has taps below each other only, and its columns are places. One tap without stride
// and border needs no im2col, and with channels outside no copy either (_direct).
//
// Every entry takes y, maps of the filters (channels, taps, filters; boxes of CHANNELS x 1 x filters of a tile), of the images and
// of y (filters, places; boxes of 64 x 64 in the 128-byte swizzle; used where channels are inside and filters a multiple of 8).
// The map of the images: im2col, CHANNELS under as many places as a tile has; with `plain` a matrix of channels by places; direct
// a tensor of places, channels, images in boxes of 64 x 64 x 1.
#include "conv2d_pack.cuh"
#include "gemm.cuh"

#if !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "wgmma_epilogue.cuh"

using namespace hopper;

namespace {

constexpr int SLICE = 64;    // of k
constexpr int WGMMA_K = 16;  // of k a product
constexpr int BOX = 64;      // rows and columns of the outputs that are stored at once
constexpr int BOX_BYTES = BOX * ROW_BYTES;

struct Extents {
    int places, filters, plane, across, channels, tall, wide;
    int stride_down, stride_across, border_above, border_left;  // of the loop
    int dilation, inside, plain;
};

// A block's part of the outputs: its first filter and place.
struct Origin {
    int filter;
    int place;
};

enum Images { INSIDE, DIRECT };  // channels inside, or places

// The plan of a block: WARP_GROUPS x 64 filters at PLACES places, STAGES slices in flight, BLOCKS of them a
// multiprocessor.
template <int WARP_GROUPS_, int PLACES_, int CHANNELS_, int STAGES_, int BLOCKS_, Images IMAGES_ = INSIDE>
struct Config {
    static constexpr int WARP_GROUPS = WARP_GROUPS_;
    static constexpr int FILTERS = 64 * WARP_GROUPS;
    static constexpr int PLACES = PLACES_;
    static constexpr int CHANNELS = CHANNELS_;
    static constexpr int STAGES = STAGES_;
    static constexpr int BLOCKS = BLOCKS_;
    static constexpr bool IS_DIRECT = IMAGES_ == DIRECT;
    static constexpr int CHUNKS = PLACES / BOX;
    // Whether registers go from the threads that copy, then a warpgroup, to those that multiply.
    static constexpr bool USES_SETMAXNREG = WARP_GROUPS == 2 && BLOCKS == 1;
    static constexpr int THREADS = WARPGROUP_THREADS * WARP_GROUPS + (USES_SETMAXNREG ? WARPGROUP_THREADS : 32);
    static constexpr int GROUPS = SLICE / CHANNELS;
    static constexpr int RUN_BYTES = CHANNELS * 2;  // a row of a group
    static constexpr int W_BYTES = FILTERS * SLICE * 2;
    static constexpr int X_BYTES = PLACES * SLICE * 2;
    static constexpr int STAGE_BYTES = W_BYTES + X_BYTES;
    static constexpr int STORE_BUFFERS = BLOCKS == 1 ? 2 : 1;  // a warpgroup
};

// Starts the copy of what lies under a tap for consecutive places from row `i` and column `j` of image `image` on;
// `right` and `below` lead to the tap.
__device__ __forceinline__ void load_places(unsigned to, const TensorMap& map, int channel, int j, int i, int image,
                                            int right, int below, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(&map), "r"(channel), "r"(j), "r"(i), "r"(image), "r"(barrier), "h"((unsigned short)right),
        "h"((unsigned short)below)
        : "memory");
}

// Where rows of CHANNELS lie for a product; `rows` of them are a group.
template <int CHANNELS>
__device__ __forceinline__ unsigned long long group_descriptor(unsigned address, int rows) {
    constexpr unsigned long long SWIZZLE = CHANNELS == 64 ? 1 : CHANNELS == 32 ? 2 : CHANNELS == 16 ? 3 : 0;
    return (unsigned long long)(address >> 4 & 0x3FFF) | (unsigned long long)rows << 16 |
           (unsigned long long)CHANNELS << 32 | SWIZZLE << 62;
}

// From there to the `part`-th 16 of k of a slice, in the units of a descriptor.
template <int CHANNELS>
__device__ __forceinline__ constexpr int part_offset(int part, int rows) {
    return (part * WGMMA_K / CHANNELS * rows * CHANNELS + part * WGMMA_K % CHANNELS) * 2 >> 4;
}

// The pipeline of stages as one role sees it.
template <class C>
struct Pipeline : PipelineState<C::STAGES> {
    unsigned stages;
    unsigned full;   // mbarriers, 8 bytes a stage: the copies of a slice are in
    unsigned empty;  // the multiplying warps are done with it
    using PipelineState<C::STAGES>::stage;

    __device__ __forceinline__ Pipeline(unsigned shared)
        : stages(shared),
          full(shared + C::STAGES * C::STAGE_BYTES + C::WARP_GROUPS * C::STORE_BUFFERS * BOX_BYTES),
          empty(full + C::STAGES * 8) {}
    __device__ __forceinline__ unsigned w() const { return stages + stage * C::STAGE_BYTES; }
    __device__ __forceinline__ unsigned x() const { return w() + C::W_BYTES; }
    __device__ __forceinline__ unsigned is_full() const { return full + stage * 8; }
    __device__ __forceinline__ unsigned is_empty() const { return empty + stage * 8; }
};

// Loops over the groups of k: channels, then columns, then rows of the filters.
struct Taps {
    int channel, a, b;

    __device__ __forceinline__ Taps(int group, int channels, const Extents& e) {
        const int of_tap = tiles(e.channels, channels);
        const int tap = group / of_tap;
        channel = (group - tap * of_tap) * channels;
        a = tap / e.wide;
        b = tap - a * e.wide;
    }
    __device__ __forceinline__ void next(int channels, const Extents& e) {
        channel += channels;
        if (channel < e.channels) return;
        if (a == e.tall - 1 && b == e.wide - 1) return;  // past the last group: outside both tensors, so zeros
        channel = 0;
        if (++b == e.wide) {
            b = 0;
            ++a;
        }
    }
};

// One thread: copies slices [first, last) of a tile into the pipeline as stages come free.
template <class C>
__device__ __forceinline__ void produce_tile(Pipeline<C>& pipeline, const TensorMap& w, const TensorMap& x, const Extents& e,
                                           Origin tile, int first, int last) {
    const int image = tile.place / e.plane;
    const int rest = tile.place - image * e.plane;
    const int p = rest / e.across;
    const int i = p * e.stride_down - e.border_above;
    const int j = (rest - p * e.across) * e.stride_across - e.border_left;
    Taps at(first * C::GROUPS, C::CHANNELS, e);
    for (int slice = first; slice < last; ++slice) {
        mbarrier_wait(pipeline.is_empty(), pipeline.parity ^ 1);
        mbarrier_expect_tx(pipeline.is_full(), C::STAGE_BYTES);
#pragma unroll
        for (int group = 0; group < C::GROUPS; ++group) {
            tma_load(pipeline.w() + group * C::FILTERS * C::RUN_BYTES, w, at.channel, at.a * e.wide + at.b, tile.filter,
                     pipeline.is_full());
            const unsigned to = pipeline.x() + group * C::PLACES * C::RUN_BYTES;
            if (e.plain) {
                tma_load(to, x, at.channel, tile.place, pipeline.is_full());
            } else {
                load_places(to, x, at.channel, j, i, image, at.b * e.dilation, at.a * e.dilation, pipeline.is_full());
            }
            at.next(C::CHANNELS, e);
        }
        pipeline.next();
    }
}

// The same where channels are outside: `tile.place` counts chunks of 64 places, each of one image.
template <class C>
__device__ __forceinline__ void fetch_direct(Pipeline<C>& pipeline, const TensorMap& w, const TensorMap& x, const Extents& e,
                                             Origin tile, int slices) {
    const int of_image = tiles(e.plane, BOX);
    for (int slice = 0; slice < slices; ++slice) {
        mbarrier_wait(pipeline.is_empty(), pipeline.parity ^ 1);
        mbarrier_expect_tx(pipeline.is_full(), C::STAGE_BYTES);
        tma_load(pipeline.w(), w, slice * SLICE, 0, tile.filter, pipeline.is_full());
        for (int chunk = 0; chunk < C::CHUNKS; ++chunk) {
            const int image = (tile.place + chunk) / of_image;
            const int within = tile.place + chunk - image * of_image;
            tma_load(pipeline.x() + chunk * BOX_BYTES, x, within * BOX, slice * SLICE, image, pipeline.is_full());
        }
        pipeline.next();
    }
}

__device__ __forceinline__ void release(unsigned is_empty) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(is_empty);
}

// One warpgroup: its 64 filters at the places of the tile. The products of a slice are in flight while the next slice
// is waited for; a stage is given back one slice later.
template <class C>
__device__ __forceinline__ void consume_tile(Pipeline<C>& pipeline, float (&sums)[C::PLACES / 2], int group, int slices) {
    unsigned previous = 0;
    for (int slice = 0; slice < slices; ++slice) {
        mbarrier_wait(pipeline.is_full(), pipeline.parity);
        const unsigned long long w = group_descriptor<C::CHANNELS>(pipeline.w() + group * 64 * C::RUN_BYTES, C::FILTERS);
        const unsigned long long x =
            C::IS_DIRECT ? descriptor(pipeline.x(), BOX_BYTES) : group_descriptor<C::CHANNELS>(pipeline.x(), C::PLACES);
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < SLICE / WGMMA_K; ++part) {
            const int further =
                C::IS_DIRECT ? part * (WGMMA_K * ROW_BYTES >> 4) : part_offset<C::CHANNELS>(part, C::PLACES);
            Wgmma<C::PLACES, C::IS_DIRECT>::add(sums, w + part_offset<C::CHANNELS>(part, C::FILTERS), x + further,
                                                  slice > 0 || part > 0);
        }
        wgmma_commit();
        if (slice > 0) {
            wgmma_wait<1>();
            release(previous);
        }
        previous = pipeline.is_empty();
        pipeline.next();
    }
    wgmma_wait<0>();
    release(previous);
}

// Puts the sums of 64 places into a swizzled tile whose rows are places: as stage_outputs, each matrix transposed.
__device__ __forceinline__ void stage_transposed(unsigned tile, const float* sums) {
    const int lane = threadIdx.x % 32;
    const unsigned unit = threadIdx.x % WARPGROUP_THREADS / 32 * 2 + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float* part = &sums[j * 8];
        const int row = j * 16 + lane / 16 * 8 + lane % 8;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         tile + row * ROW_BYTES + (unit ^ row % 8) * 16),
                     "r"(pair(part[0], part[1])), "r"(pair(part[2], part[3])), "r"(pair(part[4], part[5])),
                     "r"(pair(part[6], part[7]))
                     : "memory");
    }
}

// Stores a warp's 16 rows of a staged tile, RUN neighbouring elements a lane: rows are filters and columns places where
// channels are outside, else the other way round.
template <int RUN>
__device__ __forceinline__ void store_rows(const unsigned char* tile, scalar_t* __restrict__ y, const Extents& e,
                                           int first_row, int first_col, int end_col) {
    constexpr int LANES = RUN == 1 ? 32 : BOX / RUN;
    constexpr int ROWS = 32 / LANES;  // at once
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x % WARPGROUP_THREADS / 32;
    const int rows = e.inside ? e.places : e.filters;
    const int pitch = e.inside ? e.filters : e.plane;
#pragma unroll
    for (int round = 0; round < BOX / (LANES * RUN); ++round) {
        const int within = (round * LANES + lane % LANES) * RUN;
        const int col = first_col + within;
        if (col >= end_col) continue;
        const int image = e.inside ? 0 : col / e.plane;
        scalar_t* column = y + ((long long)image * e.filters - image) * e.plane + col;
#pragma unroll
        for (int step = 0; step < 16 / ROWS; ++step) {
            const int row = warp * 16 + step * ROWS + lane / LANES;
            const unsigned char* from = tile + row * ROW_BYTES + (within / 8 ^ row % 8) * 16 + within % 8 * 2;
            if (first_row + row < rows) {
                *reinterpret_cast<Run<RUN>*>(column + (long long)(first_row + row) * pitch) =
                    *reinterpret_cast<const Run<RUN>*>(from);
            }
        }
    }
}

// Stores a warpgroup's 64 filters at 64 places, which end before `end`.
__device__ __forceinline__ void store_chunk(const TensorMap& y_map, scalar_t* __restrict__ y, unsigned char* buffer,
                                            const Extents& e, int filter, int place, int end, int group,
                                            const float* sums) {
    const bool first = threadIdx.x % WARPGROUP_THREADS == 0;
    const bool by_map = e.inside && e.filters % 8 == 0;
    named_barrier_sync(1 + group, WARPGROUP_THREADS);
    if (e.inside) {
        stage_transposed(shared_address(buffer), sums);
    } else {
        stage_outputs(shared_address(buffer), sums);
    }
    if (by_map) fence_proxy_async();
    named_barrier_sync(1 + group, WARPGROUP_THREADS);
    if (by_map) {
        if (first && filter < e.filters && place < end) tma_store(y_map, filter, place, shared_address(buffer));
        if (first) tma_store_commit();
        return;
    }
    const int row = e.inside ? place : filter;
    const int col = e.inside ? filter : place;
    const int end_col = e.inside ? e.filters : end;
    const int contiguous = e.inside ? e.filters : e.plane;
    if (contiguous % 8 == 0) {
        store_rows<8>(buffer, y, e, row, col, end_col);
    } else if (contiguous % 2 == 0) {
        store_rows<2>(buffer, y, e, row, col, end_col);
    } else {
        store_rows<1>(buffer, y, e, row, col, end_col);
    }
}

// Stores a warpgroup's 64 filters, 64 places a time: while one buffer is being copied out, the next is filled. `stored`
// counts what was stored before.
template <class C>
__device__ __forceinline__ void store_tile(const TensorMap& y_map, scalar_t* __restrict__ y, unsigned char* buffers,
                                           const Extents& e, Origin tile, int group, int& stored,
                                           const float (&sums)[C::PLACES / 2]) {
#pragma unroll
    for (int chunk = 0; chunk < C::CHUNKS; ++chunk) {
        unsigned char* buffer = buffers + (group * C::STORE_BUFFERS + stored++ % C::STORE_BUFFERS) * BOX_BYTES;
        int place = tile.place + chunk * BOX;
        int end = e.places;
        if (C::IS_DIRECT) {
            const int of_image = tiles(e.plane, BOX);
            const int image = (tile.place + chunk) / of_image;
            place = image * e.plane + (tile.place + chunk - image * of_image) * BOX;
            end = min(end, (image + 1) * e.plane);
        }
        if (threadIdx.x % WARPGROUP_THREADS == 0) tma_store_wait_read<C::STORE_BUFFERS - 1>();
        store_chunk(y_map, y, buffer, e, tile.filter, place, end, group, &sums[chunk * 32]);
    }
}

// Tile number `index`: those of one run of places follow each other, so that the images come from memory once.
template <class C>
__device__ __forceinline__ Origin origin(int index, int filter_tiles) {
    const int of_places = index / filter_tiles;
    return {(index - of_places * filter_tiles) * C::FILTERS, of_places * (C::IS_DIRECT ? C::CHUNKS : C::PLACES)};
}

template <class C>
__device__ __forceinline__ void prepare(const Pipeline<C>& pipeline, const TensorMap& w, const TensorMap& x) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < C::STAGES; ++stage) {
            mbarrier_init(pipeline.full + stage * 8, 1);
            mbarrier_init(pipeline.empty + stage * 8, C::WARP_GROUPS * WARPGROUP_WARPS);
        }
        mbarrier_init_fence();
    }
    if (threadIdx.x == C::WARP_GROUPS * WARPGROUP_THREADS) {
        prefetch_tensormap(w);
        prefetch_tensormap(x);
    }
    __syncthreads();
}

template <class C>
__device__ __forceinline__ int slices_of(const Extents& e) {
    return tiles(tiles(e.channels, C::CHANNELS) * e.tall * e.wide, C::GROUPS);
}

// Blocks stay and take tile after tile: the copies of the next one run during the stores of this one.
template <class C>
__device__ __forceinline__ void persistent(const TensorMap& w, const TensorMap& x, const TensorMap& y_map,
                                           scalar_t* __restrict__ y, const Extents& e) {
    extern __shared__ __align__(1024) unsigned char shared[];
    Pipeline<C> pipeline(shared_address(shared));
    const int group = threadIdx.x / WARPGROUP_THREADS;
    prepare(pipeline, w, x);

    const int filter_tiles = tiles(e.filters, C::FILTERS);
    const int chunks = e.places / e.plane * tiles(e.plane, BOX);
    const int all = filter_tiles * (C::IS_DIRECT ? tiles(chunks, C::CHUNKS) : tiles(e.places, C::PLACES));
    const int slices = slices_of<C>(e);
    if (group == C::WARP_GROUPS) {
        if (C::USES_SETMAXNREG) setmaxnreg_dec<40>();
        if (threadIdx.x == C::WARP_GROUPS * WARPGROUP_THREADS) {
            for (int index = blockIdx.x; index < all; index += gridDim.x) {
                const Origin tile = origin<C>(index, filter_tiles);
                if (C::IS_DIRECT) {
                    fetch_direct(pipeline, w, x, e, tile, slices);
                } else {
                    produce_tile(pipeline, w, x, e, tile, 0, slices);
                }
            }
        }
    } else {
        if (C::USES_SETMAXNREG) setmaxnreg_inc<232>();
        int stored = 0;
        for (int index = blockIdx.x; index < all; index += gridDim.x) {
            Origin tile = origin<C>(index, filter_tiles);
            tile.filter += group * 64;
            float sums[C::PLACES / 2];
            consume_tile(pipeline, sums, group, slices);
            store_tile<C>(y_map, y, shared + C::STAGES * C::STAGE_BYTES, e, tile, group, stored, sums);
        }
        // Shared memory must stay until it is read.
        if (threadIdx.x % WARPGROUP_THREADS == 0) tma_store_wait_read<0>();
    }
}

// One tile a cluster of SPLIT blocks, each of which takes a part of k; the partial sums are reduced through shared memory, the first
// blocks adding up and storing 64 places each. Always in the same order: the same bits each time.
template <class C, int SPLIT>
__device__ __forceinline__ void split(const TensorMap& w, const TensorMap& x, const TensorMap& y_map,
                                      scalar_t* __restrict__ y, const Extents& e) {
    extern __shared__ __align__(1024) unsigned char shared[];
    static_assert(C::STAGES * C::STAGE_BYTES >= C::FILTERS * C::PLACES * 4, "the sums fit into the stages");
    static_assert(SPLIT >= C::CHUNKS, "each chunk has a block that stores it");
    Pipeline<C> pipeline(shared_address(shared));
    const int group = threadIdx.x / WARPGROUP_THREADS;
    const int rank = cluster_rank();
    prepare(pipeline, w, x);

    Origin tile = origin<C>(blockIdx.x / SPLIT, tiles(e.filters, C::FILTERS));
    const int slices = slices_of<C>(e);
    const int share = tiles(slices, SPLIT);
    const int first = min(slices, rank * share);
    const int last = min(slices, first + share);
    constexpr int CONSUMER_THREADS = C::WARP_GROUPS * WARPGROUP_THREADS;
    if (group == C::WARP_GROUPS) {
        if (C::USES_SETMAXNREG) setmaxnreg_dec<40>();
        if (threadIdx.x == CONSUMER_THREADS) produce_tile(pipeline, w, x, e, tile, first, last);
    } else {
        if (C::USES_SETMAXNREG) setmaxnreg_inc<232>();
        float sums[C::PLACES / 2] = {};
        if (first < last) consume_tile(pipeline, sums, group, last - first);
        named_barrier_sync(1 + C::WARP_GROUPS, CONSUMER_THREADS);  // all warpgroups are done with the stages
#pragma unroll
        for (int i = 0; i < C::PLACES / 2; i += 4) {
            float4* to = reinterpret_cast<float4*>(shared) + i / 4 * CONSUMER_THREADS + threadIdx.x;
            *to = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
        }
    }
    cluster_sync();
    if (group < C::WARP_GROUPS && rank < C::CHUNKS) {
        float own[32] = {};
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            const unsigned from = pipeline.stages + ((rank * 32 + i) / 4 * CONSUMER_THREADS + threadIdx.x) * 16;
#pragma unroll
            for (int other = 0; other < SPLIT; ++other) {
                const float4 part = load_remote(from, other);
                own[i] += part.x;
                own[i + 1] += part.y;
                own[i + 2] += part.z;
                own[i + 3] += part.w;
            }
        }
        unsigned char* buffer = shared + C::STAGES * C::STAGE_BYTES + group * C::STORE_BUFFERS * BOX_BYTES;
        store_chunk(y_map, y, buffer, e, tile.filter + group * 64, tile.place + rank * BOX, e.places, group, own);
        if (threadIdx.x % WARPGROUP_THREADS == 0) tma_store_wait_read<0>();
    }
    cluster_sync();  // the other blocks may still read this one's shared memory
}

}  // namespace

#define CONV2D_ENTRY(NAME, TILE, ...)                                                                               \
    extern "C" __global__ void __launch_bounds__(TILE::THREADS, TILE::BLOCKS)                                       \
        NAME(scalar_t* __restrict__ y, const __grid_constant__ TensorMap w, const __grid_constant__ TensorMap x,    \
             const __grid_constant__ TensorMap y_map, int places, int filters, int plane, int across, int channels, \
             int tall, int wide, int stride_down, int stride_across, int border_above, int border_left,             \
             int dilation, int inside, int plain) {                                                                 \
        __VA_ARGS__(w, x, y_map, y,                                                                                 \
                    Extents{places, filters, plane, across, channels, tall, wide, stride_down, stride_across,       \
                            border_above, border_left, dilation, inside, plain});                                   \
    }

namespace {

using Large = Config<2, 192, 64, 4, 1>;
using Square = Config<2, 128, 64, 6, 1>;
using Broad = Config<1, 192, 64, 6, 1>;
using Deep = Config<1, 128, 64, 8, 1>;
using Small = Config<1, 64, 64, 4, 3>;
using Narrow = Config<1, 256, 32, 5, 1>;
using DirectSquare = Config<2, 128, 64, 6, 1, DIRECT>;
using DirectSmall = Config<1, 64, 64, 4, 3, DIRECT>;

}  // namespace

// The launch rule chooses among tiles by an estimate of the time (src/ops/conv2d/launch.rs).
// <filters>x<places>: grid = min(tiles, blocks that run at once), splits tiles * blocks of a cluster; block = 128
// threads a 64 filters, and 32 that copy (128 with 128 filters); dynamic shared memory = the stages + 8 KiB a store
// buffer.
CONV2D_ENTRY(conv2d_wgmma_128x192, Large, persistent<Large>)
CONV2D_ENTRY(conv2d_wgmma_128x128, Square, persistent<Square>)
CONV2D_ENTRY(conv2d_wgmma_64x192, Broad, persistent<Broad>)
CONV2D_ENTRY(conv2d_wgmma_64x128, Deep, persistent<Deep>)
CONV2D_ENTRY(conv2d_wgmma_64x64, Small, persistent<Small>)
// 32 channels a copy: fewer zeros where there are few.
CONV2D_ENTRY(conv2d_wgmma_64x256_narrow, Narrow, persistent<Narrow>)
// Few tiles and a long k.
CONV2D_ENTRY(conv2d_wgmma_64x128_split4, Deep, split<Deep, 4>)
CONV2D_ENTRY(conv2d_wgmma_64x128_split8, Deep, split<Deep, 8>)
// One tap, channels outside.
CONV2D_ENTRY(conv2d_wgmma_128x128_direct, DirectSquare, persistent<DirectSquare>)
CONV2D_ENTRY(conv2d_wgmma_64x64_direct, DirectSmall, persistent<DirectSmall>)

#endif  // !defined(KERNELGATE_F32) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
