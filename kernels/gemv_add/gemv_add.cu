// A matrix times few vectors, added to what there is: y[b, i] = residual[b, i] + sum_j x[b, j] * w[i, j], x [batch, k],
// w [n, k], residual, y [batch, n], all of one dtype; the arithmetic is f32. Memory bounds it: w is read once.
//
// Launch (src/ops/gemv_add/launch.rs; no dynamic shared memory; may overlap with the launch ahead):
//   naive  grid ceil(n / 2) * batch                   block 256
//   one    grid ceil(ceil(n / 2) / (8 / warps))       block 256   batch 1, k a multiple of 8
//   few    the same                                   block 256   batch <= 8, k a multiple of 8
#include "gemv_pair.cuh"

#define PARAMETERS                                                                                            \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ w, const scalar_t *__restrict__ residual,    \
        scalar_t *__restrict__ y, int batch, int n, int k, int warps

namespace {

// Rows 2 * pair and the one behind it, if there is one.
struct Rows {
    int low, high;
    __device__ __forceinline__ Rows(int pair, int n) : low(min(2 * pair, n - 1)), high(min(2 * pair + 1, n - 1)) {}
};

__device__ __forceinline__ void store(const scalar_t* residual, scalar_t* y, long long of, Rows rows, float low,
                                      float high) {
    residual = behind_wait(residual);
    y[of + rows.low] = from_float<scalar_t>(to_float(residual[of + rows.low]) + low);
    if (rows.high > rows.low) y[of + rows.high] = from_float<scalar_t>(to_float(residual[of + rows.high]) + high);
}

template <int BATCH>
__device__ __forceinline__ void add_products(PARAMETERS) {
    const int pair = Pair<BATCH, false>::index(warps);
    const Rows rows(pair, n);
    Pair<BATCH, false> own;
    own.multiply(x, nullptr, w + (long long)rows.low * k, w + (long long)rows.high * k, batch, k, warps);
    if (2 * pair >= n) return;
    own.finish(batch, k, 0.0f, warps, [&](int v, float low, float high) {
        store(residual, y, (long long)v * n, rows, low, high);
    });
}

}  // namespace

// The formula. A block two outputs.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) gemv_add_naive(PARAMETERS) {
    const int pairs = (n + 1) / 2, v = int(blockIdx.x) / pairs;
    const Rows rows(int(blockIdx.x) % pairs, n);
    naive_pair<false>(x + (long long)v * k, nullptr, w + (long long)rows.low * k, w + (long long)rows.high * k, k, 0.0f,
                      [&](float low, float high) { store(residual, y, (long long)v * n, rows, low, high); });
}

extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 3) gemv_add_one(PARAMETERS) {
    add_products<1>(x, w, residual, y, batch, n, k, warps);
}
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 2) gemv_add_few(PARAMETERS) {
    add_products<PAIR_VECTORS>(x, w, residual, y, batch, n, k, warps);
}
