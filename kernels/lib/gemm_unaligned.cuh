// Operands whose rows start anywhere (2-byte alignment), without a copy first. The producer is a whole warpgroup: eight lanes have a
// row of a slice, which they copy as memory has it (cp.async), from the multiple of 16 bytes before its first element on. Once it
// is there they shift it in place, to where TMA would have put it, while the copies of the next slices are under way.
#pragma once
#include "async.cuh"
#include "gemm_wgmma.cuh"
#include "shifted.cuh"

namespace hopper {

// A row-major matrix, or several one behind the other, from a multiple of 16 bytes on.
struct Matrix {
    const scalar_t* data;
    int rows;
    int cols;
};

constexpr int PACKS = COLUMNS / PACK_LEN;               // of a row of a slice, each a lane's
constexpr int ROWS_A_TIME = WARPGROUP_THREADS / PACKS;  // that a warpgroup copies

// Starts a copy of a pack of which the first `bytes` are read; the others become zeros.
__device__ __forceinline__ void copy_pack_async(unsigned target, const void* source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(__cvta_generic_to_global(source)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ uint4 load_shared(unsigned from) {
    uint4 pack;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pack.x), "=r"(pack.y), "=r"(pack.z), "=r"(pack.w)
                 : "r"(from)
                 : "memory");
    return pack;
}

__device__ __forceinline__ void store_shared(unsigned to, const uint4& pack) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(pack.x), "r"(pack.y), "r"(pack.z), "r"(pack.w)
                 : "memory");
}

// A lane's part of an operand's slices: EXTENT of its rows or columns, 64 of k each. A row in memory has eight packs in a swizzled
// tile, a lane's at `own`, and the ninth, which a row that does not start on 16 bytes needs as well, among the tile's ninths. The
// rows of a lane are some packs apart, as slices are: all of them start as far behind a multiple of a pack.
template <int ORDER, int EXTENT>
struct UnalignedOperand {
    static constexpr int ROWS = ORDER == K_MAJOR ? EXTENT : SLICE;
    static constexpr int TIMES = ROWS / ROWS_A_TIME;
    static constexpr int STEP_BYTES = ROWS_A_TIME * ROW_BYTES;  // from a row of a lane to its next one
    static constexpr int NINTHS_BYTES = ROWS * PACK_BYTES;
    static_assert(ORDER == K_MAJOR || EXTENT == COLUMNS, "a swizzled row has all columns");

    bool aligned;        // all rows start on 16 bytes
    int bytes;           // by which a row starts behind a multiple of 16
    const scalar_t* at;  // this lane's pack of its first row, from that multiple on
    long long step;      // elements to its next row
    int columns_left;    // elements from there to the end of the row
    int rows_left;       // from its first row on
    unsigned own;
    unsigned next;  // the pack behind it, or that of the ninths

    __device__ __forceinline__ UnalignedOperand(const Matrix& matrix, int item, int origin, int k) {
        const int lane = threadIdx.x % PACKS;
        const int box_row = threadIdx.x % WARPGROUP_THREADS / PACKS;
        const int row = (ORDER == K_MAJOR ? origin : k) + box_row;
        const int column = ORDER == K_MAJOR ? k : origin;
        const long long above = (long long)item * matrix.rows + row;
        const int behind = int((unsigned)above * (unsigned)matrix.cols % PACK_LEN);
        aligned = matrix.cols % PACK_LEN == 0;
        bytes = behind * int(sizeof(scalar_t));
        at = matrix.data + above * matrix.cols + column - behind + lane * PACK_LEN;
        step = (long long)ROWS_A_TIME * matrix.cols;
        columns_left = matrix.cols - column + behind - lane * PACK_LEN;
        rows_left = matrix.rows - row;
        own = box_row * ROW_BYTES + (lane ^ box_row % 8) * PACK_BYTES;
        next = is_last() ? box_row * PACK_BYTES : box_row * ROW_BYTES + (lane + 1 ^ box_row % 8) * PACK_BYTES;
    }

    static __device__ __forceinline__ bool is_last() { return threadIdx.x % PACKS == PACKS - 1; }

    // Starts the copies of the next slice; what is past the end of a row becomes zeros.
    __device__ __forceinline__ void copy(unsigned tile, unsigned ninths) {
        static_assert(TIMES <= PACKS, "a lane copies the ninth pack of one row at most");
        const int lane = threadIdx.x % PACKS;
        auto bytes_of = [](int elements) { return max(0, min(elements, PACK_LEN)) * int(sizeof(scalar_t)); };
        const int all = bytes_of(columns_left);
#pragma unroll
        for (int time = 0; time < TIMES; ++time) {
            copy_pack_async(tile + own + time * STEP_BYTES, at + time * step, time * ROWS_A_TIME < rows_left ? all : 0);
        }
        if (!aligned && lane < TIMES) {
            const int ahead = (PACKS - lane) * PACK_LEN;
            const int row = threadIdx.x % WARPGROUP_THREADS / PACKS + lane * ROWS_A_TIME;
            copy_pack_async(ninths + row * PACK_BYTES, at + ahead + lane * step,
                            lane * ROWS_A_TIME < rows_left ? bytes_of(columns_left - ahead) : 0);
        }
        at += ORDER == K_MAJOR ? SLICE : SLICE / ROWS_A_TIME * step;
        (ORDER == K_MAJOR ? columns_left : rows_left) -= SLICE;
    }

