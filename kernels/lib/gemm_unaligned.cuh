// Operands whose rows start anywhere (2-byte alignment), without a copy first: the producer is a whole warpgroup, whose lanes load
// the two words of 16 bytes that 16 bytes of a row lie in, shift them, and store them where TMA would have put them.
#pragma once
#include "gemm_wgmma.cuh"
#include "shifted.cuh"

namespace hopper {

// A row-major matrix, from a multiple of 16 bytes on.
struct Matrix {
    const scalar_t* data;
    int rows;
    int cols;
};

constexpr int PACK = 8;                                 // elements of 16 bytes
constexpr int PACKS = COLUMNS / PACK;                   // of a row of a tile
constexpr int ROWS_A_TIME = WARPGROUP_THREADS / PACKS;  // that a warpgroup loads

// The 16 bytes of memory from element `at` on, a multiple of PACK; what lies behind `all` elements is not read.
__device__ __forceinline__ uint4 load_within(const scalar_t* data, long long at, long long all) {
    if (at + PACK <= all) return *reinterpret_cast<const uint4*>(data + at);
    unsigned long long halves[2] = {0, 0};
#pragma unroll 1
    for (int i = 0; at + i < all; ++i) {
        const unsigned long long bits = *reinterpret_cast<const unsigned short*>(data + at + i);
        halves[0] |= i < 4 ? bits << 16 * i : 0;
        halves[1] |= i < 4 ? 0 : bits << 16 * (i - 4);
    }
    return make_uint4(halves[0], halves[0] >> 32, halves[1], halves[1] >> 32);
}

// A word with its first `count` elements, zeros behind.
__device__ __forceinline__ unsigned first_of(unsigned word, int count) {
    return count >= 2 ? word : count == 1 ? word & 0xffff : 0;
}

// A lane's share of one slice of an operand, from `at` on, EXTENT rows or columns: on its way from memory, as memory has it.
template <int ORDER, int EXTENT>
struct Share {
    static constexpr int BOXES = ORDER == K_MAJOR ? 1 : EXTENT / COLUMNS;
    static constexpr int TIMES = (ORDER == K_MAJOR ? EXTENT : SLICE) / ROWS_A_TIME;
    uint4 low[BOXES][TIMES];
    uint4 high[BOXES][TIMES];

    // Where pack (box, time) of this lane stands in a box, and in the matrix.
    static __device__ __forceinline__ int box_row(int time) {
        return threadIdx.x % WARPGROUP_THREADS / PACKS + time * ROWS_A_TIME;
    }
    static __device__ __forceinline__ int row(int at, int k, int time) { return (ORDER == K_MAJOR ? at : k) + box_row(time); }
    static __device__ __forceinline__ int col(int at, int k, int box) {
        return (ORDER == K_MAJOR ? k : at + box * COLUMNS) + threadIdx.x % PACKS * PACK;
    }
    // Elements by which a lane's packs start behind a multiple of PACK: `at` and k are such multiples, rows a lane are PACKS apart.
    static __device__ __forceinline__ int shift(const Matrix& matrix, int at, int k) {
        return int((unsigned)row(at, k, 0) * (unsigned)matrix.cols % PACK);
    }

    __device__ __forceinline__ void load(const Matrix& matrix, int at, int k) {
        const int behind = shift(matrix, at, k);
        const long long all = (long long)matrix.rows * matrix.cols;
        const long long first = (long long)row(at, k, 0) * matrix.cols + col(at, k, 0) - behind;
        const long long last = first + (long long)(TIMES - 1) * ROWS_A_TIME * matrix.cols + (BOXES - 1) * COLUMNS;
        // Almost always: nothing to check for each pack, and all loads are under way at once.
        if (row(at, k, TIMES - 1) < matrix.rows && col(at, k, BOXES - 1) < matrix.cols && last + 2 * PACK <= all) {
            const scalar_t* const from = matrix.data + first;
            load_all(low, from, matrix.cols);
            if (behind != 0) load_all(high, from + PACK, matrix.cols);
            return;
        }
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
#pragma unroll
            for (int time = 0; time < TIMES; ++time) {
                low[box][time] = high[box][time] = make_uint4(0, 0, 0, 0);
                if (row(at, k, time) >= matrix.rows || col(at, k, box) >= matrix.cols) continue;
                const long long from = first + (long long)time * ROWS_A_TIME * matrix.cols + box * COLUMNS;
                low[box][time] = load_within(matrix.data, from, all);
                if (behind != 0) high[box][time] = load_within(matrix.data, from + PACK, all);
            }
        }
    }

    static __device__ __forceinline__ void load_all(uint4 (&packs)[BOXES][TIMES], const scalar_t* from, int cols) {
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
#pragma unroll
            for (int time = 0; time < TIMES; ++time) {
                const scalar_t* const here = from + (long long)time * ROWS_A_TIME * cols + box * COLUMNS;
                packs[box][time] = *reinterpret_cast<const uint4*>(here);
            }
        }
    }

    // Into a swizzled tile: zeros for what lies outside of the matrix.
    __device__ __forceinline__ void store(unsigned to, const Matrix& matrix, int at, int k) const {
        const int bytes = shift(matrix, at, k) * int(sizeof(scalar_t));
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            const int count = matrix.cols - col(at, k, box);
#pragma unroll
            for (int time = 0; time < TIMES; ++time) {
                uint4 pack = bytes == 0 ? low[box][time] : shifted(low[box][time], high[box][time], bytes);
                if (count < PACK) {
                    pack = make_uint4(first_of(pack.x, count), first_of(pack.y, count - 2), first_of(pack.z, count - 4),
                                      first_of(pack.w, count - 6));
                }
                const int r = box_row(time);
                const unsigned there = to + box * COLUMNS_BYTES + r * ROW_BYTES + (threadIdx.x % PACKS ^ r % 8) * 16;
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(pack.x), "r"(pack.y), "r"(pack.z),
                             "r"(pack.w)
                             : "memory");
            }
        }
    }
};

// A product's operands by lanes, AHEAD slices of them on their way.
template <int AHEAD>
struct Rows {
    Matrix a;
    Matrix b;
    static constexpr int PRODUCERS = WARPGROUP_WARPS;  // arrivals that fill a stage

    template <class C>
    __device__ __forceinline__ void produce(Pipeline<C>& pipeline, TileOrigin tile, int first, int last) const {
        Share<C::A_ORDER, C::TILE_M> of_a[AHEAD];
        Share<C::B_ORDER, C::TILE_N> of_b[AHEAD];
        auto load = [&](int i, int slice) {
            if (slice >= last) return;
            of_a[i].load(a, tile.row, slice * SLICE);
            of_b[i].load(b, tile.col, slice * SLICE);
        };
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) load(i, first + i);
        for (int base = first; base < last; base += AHEAD) {
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                const int slice = base + i;
                if (slice >= last) break;
                mbarrier_wait(pipeline.is_empty(), pipeline.parity ^ 1);
                of_a[i].store(pipeline.a(), a, tile.row, slice * SLICE);
                of_b[i].store(pipeline.b(), b, tile.col, slice * SLICE);
                load(i, slice + AHEAD);
                fence_proxy_async();
                __syncwarp();
                if (threadIdx.x % 32 == 0) mbarrier_arrive(pipeline.is_full());
                pipeline.next();
            }
        }
    }
};

}  // namespace hopper
