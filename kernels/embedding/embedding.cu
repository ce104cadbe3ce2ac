// Embedding: y[i] = table[ids[i]]. table [vocab, dim], ids [ids] of int, y [ids, dim]; a copy of bytes.
// An id outside 0 .. vocab - 1 reads nothing and gives a row of NaN, so that it is seen.
//
// The idea: all ids and loads of a thread on their way together, so that the latency of an id delays many loads of the table;
// rows that start anywhere still leave in 16-byte packs. Launch (no dynamic shared memory): X threads own a row, or a part of one
// where grid.y > 1, Y rows a block. An access is of W elements, the widest that every row is aligned to: 16 bytes, 8, 4, 2.
//   naive           any dim                   grid ids                                          block 256
//   vectorised      any dim                   grid (ceil(ids / Y), ceil(dim / (W * X)))         block (X, Y), at most 256 threads
//   four_rows       any dim                   grid ceil(ids / (4 * Y))                          block (X, Y), at most 256 threads
//                   Both are right with any grid.y.
//   shifted_packs   f16, bf16                 grid ids                                          block 32 * min(ceil(dim / 512), 4)
//   output_packs    dim >= a pack             grid ceil(ids * dim / (2 packs * 256))            block 256
#include "packed_row.cuh"

#define PARAMETERS                                                                                                    \
    const scalar_t *__restrict__ table, const int *__restrict__ ids, scalar_t *__restrict__ y, int id_count, int dim, \
        int vocab

// Lesson 1: the definition. One block a row, one thread an element at a time.
extern "C" __global__ void embedding_naive(PARAMETERS) {
    const int id = ids[blockIdx.x];
    for (int column = threadIdx.x; column < dim; column += blockDim.x) {
        const bool known = id >= 0 && id < vocab;
        const scalar_t value = known ? table[(long long)id * dim + column] : from_float<scalar_t>(nanf(""));
        y[(long long)blockIdx.x * dim + column] = value;
    }
}

// Half a pack, and a quarter of one at half width: rows of as many elements start on a multiple of their bytes.
template <typename Words>
struct Part {
    Words bits;
    static __device__ __forceinline__ Part load(const scalar_t* from) { return {*reinterpret_cast<const Words*>(from)}; }
    static __device__ __forceinline__ Part filled(Absent absent) {
        const unsigned int word = absent_word(absent);
        const uint2 words = make_uint2(word, word);
        return {reinterpret_cast<const Words&>(words)};
    }
    // Neighbouring accesses share sectors, so the caches have to keep them.
    __device__ __forceinline__ void put_once(scalar_t* to) const { *reinterpret_cast<Words*>(to) = bits; }
};
template <>
struct Access<PACK_LEN / 2> : Part<uint2> {
    Access() = default;
    __device__ __forceinline__ Access(Part part) : Part(part) {}
};
#if !defined(KERNELGATE_F32)
template <>
struct Access<PACK_LEN / 4> : Part<unsigned int> {
    Access() = default;
    __device__ __forceinline__ Access(Part part) : Part(part) {}
};
#endif

