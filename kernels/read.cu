// Read: y[i] = the sum of the i-th 256 elements of x. The yardstick of what reads much and writes hardly anything, as a
// product of a matrix with few vectors does: a copy of as many bytes writes half of them, which is another rate.
#include "common.cuh"

constexpr int SUMMED = 256;
constexpr int PACKS = 2;

// v1: two packs a thread, under way before the first sum. On an H200 four packs take 1 to 2 % longer, eight 2 to 5 %.
// Launch: grid ceil(n / (512 * PACKS * PACK_LEN)), block 512. n >= 1; x 16-byte aligned.
extern "C" __global__ void __launch_bounds__(512)
    read_v1(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, long long n) {
    constexpr int OF_SUM = SUMMED / (WARP * PACK_LEN);
    const int lane = threadIdx.x % WARP;
    const long long first = ((long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP) * PACKS * WARP;
    Pack packs[PACKS];
#pragma unroll
    for (int i = 0; i < PACKS; ++i) {
        const long long at = (first + i * WARP + lane) * PACK_LEN;
        packs[i] = Pack{make_uint4(0, 0, 0, 0)};
        if (at + PACK_LEN <= n) packs[i] = load_pack_streaming(x + at);
    }
#pragma unroll
    for (int i = 0; i < PACKS; i += OF_SUM) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < OF_SUM; ++j) {
            const long long at = (first + (i + j) * WARP + lane) * PACK_LEN;
            float values[PACK_LEN];
            unpack(packs[i + j], values);
#pragma unroll
            for (int e = 0; e < PACK_LEN; ++e) sum += values[e];
            if (at < n && at + PACK_LEN > n) {
                for (long long e = at; e < n; ++e) sum += to_float(x[e]);
            }
        }
        sum = warp_reduce<Sum>(sum);
        const long long to = (first + i * WARP) * PACK_LEN;
        if (lane == 0 && to < n) y[to / SUMMED] = from_float<scalar_t>(sum);
    }
}