    // Shifts the rows of a slice that is there.
    __device__ __forceinline__ void shift(unsigned tile, unsigned ninths) const {
        if (aligned) return;
        const unsigned behind = (is_last() ? ninths : tile) + next;
        const unsigned behind_step = is_last() ? ROWS_A_TIME * PACK_BYTES : STEP_BYTES;
        uint4 packs[TIMES];
#pragma unroll
        for (int time = 0; time < TIMES; ++time) {
            packs[time] = shifted(load_shared(tile + own + time * STEP_BYTES), load_shared(behind + time * behind_step), bytes);
        }
        __syncwarp();  // a row's lanes have read it
#pragma unroll
        for (int time = 0; time < TIMES; ++time) store_shared(tile + own + time * STEP_BYTES, packs[time]);
    }
};

// The plan of a block with a tile of 64 x TILE_N: the ninths of all stages stand behind these. B_BY_MAP: b is brought by TMA, and has
// none.
template <int TILE_N, int STAGES, int A_ORDER, int B_ORDER, bool B_BY_MAP = false, bool BATCHED = false>
struct UnalignedConfig : Config<1, TILE_N, STAGES, 1, A_ORDER, B_ORDER, BATCHED> {
    using Stages = Config<1, TILE_N, STAGES, 1, A_ORDER, B_ORDER, BATCHED>;
    using OperandA = UnalignedOperand<A_ORDER, Stages::TILE_M>;
    using OperandB = UnalignedOperand<B_ORDER, TILE_N>;
    static constexpr int NINTHS_BYTES = OperandA::NINTHS_BYTES + (B_BY_MAP ? 0 : OperandB::NINTHS_BYTES);
    static constexpr int PIPELINE_BYTES = Stages::PIPELINE_BYTES + STAGES * NINTHS_BYTES;
};

// The slices [first, last) of a tile by the producer warpgroup: `copy(pipeline, ninths)` starts the copies of the next one as a stage
// comes free, and `shift(pipeline, ninths)` puts one in place that is there. A consumer gives a stage back when it has the next one,
// which must not wait for that.
template <class C, class Copy, class Shift>
__device__ __forceinline__ void produce_unaligned(Pipeline<C>& pipeline, int first, int last, const Copy& copy, const Shift& shift) {
    constexpr int AHEAD = C::STAGES - 2;  // slices whose copies are under way
    auto ninths = [](const Pipeline<C>& at) { return at.stages + C::STAGES * C::STAGE_BYTES + at.stage * C::NINTHS_BYTES; };
    Pipeline<C> copies = pipeline;
    auto begin = [&](int slice) {
        if (slice < last) {
            mbarrier_wait(copies.is_empty(), copies.parity ^ 1);
            copy(copies, ninths(copies), slice);
            copies.next();
        }
        copy_async_commit();
    };
#pragma unroll 1
    for (int slice = first; slice < first + AHEAD; ++slice) begin(slice);
#pragma unroll 1
    for (int slice = first; slice < last; ++slice) {
        copy_async_wait<AHEAD - 1>();
        __syncwarp();
        shift(pipeline, ninths(pipeline));
        fence_proxy_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(pipeline.is_full());
        pipeline.next();
        begin(slice + AHEAD);
    }
}

// A product's operands by lanes.
struct UnalignedOperands {
    Matrix a;
    Matrix b;
    static constexpr int PRODUCERS = WARPGROUP_WARPS;  // arrivals that fill a stage

    template <class C>
    __device__ __forceinline__ void produce(Pipeline<C>& pipeline, TileOrigin tile, int item, int first, int last) const {
        typename C::OperandA of_a(a, item, tile.row, first * SLICE);
        typename C::OperandB of_b(b, item, tile.col, first * SLICE);
        constexpr int OF_A = C::OperandA::NINTHS_BYTES;
        auto copy = [&](const Pipeline<C>& to, unsigned ninths, int) {
            of_a.copy(to.a(), ninths);
            of_b.copy(to.b(), ninths + OF_A);
        };
        auto shift = [&](const Pipeline<C>& at, unsigned ninths) {
            of_a.shift(at.a(), ninths);
            of_b.shift(at.b(), ninths + OF_A);
        };
        produce_unaligned(pipeline, first, last, copy, shift);
    }
};

// a by lanes, b, which has fewer elements, by TMA.
struct UnalignedA {
    Matrix a;
    const TensorMap& b;
    static constexpr int PRODUCERS = WARPGROUP_WARPS + 1;

    template <class C>
    __device__ __forceinline__ void produce(Pipeline<C>& pipeline, TileOrigin tile, int item, int first, int last) const {
        typename C::OperandA of_a(a, item, tile.row, first * SLICE);
        auto copy = [&](const Pipeline<C>& to, unsigned ninths, int slice) {
            if (threadIdx.x == C::CONSUMER_THREADS) {
                mbarrier_expect_tx(to.is_full(), C::B_BYTES);
                fetch<C::B_ORDER, C::TILE_N, 1, C::BATCHED>(to.b(), b, tile.col, slice * SLICE, item, to.is_full(), 0);
            }
            of_a.copy(to.a(), ninths);
        };
        auto shift = [&](const Pipeline<C>& at, unsigned ninths) { of_a.shift(at.a(), ninths); };
        produce_unaligned(pipeline, first, last, copy, shift);
    }
};

}  // namespace hopper
