// Embedding: y[i] = table[ids[i]]. table [vocab, dim], ids [ids] of int, y [ids, dim]; a copy of bytes.
// An id outside 0 .. vocab - 1 reads nothing and gives a row of NaN, so that it is seen.
//
// Launch (every version serves every shape; no dynamic shared memory). X threads share a row, Y = 256 / X rows a block:
// X = 1, 2, 4 .. 32, the least >= dim / 8; for dim > 256 X = 32 * ceil(dim / 256), at most 256.
//   v1  grid ids                  block 256
//   v2  grid ceil(ids / Y)        block (X, Y)
//   v3  grid ceil(ids / (4 * Y))  block (X, Y)
// Rows that start on 16 bytes (dim * element size is a multiple of 16) move in 16-byte packs, others by elements.
#include "common.cuh"

#define PARAMETERS                                                                                                    \
    const scalar_t *__restrict__ table, const int *__restrict__ ids, scalar_t *__restrict__ y, int id_count, int dim, \
        int vocab

// v1: the definition. One block a row, one thread an element at a time.
extern "C" __global__ void embedding_v1(PARAMETERS) {
    const int id = ids[blockIdx.x];
    for (int column = threadIdx.x; column < dim; column += blockDim.x) {
        const bool known = id >= 0 && id < vocab;
        const scalar_t value = known ? table[(long long)id * dim + column] : from_float<scalar_t>(nanf(""));
        y[(long long)blockIdx.x * dim + column] = value;
    }
}

// ROWS rows a thread, each row by the blockDim.x threads of one threadIdx.y. All ids are fetched before the first
// row, and one access of every row is in flight at a time: the latency of an id is paid once for ROWS rows.
template <int WIDTH, int ROWS>
__device__ __forceinline__ void gather(const scalar_t* table, const int* ids, scalar_t* y, int id_count, int dim,
                                       int vocab) {
    const long long first = ((long long)blockIdx.x * blockDim.y + threadIdx.y) * ROWS;
    int id[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        id[r] = first + r < id_count ? ids[first + r] : -1;
    }
#pragma unroll 1  // ROWS loads in flight are enough; unrolled, the trip count would cost a division
    for (int column = int(threadIdx.x) * WIDTH; column < dim; column += int(blockDim.x) * WIDTH) {
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

template <int ROWS>
__device__ __forceinline__ void gather(const scalar_t* table, const int* ids, scalar_t* y, int id_count, int dim,
                                       int vocab) {
    if (dim % PACK_LEN == 0) {
        gather<PACK_LEN, ROWS>(table, ids, y, id_count, dim, vocab);
    } else {
        gather<1, ROWS>(table, ids, y, id_count, dim, vocab);
    }
}

// v2: 16-byte packs, and as many rows a block as fill it.
extern "C" __global__ void __launch_bounds__(256) embedding_v2(PARAMETERS) {
    gather<1>(table, ids, y, id_count, dim, vocab);
}

// v3: four rows a thread in flight: the load of an id delays four loads of the table, not one.
extern "C" __global__ void __launch_bounds__(256) embedding_v3(PARAMETERS) {
    gather<4>(table, ids, y, id_count, dim, vocab);
}
