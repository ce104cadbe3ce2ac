// Up to eight vectors against a matrix in f32, by clusters of eight blocks that share out the columns of a few rows. All of
// a block's part of the matrix is under way at once; several blocks share a multiprocessor, so that one multiplies or adds
// up while others wait for memory, and whoever is done makes room for the next. What the warps of a cluster have of eight
// rows meets in one of its blocks.
//
// Tensor cores take numbers of 11 bits. A number is one of them, and another one for what is missing: all four products of
// such parts of w and x are added up. The left factor has the vectors twice, above their first parts, below what is missing.
// Those of x are rounded, the others cut off by the product itself: no more than 2^-21 of it is left out.
#pragma once
#include "blocks.cuh"
#include "common.cuh"
#include "hopper.cuh"

namespace clusters {

constexpr int BITS = 3;
constexpr int BLOCKS = 1 << BITS;  // of a cluster
constexpr int VECTORS = 8;
constexpr int ROWS = 8;                            // of a group, that come together
constexpr int LINE = 32;                           // columns of 128 bytes, that lie together
constexpr int LINE_BYTES = hopper::PATTERN_BYTES;  // of a group
constexpr int CHUNK = 16;                          // columns of two products: four neighbours a lane
constexpr int MOST_GROUPS = BLOCKS;                // each meets in a block of its own
constexpr int LINES = 2;                           // of a warp that multiplies, a walker, at most
constexpr int CHUNKS = LINES * LINE / CHUNK;
constexpr int MOST_WALKERS = 8;
constexpr int MOST_THREADS = (MOST_WALKERS + 1) * WARP;  // one warp copies and merges
constexpr int MOST_BLOCKS = 3;  // of so many threads that share a multiprocessor: registers for them

struct Barriers {
    unsigned long long full[MOST_GROUPS];
    unsigned long long known;  // what all warps of the cluster have of the block's group
};

// A number of 11 bits, and what is missing: of what is not finite, or rounds up to it, that is not a number.
__device__ __forceinline__ unsigned rounded(float a) { return (__float_as_uint(a) + 0x1000u) & 0xffffe000u; }
__device__ __forceinline__ unsigned missing(float a, unsigned first) { return __float_as_uint(a - __uint_as_float(first)); }
// The same of a number that is cut off.
__device__ __forceinline__ unsigned rest(float a) { return missing(a, __float_as_uint(a) & 0xffffe000u); }

__device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
        " {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// The part of a block.
struct Block {
    const float* x;  // the first of its vectors
    const float* w;
    float* y;
    int batch, n, k;
    int rank, first, groups;  // the first group of the cluster, in the matrix
    int walkers, lines, from;
    unsigned char* memory;

    __device__ __forceinline__ Block(const float* x, const float* w, float* y, int batch, int n, int k, int most_groups,
                                     unsigned char* memory)
        : w(w), n(n), k(k), memory(memory) {
        const int of = int(blockIdx.y) * VECTORS;
        rank = int(blockIdx.x) % BLOCKS;
        first = (int(blockIdx.x) >> BITS) * most_groups;
        groups = min(most_groups, (n + ROWS - 1) / ROWS - first);
        walkers = int(blockDim.x) / WARP - 1;
        lines = k / LINE / BLOCKS;
        from = rank * lines;
        this->batch = min(batch - of, VECTORS);
        this->x = x + (long long)of * k;
        this->y = y + (long long)of * n;
    }
    // The first row of a group: a last one of few rows has others again in front of them.
    __device__ __forceinline__ int row(int group) const { return min((first + group) * ROWS, n - ROWS); }

    __device__ __forceinline__ int group_bytes() const { return lines * LINE_BYTES; }
    __device__ __forceinline__ unsigned group(int i) const { return shared_address(memory) + i * group_bytes(); }
    // What a warp of the cluster has of the block's group, of all lanes.
    __device__ __forceinline__ float2* met(int source) const {
        return reinterpret_cast<float2*>(memory + groups * group_bytes()) + source * WARP;
    }
    __device__ __forceinline__ int sources() const { return walkers * BLOCKS; }
    __device__ __forceinline__ Barriers& barriers() const { return *reinterpret_cast<Barriers*>(met(sources())); }
    __device__ __forceinline__ unsigned full(int group) const { return shared_address(&barriers().full[group]); }
    __device__ __forceinline__ unsigned known() const { return shared_address(&barriers().known); }
};

// The row of a group that a lane has as a column of the right factor. Lanes of a quarter of a warp have rows that are four
// apart: their halves of a line are in different banks. Of sums, a lane has rows lane % 4 and lane % 4 + 4.
__device__ __forceinline__ int row_of_lane() { return threadIdx.x / 4 % 2 * 4 + threadIdx.x % WARP / 8; }

// Of a warp that multiplies: some lines of all groups.
struct Walker {
    const Block& block;
    const int lane, part;
    int line, lines;
    unsigned vectors[CHUNKS][2][4];  // left factors of both products of a chunk

    __device__ __forceinline__ Walker(const Block& block, int warp)
        : block(block), lane(threadIdx.x % WARP), part(warp), line(warp * LINES), lines(min(LINES, block.lines - line)) {}

