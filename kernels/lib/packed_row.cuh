// A row held in registers as it came from memory: packs of 16 bytes, and the few elements that no pack covers.
//
// A pack of half-width elements takes half the registers of its values, and unpacking is one instruction an element, so
// more warps fit beside each other. Loads and stores are plain ones: marked for early eviction (ld.cs, st.cs) or kept
// out of the L1, they cost 1 to 5 % of the bandwidth of an H200.
#pragma once
#include "rows.cuh"
#include "shifted.cuh"

// Where the single elements of a row go: a lane of the first warp of the group each, others hold none.
__device__ __forceinline__ int edge_lane(const LaneGroup& group) { return group.has_row ? group.rank : MAX_WARPS * WARP; }
__device__ __forceinline__ int edge_lane(const BlockGroup&) { return int(threadIdx.x); }

// PACK_LEN elements from low[shift] on, 0 <= shift < PACK_LEN; low is a multiple of 16 bytes. Both packs that they
// lie in must be inside the buffer.
__device__ __forceinline__ Pack load_shifted(const scalar_t* low, int shift) {
    const uint4 a = load_pack(low).words;
    if (shift == 0) {
        return Pack{a};
    }
    const uint4 b = load_pack(low + PACK_LEN).words;
    return Pack{shifted(a, b, shift * int(sizeof(scalar_t)))};
}

// Elements of a line of the caches, and of the least of it that is moved.
constexpr int LINE_LEN = 128 / int(sizeof(scalar_t));
constexpr int SECTOR_LEN = LINE_LEN / 4;

// One thread's fragment of a row of `cols` elements, VALUES at most and perhaps one more.
//
// UNALIGNED: the row may start anywhere. Its packs then begin at column `head`, where ALIGNED elements lie whole in memory, and
// what stands before and behind them, fewer than ALIGNED + PACK_LEN elements, goes to the first threads, one each: no
// lane waits for a second element, and no pack is partly absent. The first warp has them all up to a sector.
// SPREAD: the packs of a thread lie blockDim.x packs apart. Else each warp holds one contiguous piece.
// FULL: every thread of the group holds VALUES elements, which saves the tests.
template <int VALUES, bool SPREAD, bool UNALIGNED, bool FULL = false, int ALIGNED = PACK_LEN>
struct PackedRow {
    static constexpr int PACKS = VALUES / PACK_LEN;
    static constexpr bool has_edges = UNALIGNED;
    int head;    // columns before the first pack
    int column;  // of this thread's first pack
    int stride;  // columns from one pack to the next
    int left;    // columns of packs of this block from `column` on; none or less: no pack is held
    int edge;    // column of the single element, or -1
    Pack packs[PACKS];
    scalar_t single;

    template <typename Group>
    __device__ __forceinline__ PackedRow(const Group& group, int cols) {
        head = UNALIGNED ? int(-(group.row() * cols) & (ALIGNED - 1)) : 0;
        // Of a shifted row the last pack is left out: the weights that go with it would end past the buffer.
        const int whole = UNALIGNED ? max(cols / PACK_LEN - head / PACK_LEN - (shift() != 0), 0) * PACK_LEN : cols;
        const int in_block = (SPREAD ? int(threadIdx.x) : group.first_access(PACKS)) * PACK_LEN;
        const int first = group.template first_column<PACK_LEN>(whole) + in_block;
        column = head + first;
        stride = (SPREAD ? int(blockDim.x) : group.stride()) * PACK_LEN;
        left = group.template columns<PACK_LEN>(whole) - in_block;
        edge = -1;
        if (UNALIGNED && edge_lane(group) < cols - whole) {
            edge = edge_lane(group) < head ? edge_lane(group) : edge_lane(group) + whole;
        }
    }

    __device__ __forceinline__ bool has(int k) const { return FULL || k * stride < left; }
    // How far into a pack of the weights its packs begin.
    __device__ __forceinline__ int shift() const { return head % PACK_LEN; }

    // Every load is issued before the first value is used.
    __device__ __forceinline__ void load(const scalar_t* row, Absent absent) {
        const unsigned int word = absent_word(absent);
        const scalar_t* const mine = row + column;
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            packs[k] = Pack{make_uint4(word, word, word, word)};
            if (has(k)) {
                packs[k] = load_pack(mine + k * stride);
            }
        }
        single = reinterpret_cast<const scalar_t&>(word);
        if (UNALIGNED && edge >= 0) {
            single = row[edge];
        }
    }

    // visit(turn, x - shift) for every element held, visit(turn, absent) for those that are not there.
    template <typename Visit>
    __device__ __forceinline__ void each(float shift, Visit visit) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            const float by = has(k) ? shift : 0.0f;
            float x[PACK_LEN];
            unpack(packs[k], x);
