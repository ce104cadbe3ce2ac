// Up to eight vectors against a matrix in f32, by clusters of four to eight blocks that split the columns of a few rows.
// A block requests all of its part of the matrix at once, by one copy; several blocks share a multiprocessor, so that one
// multiplies or adds up while others wait for memory, and the next block starts when one is done. The
// partials of eight rows are reduced in one block of the cluster.
//
// Tensor cores take numbers of 11 bits. A number is one of them, and another one for what is missing: all four products of
// such parts of w and x are added up. A has the vectors twice, above their first parts, below what is missing.
// Those of x are rounded, the others cut off by the product itself: no more than 2^-21 of it is left out.
#pragma once
#include "cluster.cuh"
#include "common.cuh"
#include "hopper.cuh"

namespace clusters {

constexpr int MOST_BLOCKS = 8;  // of a cluster
constexpr int VECTORS = 8;
constexpr int ROWS = 8;    // of a group, reduced in a block
constexpr int LINE = 32;   // columns of 128 bytes, that lie together
constexpr int CHUNK = 16;  // columns of two products: four neighbours a lane
constexpr int CHUNKS = LINE / CHUNK;

// Of a cluster with so many groups: lines of a warp at most, warps of a block at most, and sums of a group that are added up
// apart, so that four products are in flight. The warps decide how many registers the compiler takes: 49 and 63; a limit of 9
// and 10, which are enough, makes them 42 and 56, and the kernel a point slower.
template <int GROUPS>
constexpr int LINES = GROUPS > 2 ? 1 : 2;
template <int GROUPS>
constexpr int MOST_WARPS = GROUPS > 2 ? 10 : 12;
template <int GROUPS>
constexpr int CHAINS = 4 / GROUPS;

struct Barriers {
    unsigned long long full;   // the matrix is there
    unsigned long long known;  // the partials of all blocks of the cluster of this block's group
};

// A number of 11 bits, and what is missing: of what is not finite, or rounds up to it, that is not a number.
__device__ __forceinline__ unsigned rounded(float a) { return (__float_as_uint(a) + 0x1000u) & 0xffffe000u; }
__device__ __forceinline__ unsigned missing(float a, unsigned first) { return __float_as_uint(a - __uint_as_float(first)); }
// The same of a number that is cut off.
__device__ __forceinline__ unsigned rest(float a) { return missing(a, __float_as_uint(a) & 0xffffe000u); }

__device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
        " {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four neighbours, requested here: the compiler moves what is known to be constant behind the barrier of the cluster.
__device__ __forceinline__ float4 load_now(const float* from) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return v;
}
__device__ __forceinline__ float4 load_shared(unsigned from) {
    float4 v;
    asm("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from) : "memory");
    return v;
}

// A sum with an element that is not finite, or as large as the largest one, by a warp.
__device__ __forceinline__ float plain_sum(const float* x, const float* w, int k) {
    float sum = 0.0f;
#pragma unroll 1
    for (int i = threadIdx.x % WARP; i < k; i += WARP) sum = fmaf(x[i], w[i], sum);
    return warp_reduce<Sum>(sum);
}

// A block of a cluster that has GROUPS groups of rows, no more than it has blocks.
template <int GROUPS>
struct Block {
    static constexpr int LINE_BYTES = GROUPS * hopper::PATTERN_BYTES;  // of all groups

    const float* x;  // the first of its vectors
    const float* w;
    float* y;
    int batch, n, k;
    int blocks, rank, first;  // the first row of the cluster
    int warps, lines, from;
    unsigned char* memory;

    // A cluster is a row of the grid.
    __device__ __forceinline__ Block(const float* x, const float* w, float* y, int batch, int n, int k, int lines,
                                     unsigned char* memory)
        : w(w), n(n), k(k), lines(lines), memory(memory) {
        const int of = int(blockIdx.z) * VECTORS;
        blocks = int(gridDim.x);
        rank = int(blockIdx.x);
        first = int(blockIdx.y) * (GROUPS * ROWS);
        warps = int(blockDim.x) / WARP;
        from = rank * lines;
        this->batch = min(batch - of, VECTORS);
        this->x = x + (long long)of * k;
        this->y = y + (long long)of * n;
    }
    // What a block of the cluster has of this one's group: a lane has a vector's sums of two rows.
    __device__ __forceinline__ float2* received(int of) const {
        return reinterpret_cast<float2*>(memory + lines * LINE_BYTES) + of * WARP;
    }
    // What a warp has of a group, in the place of its part of the matrix, which it has read.
    __device__ __forceinline__ float2* own(int warp, int group) const {
        return reinterpret_cast<float2*>(memory + warp * LINES<GROUPS> * LINE_BYTES) + group * WARP;
    }
    __device__ __forceinline__ Barriers& barriers() const { return *reinterpret_cast<Barriers*>(received(blocks)); }
    __device__ __forceinline__ unsigned full() const { return shared_address(&barriers().full); }
    __device__ __forceinline__ unsigned known() const { return shared_address(&barriers().known); }

    __device__ __forceinline__ void start(const hopper::TensorMap& map) const {
        hopper::mbarrier_init(full(), 1);
        hopper::mbarrier_init(known(), 1);
        hopper::mbarrier_init_fence();
        hopper::mbarrier_expect_tx(full(), lines * LINE_BYTES);
        hopper::tma_load_evict_first(shared_address(memory), map, 0, first, from, full());
        if (rank < GROUPS) hopper::mbarrier_expect_tx(known(), blocks * WARP * int(sizeof(float2)));
    }

    // All warps have their sums: the partial of a group goes to the block that reduces it.
    __device__ __forceinline__ void send(int warp, int lane) const {
        for (int group = warp; group < GROUPS; group += warps) {
            float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
            for (int i = 0; i < MOST_WARPS<GROUPS>; ++i) {
                const float2 sums = i < warps ? own(i, group)[lane] : make_float2(0.0f, 0.0f);
                total.x += sums.x;
                total.y += sums.y;
            }
            const unsigned place = shared_address(received(rank) + lane);
            st_async_2(mapa_shared(place, group), mapa_shared(known(), group), total.x, total.y);
        }
    }

    // By a warp of the block that reduces a group. What is not finite is summed up again.
    __device__ __forceinline__ void reduce(int lane) const {
        hopper::mbarrier_wait(known(), 0);
        float totals[2] = {};
#pragma unroll
        for (int i = 0; i < MOST_BLOCKS; ++i) {
            const float2 sums = i < blocks ? received(i)[lane] : make_float2(0.0f, 0.0f);
            totals[0] += sums.x;
            totals[1] += sums.y;
        }
        const int vector = lane / 4, row = first + rank * ROWS + lane % 4;
        const unsigned to = unsigned(vector) * n + row;
        const bool are_there[2] = {vector < batch && row < n, vector < batch && row + ROWS / 2 < n};
        if (are_there[0]) y[to] = totals[0];
        if (are_there[1]) y[to + ROWS / 2] = totals[1];
        if (!__any_sync(ALL_LANES, !isfinite(totals[0] + totals[1]))) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            sum_up_again(row + half * (ROWS / 2), __ballot_sync(ALL_LANES, are_there[half] && !isfinite(totals[half])));
        }
    }
    __device__ __forceinline__ void sum_up_again(int row, unsigned lanes) const {
#pragma unroll 1
        for (; lanes != 0; lanes &= lanes - 1) {
            const int vector = (__ffs(lanes) - 1) / 4, of = __shfl_sync(ALL_LANES, row, __ffs(lanes) - 1);
            const float sum = plain_sum(x + (long long)vector * k, w + (long long)of * k, k);
            if (threadIdx.x % WARP == 0) y[unsigned(vector) * n + of] = sum;
        }
    }
};

