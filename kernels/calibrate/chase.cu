// Latency: a chain of dependent loads, each of which tells where the next one goes. x holds zeros.
//
// One thread a block, a segment of memory a block, a load a 128-byte line, in the order of a full-period linear
// congruential generator: no prefetcher follows it, and every line is visited before one is visited again.
// y[block] is where the chain ends. Launch: grid = segments, block 1; `lines` is a power of two.
#include "kernelgate.cuh"

extern "C" __global__ void __launch_bounds__(1) chase(const int* x, int* y, int lines, int steps) {
    constexpr int LINE = 128 / sizeof(int);
    const int* segment = x + (long long)blockIdx.x * lines * LINE;
    unsigned at = 0;
    for (int step = 0; step < steps; ++step) {
        int found;
        asm volatile("ld.global.s32 %0, [%1];" : "=r"(found) : "l"(segment + at * LINE) : "memory");
        at = (at * 1664525u + 1013904223u + (unsigned)found) & (unsigned)(lines - 1);
    }
    y[blockIdx.x] = (int)at;
}
