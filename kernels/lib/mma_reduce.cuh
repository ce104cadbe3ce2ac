// Matrix products with ones, with the identity and with their own transpose: sums, unpacking and sums of squares of
// packs of half-width elements, in an instruction or two where the plain way takes eight to sixteen.
//
// The packs of a warp are a matrix of 16 x 16: lane 4g + t holds of row g the words x (columns 2t, 2t + 1) and z
// (2t + 8, 2t + 9), of row g + 8 the words y and w. Products are exact; sums are f32. All lanes of a warp take part.
#pragma once
#include "packed_row.cuh"

#if !defined(KERNELGATE_F32)
#if defined(KERNELGATE_F16)
#define KERNELGATE_UNPACK_MMA "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
constexpr unsigned int ONE_BITS = 0x3c00u;
#else
#define KERNELGATE_UNPACK_MMA "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
constexpr unsigned int ONE_BITS = 0x3f80u;
#endif

// sums += (the pack's matrix) x (the matrix of 16 x 8 with words low and high).
__device__ __forceinline__ void accumulate_mma(float (&sums)[4], Pack pack, unsigned int low, unsigned int high) {
    const uint4 a = pack.words;
    asm(KERNELGATE_SUM_MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(low), "r"(high));
}

// sums += (the matrix of 16 x 8 with words a and b) x (the matrix of 8 x 8 with word c).
__device__ __forceinline__ void accumulate_square_mma(float (&sums)[4], unsigned int a, unsigned int b, unsigned int c) {
    asm(KERNELGATE_UNPACK_MMA " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a), "r"(b), "r"(c));
}

// This lane's word of the identity of 8 x 8.
__device__ __forceinline__ unsigned int identity_word() {
    const unsigned int lane = threadIdx.x % WARP;
    const unsigned int row = lane / 4, column = lane % 4 * 2;
    return row == column ? ONE_BITS : row == column + 1 ? ONE_BITS << 16 : 0u;
}

// unpack() by products with the identity. An infinity or a NaN among the packs of four lanes (4g .. 4g + 3) makes more
// of their values NaN: it is multiplied by the zeros too.
__device__ __forceinline__ void unpack_mma(Pack pack, unsigned int identity, float (&x)[PACK_LEN]) {
    const uint4 a = pack.words;
    asm(KERNELGATE_UNPACK_MMA " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
        : "r"(a.x), "r"(a.y), "r"(identity), "f"(0.0f));
    asm(KERNELGATE_UNPACK_MMA " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=f"(x[4]), "=f"(x[5]), "=f"(x[6]), "=f"(x[7])
        : "r"(a.z), "r"(a.w), "r"(identity), "f"(0.0f));
}

// Sum and sum of squares of the packs that are added.
struct Moments {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float upper[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float lower[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    __device__ __forceinline__ void add(Pack pack) {
        const uint4 a = pack.words;
        accumulate_mma(sums, pack, TWO_ONES, TWO_ONES);
        // Two words of each lane by one of them, transposed: squares of rows 0 .. 7 stand on the first diagonal of
        // `upper`, of rows 8 .. 15 on the second of `lower`, the rest is not used. Of two registers at a time: four would
        // have to be copied into order.
        accumulate_square_mma(upper, a.x, a.y, a.x);
        accumulate_square_mma(lower, a.x, a.y, a.y);
        accumulate_square_mma(upper, a.z, a.w, a.z);
        accumulate_square_mma(lower, a.z, a.w, a.w);
    }

    // Over a warp: the sum in even lanes, the sum of squares in odd ones.
    __device__ __forceinline__ float of_warp() const {
        const unsigned int lane = threadIdx.x % WARP;
        // The diagonal's element of row g is in lane 4g + g / 2, first or second of a pair.
        const unsigned int row = lane / 4;
        const float squares = row % 2 ? upper[1] + lower[3] : upper[0] + lower[2];
        const float of_row = __shfl_sync(ALL_LANES, squares, row * 4 + row / 2);
        // The sums are the same in the four lanes of a row: odd lanes go on with the squares.
        float mine = lane % 2 ? of_row : sums[0] + sums[2];
#pragma unroll
        for (int offset = WARP / 2; offset >= 4; offset /= 2) {
            mine += __shfl_xor_sync(ALL_LANES, mine, offset);
        }
        return mine;
    }

    // (sum, sum of squares) over any group of whole warps, the same bits in every thread, by its slots 0 and 1.
    template <typename Group>
    __device__ __forceinline__ float2 of_group(const Group& group) const {
        const float mine = of_warp();
        const float sum = __shfl_sync(ALL_LANES, mine, 0), squares = __shfl_sync(ALL_LANES, mine, 1);
        return make_float2(group.template combine<Sum, 0>(sum), group.template combine<Sum, 1>(squares));
    }

    // (sum, sum of squares) over a block of at most MAX_MOMENT_WARPS whole warps, the same bits in every thread. Once a
    // launch. ALL: there are so many warps.
    static constexpr int MAX_MOMENT_WARPS = 4;
    template <bool ALL>
    __device__ __forceinline__ float2 of_block() const {
        __shared__ float partials[2 * MAX_MOMENT_WARPS];
        const unsigned int lane = threadIdx.x % WARP;
        const unsigned int warp = threadIdx.x / WARP;
        const unsigned int warps = blockDim.x / WARP;
        const float mine = of_warp();
        if (lane < 2) {
            partials[2 * warp + lane] = mine;
        }
        if (!ALL && warp == 0 && lane >= 2 * warps && lane < 2 * MAX_MOMENT_WARPS) {
            partials[lane] = 0.0f;  // what is read below is there, and read in wide loads
        }
        __syncthreads();
        float2 total = make_float2(partials[0], partials[1]);
#pragma unroll
        for (int i = 1; i < MAX_MOMENT_WARPS; ++i) {
            total.x += partials[2 * i];
            total.y += partials[2 * i + 1];
        }
        return total;
    }
};
#endif
