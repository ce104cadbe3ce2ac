// Attention, head by head: y[i] = sum_j p[i, j] * v[j], p[i, .] = softmax over j of scale * (q[i] . k[j])
//   q, y [batch, heads * group, queries, dim]; k, v [batch, heads, keys, dim]; all of one dtype; the arithmetic is f32.
// Query head h reads head h / group of k and v. With causal, query i sees the keys up to i + keys - queries, and one
// that sees none gives zeros; else all.
//
// Launch (mma in f16 and bf16 only; shapes it does not serve take naive):
//   naive   dim <= 256  grid batch * heads * group * queries             block 256
//   mma_64  dim <= 64   grid batch * heads * group * ceil(queries / 64)  block 128  shared 24,576
//   mma_128 dim <= 128  the same                                                    shared 49,152
#include "attention.cuh"
#include "gemm_mma.cuh"

#if !defined(KERNELGATE_F32)

namespace {

// Keys and values are read once for 64 queries, and the products run on tensor cores (mma.sync, compute capability
// 8.0 and up). A block takes 64 queries of a head, 16 a warp, and loops over the keys, 64 at a time. Scores never leave
// the registers; weights are rounded to the dtype before the second product, as in every attention on tensor cores.

constexpr int QUERIES = 64;  // of a block
constexpr int KEYS = 64;     // of a step
constexpr int THREADS = 128;
constexpr int OF_WARP = 16;  // queries

// Two floats, rounded, in one register; the first in its low half.
__device__ __forceinline__ unsigned rounded_pair(float low, float high) {
    unsigned pair;
#if defined(KERNELGATE_F16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
    return pair;
}

// 64 rows of DIM elements in shared memory. ldmatrix reads the same chunk of eight neighbouring rows at once: the XOR
// puts those into eight different groups of four banks.
template <int DIM>
struct Rows {
    scalar_t* start;

    __device__ __forceinline__ scalar_t* at(int row, int chunk) const {
        return start + row * DIM + (chunk ^ (row & 7)) * CHUNK;
    }

    // Starts to fill it with the rows of a head from `first` on; zeros stand where the head has nothing.
    __device__ __forceinline__ void fetch(const scalar_t* head, int rows, int dim, int first, bool aligned) const {
        constexpr int CHUNKS = DIM / CHUNK;
#pragma unroll
        for (int i = 0; i < QUERIES * CHUNKS / THREADS; ++i) {
            const int number = i * THREADS + int(threadIdx.x);
            const int row = number / CHUNKS, chunk = number % CHUNKS;
            fetch_chunk(at(row, chunk), head, rows, dim, first + row, chunk * CHUNK, aligned);
        }
        copy_async_commit();
    }
};

// The softmax of two rows, whose scores lie four lanes wide: maxima and sums so far, and sums of weighted values.
template <int DIM>
struct Softmax {
    float max[2] = {Maximum::identity(), Maximum::identity()};
    float total[2] = {0.0f, 0.0f};  // of this lane's columns
    float sums[DIM / 8][4] = {};

    // Turns scores (in units of log 2) into weights against the largest so far, and corrects what has been summed.
    __device__ __forceinline__ void weigh(float (&scores)[KEYS / 8][4]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = max[half];
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j) {
                largest = fmaxf(largest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
            }
            largest = warp_reduce<Maximum>(largest, 4);
            // A row that has seen no key yet has nothing to correct, and -inf - -inf is no number.
            const float against = largest == Maximum::identity() ? 0.0f : largest;
            const float correction = fast_exp2(max[half] - against);
            max[half] = largest;
            total[half] *= correction;
#pragma unroll
            for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
                for (int k = 2 * half; k < 2 * half + 2; ++k) {
                    scores[j][k] = fast_exp2(scores[j][k] - against);
                    total[half] += scores[j][k];
                }
            }
#pragma unroll
            for (int d = 0; d < DIM / 8; ++d) {
                sums[d][2 * half] *= correction;
                sums[d][2 * half + 1] *= correction;
            }
        }
    }
};

