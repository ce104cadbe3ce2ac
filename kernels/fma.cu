// FMA: y[i] is the sum of 16 chains of `steps` fused multiply-adds v = scale * v + shift that start at x[i] + 0 … + 15.
// The yardstick of compute-bound kernels in f32: nothing but the arithmetic, in registers.
#include "kernelgate.cuh"

constexpr int CHAINS = 16;

// v1: independent chains. An FMA has a latency of about four cycles and a multiprocessor issues one a cycle to each of
// its four partitions, so four independent chains a thread fill a partition that has a single warp; sixteen do so with
// the loop's own instructions to spare. Scale and shift are arguments: constants would let the compiler shorten the
// chains. Launch: grid ceil(threads / 256), block 256; flops = 2 * 16 * steps * threads.
extern "C" __global__ void __launch_bounds__(256)
    fma_v1(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int threads, int steps, float scale, float shift) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    float v[CHAINS];
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) v[j] = to_float(x[at]) + float(j);
#pragma unroll 8
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int j = 0; j < CHAINS; ++j) v[j] = fmaf(v[j], scale, shift);
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) sum += v[j];
    y[at] = from_float<scalar_t>(sum);
}
