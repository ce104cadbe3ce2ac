// SwiGLU, elementwise: y = gate / (1 + exp(-gate)) * up. gate, up, y [n] of one dtype; the arithmetic is f32.
//
// The idea: each byte moves once, in 16-byte accesses, both loads of a thread in flight together; where n is a whole number
// of blocks no bounds test stands before the loads. Launch (no dynamic shared memory):
//   naive            grid ceil(n / 256)        block 256
//   pack_per_thread  grid ceil(n / (4 * 256))  block 256 in f32
//                    grid ceil(n / (8 * 128))  block 128 in f16 and bf16
//   whole_blocks     grid n / 4096             block 1024 in f32, 512 in f16 and bf16; n a multiple of 4096
#include "common.cuh"
#include "dependent.cuh"

#define PARAMETERS \
    const scalar_t* __restrict__ gate, const scalar_t* __restrict__ up, scalar_t* __restrict__ y, long long n

// Lesson 1: the formula, one thread an element.
extern "C" __global__ void swiglu_naive(PARAMETERS) {
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

#if defined(KERNELGATE_F32)
constexpr int PACK_THREADS = 256;
constexpr int WHOLE_THREADS = 1024;
#else
constexpr int PACK_THREADS = 128;
constexpr int WHOLE_THREADS = 512;
#endif

// PACKS packs of each input a thread, all loaded before the first is used. Threads of the last block do the tail, an element
// each.
template <int PACKS, int THREADS>
__device__ __forceinline__ void swiglu_packs(PARAMETERS) {
    begin_dependent_launch();
    gate = behind_wait(gate);
    up = behind_wait(up);
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

// One pack of each input a thread, for every n.
extern "C" __global__ void __launch_bounds__(PACK_THREADS) swiglu_pack_per_thread(PARAMETERS) {
    swiglu_packs<1, PACK_THREADS>(gate, up, y, n);
}

// One pack of each input a thread of whole blocks: no test before the loads.
extern "C" __global__ void __launch_bounds__(WHOLE_THREADS) swiglu_whole_blocks(PARAMETERS) {
    begin_dependent_launch();
    const size_t at = size_t(blockIdx.x * WHOLE_THREADS + threadIdx.x) * PACK_LEN;
    store_pack(y + at, swiglu(load_pack(behind_wait(gate) + at), load_pack(behind_wait(up) + at)));
}
