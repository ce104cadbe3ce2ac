// Streams: y_w[i] = x_0[i] + … + x_{R-1}[i] + w over n elements, for R streams that are read and W that are written.
// What DRAM gives depends on the mix: between reads and writes its bus has to turn around.
//
// One pack a thread of each stream, all loads under way before the first store. n is a multiple of PACK_LEN.
// Launch: grid ceil(n / (256 * PACK_LEN)), block 256.
#include "kernelgate.cuh"

template <int READS, int WRITES>
__device__ __forceinline__ void stream(const scalar_t* x, scalar_t* y, long long n) {
    const long long at = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * PACK_LEN;
    if (at >= n) return;
    Pack packs[READS > 0 ? READS : 1];
#pragma unroll
    for (int r = 0; r < READS; ++r) packs[r] = load_pack_streaming(x + r * n + at);
    float sums[PACK_LEN] = {};
#pragma unroll
    for (int r = 0; r < READS; ++r) {
        float values[PACK_LEN];
        unpack(packs[r], values);
#pragma unroll
        for (int e = 0; e < PACK_LEN; ++e) sums[e] += values[e];
    }
#pragma unroll
    for (int w = 0; w < WRITES; ++w) {
        store_pack_streaming(y + w * n + at, pack(sums));
#pragma unroll
        for (int e = 0; e < PACK_LEN; ++e) sums[e] += 1.0f;
    }
}

#define STREAM(READS, WRITES)                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                       \
        stream_r##READS##_w##WRITES(const scalar_t* x, scalar_t* y, long long n) {          \
        stream<READS, WRITES>(x, y, n);                                                     \
    }

STREAM(0, 1)
STREAM(1, 2)
STREAM(1, 1)
STREAM(2, 1)
STREAM(3, 1)
STREAM(4, 1)
STREAM(8, 1)
