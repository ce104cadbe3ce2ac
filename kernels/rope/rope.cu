// Rotary position embedding, the halves of a head paired (element i with element half + i):
//   y[t, h, i] = x[t, h, i] * cosine[t, i] - x[t, h, half + i] * sine[t, i]
//   y[t, h, half + i] = x[t, h, half + i] * cosine[t, i] + x[t, h, i] * sine[t, i]
// x, y [tokens, heads, 2 * half]; cosine, sine [tokens, half]; all of one dtype; the arithmetic is f32.
//
// The idea: a block a token, so that its angles come from the L1 for every head but the first; both halves of a head in
// 16-byte accesses. Launch (every entry serves every shape; no dynamic shared memory):
//   naive           grid tokens  block 256
//   pack_per_thread grid tokens  block 32 * clamp(ceil(heads * half / 256), 1, 8)
#include "common.cuh"

#define PARAMETERS                                                                                          \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ cosine, const scalar_t *__restrict__ sine, \
        scalar_t *__restrict__ y, int heads, int half

// The block rotates the heads of its token, WIDTH pairs a thread at a time. The angles are fetched again for every head,
// from the L1.
template <int WIDTH>
__device__ __forceinline__ void rotate(const scalar_t* x, const scalar_t* cosine, const scalar_t* sine, scalar_t* y,
                                       int heads, int half) {
    const long long token = blockIdx.x;
    x += token * heads * (2 * half);
    y += token * heads * (2 * half);
    cosine += token * half;
    sine += token * half;
    const int of_head = half / WIDTH;
#pragma unroll 1
    for (int i = threadIdx.x; i < heads * of_head; i += blockDim.x) {
        const int head = i / of_head;
        const int column = (i - head * of_head) * WIDTH;
        const int low = head * (2 * half) + column;
        const Access<WIDTH> from_low = Access<WIDTH>::load(x + low);
        const Access<WIDTH> from_high = Access<WIDTH>::load(x + low + half);
        float a[WIDTH], b[WIDTH], cosines[WIDTH], sines[WIDTH];
        Access<WIDTH>::load(cosine + column).get(cosines);
        Access<WIDTH>::load(sine + column).get(sines);
        from_low.get(a);
        from_high.get(b);
        float rotated[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            rotated[j] = a[j] * cosines[j] - b[j] * sines[j];
            b[j] = b[j] * cosines[j] + a[j] * sines[j];
        }
        Access<WIDTH>::store(y + low, rotated);
        Access<WIDTH>::store(y + low + half, b);
    }
}

// Lesson 1: the definition, one pair a thread at a time.
extern "C" __global__ void rope_naive(PARAMETERS) { rotate<1>(x, cosine, sine, y, heads, half); }

// A pack of each half a thread, where the halves start on 16 bytes.
extern "C" __global__ void __launch_bounds__(256) rope_pack_per_thread(PARAMETERS) {
    if (half % PACK_LEN == 0) {
        rotate<PACK_LEN>(x, cosine, sine, y, heads, half);
    } else {
        rotate<1>(x, cosine, sine, y, heads, half);
    }
}
