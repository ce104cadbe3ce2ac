// Convolution in two dimensions: y[n, f, p, q] = sum over c, a, b of
//   x[n, c, p * stride + a * dilation - padding, q * stride + b * dilation - padding] * w[f, c, a, b]
// with nothing beside the image. The axes are in that order, or with the channels last (`inside`):
//   x [n, h, w, c]; w [f, a, b, c]; y [n, p, q, f]. All of one dtype; the arithmetic is f32.
//
// Launch (both kernels serve every shape; no dynamic shared memory):
//   naive  grid ceil(batch * down * across * filters / 256)                        block 256
//   tiled  grid ceil(batch * down * across / 64) * ceil(filters / 64)              block 256
#include "common.cuh"

#define PARAMETERS                                                                                                   \
    const scalar_t *__restrict__ x, const scalar_t *__restrict__ w, scalar_t *__restrict__ y, int batch,             \
        int channels, int height, int width, int filters, int tall, int wide, int down, int across, int stride,      \
        int padding, int dilation, int inside

// A tap of the filters, numbered in the order in which they lie in memory.
struct Tap {
    int channel, a, b;
    static __device__ __forceinline__ Tap of(int number, int channels, int tall, int wide, bool inside) {
        Tap tap;
        if (inside) {
            tap.channel = number % channels;
            number /= channels;
        }
        tap.b = number % wide;
        number /= wide;
        tap.a = inside ? number : number % tall;
        if (!inside) {
            tap.channel = number / tall;
        }
        return tap;
    }
};

// A place of the output, and of the image under its first tap.
struct Place {
    int image, p, q, row, column;
    static __device__ __forceinline__ Place of(int number, int down, int across, int stride, int padding) {
        Place place;
        place.q = number % across;
        number /= across;
        place.p = number % down;
        place.image = number / down;
        place.row = place.p * stride - padding;
        place.column = place.q * stride - padding;
        return place;
    }
};

struct Image {
    const scalar_t* x;
    int channels, height, width, dilation;
    bool inside;
    // The element under a tap; 0 beside the image.
    __device__ __forceinline__ float under(const Place& place, const Tap& tap) const {
        const int i = place.row + tap.a * dilation, j = place.column + tap.b * dilation;
        if (i < 0 || i >= height || j < 0 || j >= width) {
            return 0.0f;
        }
        const long long at = inside ? (((long long)place.image * height + i) * width + j) * channels + tap.channel
                                    : (((long long)place.image * channels + tap.channel) * height + i) * width + j;
        return to_float(x[at]);
    }
};

__device__ __forceinline__ long long output_index(const Place& place, int filter, int filters, int down, int across,
                                                  bool inside) {
    return inside ? (((long long)place.image * down + place.p) * across + place.q) * filters + filter
                  : (((long long)place.image * filters + filter) * down + place.p) * across + place.q;
}

// Taps that are summed before the sum joins the total. The roundings of n equal terms may all go one way and end up to
// n / 3 units of 2^-24 off, where 4 sqrt(n) are allowed: 144 terms are the most that stay within that.
constexpr int STRETCH = 128;

// The definition, an output a thread, numbered as they lie in memory.
extern "C" __global__ void conv2d_naive(PARAMETERS) {
    const long long number = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const int plane = down * across;
    if (number >= (long long)batch * filters * plane) {
        return;
    }
    const long long image = number / ((long long)filters * plane);
    const int rest = int(number - image * filters * plane);
    const int filter = inside ? rest % filters : rest / plane;
    const int at = inside ? rest / filters : rest % plane;
    Place place = Place::of(at, down, across, stride, padding);
    place.image = int(image);
    const Image from{x, channels, height, width, dilation, inside != 0};
    const int taps = channels * tall * wide;
    float total = 0.0f;
    for (int first = 0; first < taps; first += STRETCH) {
        float sum = 0.0f;
        for (int number = first; number < min(first + STRETCH, taps); ++number) {
            const Tap tap = Tap::of(number, channels, tall, wide, inside);
            sum += from.under(place, tap) * to_float(w[(long long)filter * taps + number]);
        }
        total += sum;
    }
    y[number] = from_float<scalar_t>(total);
}

