// The first half of a gated layer: y[b, i] = silu(w[i] . h[b]) * (w[n + i] . h[b]), h = x / sqrt(mean(x^2) + eps) * g,
// x [batch, k], g [k], w [2 * n, k] (the gate's rows, then the others), y [batch, n], all of one dtype; the arithmetic is f32
// and h is never rounded. Memory bounds it: w is read once.
//
// Launch (src/ops/rmsnorm_swiglu/launch.rs; no dynamic shared memory; may overlap with the launch ahead):
//   naive  grid n * batch               block 256
//   one    grid ceil(n / (8 / warps))   block 256   batch 1, k a multiple of 8
//   few    the same                     block 256   batch <= 8, k a multiple of 8
#include "gemv_pair.cuh"

#define PARAMETERS                                                                                        \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ g, const scalar_t *__restrict__ w,       \
        scalar_t *__restrict__ y, int batch, int n, int k, float eps, int warps

namespace {

template <int BATCH>
__device__ __forceinline__ void gate(PARAMETERS) {
    const int pair = Pair<BATCH, true>::index(warps), row = min(pair, n - 1);
    Pair<BATCH, true> own;
    own.multiply(x, g, w + (long long)row * k, w + ((long long)n + row) * k, batch, k, warps);
    if (pair >= n) return;
    own.finish(batch, k, eps, warps, [&](int v, float gate, float up) {
        y[(long long)v * n + row] = from_float<scalar_t>(gate * logistic(gate) * up);
    });
}

}  // namespace

// The formula. A block an output.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) rmsnorm_swiglu_naive(PARAMETERS) {
    const int row = int(blockIdx.x) % n, v = int(blockIdx.x) / n;
    naive_pair<true>(x + (long long)v * k, g, w + (long long)row * k, w + ((long long)n + row) * k, k, eps,
                     [&](float gate, float up) {
                         y[(long long)v * n + row] = from_float<scalar_t>(gate * logistic(gate) * up);
                     });
}

extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 3) rmsnorm_swiglu_one(PARAMETERS) {
    gate<1>(x, g, w, y, batch, n, k, eps, warps);
}
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 2) rmsnorm_swiglu_few(PARAMETERS) {
    gate<PAIR_VECTORS>(x, g, w, y, batch, n, k, eps, warps);
}
