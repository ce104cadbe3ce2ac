// Max pooling in two dimensions: y = max f(x) over a window of tall by wide places, f an activation or nothing. NaN is the
// largest of all; places beside the image hold nothing, and a window of nothing gives -inf. One dtype; f32 arithmetic.
//
// A plane is an image with its channels inside (inner = channels) or one channel of it (inner = 1); x [planes, height, width,
// inner], y [planes, down, across, inner], `rows` = planes * down. The activations: 0 none, 1 ReLU, 2 GELU, 3 SiLU.
//
// The idea: memory moves each byte once, and a line of threads owns a row of the output, so that none divides by more than the
// length of its row. GELU and SiLU fall before they rise: over a window they are largest at its least or its largest element,
// and are taken of those two alone. Launch (no dynamic shared memory):
//   naive         any inner           grid ceil(outputs / 256)               block 256
//   elements      any inner           grid (ceil(rows / R), ceil(A / W))     block (W, R), W * R = 256,
//   packs         inner % 8 == 0                                             A accesses of a row
//   .._2x2        windows of 2 by 2 places without padding: all loads are under way before the first is used
#include "pooling.cuh"

#define PARAMETERS                                                                                                      \
    const scalar_t *__restrict__ x, scalar_t *__restrict__ y, long long rows, int height, int width, int inner, int down, \
        int across, int tall, int wide, int stride, int padding, int activation

// The least and the largest of a window, of WIDTH windows side by side.
template <int WIDTH>
struct Extremes {
    float least[WIDTH], largest[WIDTH];
    bool is_empty = true;

    __device__ __forceinline__ Extremes() {
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            least[j] = -minus_infinity();
            largest[j] = minus_infinity();
        }
    }
    __device__ __forceinline__ void add(const Access<WIDTH>& access) {
        float value[WIDTH];
        access.get(value);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            least[j] = smaller(least[j], value[j]);
            largest[j] = larger(largest[j], value[j]);
        }
        is_empty = false;
    }
    __device__ __forceinline__ void store(scalar_t* to, int activation) {
        if (!is_empty && activation != 0) {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                largest[j] = largest_activated(least[j], largest[j], activation);
            }
        }
        Access<WIDTH>::store(to, largest);
    }
};

// Quotient and remainder; in 32 bits where they suffice, which costs a fraction.
__device__ __forceinline__ void divide(long long a, int b, long long& quotient, int& remainder) {
    if (a <= 0xffffffffll) {
        quotient = (unsigned int)a / (unsigned int)b;
        remainder = int((unsigned int)a % (unsigned int)b);
    } else {
        quotient = a / b;
        remainder = int(a % b);
    }
}

// Lesson 1: the definition. A thread an output, an activation an element.
extern "C" __global__ void max_pool2d_naive(PARAMETERS) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows * across * inner) return;
    long long place, row, plane;
    int c, q, p;
    divide(at, inner, place, c);
    divide(place, across, row, q);
    divide(row, down, plane, p);
    float largest = minus_infinity();
    for (int a = 0; a < tall; ++a) {
        const int i = p * stride + a - padding;
        for (int b = 0; b < wide; ++b) {
            const int j = q * stride + b - padding;
            if (i >= 0 && i < height && j >= 0 && j < width) {
                const float value = to_float(x[((plane * height + i) * width + j) * inner + c]);
                largest = larger(largest, activated(value, activation));
            }
        }
    }
    y[at] = from_float<scalar_t>(largest);
}

template <int WIDTH, bool HALVES>
__device__ __forceinline__ void pool(PARAMETERS) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long plane;
    int p;
    divide(row, down, plane, p);
    x += plane * height * width * inner;
    y += row * across * inner;
    const int accesses = across * (inner / WIDTH);
    for (int at = blockIdx.y * blockDim.x + threadIdx.x; at < accesses; at += gridDim.y * blockDim.x) {
        const int q = WIDTH == 1 && inner == 1 ? at : at / (inner / WIDTH);
        const int c = (at - q * (inner / WIDTH)) * WIDTH;
        Extremes<WIDTH> window;
        if constexpr (HALVES) {
            const scalar_t* const corner = x + ((long long)p * stride * width + q * stride) * inner + c;
            const scalar_t* const below = corner + (long long)width * inner;
            const Access<WIDTH> first = Access<WIDTH>::load(corner), second = Access<WIDTH>::load(corner + inner);
            const Access<WIDTH> third = Access<WIDTH>::load(below), fourth = Access<WIDTH>::load(below + inner);
            window.add(first);
            window.add(second);
            window.add(third);
            window.add(fourth);
        } else {
            const int top = p * stride - padding, left = q * stride - padding;
            const int bottom = min(top + tall, height), right = min(left + wide, width);
            for (int i = max(top, 0); i < bottom; ++i) {
                for (int j = max(left, 0); j < right; ++j) {
                    window.add(Access<WIDTH>::load(x + ((long long)i * width + j) * inner + c));
                }
            }
        }
        window.store(y + (long long)q * inner + c, activation);
    }
}

#define POOL(NAME, WIDTH, HALVES)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 4) max_pool2d_##NAME(PARAMETERS) {                                 \
        pool<WIDTH, HALVES>(x, y, rows, height, width, inner, down, across, tall, wide, stride, padding, activation);    \
    }
POOL(elements, 1, false)
POOL(elements_2x2, 1, true)
POOL(packs, PACK_LEN, false)
POOL(packs_2x2, PACK_LEN, true)