// ROWS rows a thread, each row by the blockDim.x threads of one threadIdx.y of all blocks along y. All ids are fetched before the
// first row, and one access of every row is in flight at a time: the latency of an id is paid once for ROWS rows.
template <int WIDTH, int ROWS>
__device__ __forceinline__ void gather(const scalar_t* table, const int* ids, scalar_t* y, int id_count, int dim,
                                       int vocab) {
    const long long first = ((long long)blockIdx.x * blockDim.y + threadIdx.y) * ROWS;
    int id[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        id[r] = first + r < id_count ? ids[first + r] : -1;
    }
    const int thread = int(blockIdx.y * blockDim.x + threadIdx.x);
    const int step = int(gridDim.y * blockDim.x) * WIDTH;
#pragma unroll 1  // ROWS loads in flight are enough; unrolled, the trip count would cost a division
    for (int column = thread * WIDTH; column < dim; column += step) {
        Access<WIDTH> access[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            access[r] = Access<WIDTH>::filled(Absent::NOT_A_NUMBER);
            if (id[r] >= 0 && id[r] < vocab) {
                access[r] = Access<WIDTH>::load(table + (long long)id[r] * dim + column);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (first + r < id_count) {
                access[r].put_once(y + (first + r) * dim + column);
            }
        }
    }
}

// By the widest access that every row is aligned to.
template <int ROWS>
__device__ __forceinline__ void gather(const scalar_t* table, const int* ids, scalar_t* y, int id_count, int dim,
                                       int vocab) {
    if (dim % PACK_LEN == 0) {
        gather<PACK_LEN, ROWS>(table, ids, y, id_count, dim, vocab);
    } else if (dim % (PACK_LEN / 2) == 0) {
        gather<PACK_LEN / 2, ROWS>(table, ids, y, id_count, dim, vocab);
#if !defined(KERNELGATE_F32)
    } else if (dim % (PACK_LEN / 4) == 0) {
        gather<PACK_LEN / 4, ROWS>(table, ids, y, id_count, dim, vocab);
#endif
    } else {
        gather<1, ROWS>(table, ids, y, id_count, dim, vocab);
    }
}

// Lesson 2: the widest accesses, 16 bytes mostly, and as many rows a block as fill it. With few rows an access a thread.
extern "C" __global__ void __launch_bounds__(256) embedding_vectorised(PARAMETERS) {
    gather<1>(table, ids, y, id_count, dim, vocab);
}

// Lesson 3: four rows a thread in flight: the load of an id delays four loads of the table, not one.
extern "C" __global__ void __launch_bounds__(256, 6) embedding_four_rows(PARAMETERS) {
    gather<4>(table, ids, y, id_count, dim, vocab);
}

#if !defined(KERNELGATE_F32)
// A row that starts anywhere, as packs of y: those that lie inside the row and whose elements stand in two packs of the
// table's row, and the elements that are left: less than two packs at either end, no more than a warp.
struct ShiftedRow {
    const scalar_t* from;
    scalar_t* to;
    int begin;  // elements before the first pack of y
    int shift;  // of the first one's source behind a multiple of 16 bytes
    int packs;
    bool is_known;

    static __device__ __forceinline__ int past_16_bytes(const scalar_t* at) {
        return int(reinterpret_cast<unsigned long long>(at) % sizeof(Pack) / sizeof(scalar_t));
    }

    // An unknown id names the first row here: its addresses are valid, and nothing is read there.
    __device__ __forceinline__ ShiftedRow(const scalar_t* table, scalar_t* y, int id, int dim, int vocab)
        : is_known(id >= 0 && id < vocab) {
        from = table + (is_known ? (long long)id * dim : 0);
        to = y;
        begin = (PACK_LEN - past_16_bytes(to)) % PACK_LEN;
        shift = past_16_bytes(from + begin);
        if (begin < shift) begin += PACK_LEN;
        packs = max(dim - begin - (shift > 0 ? PACK_LEN - shift : 0), 0) / PACK_LEN;
    }

    // The two packs of the table that hold a pack of y; the same one twice where it is whole in one.
    __device__ __forceinline__ void load(int pack, Pack& low, Pack& high) const {
        low = high = Access<PACK_LEN>::filled(Absent::NOT_A_NUMBER).bits;
        if (is_known && pack < packs) {
            const scalar_t* const at = from + (begin - shift) + pack * PACK_LEN;
            low = load_pack(at);
            high = load_pack(at + (shift > 0 ? PACK_LEN : 0));
        }
    }
    __device__ __forceinline__ void store(int pack, const Pack& low, const Pack& high) const {
        if (pack < packs) {
            const uint4 words = shifted(low.words, high.words, shift * int(sizeof(scalar_t)));
            store_pack(to + begin + pack * PACK_LEN, Pack{words});
        }
    }

    // Single elements, those that no pack has.
    __device__ __forceinline__ int edges(int dim) const { return dim - packs * PACK_LEN; }
    __device__ __forceinline__ int column_of_edge(int edge) const {
        return edge < begin ? edge : edge + packs * PACK_LEN;
    }
    __device__ __forceinline__ scalar_t edge(int edge) const {
        return is_known ? from[column_of_edge(edge)] : Access<1>::filled(Absent::NOT_A_NUMBER).bits;
    }
};

// Rows that start anywhere: y in packs all the same, each from the two packs of the table that its elements stand in (the second
// load finds its line in L1). Two packs of a row a thread, and the row's single elements a lane of the first warp each, all on
// their way together: no branch waits for a load.
extern "C" __global__ void __launch_bounds__(128) embedding_shifted_packs(PARAMETERS) {
    constexpr int PACKS = 2;
    const ShiftedRow row(table, y + (long long)blockIdx.x * dim, ids[blockIdx.x], dim, vocab);
    const int thread = int(threadIdx.x);
    const int step = int(blockDim.x);
    const bool has_edge = thread < row.edges(dim);
    const scalar_t edge = has_edge ? row.edge(thread) : scalar_t();
    for (int first = thread; first < row.packs; first += PACKS * step) {
        Pack low[PACKS], high[PACKS];
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            row.load(first + k * step, low[k], high[k]);
        }
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            row.store(first + k * step, low[k], high[k]);
        }
    }
    if (has_edge) row.to[row.column_of_edge(thread)] = edge;
}
#endif

