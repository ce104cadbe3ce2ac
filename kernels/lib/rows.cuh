// Rows on chip: the thread group that owns a row, and the row in its registers.
#pragma once
#include "common.cuh"

constexpr int MAX_CLUSTER = 16;  // blocks; more than 8 are not portable

// == Thread groups: the threads that own one row together ==========================================================
//
// `row` is the row they own. `first_column` and `columns` cut the part of it that the threads of this block hold. Of
// that part a thread holds accesses number first_access + k * stride; `accesses` is how many k there are at most.
// `reduce` gives every member the same bits; `combine` starts from what each warp has reduced (a group of a whole warp is
// then done).

// 1, 2, 4 .. 32 lanes of one warp. A group without a row (past the last one) holds no columns and still takes part in
// the shuffles. Such groups are short of work between a load and its use, so they load the weights early.
struct LaneGroup {
    static constexpr bool EARLY_WEIGHTS = true;
    int rank, size;
    bool has_row;

    // threadIdx.x is the lane in the group, threadIdx.y the group in the block.
    __device__ __forceinline__ LaneGroup(int lanes, int rows)
        : rank(int(threadIdx.x)), size(lanes), has_row(row() < rows) {}
    static __device__ __forceinline__ long long row() { return (long long)blockIdx.x * blockDim.y + threadIdx.y; }

    __device__ __forceinline__ int first_access(int) const { return rank; }
    __device__ __forceinline__ int stride() const { return size; }
    template <int WIDTH>
    __device__ __forceinline__ int first_column(int) const {
        return 0;
    }
    template <int WIDTH>
    __device__ __forceinline__ int columns(int cols) const {
        return has_row ? cols : 0;
    }
    template <typename Reduction, int SLOT>
    __device__ __forceinline__ float reduce(float value) const {
        return warp_reduce<Reduction>(value, size);
    }
    template <typename Reduction, int SLOT>
    __device__ __forceinline__ float combine(float of_warp) const {
        return of_warp;
    }
};

// The warps of a block. Each warp holds one contiguous piece, so that the accesses of a thread lie at constant
// distances and use one address register.
struct WarpsOfBlock {
    __device__ __forceinline__ int first_access(int accesses) const {
        return int(threadIdx.x) / WARP * accesses * WARP + int(threadIdx.x) % WARP;
    }
    __device__ __forceinline__ int stride() const { return WARP; }
};

// A block. Other blocks of the SM cover the latency of its weights: fetching them late saves a third of the registers.
struct BlockGroup : WarpsOfBlock {
    static constexpr bool EARLY_WEIGHTS = false;

    static __device__ __forceinline__ long long row() { return blockIdx.x; }
    static __device__ __forceinline__ long long rows() { return gridDim.x; }
    template <int WIDTH>
    __device__ __forceinline__ int first_column(int) const {
        return 0;
    }
    template <int WIDTH>
    __device__ __forceinline__ int columns(int cols) const {
        return cols;
    }
    template <typename Reduction, int SLOT>
    __device__ __forceinline__ float reduce(float value) const {
        return block_reduce<Reduction, SLOT>(value);
    }
    template <typename Reduction, int SLOT>
    __device__ __forceinline__ float combine(float of_warp) const {
        return combine_warps<Reduction, SLOT>(of_warp);
    }
};

// == Prefetching ==================================================================================================

// Prefetches into L2 the row that lies PREFETCH_DISTANCE bytes behind this one (in all of the TENSORS that a row is read
// from), or this block's slice of it: a block that starts soon will read it. All blocks of an SM get their rows at about the
// same time and then compute: without this nothing loads meanwhile. Much further ahead, what was prefetched is evicted before
// its block starts. Short rows, of which many are in flight anyway, lose by it.
template <int TENSORS = 1, typename Group>
__device__ __forceinline__ void prefetch_row(const Group& group, const scalar_t* x, int cols) {
#if __CUDA_ARCH__ >= 900
    constexpr unsigned int PREFETCH_DISTANCE = (33u << 17) / TENSORS;
    constexpr int SHORT_BYTES = 4096;
    constexpr unsigned long long WHOLE = ~15ull;  // address and size are multiples of 16 bytes
    const int row_bytes = cols * int(sizeof(scalar_t));
    if (threadIdx.x == 0 && row_bytes > SHORT_BYTES) {
        const long long row = group.row() + PREFETCH_DISTANCE / unsigned(row_bytes);
        const int bytes = group.template columns<PACK_LEN>(cols) * int(sizeof(scalar_t)) & int(WHOLE);
        if (row < group.rows() && bytes > 0) {
            const scalar_t* const from = x + row * cols + group.template first_column<PACK_LEN>(cols);
            const unsigned long long address = __cvta_generic_to_global(from) & WHOLE;
            asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
        }
    }
#endif
}

