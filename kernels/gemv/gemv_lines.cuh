// Up to eight vectors against a matrix of which every load of a warp takes whole lines: 128 neighbouring bytes of each of
// four rows. Memory gives fewer bytes a second for 64 of each of eight rows, which is how a fragment of a product lies.
#pragma once
#include "common.cuh"
#include "gemm_mma.cuh"

constexpr int FEW_VECTORS = 8;
constexpr int LINE_PACKS = 8;                 // packs of 128 bytes
constexpr int LINE = LINE_PACKS * PACK_LEN;   // elements
constexpr int LINE_ROWS = WARP / LINE_PACKS;  // rows of one load

// FewVectors is the part of a lane: sums of QUADS times four rows with all vectors, AT_ONCE lines in flight. What stands for
// a vector that is not there does not matter: its sums are left behind.
#if defined(KERNELGATE_F32)

// Starts a copy of 16 bytes that blocks beside this one ask for too: they stay in the L1. What is not inside is filled
// with zeros.
__device__ __forceinline__ void copy_async_kept(unsigned target, const void* source, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(target),
                 "l"(__cvta_generic_to_global(source)), "r"(inside ? 16 : 0)
                 : "memory");
}

// Lanes along a line; a line of each vector lies in shared memory, copied by the warp for itself.
template <int QUADS, int WARPS, int AT_ONCE>
struct FewVectors {
    typedef float Pipeline[WARPS][AT_ONCE][FEW_VECTORS][LINE];

    float (*lines)[FEW_VECTORS][LINE];
    const float* from[2];
    bool there[2];
    int lane;
    float sums[QUADS][FEW_VECTORS] = {};

    __device__ __forceinline__ FewVectors(Pipeline& pipeline, const float* x, int batch, int k) {
        lane = threadIdx.x % WARP;
        lines = pipeline[threadIdx.x / WARP];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int vector = lane / LINE_PACKS + half * LINE_ROWS;
            there[half] = vector < batch;
            from[half] = x + (there[half] ? (long long)vector * k + lane % LINE_PACKS * PACK_LEN : 0);
        }
    }

    // Line `i` of those in flight starts at column `at` of k.
    template <bool WHOLE>
    __device__ __forceinline__ void fetch(int i, int at, int k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const bool inside = there[half] && (WHOLE || at + lane % LINE_PACKS * PACK_LEN < k);
            float* const to = &lines[i][lane / LINE_PACKS + half * LINE_ROWS][lane % LINE_PACKS * PACK_LEN];
            copy_async_kept(shared_address(to), inside ? from[half] + at : from[half], inside);
        }
        copy_async_commit();
    }
    __device__ __forceinline__ void arrived() {
        copy_async_wait<0>();
        __syncwarp();
    }
    __device__ __forceinline__ void used() { __syncwarp(); }

    __device__ __forceinline__ void multiply(int i, const Pack (&of_w)[QUADS]) {
#pragma unroll
        for (int b = 0; b < FEW_VECTORS; ++b) {
            float of_x[PACK_LEN];
            unpack(load_pack(&lines[i][b][lane % LINE_PACKS * PACK_LEN]), of_x);
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                float value[PACK_LEN];
                unpack(of_w[q], value);
#pragma unroll
                for (int e = 0; e < PACK_LEN; ++e) sums[q][b] = fmaf(of_x[e], value[e], sums[q][b]);
            }
        }
    }

    // The eight lanes of a row add up, each half of them keeping half of the vectors: what is left is the sum of quad `q`
    // for vector() and row(). Once only.
    __device__ __forceinline__ float take_total(int q) {
        float(&s)[FEW_VECTORS] = sums[q];
#pragma unroll
        for (int half = FEW_VECTORS / 2, bit = 1; half > 0; half /= 2, bit *= 2) {
#pragma unroll
            for (int b = 0; b < half; ++b) {
                const bool upper = lane & bit;
                const float kept = upper ? s[half + b] : s[b], given = upper ? s[b] : s[half + b];
                s[b] = kept + __shfl_xor_sync(ALL_LANES, given, bit);
            }
        }
        return s[0];
    }
    __device__ __forceinline__ int vector() const { return (lane & 1) * 4 + (lane & 2) + (lane & 4) / 4; }
    __device__ __forceinline__ int row() const { return lane / LINE_PACKS; }
};

#else

// Products of tensor cores whose A operand are the vectors twice, above their packs of the first half of the line, below
// those of the second, and whose B operand is w as it lies: two columns a row, of the halves of its line. Half of the
// sums, above and in first halves or below and in second ones, are parts of y, the two in one lane; the rest means nothing.
// As a sum may run in any order, packs stand for places of k: elements 0 to 3 for those that the lane holds in a first
// product, 4 to 7 in a second.
template <int QUADS, int WARPS, int AT_ONCE>
struct FewVectors {
    struct Pipeline {};

    const scalar_t* from;
    int lane;
    Pack halves[AT_ONCE][2];
    float sums[QUADS][4] = {};