#pragma unroll
            for (int j = 0; j < PACK_LEN; ++j) {
                visit(k * PACK_LEN + j, x[j] - by);
            }
        }
        if (UNALIGNED) {
            visit(0, to_float(single) - (edge >= 0 ? shift : 0.0f));
        }
    }
};

// The elements of a weight vector that go with a held row: fetched early, while the row is on its way, or at their use, after a
// prefetch of the whole vector. Early f32 weights of a shifted row come by single elements, which take no more registers than
// their values; the first touch of a line fetches it for the other three.
template <bool EARLY_WEIGHTS, typename Row>
struct PackedWeights {
    static constexpr bool BY_ELEMENTS = EARLY_WEIGHTS && Row::has_edges && PACK_LEN == 4;
    const scalar_t* __restrict__ weights;
    Pack packs[EARLY_WEIGHTS ? Row::PACKS : 1];
    scalar_t single;

    __device__ __forceinline__ PackedWeights(const scalar_t* weights, const Row& row, int cols) : weights(weights) {
        if constexpr (!EARLY_WEIGHTS) {
            prefetch_vector(weights, cols);
        } else {
#pragma unroll
            for (int k = 0; k < Row::PACKS; ++k) {
                if (row.has(k)) {
                    packs[k] = fetch(k, row);
                }
            }
        }
        if constexpr (BY_ELEMENTS) {
            if (row.edge >= 0) {
                single = weights[row.edge];
            }
        }
    }
    __device__ __forceinline__ Pack fetch(int k, const Row& row) const {
        if constexpr (BY_ELEMENTS) {
            const scalar_t* const mine = weights + unsigned(row.column) + k * row.stride;
            const float elements[PACK_LEN] = {to_float(mine[0]), to_float(mine[1]), to_float(mine[2]), to_float(mine[3])};
            return pack(elements);
        } else {
            const scalar_t* const mine = weights + unsigned(row.column - row.shift()) + k * row.stride;
            return Row::has_edges ? load_shifted(mine, row.shift()) : load_pack(mine);
        }
    }
    // Only where row.has(k).
    __device__ __forceinline__ void get(int k, const Row& row, float (&weight)[PACK_LEN]) const {
        if constexpr (EARLY_WEIGHTS) {
            unpack(packs[k], weight);
        } else {
            unpack(fetch(k, row), weight);
        }
    }
    // Only where row.edge >= 0.
    __device__ __forceinline__ float edge(const Row& row) const {
        return to_float(BY_ELEMENTS ? single : weights[row.edge]);
    }
};

#if !defined(KERNELGATE_F32)
#if defined(KERNELGATE_F16)
#define KERNELGATE_SUM_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
constexpr unsigned int TWO_ONES = 0x3c003c00u;
#else
#define KERNELGATE_SUM_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
constexpr unsigned int TWO_ONES = 0x3f803f80u;
#endif
// Of the packs. Row r of the product adds the four lanes 4r .. 4r + 3: their first and third words in sums[0] and [1],
// which are equal, the others in sums[2] and [3].
template <typename Row>
__device__ __forceinline__ float warp_sum_mma(const Row& row) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < Row::PACKS; ++k) {
        const uint4 a = row.packs[k].words;
        asm volatile(KERNELGATE_SUM_MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %8}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(TWO_ONES));
    }
    float sum = sums[0] + sums[2];
#pragma unroll
    for (int offset = WARP / 2; offset >= 4; offset /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, offset);
    }
    return sum;
}
#endif

// The sum of what a warp holds, the same bits in every lane. MMA_SUM: at half width a matrix product with ones adds
// the pack of every lane in one instruction where unpacking and adding take sixteen; its sums are f32.
template <bool MMA_SUM, typename Row>
__device__ __forceinline__ float warp_sum(const Row& row) {
#if !defined(KERNELGATE_F32)
    if constexpr (MMA_SUM) {
        const float sum = warp_sum_mma(row);
        return Row::has_edges ? sum + warp_reduce<Sum>(to_float(row.single)) : sum;
    }
#endif
    FourSums sum;
    row.each(0.0f, [&](int turn, float x) { sum.add(turn, x); });
    return warp_reduce<Sum>(sum.total());
}
