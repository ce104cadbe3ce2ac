// What stands between the projection of a new token and attention: queries and keys rotated, keys and values written into
// their caches at the token's position, which is in device memory.
//   qkv [batch, (heads + 2 * kv_heads) * 2 * half]: queries, keys, values; cosine, sine [capacity, batch, half]; position [1]
//   keys, values [capacity, batch, kv_heads, 2 * half]; q [batch, heads, 2 * half]
// All of one dtype but for the position (i32); the arithmetic is f32.
//
// Launch: grid ceil(batch * (heads + 2 * kv_heads) * half / 256), block 256; no dynamic shared memory; may overlap with the
// launch ahead. Serves every shape: a pair of elements a thread.
#include "append.cuh"

extern "C" __global__ void __launch_bounds__(256)
    rope_append(const scalar_t* __restrict__ qkv, const scalar_t* __restrict__ cosine, const scalar_t* __restrict__ sine,
                const int* __restrict__ position, scalar_t* __restrict__ keys, scalar_t* __restrict__ values,
                scalar_t* __restrict__ q, int batch, int heads, int kv_heads, int half) {
    const int pairs = (heads + 2 * kv_heads) * half;
    const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
    launch_dependents();
    wait_for_launch_ahead();
    if (i >= (long long)batch * pairs) return;
    const int v = int(i / pairs);
    const HeadPair pair(int(i % pairs), half);
    const scalar_t* const from = behind_wait(qkv) + (long long)v * (2 * pairs) + pair.row(half);
    const Append append{cosine, sine, position, keys, values, q, batch, heads, kv_heads, half};
    append.store(pair, v, to_float(from[0]), to_float(from[half]));
}