// An implicit GEMM, a product that never stores its left matrix: 64 places by 64 filters a block, 16 taps at a time through
// shared memory, 4 x 4 outputs a thread. Neighbouring threads load and store what lies side by side: channels where
// these are inside, else places.
constexpr int V2_TILE = 64, V2_STEP = 16, V2_THREADS = 256, V2_SIDE = 4;
template <bool INSIDE>
__device__ __forceinline__ void implicit_product(PARAMETERS) {
    constexpr int OF_SIDE = V2_TILE / V2_SIDE;            // threads along a side of the tile
    constexpr int LOADS = V2_TILE * V2_STEP / V2_THREADS;  // of each matrix, a thread and step
    __shared__ float left[V2_STEP][V2_TILE + 1], right[V2_STEP][V2_TILE + 1];
    const int thread = int(threadIdx.x);
    const int plane = down * across, taps = channels * tall * wide;
    const int tiles = (filters + V2_TILE - 1) / V2_TILE;
    const long long places = (long long)batch * plane;
    const long long first_place = (long long)(blockIdx.x / tiles) * V2_TILE;
    const int first_filter = int(blockIdx.x % tiles) * V2_TILE;
    const Image from{x, channels, height, width, dilation, INSIDE};

    // The places of the left matrix that this thread loads: one where neighbours load places, else LOADS.
    constexpr int PLACES = INSIDE ? LOADS : 1;
    Place mine[PLACES];
    bool is_place[PLACES];
#pragma unroll
    for (int t = 0; t < PLACES; ++t) {
        const long long number = first_place + (INSIDE ? thread / V2_STEP + t * (V2_THREADS / V2_STEP) : thread % V2_TILE);
        is_place[t] = number < places;
        const long long image = is_place[t] ? number / plane : 0;
        mine[t] = Place::of(is_place[t] ? int(number - image * plane) : 0, down, across, stride, padding);
        mine[t].image = int(image);
    }
    float totals[V2_SIDE][V2_SIDE] = {}, sums[V2_SIDE][V2_SIDE] = {};
    const auto close_stretch = [&] {
#pragma unroll
        for (int i = 0; i < V2_SIDE; ++i) {
#pragma unroll
            for (int j = 0; j < V2_SIDE; ++j) {
                totals[i][j] += sums[i][j];
                sums[i][j] = 0.0f;
            }
        }
    };
    const int low = thread % OF_SIDE, high = thread / OF_SIDE;
    const int place_side = INSIDE ? high : low, filter_side = INSIDE ? low : high;
    for (int step = 0; step < taps; step += V2_STEP) {
        __syncthreads();  // the matrices of the step before are used up
#pragma unroll
        for (int t = 0; t < LOADS; ++t) {
            const int place = INSIDE ? thread / V2_STEP + t * (V2_THREADS / V2_STEP) : thread % V2_TILE;
            const int row = INSIDE ? thread % V2_STEP : thread / V2_TILE + t * (V2_THREADS / V2_TILE);
            const bool is_there = step + row < taps && is_place[INSIDE ? t : 0];
            const Tap tap = Tap::of(step + row, channels, tall, wide, INSIDE);
            left[row][place] = is_there ? from.under(mine[INSIDE ? t : 0], tap) : 0.0f;
        }
#pragma unroll
        for (int t = 0; t < LOADS; ++t) {
            const int row = thread % V2_STEP, filter = thread / V2_STEP + t * (V2_THREADS / V2_STEP);
            const bool is_there = step + row < taps && first_filter + filter < filters;
            right[row][filter] = is_there ? to_float(w[(long long)(first_filter + filter) * taps + step + row]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int row = 0; row < V2_STEP; ++row) {
            float of_place[V2_SIDE], of_filter[V2_SIDE];
#pragma unroll
            for (int i = 0; i < V2_SIDE; ++i) {
                of_place[i] = left[row][place_side + i * OF_SIDE];
                of_filter[i] = right[row][filter_side + i * OF_SIDE];
            }
#pragma unroll
            for (int i = 0; i < V2_SIDE; ++i) {
#pragma unroll
                for (int j = 0; j < V2_SIDE; ++j) {
                    sums[i][j] = fmaf(of_place[i], of_filter[j], sums[i][j]);
                }
            }
        }
        if (step % STRETCH == STRETCH - V2_STEP) {
            close_stretch();
        }
    }
    close_stretch();
#pragma unroll
    for (int i = 0; i < V2_SIDE; ++i) {
        const long long number = first_place + place_side + i * OF_SIDE;
        if (number < places) {
            const long long image = number / plane;
            Place place = Place::of(int(number - image * plane), down, across, stride, padding);
            place.image = int(image);
#pragma unroll
            for (int j = 0; j < V2_SIDE; ++j) {
                const int filter = first_filter + filter_side + j * OF_SIDE;
                if (filter < filters) {
                    y[output_index(place, filter, filters, down, across, INSIDE)] = from_float<scalar_t>(totals[i][j]);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(V2_THREADS) conv2d_tiled(PARAMETERS) {
    if (inside) {
        implicit_product<true>(x, w, y, batch, channels, height, width, filters, tall, wide, down, across, stride,
                               padding, dilation, inside);
    } else {
        implicit_product<false>(x, w, y, batch, channels, height, width, filters, tall, wide, down, across, stride,
                                padding, dilation, inside);
    }
}
