// Up to eight vectors against a matrix in f32, by clusters of eight blocks that share out its columns: a cluster has rows of
// its own, and each block an eighth of them. Vectors stay in registers; rows come by bulk copies, a few ahead of the warps
// that multiply. What these, the walkers, have of eight rows meets in one of the blocks, where other warps, the mergers, add
// up.
//
// Tensor cores take numbers of 11 bits. A number is one of them, rounded, and another one for what is missing: all four
// products of such parts of w and x are added up, so that what is left out is less than 2^-22 of a product, as much as f32
// rounds off four times. The left factor has the vectors twice, above their first parts, below what is missing.
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
constexpr int LINES = 2;                           // of a walker, at most
constexpr int CHUNKS = LINES * LINE / CHUNK;
constexpr int WALKERS = 16;  // warps of a block
constexpr int MERGERS = 3;
constexpr int THREADS = (WALKERS + MERGERS + 1) * WARP;  // one warp copies
constexpr int MOST_STAGES = 16;                          // groups under way
constexpr int SLOTS = MERGERS;  // places where a block merges groups: each takes every so many-th of its own

struct Barriers {
    unsigned long long full[MOST_STAGES], empty[MOST_STAGES];
    unsigned long long known[SLOTS];   // what all walkers of the cluster have of a group
    unsigned long long merged[SLOTS];  // a group in each block of the cluster
};

// A number of 11 bits, and what is missing: of what is not finite, or rounds up to it, that is not a number.
__device__ __forceinline__ unsigned rounded(float a) { return (__float_as_uint(a) + 0x1000u) & 0xffffe000u; }
__device__ __forceinline__ unsigned missing(float a, unsigned rounded) {
    return __float_as_uint(a - __uint_as_float(rounded)) & 0xffffe000u;
}

__device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
        " {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The part of a block.
struct Block {
    const float* x;  // the first of its vectors, and rows of w and y of its cluster
    const float* w;
    float* y;
    int batch, n, k, team, stages;  // walkers along a row; groups under way
    int rank, first, rows, groups;
    int lines, from;
    unsigned char* memory;

    __device__ __forceinline__ Block(const float* x, const float* w, float* y, int batch, int n, int k, int team, int stages,
                                     unsigned char* memory)
        : n(n), k(k), team(team), stages(stages), memory(memory) {
        const int cluster = int(blockIdx.x) >> BITS, clusters = int(gridDim.x) >> BITS, of = int(blockIdx.y) * VECTORS;
        rank = int(blockIdx.x) % BLOCKS;
        first = share(n, cluster, clusters);
        rows = share(n, cluster + 1, clusters) - first;
        groups = (rows + ROWS - 1) / ROWS;
        lines = k / LINE / BLOCKS;
        from = rank * lines;
        this->batch = min(batch - of, VECTORS);
        this->x = x + (long long)of * k;
        this->w = w + (long long)first * k;
        this->y = y + (long long)of * n + first;
    }
    static __device__ __forceinline__ int share(int all, int i, int parts) { return int((long long)all * i / parts); }
    // The first row of a group: a last one of few rows has others again in front of them.
    __device__ __forceinline__ int row(int group) const { return min(group * ROWS, rows - ROWS); }

    __device__ __forceinline__ int stage_bytes() const { return lines * LINE_BYTES; }
    __device__ __forceinline__ unsigned stage(int i) const { return shared_address(memory) + i * stage_bytes(); }
    // What a source has of a group, of all lanes.
    __device__ __forceinline__ float2* met(int slot, int source) const {
        return reinterpret_cast<float2*>(memory + stages * stage_bytes()) + (slot * sources() + source) * WARP;
    }
    __device__ __forceinline__ int sources() const { return team << BITS; }
    __device__ __forceinline__ int slot_bytes() const { return sources() * WARP * int(sizeof(float2)); }
    __device__ __forceinline__ Barriers& barriers() const { return *reinterpret_cast<Barriers*>(met(SLOTS, 0)); }
    __device__ __forceinline__ unsigned full(int stage) const { return shared_address(&barriers().full[stage]); }
    __device__ __forceinline__ unsigned empty(int stage) const { return shared_address(&barriers().empty[stage]); }
    __device__ __forceinline__ unsigned known(int slot) const { return shared_address(&barriers().known[slot]); }
    __device__ __forceinline__ unsigned merged(int slot) const { return shared_address(&barriers().merged[slot]); }
};

// The row of a group that a lane has as a column of the right factor. Lanes of a quarter of a warp have rows that are four
// apart: their halves of a line are in different banks. Of sums, a lane has rows lane % 4 and lane % 4 + 4.
__device__ __forceinline__ int row_of_lane() { return threadIdx.x / 4 % 2 * 4 + threadIdx.x % WARP / 8; }

// Place in a ring of `stages`, and the parity of its phase.
struct Ring {
    const int stages;
    int stage;
    unsigned parity = 0;

    __device__ __forceinline__ Ring(int stages, int stage) : stages(stages), stage(stage) { wrap(); }
    __device__ __forceinline__ void wrap() {
        while (stage >= stages) stage -= stages, parity ^= 1;
    }
    __device__ __forceinline__ void advance(int by) {
        stage += by;
        wrap();
    }
};

// Of a warp that multiplies: some lines of every so many-th group.
struct Walker {
    const Block& block;
    const int lane, part, set, sets;
    int line, lines;
    unsigned vectors[CHUNKS][2][4];  // left factors of both products of a chunk