// A warp, which multiplies some lines of all groups.
template <int GROUPS>
struct WarpMma {
    static constexpr int MOST = LINES<GROUPS>;

    const Block<GROUPS>& block;
    const int warp, lane, line, lines;
    float4 values[MOST][CHUNKS];           // of the lane's vector
    unsigned vectors[MOST][CHUNKS][2][4];  // A operands of both products of a chunk
    float sums[GROUPS][CHAINS<GROUPS>][4];

    __device__ __forceinline__ WarpMma(const Block<GROUPS>& block, int warp)
        : block(block), warp(warp), lane(threadIdx.x % WARP), line(warp * MOST), lines(min(MOST, block.lines - line)), sums{} {}

    __device__ __forceinline__ void ask_for_vectors() {
        const int vector = lane / 4;
        const float* const from = block.x + (vector * block.k + (block.from + line) * LINE + lane % 4 * 4);
#pragma unroll
        for (int i = 0; i < MOST * CHUNKS; ++i) {
            float4& value = values[i / CHUNKS][i % CHUNKS];
            value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i / CHUNKS < lines && vector < block.batch) value = load_now(from + i * CHUNK);
        }
    }
    __device__ __forceinline__ void part_vectors() {
#pragma unroll
        for (int i = 0; i < MOST * CHUNKS; ++i) {
            const float4 value = values[i / CHUNKS][i % CHUNKS];
            const float four[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                unsigned* const parts = &vectors[i / CHUNKS][i % CHUNKS][j / 2][j % 2 * 2];
                parts[0] = rounded(four[j]);
                parts[1] = missing(four[j], parts[0]);
                asm volatile("" : "+r"(parts[0]), "+r"(parts[1]));  // the compiler would do it when the matrix is there
            }
        }
    }
    // The row of a group that a lane has as a column of B. Lanes of a quarter of a warp have rows that are
    // four apart: their halves of a line are in different banks. Of sums, a lane has rows lane % 4 and lane % 4 + 4.
    __device__ __forceinline__ int row() const { return lane / 4 % 2 * 4 + lane / 8; }

    // Products of all groups in turn: none waits for the one in front of it. A warp that is short of a line
    // multiplies its other one by nothing, too.
    __device__ __forceinline__ void multiply() {
        const unsigned from = shared_address(block.memory) + line * block.LINE_BYTES + row() * hopper::ROW_BYTES;
        const unsigned chunks[CHUNKS] = {from + (lane % 4 ^ row()) * 16, from + (lane % 4 + 4 ^ row()) * 16};
        const unsigned next = lines < MOST ? 0 : block.LINE_BYTES;
#pragma unroll
        for (int i = 0; i < MOST * CHUNKS; ++i) {
            const unsigned(&left)[2][4] = vectors[i / CHUNKS][i % CHUNKS];
            float4 v[GROUPS];
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                v[g] = load_shared(chunks[i % CHUNKS] + i / CHUNKS * next + g * hopper::PATTERN_BYTES);
            }
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) add(g, 0, left[0], __float_as_uint(v[g].x), __float_as_uint(v[g].y));
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) add(g, 1, left[0], rest(v[g].x), rest(v[g].y));
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) add(g, 0, left[1], __float_as_uint(v[g].z), __float_as_uint(v[g].w));
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) add(g, 1, left[1], rest(v[g].z), rest(v[g].w));
        }
    }
    __device__ __forceinline__ void add(int group, int chain, const unsigned (&a)[4], unsigned b0, unsigned b1) {
        multiply_add(sums[group][chain % CHAINS<GROUPS>], a, b0, b1);
    }
    __device__ __forceinline__ float sum(int group, int half) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < CHAINS<GROUPS>; ++i) sum += sums[group][i][half] + sums[group][i][half + 2];
        return sum;
    }
    __device__ __forceinline__ void leave_sums() const {
        __syncwarp();
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            block.own(warp, g)[lane] = make_float2(sum(g, 0), sum(g, 1));
        }
    }
};

template <int GROUPS>
__device__ __forceinline__ void few_vectors(const float* x, const float* w, float* y, int batch, int n, int k, int lines,
                                            const hopper::TensorMap& map) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Block<GROUPS> block(x, w, y, batch, n, k, lines, memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0);
    WarpMma<GROUPS> mma(block, warp);
    if (warp == 0 && hopper::elect_one()) block.start(map);
    __syncwarp();
    mma.ask_for_vectors();
    cluster_arrive_relaxed();
    mma.part_vectors();
    cluster_wait();
    hopper::mbarrier_wait(block.full(), 0);
    mma.multiply();
    mma.leave_sums();
    __syncthreads();
    block.send(warp, mma.lane);
    if (warp == 0 && block.rank < GROUPS) block.reduce(mma.lane);
}

}  // namespace clusters
