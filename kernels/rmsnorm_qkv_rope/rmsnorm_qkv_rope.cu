// Queries, keys and values of a new token of each sequence: q·k·v of the normalised rows, queries and keys rotated, keys and
// values written into their caches at the token's position, which is in device memory.
//   h = x / sqrt(mean(x^2) + eps) * g;  x [batch, k], g [k]
//   w [(heads + 2 * kv_heads) * 2 * half, k]: rows of the queries, of the keys, of the values
//   cosine, sine [capacity, batch, half]; position [1]; keys, values [capacity, batch, kv_heads, 2 * half]
//   q [batch, heads, 2 * half]; element i of a head is rotated with element half + i
// All of one dtype but for the position (i32); the arithmetic is f32 and nothing is rounded on the way.
//
// Launch (src/ops/rmsnorm_qkv_rope/launch.rs; no dynamic shared memory; may overlap with the launch ahead), with
// pairs = (heads + 2 * kv_heads) * half:
//   naive  grid pairs * batch               block 256
//   one    grid ceil(pairs / (8 / warps))   block 256   batch 1, k a multiple of 8
//   few    the same                         block 256   batch <= 8, k a multiple of 8
#include "append.cuh"
#include "gemv_pair.cuh"

#define PARAMETERS                                                                                            \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ g, const scalar_t *__restrict__ w,           \
        const scalar_t *__restrict__ cosine, const scalar_t *__restrict__ sine,                               \
        const int *__restrict__ position, scalar_t *__restrict__ keys, scalar_t *__restrict__ values,         \
        scalar_t *__restrict__ q, int batch, int heads, int kv_heads, int half, int k, float eps, int warps

namespace {

template <int BATCH>
__device__ __forceinline__ void project(PARAMETERS) {
    const int pairs = (heads + 2 * kv_heads) * half, pair = Pair<BATCH, true>::index(warps);
    const HeadPair place(min(pair, pairs - 1), half);
    const scalar_t* const row = w + place.row(half) * k;
    const Append append{cosine, sine, position, keys, values, q, batch, heads, kv_heads, half};
    Pair<BATCH, true> own;
    own.multiply(x, g, row, row + (long long)half * k, batch, k, warps);
    if (pair >= pairs) return;
    own.finish(batch, k, eps, warps, [&](int v, float low, float high) {
        append.store(place, v, low, high);
    });
}

}  // namespace

// The formula. A block a pair of elements.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) rmsnorm_qkv_rope_naive(PARAMETERS) {
    const int pairs = (heads + 2 * kv_heads) * half, v = int(blockIdx.x) / pairs;
    const HeadPair place(int(blockIdx.x) % pairs, half);
    const scalar_t* const row = w + place.row(half) * k;
    const Append append{cosine, sine, position, keys, values, q, batch, heads, kv_heads, half};
    naive_pair<true>(x + (long long)v * k, g, row, row + (long long)half * k, k, eps, [&](float low, float high) {
        append.store(place, v, low, high);
    });
}

extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 3) rmsnorm_qkv_rope_one(PARAMETERS) {
    project<1>(x, g, w, cosine, sine, position, keys, values, q, batch, heads, kv_heads, half, k, eps, warps);
}
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 2) rmsnorm_qkv_rope_few(PARAMETERS) {
    project<PAIR_VECTORS>(x, g, w, cosine, sine, position, keys, values, q, batch, heads, kv_heads, half, k, eps, warps);
}
