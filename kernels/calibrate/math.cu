// Arithmetic in registers: chains of one operation, eight a thread, so that latency is hidden.
// y[thread] is the sum of the thread's chains, which start at x, x + 1/8, …
//
// `special` is ex2.approx of the special function unit, as v = 2^-v, which converges; `half` is packed half-width
// multiply-adds, two a lane. The argument `zero` keeps the compiler from shortening the chains.
// Launch: grid ceil(threads / 256), block 256.
#include "kernelgate.cuh"

constexpr int CHAINS = 8;

extern "C" __global__ void __launch_bounds__(256)
    special(const float* x, float* y, int threads, int steps, float zero) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    float v[CHAINS];
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) v[j] = x[at] + float(j) / CHAINS;
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int j = 0; j < CHAINS; ++j) asm("ex2.approx.f32 %0, %1;" : "=f"(v[j]) : "f"(zero - v[j]));
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) sum += v[j];
    y[at] = sum;
}
