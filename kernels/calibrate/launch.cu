// A launch: a kernel that does next to nothing, y[0] = x[0]. What remains is what a launch of so many blocks costs.
// Launch: grid any, block 128.
#include "kernelgate.cuh"

extern "C" __global__ void empty(const float* x, float* y) {
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = x[0];
}