    // Asked for before all else: they would arrive behind the matrix.
    __device__ __forceinline__ void take_vectors() {
        const int vector = lane / 4;
        const float* const from = block.x + (long long)vector * block.k + (block.from + line) * LINE + lane % 4 * 4;
        float4 values[CHUNKS];
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            const bool inside = i / 2 < lines && vector < block.batch;
            values[i] = inside ? __ldg(reinterpret_cast<const float4*>(from + i * CHUNK)) : make_float4(0, 0, 0, 0);
        }
        cluster_arrive_relaxed();
        cluster_wait();
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            const float four[4] = {values[i].x, values[i].y, values[i].z, values[i].w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                unsigned* const parts = &vectors[i][j / 2][j % 2 * 2];
                parts[0] = rounded(four[j]);
                parts[1] = missing(four[j], parts[0]);
            }
        }
    }
    static __device__ __forceinline__ float4 load(unsigned from) {
        float4 v;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
        return v;
    }
    __device__ __forceinline__ void multiply(int group, float (&sums)[2][4]) const {
        const int row = row_of_lane();
        const unsigned own = block.group(group) + line * LINE_BYTES + row * hopper::ROW_BYTES;
        const unsigned halves[2] = {own + (lane % 4 ^ row) * 16, own + (lane % 4 + 4 ^ row) * 16};
        float4 values[CHUNKS];
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            if (i / 2 < lines) values[i] = load(halves[i % 2] + i / 2 * LINE_BYTES);
        }
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i) {
            if (i / 2 >= lines) continue;
            const float4 v = values[i];
            multiply_add(sums[0], vectors[i][0], v.x, v.y);
            multiply_add(sums[1], vectors[i][0], __uint_as_float(rest(v.x)), __uint_as_float(rest(v.y)));
            multiply_add(sums[0], vectors[i][1], v.z, v.w);
            multiply_add(sums[1], vectors[i][1], __uint_as_float(rest(v.z)), __uint_as_float(rest(v.w)));
        }
    }
    // To the block where the group meets: a lane has a vector's sums of two rows.
    __device__ __forceinline__ void send(int group, const float (&sums)[2][4]) const {
        const unsigned place = shared_address(block.met(block.rank * block.walkers + part) + lane);
        send_two(rank_address(place, group), rank_address(block.known(), group),
                 (sums[0][0] + sums[0][2]) + (sums[1][0] + sums[1][2]),
                 (sums[0][1] + sums[0][3]) + (sums[1][1] + sums[1][3]));
    }
    __device__ __forceinline__ void run() {
        take_vectors();
#pragma unroll 1
        for (int group = 0; group < block.groups; ++group) {
            float sums[2][4] = {};
            hopper::barrier_wait(block.full(group), 0);
            multiply(group, sums);
            send(group, sums);
        }
    }
};

// A sum with an element that is not finite, or as large as the largest one, by a warp.
__device__ __forceinline__ float plain_sum(const float* x, const float* w, int k) {
    float sum = 0.0f;
    for (int i = threadIdx.x % WARP; i < k; i += WARP) sum = fmaf(x[i], w[i], sum);
    return warp_reduce<Sum>(sum);
}

// The totals of a group: a lane has a vector's of two rows. What is not finite is summed up again.
__device__ __forceinline__ void store(const Block& block, int group, const float (&totals)[2]) {
    const int lane = threadIdx.x % WARP, vector = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = block.row(group) + lane % 4 + half * (ROWS / 2);
        const bool is_own = vector < block.batch && row >= (block.first + group) * ROWS;
        if (is_own) block.y[(long long)vector * block.n + row] = totals[half];
        for (unsigned lanes = __ballot_sync(ALL_LANES, is_own && !isfinite(totals[half])); lanes != 0; lanes &= lanes - 1) {
            const int of = __ffs(lanes) - 1, again = __shfl_sync(ALL_LANES, row, of);
            const float* const x = block.x + (long long)(of / 4) * block.k;
            const float sum = plain_sum(x, block.w + (long long)again * block.k, block.k);
            if (lane == 0) block.y[(long long)(of / 4) * block.n + again] = sum;
        }
    }
}

// Of the warp that copies, and then merges the group that meets in its block.
__device__ __forceinline__ void feed_and_merge(const Block& block, const hopper::TensorMap& w) {
    const int lane = threadIdx.x % WARP, group = block.rank;
    const bool merges = group < block.groups;
    if (hopper::elected()) {
        for (int i = 0; i < block.groups; ++i) hopper::barrier_init(block.full(i), 1);
        hopper::barrier_init(block.known(), 1);
        hopper::barrier_init_fence();
        for (int i = 0; i < block.groups; ++i) {
            hopper::barrier_expect(block.full(i), block.group_bytes());
            hopper::load_box_once(block.group(i), w, 0, block.row(i), block.from, block.full(i));
        }
        if (merges) hopper::barrier_expect(block.known(), block.sources() * WARP * int(sizeof(float2)));
    }
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    if (!merges) return;
    hopper::barrier_wait(block.known(), 0);
    float totals[2] = {};
#pragma unroll 8
    for (int i = 0; i < block.sources(); ++i) {
        const float2 sums = block.met(i)[lane];
        totals[0] += sums.x;
        totals[1] += sums.y;
    }
    store(block, group, totals);
}

__device__ __forceinline__ void few_vectors(const float* x, const float* w, float* y, int batch, int n, int k, int most_groups,
                                            const hopper::TensorMap& map) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Block block(x, w, y, batch, n, k, most_groups, memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0);
    if (warp < block.walkers) return Walker(block, warp).run();
    feed_and_merge(block, map);
}

}  // namespace clusters