// Prefetches a vector of `cols` elements into L2, from the first block: weights that come late are there by then, even in the
// first wave of blocks.
__device__ __forceinline__ void prefetch_vector(const scalar_t* vector, int cols) {
#if __CUDA_ARCH__ >= 900
    const unsigned int bytes = unsigned(cols) * unsigned(sizeof(scalar_t)) & ~15u;
    if (blockIdx.x == 0 && threadIdx.x == 0 && bytes > 0) {
        const unsigned long long address = __cvta_generic_to_global(vector);
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes));
    }
#endif
}

// == A row in registers ===========================================================================================

// One thread's fragment of a row (or slice): up to VALUES elements as f32 in accesses of WIDTH. Neighbouring threads
// hold neighbouring accesses. Access k lies k * stride behind the first: one pointer and constant distances.
template <int WIDTH, int VALUES>
struct RowFragment {
    static constexpr int ACCESSES = VALUES / WIDTH;
    int first;   // column in the row; not negative, and widened as such: sign extensions cost registers
    int stride;  // columns
    int left;    // columns of this block from `first` on; none or less: nothing is held
    float value[ACCESSES][WIDTH];

    template <typename Group>
    __device__ __forceinline__ RowFragment(const Group& group, int cols) {
        const int in_block = group.first_access(ACCESSES) * WIDTH;
        first = group.template first_column<WIDTH>(cols) + in_block;
        stride = group.stride() * WIDTH;
        left = group.template columns<WIDTH>(cols) - in_block;
    }

    __device__ __forceinline__ bool has(int k) const { return k * stride < left; }

    // Every load is issued before the first value is used.
    __device__ __forceinline__ void load(const scalar_t* row, Absent absent) {
        const scalar_t* const mine = row + unsigned(first);
        Access<WIDTH> access[ACCESSES];
#pragma unroll
        for (int k = 0; k < ACCESSES; ++k) {
            access[k] = Access<WIDTH>::filled(absent);
            if (has(k)) {
                access[k] = Access<WIDTH>::load_once(mine + k * stride);
            }
        }
#pragma unroll
        for (int k = 0; k < ACCESSES; ++k) {
            access[k].get(value[k]);
        }
    }
};

// The elements of a weight vector that belong to a fragment: fetched early, while the row is on its way, or at their use.
template <bool EARLY_WEIGHTS, int WIDTH, int VALUES>
struct WeightFragment {
    using Fragment = RowFragment<WIDTH, VALUES>;
    const scalar_t* weights;
    Access<WIDTH> access[EARLY_WEIGHTS ? Fragment::ACCESSES : 1];

    __device__ __forceinline__ WeightFragment(const scalar_t* weights, const Fragment& fragment) : weights(weights) {
        if constexpr (EARLY_WEIGHTS) {
#pragma unroll
            for (int k = 0; k < Fragment::ACCESSES; ++k) {
                if (fragment.has(k)) {
                    access[k] = Access<WIDTH>::load(weights + unsigned(fragment.first) + k * fragment.stride);
                }
            }
        }
    }
    // Only where fragment.has(k).
    __device__ __forceinline__ void get(int k, const Fragment& fragment, float (&weight)[WIDTH]) const {
        if constexpr (EARLY_WEIGHTS) {
            access[k].get(weight);
        } else {
            Access<WIDTH>::load(weights + unsigned(fragment.first) + k * fragment.stride).get(weight);
        }
    }
};