template <int DIM>
__device__ __forceinline__ void attend(const scalar_t* __restrict__ q, const scalar_t* __restrict__ k,
                                       const scalar_t* __restrict__ v, scalar_t* __restrict__ y, int group, int queries,
                                       int keys, int dim, int causal, float scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* const memory = reinterpret_cast<scalar_t*>(shared);
    const Rows<DIM> query_rows{memory}, key_rows{memory + QUERIES * DIM}, value_rows{memory + 2 * QUERIES * DIM};
    const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP;
    // Later queries see more keys: they go first, so that no long block is left over at the end.
    const int blocks = (queries + QUERIES - 1) / QUERIES;
    const int first = (blocks - 1 - int(blockIdx.x) % blocks) * QUERIES;
    const long long head = int(blockIdx.x) / blocks;
    q += head * queries * dim;
    y += head * queries * dim;
    k += head / group * keys * dim;
    v += head / group * keys * dim;
    const bool aligned = dim % CHUNK == 0;
    const int hidden = causal ? keys - queries : keys;  // query i sees i + 1 more keys than this, or all
    const int end = causal ? min(keys, max(0, min(first + QUERIES, queries) + hidden)) : keys;

    query_rows.fetch(q, queries, dim, first, aligned);
    key_rows.fetch(k, keys, dim, 0, aligned);
    copy_async_wait<1>();
    __syncthreads();
    unsigned query[DIM / 16][4];
#pragma unroll
    for (int d = 0; d < DIM / 16; ++d) {
        load_matrices(query[d], query_rows.at(warp * OF_WARP + lane % 16, 2 * d + lane / 16));
    }

    Softmax<DIM> softmax;
    const float in_log2 = scale * LOG2_E;
    const int row = first + warp * OF_WARP + lane / 4;  // and the eighth behind it
    for (int at = 0; at < end; at += KEYS) {
        copy_async_wait<0>();
        __syncthreads();  // the keys are there, and the values of the step before used up
        value_rows.fetch(v, keys, dim, at, aligned);

        float scores[KEYS / 8][4] = {};
#pragma unroll
        for (int d = 0; d < DIM / 16; ++d) {
#pragma unroll
            for (int j = 0; j < KEYS / 16; ++j) {
                unsigned part[4];
                load_matrices(part, key_rows.at(j * 16 + lane / 16 * 8 + lane % 8, 2 * d + lane / 8 % 2));
                multiply_add(scores[2 * j], query[d], part[0], part[1]);
                multiply_add(scores[2 * j + 1], query[d], part[2], part[3]);
            }
        }
        const bool all_seen = at + KEYS <= (causal ? min(keys, first + 1 + hidden) : keys);
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int key = at + j * 8 + lane % 4 * 2 + part % 2;
                const int seen = causal ? min(keys, row + part / 2 * 8 + 1 + hidden) : keys;
                scores[j][part] = all_seen || key < seen ? scores[j][part] * in_log2 : Maximum::identity();
            }
        }
        softmax.weigh(scores);

        copy_async_wait<0>();
        __syncthreads();  // the values are there, and the keys used up
        if (at + KEYS < end) {
            key_rows.fetch(k, keys, dim, at + KEYS, aligned);
        }
#pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {
            const unsigned weights[4] = {rounded_pair(scores[2 * j][0], scores[2 * j][1]),
                                         rounded_pair(scores[2 * j][2], scores[2 * j][3]),
                                         rounded_pair(scores[2 * j + 1][0], scores[2 * j + 1][1]),
                                         rounded_pair(scores[2 * j + 1][2], scores[2 * j + 1][3])};
#pragma unroll
            for (int d = 0; d < DIM / 16; ++d) {
                unsigned part[4];
                load_matrices_transposed(part, value_rows.at(j * 16 + lane % 16, 2 * d + lane / 16));
                multiply_add(softmax.sums[2 * d], weights, part[0], part[1]);
                multiply_add(softmax.sums[2 * d + 1], weights, part[2], part[3]);
            }
        }
    }
    copy_async_wait<0>();  // keys that no query of the block sees may still be on their way

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float total = warp_reduce<Sum>(softmax.total[half], 4);
        const float share = total > 0.0f ? 1.0f / total : 0.0f;
        const int of = row + half * 8;
        if (of < queries) {
#pragma unroll
            for (int d = 0; d < DIM / 8; ++d) {
                const int column = d * 8 + lane % 4 * 2;
                const unsigned pair = rounded_pair(softmax.sums[d][2 * half] * share, softmax.sums[d][2 * half + 1] * share);
                scalar_t* const to = y + (long long)of * dim + column;
                if (dim % 2 == 0 && column < dim) {
                    *reinterpret_cast<unsigned*>(to) = pair;
                } else if (column < dim) {
                    to[0] = reinterpret_cast<const scalar_t*>(&pair)[0];
                    if (column + 1 < dim) {
                        to[1] = reinterpret_cast<const scalar_t*>(&pair)[1];
                    }
                }
            }
        }
    }
}

}  // namespace

#define KERNELGATE_ATTENTION(DIM)                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS) attention_mma_##DIM(PARAMETERS) { \
        attend<DIM>(q, k, v, y, group, queries, keys, dim, causal, scale);          \
    }
KERNELGATE_ATTENTION(64)
KERNELGATE_ATTENTION(128)

#endif
