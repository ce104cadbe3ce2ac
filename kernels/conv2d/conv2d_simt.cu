// conv2d in f32 on fma (conv2d.cu says what it computes): an implicit GEMM on the mainloop of gemm_simt.cuh.
#include "kernelgate.cuh"

#if defined(KERNELGATE_F32)
#include "conv2d_simt.cuh"

// Filters are K-major whatever the order of the axes. Where channels are inside (nhwc), y = images * filters is row-major; where
// they are outside (nchw), y = filters * images has planes for rows: neighbouring lanes copy and store neighbours of both. Few
// tiles: `parts` blocks share a tile (split-K) and store sums over their part of k in `out`, a y each, which
// conv2d_simt_reduce adds up in a fixed order.
// Entries: conv2d_simt_<layout>_<rows>x<columns of a tile>.
// grid = ceil(m/rows) * ceil(n/columns) * parts, where m x n are places x filters in nhwc and filters x places in nchw,
// block = 128, dynamic shared memory = 4 stages, and the sums of a tile where a block sums more slices than `stretch`.
#define CONV2D_ENTRY(NAME, ENTRY, BLOCKS, ROWS, COLUMNS)                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                    \
        conv2d_simt_##NAME(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out,         \
                           int batch, int channels, int height, int width, int filters, int tall, int wide, int down, \
                           int across, int stride, int padding, int dilation, int parts, int stretch) {              \
        const Images images{x, channels, height, width, tall, wide, down, across, stride, padding, dilation};        \
        ENTRY<ROWS, COLUMNS>(images, w, out, batch * down * across, filters, parts, stretch);                        \
    }

namespace {

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void channels_inside(const Images& images, const float* w, float* out, int places, int filters,
                                                int parts, int stretch) {
    multiply<ImagesKMajor<ROWS>, Filters<COLUMNS>>(images, w, out, places, filters,
                                                  images.channels * images.tall * images.wide, one_product(parts),
                                                  RowMajor{filters % RUN_LEN == 0}, Unchanged(), stretch);
}

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void channels_outside(const Images& images, const float* w, float* out, int places, int filters,
                                                 int parts, int stretch) {
    multiply<Filters<ROWS>, ImagesMnMajor<COLUMNS>>(w, images, out, filters, places,
                                                   images.channels * images.tall * images.wide, one_product(parts),
                                                   Planes{images.down * images.across}, Unchanged(), stretch);
}

}  // namespace

CONV2D_ENTRY(nhwc_128x128, channels_inside, 2, 128, 128)
CONV2D_ENTRY(nhwc_128x64, channels_inside, 3, 128, 64)
CONV2D_ENTRY(nhwc_64x128, channels_inside, 3, 64, 128)
CONV2D_ENTRY(nhwc_64x64, channels_inside, 5, 64, 64)
CONV2D_ENTRY(nchw_128x128, channels_outside, 2, 128, 128)
CONV2D_ENTRY(nchw_128x64, channels_outside, 3, 128, 64)
CONV2D_ENTRY(nchw_64x128, channels_outside, 3, 64, 128)
CONV2D_ENTRY(nchw_64x64, channels_outside, 5, 64, 64)

// The second pass: y = the sum of `parts` tensors of `count` elements that stand one behind the other.
// grid = ceil(count / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    conv2d_simt_reduce(const float* __restrict__ sums, float* __restrict__ y, long long count, int parts) {
    split_k_reduce(sums, y, count, 1, parts, Unchanged());
}

#endif  // defined(KERNELGATE_F32)