    __device__ __forceinline__ Walker(const Block& block, int warp)
        : block(block), lane(threadIdx.x % WARP), part(warp % block.team), set(warp / block.team),
          sets(WALKERS / block.team) {
        line = Block::share(block.lines, part, block.team);
        lines = Block::share(block.lines, part + 1, block.team) - line;
    }
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
    __device__ __forceinline__ void multiply(int stage, float (&sums)[2][4]) const {
        const int row = row_of_lane();
        const unsigned own = block.stage(stage) + line * LINE_BYTES + row * hopper::ROW_BYTES;
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
            const unsigned a = rounded(v.x), b = rounded(v.y), c = rounded(v.z), d = rounded(v.w);
            multiply_add(sums[0], vectors[i][0], a, b);
            multiply_add(sums[1], vectors[i][0], missing(v.x, a), missing(v.y, b));
            multiply_add(sums[0], vectors[i][1], c, d);
            multiply_add(sums[1], vectors[i][1], missing(v.z, c), missing(v.w, d));
        }
    }
    // To the block that merges the group: a lane has a vector's sums of two rows.
    __device__ __forceinline__ void send(int group, const float (&sums)[2][4]) const {
        const int to = group % BLOCKS, round = group / BLOCKS, slot = round % SLOTS;
        if (round >= SLOTS) hopper::barrier_wait(block.merged(slot), round / SLOTS - 1 & 1);
        const unsigned place = shared_address(block.met(slot, block.rank * block.team + part) + lane);
        send_two(rank_address(place, to), rank_address(block.known(slot), to),
                 (sums[0][0] + sums[0][2]) + (sums[1][0] + sums[1][2]),
                 (sums[0][1] + sums[0][3]) + (sums[1][1] + sums[1][3]));
    }
    __device__ __forceinline__ void run() {
        take_vectors();
        if (set >= sets) return;
        Ring ring(block.stages, set);
#pragma unroll 1
        for (int group = set; group < block.groups; group += sets) {
            float sums[2][4] = {};
            hopper::barrier_wait(block.full(ring.stage), ring.parity);
            multiply(ring.stage, sums);
            __syncwarp();
            if (hopper::elected()) hopper::barrier_arrive(block.empty(ring.stage));
            send(group, sums);
            ring.advance(sets);
        }
    }
};

// Of the warp that copies, one lane.
__device__ __forceinline__ void copy(const Block& block, const hopper::TensorMap& w, int group, const Ring& ring) {
    const unsigned full = block.full(ring.stage);
    hopper::barrier_expect(full, block.stage_bytes());
    hopper::load_box_once(block.stage(ring.stage), w, 0, block.first + block.row(group), block.from, full);
}
__device__ __forceinline__ void feed(const Block& block, const hopper::TensorMap& w) {
    const int stages = block.stages, first = min(block.groups, stages);
    Ring ring(stages, 0);
    if (hopper::elected()) {
        for (int i = 0; i < stages; ++i) {
            hopper::barrier_init(block.full(i), 1);
            hopper::barrier_init(block.empty(i), block.team);
        }
        hopper::barrier_init_fence();
#pragma unroll 1
        for (int group = 0; group < first; ++group, ring.advance(1)) copy(block, w, group, ring);
    }
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    if (hopper::elected()) {
#pragma unroll 1
        for (int group = first; group < block.groups; ++group, ring.advance(1)) {
            hopper::barrier_wait(block.empty(ring.stage), ring.parity ^ 1);
            copy(block, w, group, ring);
        }
    }
}

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
        const bool is_own = vector < block.batch && row >= group * ROWS;
        if (is_own) block.y[(long long)vector * block.n + row] = totals[half];
        for (unsigned lanes = __ballot_sync(ALL_LANES, is_own && !isfinite(totals[half])); lanes != 0; lanes &= lanes - 1) {
            const int of = __ffs(lanes) - 1, again = __shfl_sync(ALL_LANES, row, of);
            const float* const x = block.x + (long long)(of / 4) * block.k;
            const float sum = plain_sum(x, block.w + (long long)again * block.k, block.k);
            if (lane == 0) block.y[(long long)(of / 4) * block.n + again] = sum;
        }
    }
}

// Of a warp that merges every so many-th of the block's groups, which are every eighth of the cluster's.
__device__ __forceinline__ void merge(const Block& block, int merger) {
    const int lane = threadIdx.x % WARP, rounds = (block.groups - block.rank + BLOCKS - 1) / BLOCKS;
    if (lane == 0) {
        hopper::barrier_init(block.known(merger), 1);
        hopper::barrier_init(block.merged(merger), BLOCKS);
        hopper::barrier_init_fence();
        if (merger < rounds) hopper::barrier_expect(block.known(merger), block.slot_bytes());
    }
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
#pragma unroll 1
    for (int round = merger; round < rounds; round += MERGERS) {
        hopper::barrier_wait(block.known(merger), round / SLOTS & 1);
        float totals[2] = {};
#pragma unroll 8
        for (int i = 0; i < block.sources(); ++i) {
            const float2 sums = block.met(merger, i)[lane];
            totals[0] += sums.x;
            totals[1] += sums.y;
        }
        __syncwarp();
        // Before the others are told: their sums count at once.
        if (lane == 0 && round + SLOTS < rounds) hopper::barrier_expect(block.known(merger), block.slot_bytes());
        __syncwarp();
        const bool goes_on = (round + SLOTS) * BLOCKS < block.groups;
        if (goes_on && lane < BLOCKS) hopper::barrier_arrive_at(block.merged(merger), lane);
        store(block, round * BLOCKS + block.rank, totals);
    }
}

__device__ __forceinline__ void few_vectors(const float* x, const float* w, float* y, int batch, int n, int k, int team,
                                            int stages, const hopper::TensorMap& map) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Block block(x, w, y, batch, n, k, team, stages, memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0);
    if (warp < WALKERS) return Walker(block, warp).run();
    if (warp == WALKERS) return feed(block, map);
    merge(block, warp - WALKERS - 1);
}

}  // namespace clusters
