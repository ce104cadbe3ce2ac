// SwiGLU, elementwise: y = gate / (1 + exp(-gate)) * up. gate, up, y [n] of one dtype; the arithmetic is f32.
//
// Launch (no dynamic shared memory):
//   v1  grid ceil(n / 256)        block 256
//   v2  grid ceil(n / (8 * 128))  block 128
//   v3  grid ceil(n / (4 * 256))  block 256   f32
//   v4  grid n / 4096             block 1024  f32, n a multiple of 4096; others as v3
//   v5  grid n / 4096             block 512   f16 and bf16, n a multiple of 4096; others as v2
#include "common.cuh"

#define PARAMETERS \
    const scalar_t* __restrict__ gate, const scalar_t* __restrict__ up, scalar_t* __restrict__ y, long long n

// v1: the formula, one thread an element.
extern "C" __global__ void swiglu_v1(PARAMETERS) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x = to_float(gate[i]);
        y[i] = from_float<scalar_t>(x / (1.0f + expf(-x)) * to_float(up[i]));
    }
}

__device__ __forceinline__ float swiglu(float gate, float up) { return gate * logistic(gate) * up; }

__device__ __forceinline__ Pack swiglu(Pack gates, Pack ups) {
    float a[PACK_LEN], b[PACK_LEN];
    unpack(gates, a);
    unpack(ups, b);
#pragma unroll
    for (int j = 0; j < PACK_LEN; ++j) {
        a[j] = swiglu(a[j], b[j]);
    }
    return pack(a);
}

// PACKS packs a thread, all loaded before the first is used. Threads of the last block do the tail, an element each.
template <int PACKS, int THREADS>
__device__ __forceinline__ void swiglu_packs(PARAMETERS) {
    const long long whole = n / PACK_LEN;
    const long long first = (long long)blockIdx.x * (PACKS * THREADS) + threadIdx.x;
    Pack gates[PACKS], ups[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const long long at = first + k * THREADS;
        if (at < whole) {
            gates[k] = load_pack(gate + at * PACK_LEN);
            ups[k] = load_pack(up + at * PACK_LEN);
        }
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const long long at = first + k * THREADS;
        if (at < whole) {
            store_pack(y + at * PACK_LEN, swiglu(gates[k], ups[k]));
        }
    }
    const long long tail = whole * PACK_LEN + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && tail < n) {
        y[tail] = from_float<scalar_t>(swiglu(to_float(gate[tail]), to_float(up[tail])));
    }
}

// v2: 8 elements a thread in 16-byte accesses. On an H200 at 33,554,432 elements as fast as a copy of its bytes.
extern "C" __global__ void __launch_bounds__(SMALL_MAP_THREADS) swiglu_v2(PARAMETERS) {
    swiglu_packs<8 / PACK_LEN, SMALL_MAP_THREADS>(gate, up, y, n);
}

#if defined(KERNELGATE_F32)
// v3: one pack of each a thread, as v2 has it at half width. On an H200 at 1,048,576 elements 1 % faster than v2.
extern "C" __global__ void __launch_bounds__(MAP_THREADS) swiglu_v3(PARAMETERS) {
    swiglu_packs<1, MAP_THREADS>(gate, up, y, n);
}
#endif

// A pack a thread of whole blocks of THREADS: nothing is asked of n.
template <int THREADS>
__device__ __forceinline__ void swiglu_whole(const scalar_t* __restrict__ gate, const scalar_t* __restrict__ up,
                                             scalar_t* __restrict__ y) {
    const size_t at = size_t(blockIdx.x * THREADS + threadIdx.x) * PACK_LEN;
    store_pack(y + at, swiglu(load_pack(gate + at), load_pack(up + at)));
}

#if defined(KERNELGATE_F32)
// v4: no test before the loads, in large blocks. On an H200 at 1,048,576 elements 4.83 us (v3 4.90, Liger 4.86, torch.compile
// 4.80; in another run 4.78, 4.85, 4.81, 4.86), at 33,554,432 as v3.
extern "C" __global__ void __launch_bounds__(1024) swiglu_v4(PARAMETERS) { swiglu_whole<1024>(gate, up, y); }
#else
// v5: the same at half width. On an H200 at 1,048,576 elements in bf16 3.33 us (v2 3.39, Liger 3.34, torch.compile 3.73), at
// 33,554,432 as v2.
extern "C" __global__ void __launch_bounds__(512) swiglu_v5(PARAMETERS) { swiglu_whole<512>(gate, up, y); }
#endif
