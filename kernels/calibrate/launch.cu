// A launch: a kernel that does next to nothing, y[0] = x[0]. What remains is what a launch of so many blocks costs.
// `hand_on` is launched several times, each on what the one before has written. Launch: grid any, block 128.
#include "kernelgate.cuh"

extern "C" __global__ void empty(const float* x, float* y) {
    if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = x[0];
}

extern "C" __global__ void hand_on(const float* from, float* to) {
    if (blockIdx.x == 0 && threadIdx.x == 0) to[0] = from[0] + 1.0f;
}