// y as one run of packs, whichever rows they lie in, each of pieces of WIDTH elements of the table: of one row, or of two. Pieces of a
// thread lie side by side: the first one brings whole lines, and the others find them in L1. dim >= PACK_LEN.
template <int WIDTH>
__device__ __forceinline__ void gather_output(const scalar_t* table, const int* ids, scalar_t* y, int id_count, int dim,
                                              int vocab) {
    constexpr int PACKS = 2;
    constexpr int PIECES = PACK_LEN / WIDTH;
    struct alignas(sizeof(Pack)) Pieces {
        Access<WIDTH> piece[PIECES];
    };
    const long long total = (long long)id_count * dim;
    const long long first = (long long)blockIdx.x * (PACKS * blockDim.x * PACK_LEN);
    const int first_row = int(first / dim);
    const unsigned first_column = unsigned(first - (long long)first_row * dim);
    Pieces packs[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const unsigned ahead = first_column + (k * blockDim.x + threadIdx.x) * PACK_LEN;
        const int row = first_row + int(ahead / unsigned(dim));
        const int column = int(ahead % unsigned(dim));
        const int id = row < id_count ? ids[row] : -1;
        const int next_id = row + 1 < id_count && column + PACK_LEN > dim ? ids[row + 1] : -1;
#pragma unroll
        for (int j = 0; j < PIECES; ++j) {
            const bool is_next = column + j * WIDTH >= dim;
            const int of = is_next ? next_id : id;
            packs[k].piece[j] = Access<WIDTH>::filled(Absent::NOT_A_NUMBER);
            if (of >= 0 && of < vocab) {
                const int within = column + j * WIDTH - (is_next ? dim : 0);
                packs[k].piece[j] = Access<WIDTH>::load(table + (long long)of * dim + within);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const long long at = first + (long long)(k * blockDim.x + threadIdx.x) * PACK_LEN;
        if (at + PACK_LEN <= total) {
            store_pack(y + at, reinterpret_cast<const Pack&>(packs[k]));
        } else {
#pragma unroll
            for (int j = 0; j < PIECES; ++j) {
                if (at + j * WIDTH < total) packs[k].piece[j].put_once(y + at + j * WIDTH);
            }
        }
    }
}

// Rows that are no whole packs: pieces as wide as every row is aligned to.
extern "C" __global__ void __launch_bounds__(256) embedding_output_packs(PARAMETERS) {
    if (dim % (PACK_LEN / 2) == 0) {
        gather_output<PACK_LEN / 2>(table, ids, y, id_count, dim, vocab);
#if !defined(KERNELGATE_F32)
    } else if (dim % (PACK_LEN / 4) == 0) {
        gather_output<PACK_LEN / 4>(table, ids, y, id_count, dim, vocab);
#endif
    } else {
        gather_output<1>(table, ids, y, id_count, dim, vocab);
    }
}
