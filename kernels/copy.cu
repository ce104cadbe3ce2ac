// Copy: y[i] = x[i] over n elements. The yardstick of memory-bound kernels: every candidate is timed beside a copy of
// as many bytes, and its share of that speed is reported.
#include "kernelgate.cuh"

// v1: one pack a thread. Every warp has 512 bytes of loads in flight at once and nothing else to do, and the scheduler
// hides their latency with the other warps. The thread behind the last whole pack copies the n % PACK_LEN elements left.
// Launch: grid ceil(n / (256 * PACK_LEN)), block 256. n ≥ 1; x and y 16-byte aligned.
extern "C" __global__ void __launch_bounds__(256)
    copy_v1(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, long long n) {
    const long long packs = n / PACK_LEN;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < packs) {
        store_pack(y + at * PACK_LEN, load_pack(x + at * PACK_LEN));
    } else if (at == packs) {
        for (long long i = packs * PACK_LEN; i < n; ++i) y[i] = x[i];
    }
}