    __device__ __forceinline__ FewVectors(Pipeline&, const scalar_t* x, int batch, int k) {
        lane = threadIdx.x % WARP;
        from = x + (long long)min(vector(), batch - 1) * k + lane % 4 * PACK_LEN;
    }

    // Line `i` of those in flight starts at column `at` of k.
    template <bool WHOLE>
    __device__ __forceinline__ void fetch(int i, int at, int k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int start = at + half * (LINE / 2);
            const bool inside = WHOLE || start + lane % 4 * PACK_LEN < k;
            halves[i][half] = inside ? load_pack(from + start) : Pack{make_uint4(0, 0, 0, 0)};
        }
    }
    __device__ __forceinline__ void arrived() { __syncwarp(); }  // the compiler would move each load down to its use
    __device__ __forceinline__ void used() {}

    __device__ __forceinline__ void multiply(int i, const Pack (&of_w)[QUADS]) {
        const uint4 a = halves[i][0].words, b = halves[i][1].words;
        const unsigned low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            multiply_add(sums[q], low, of_w[q].words.x, of_w[q].words.y);
            multiply_add(sums[q], high, of_w[q].words.z, of_w[q].words.w);
        }
    }

    // The sum of quad `q` for vector() and row() since it was taken before.
    __device__ __forceinline__ float take_total(int q) {
        const float total = sums[q][0] + sums[q][3];
        sums[q][0] = sums[q][3] = 0.0f;
        return total;
    }
    __device__ __forceinline__ int vector() const { return lane / 4; }
    __device__ __forceinline__ int row() const { return lane % 4; }
};

#endif

// A block of WARPS warps: 4 QUADS rows, eight vectors. n is at least 4 QUADS, k a multiple of 8. Rows are taken in PHASES
// parts, and neighbouring blocks begin with different ones: else all ask for the same part of x at a time. Each part has
// its own sum, so that the order of adding up is the same in all blocks.
template <int QUADS, int WARPS, int AT_ONCE, int PHASES>
__device__ __forceinline__ void few_vectors(const scalar_t* x, const scalar_t* w, scalar_t* y, int batch, int n, int k) {
    typedef FewVectors<QUADS, WARPS, AT_ONCE> Vectors;
    constexpr int ROWS = LINE_ROWS * QUADS;
    constexpr int STEP = WARPS * AT_ONCE * LINE;  // columns of the block in flight
    __shared__ float parts[PHASES * WARPS][FEW_VECTORS][ROWS];
    __shared__ __align__(16) typename Vectors::Pipeline pipeline;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int blocks = (n - 1) / ROWS + 1;  // eight vectors
    const int own = int(blockIdx.x) % blocks * ROWS, of = int(blockIdx.x) / blocks * FEW_VECTORS;
    const int first = min(own, n - ROWS);  // rows that the block before stores, too, in front of a last block's own
    const scalar_t* const rows = w + (long long)(first + lane / LINE_PACKS) * k + lane % LINE_PACKS * PACK_LEN;
    const long long quad = (long long)LINE_ROWS * k;
    const int steps = k / STEP;

    Vectors vectors(pipeline, x + (long long)of * k, batch - of, k);
    Pack of_w[AT_ONCE][QUADS];
#pragma unroll 1
    for (int i_phase = 0; i_phase < PHASES; ++i_phase) {
        const int phase = (int(blockIdx.x) + i_phase) % PHASES;
        const int end = (phase + 1) * steps / PHASES * STEP;
#pragma unroll 1  // two steps in one would have loads of the second behind products of the first
        for (int at = phase * steps / PHASES * STEP; at < end; at += STEP) {
            const int column = at + warp * (AT_ONCE * LINE);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
                for (int q = 0; q < QUADS; ++q) of_w[i][q] = load_pack_streaming(rows + q * quad + column + i * LINE);
                vectors.template fetch<true>(i, column + i * LINE, k);
            }
            vectors.arrived();
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) vectors.multiply(i, of_w[i]);
            vectors.used();
        }
        // What is no whole step belongs to the last part.
#pragma unroll 1
        for (int at = phase == PHASES - 1 ? end + warp * LINE : k; at < k; at += WARPS * LINE) {
            const bool inside = at + lane % LINE_PACKS * PACK_LEN < k;
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                of_w[0][q] = inside ? load_pack_streaming(rows + q * quad + at) : Pack{make_uint4(0, 0, 0, 0)};
            }
            vectors.template fetch<false>(0, at, k);
            vectors.arrived();
            vectors.multiply(0, of_w[0]);
            vectors.used();
        }
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            parts[phase * WARPS + warp][vectors.vector()][q * LINE_ROWS + vectors.row()] = vectors.take_total(q);
        }
    }
    __syncthreads();
    const int row = first + int(threadIdx.x) % ROWS, vector = int(threadIdx.x) / ROWS;
    if (vector < min(batch - of, FEW_VECTORS) && row >= own) {
        float total = 0.0f;
#pragma unroll
        for (int part = 0; part < PHASES * WARPS; ++part) total += parts[part][vector][row - first];
        y[(long long)(of + vector) * n + row] = from_float<scalar_t>(total);
    }
}
