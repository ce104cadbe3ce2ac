// Access that is not contiguous. What is counted are the bytes that a thread asks for; what the memory moves is whole
// sectors of 32 bytes, and between them whole pages of DRAM.
//
// `strided`: y[t] = sum over j of x[(j * threads + t) * stride]: neighbouring threads are `stride` elements apart.
// `gathered`: y[i * packs + p] = the sum of pack p (16 bytes) of row index[i] of x, a thread a pack: whole rows in random
// order, as a look-up table has them. Launch: grid ceil(threads / 256), block 256.
#include "kernelgate.cuh"

extern "C" __global__ void __launch_bounds__(256)
    strided(const float* x, float* y, long long threads, int loads, int stride) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    float sum = 0.0f;
#pragma unroll 8
    for (int j = 0; j < loads; ++j) sum += x[(j * threads + at) * stride];
    y[at] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    gathered(const float* x, const int* index, float* y, long long threads, int packs) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    const long long row = index[at / packs];
    const float4 v = reinterpret_cast<const float4*>(x)[row * packs + at % packs];
    y[at] = (v.x + v.y) + (v.z + v.w);
}
