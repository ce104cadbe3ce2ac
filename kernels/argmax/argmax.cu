// The place of the largest element of each row, the first of several: y[r] = argmax_j x[r, j], x [rows, cols], y [rows] of
// i32. NaN is never the largest; a row of nothing else gives 0.
//
// Launch: grid rows, block 1024; no dynamic shared memory; may overlap with the launch ahead. Serves every shape.
#include "common.cuh"
#include "dependent.cuh"

namespace {

constexpr int THREADS = 1024;

struct Best {
    float value;
    int at;
    // Of equal ones the first.
    __device__ __forceinline__ void take(float other, int place) {
        if (other > value || (other == value && place < at)) {
            value = other;
            at = place;
        }
    }
    __device__ __forceinline__ void reduce() {
#pragma unroll
        for (int offset = WARP / 2; offset > 0; offset /= 2) {
            take(__shfl_xor_sync(ALL_LANES, value, offset), __shfl_xor_sync(ALL_LANES, at, offset));
        }
    }
};

constexpr int NOWHERE = 0x7fffffff;

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    argmax(const scalar_t* __restrict__ x, int* __restrict__ y, int cols) {
    __shared__ Best of_warp[THREADS / WARP];
    begin_dependent_launch();
    const scalar_t* const row = behind_wait(x) + (long long)blockIdx.x * cols;
    Best best{Maximum::identity(), NOWHERE};
    const int packs = cols % PACK_LEN == 0 ? cols / PACK_LEN : 0;
    for (int i = threadIdx.x; i < packs; i += THREADS) {
        float value[PACK_LEN];
        unpack(load_pack(row + i * PACK_LEN), value);
#pragma unroll
        for (int e = 0; e < PACK_LEN; ++e) best.take(value[e], i * PACK_LEN + e);
    }
    for (int i = packs * PACK_LEN + threadIdx.x; i < cols; i += THREADS) best.take(to_float(row[i]), i);
    best.reduce();
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    best = of_warp[threadIdx.x];
    best.reduce();
    if (threadIdx.x == 0) y[blockIdx.x] = best.at == NOWHERE ? 0 : best.at;
}
