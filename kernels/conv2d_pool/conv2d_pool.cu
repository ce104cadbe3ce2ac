// A convolution with an activation and 2 by 2 pooling behind it: y[n, p, q, g] = max over i, j < 2 of f(z[n, 2p + i, 2q + j, g]),
// z[n, r, s, g] = sum over a, b, c of x[n, r + a - t/2, s + b - t/2, c] * w[g, a, b, c], t by t taps (t odd), nothing beside the
// image. x [n, height, width, channels], w [filters, t, t, channels], y [n, height / 2, width / 2, filters]; a last odd row or
// column of z is of no window. One dtype; f32 arithmetic. Activations: see pooling.cuh.
//
// The idea: z never goes to memory. A block computes a tile of y: the part of the image under it and the filters of its group
// lie in shared memory, `chunk` channels at a time.
// Where they are `resident`, the filters of all channels stay there for further tiles.
//
// Launch: grid (at most a block a tile, groups of filters), tiles `tile_rows` by `tile_cols` of y.
//   naive         grid ceil(outputs / 256), block 256, no dynamic shared memory
//   direct        block tile_rows * tile_cols * group / 16, in whole warps; `group` filters a block, tile_cols even;
//   direct_few    the same of group / 2: where there are few tiles
//                 two stages of `chunk` channels, each 4 * (t * t * (group + 4) + (tall * pitch | 1)); the filters of
//                 `resident` ones once, of all channels; pitch is the first from wide on that is tile_cols modulo 16
//   mma           block 256, 64 filters, at most 64 places; dynamic shared memory 64 * (t * t * 64 + tall * wide);
//                 channels % 8 == 0, filters % 8 == 0
//   mma_few       16 filters, at most 32 places, 64 * (t * t * 16 + tall * wide)
// tall = 2 * tile_rows + t - 1, wide = 2 * tile_cols + t - 1
#include "conv2d_pool.cuh"
#include "conv2d_pool_direct.cuh"
#if defined(KERNELGATE_F16) || defined(KERNELGATE_BF16)
#include "conv2d_pool_mma.cuh"
#endif

// Lesson 1: the definition. A thread an output.
extern "C" __global__ void conv2d_pool_naive(POOLED_PARAMETERS) {
    const Pooled pooled = POOLED;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= tiles) return;  // a tile is an output
    long long place = at / filters;
    const int g = int(at % filters);
    const int q = int(place % pooled.across());
    place /= pooled.across();
    const int p = int(place % pooled.down());
    const long long n = place / pooled.down();
    float largest = minus_infinity();
    for (int window = 0; window < 4; ++window) {
        float sum = 0.0f;
        for (int a = 0; a < taps; ++a) {
            for (int b = 0; b < taps; ++b) {
                const int row = 2 * p + window / 2 + a - taps / 2, column = 2 * q + window % 2 + b - taps / 2;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                const scalar_t* const image = pooled.x_at(n, row, column);
                const scalar_t* const filter = pooled.w_at(g, a * taps + b);
                for (int c = 0; c < channels; ++c) sum += to_float(image[c]) * to_float(filter[c]);
            }
        }
        largest = larger(largest, activated(sum, activation));
    }
    y[at] = from_float<scalar_t>(largest);
}

#define POOLED_KERNEL(NAME, BLOCKS, BODY)                                                                                \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) conv2d_pool_##NAME(POOLED_PARAMETERS) { BODY(POOLED); }

#define DIRECT (direct<8, 2>)
#define DIRECT_FEW (direct<2, 1>)
POOLED_KERNEL(direct, 2, DIRECT)
POOLED_KERNEL(direct_few, 2, DIRECT_FEW)
#if defined(KERNELGATE_F16) || defined(KERNELGATE_BF16)
#define MMA (on_tensor_cores<2, 8>)
#define MMA_FEW (on_tensor_cores<1, 2>)
POOLED_KERNEL(mma, 2, MMA)
POOLED_KERNEL(mma_few, 2, MMA_FEW)
#endif
