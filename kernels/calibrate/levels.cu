// Levels of memory: each block reads a window of its own again and again, out of L1, L2 or shared memory.
// y[thread] is the sum of what the thread read.
//
// Loads are volatile, so that the compiler keeps them in the loop. `.ca` fills L1, `.cg` goes past it to L2. A thread
// has UNROLL packs under way. A window is a multiple of 256 * UNROLL packs.
// Launch: grid = windows, block 256; dynamic shared memory: a window, for the shared entry.
#include "kernelgate.cuh"

constexpr int UNROLL = 4;

enum Level { L1, L2, SHARED };

template <Level LEVEL>
__device__ __forceinline__ float4 load(const float* from) {
    float4 v;
    if constexpr (LEVEL == L1) {
        asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    } else if constexpr (LEVEL == L2) {
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
    } else {
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
    }
    return v;
}

template <Level LEVEL>
__device__ __forceinline__ void read_windows(const float* x, float* y, int packs, int repeats) {
    extern __shared__ float4 shared[];
    const float* window = x + (long long)blockIdx.x * packs * 4;
    if constexpr (LEVEL == SHARED) {
        for (int i = threadIdx.x; i < packs; i += blockDim.x) shared[i] = reinterpret_cast<const float4*>(window)[i];
        __syncthreads();
        window = reinterpret_cast<const float*>(shared);
    }
    float sum = 0.0f;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        for (int i = threadIdx.x; i < packs; i += blockDim.x * UNROLL) {
            float4 v[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) v[u] = load<LEVEL>(window + (i + u * blockDim.x) * 4);
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) sum += (v[u].x + v[u].y) + (v[u].z + v[u].w);
        }
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#define READ_WINDOWS(NAME, LEVEL)                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                     \
        NAME(const float* x, float* y, int packs, int repeats) {                                          \
        read_windows<LEVEL>(x, y, packs, repeats);                                                        \
    }

READ_WINDOWS(read_l1, L1)
READ_WINDOWS(read_l2, L2)
READ_WINDOWS(read_shared, SHARED)
