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
//   elements      any inner           grid (ceil(rows / R), ceil(A / W))     block (W, R), W * R = 256, W a power of two,
//   packs         inner % 8 == 0                                             A accesses of a row
//   .._2x2, .._3x3  windows of so many places, with a padding of 0 and of 0 or 1: all loads are under way before the first is used
//   lines_2x2, lines_3x3, lines_3x3_stride2  inner = 1; stride 2, 1, 2; padding 0, 1, 1; across % 8 == 0 and stride * across
//                 == width: packs of columns, A = across / 8
#include "pooling.cuh"

#define PARAMETERS                                                                                                      \
    const scalar_t *__restrict__ x, scalar_t *__restrict__ y, long long rows, int height, int width, int inner, int down, \
        int across, int tall, int wide, int stride, int padding, int activation

// The largest of a window, of WIDTH windows side by side, and the least where LEAST.
template <int WIDTH, bool LEAST>
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
    __device__ __forceinline__ void add(int j, float value) {
        if (LEAST) least[j] = smaller(least[j], value);
        largest[j] = larger(largest[j], value);
        is_empty = false;
    }
    __device__ __forceinline__ void add(const Access<WIDTH>& access) {
        float value[WIDTH];
        access.get(value);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            add(j, value[j]);
        }
    }
    template <int OTHER>
    __device__ __forceinline__ void add_from(int j, const Extremes<OTHER, LEAST>& other, int i) {
        if (LEAST) least[j] = smaller(least[j], other.least[i]);
        largest[j] = larger(largest[j], other.largest[i]);
        is_empty = false;
    }
    __device__ __forceinline__ void store(scalar_t* to, int activation) {
        if (!is_empty && activation != 0) {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                largest[j] = LEAST ? largest_activated(least[j], largest[j], activation) : activated(largest[j], RELU);
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

// A place of a window of SIDE places that is inside of the image: of two all are.
template <int SIDE>
__device__ __forceinline__ int inside(int at, int extent) {
    return SIDE == 2 ? at : min(max(at, 0), extent - 1);
}

// A line of outputs from windows of SIDE by SIDE places; of any where SIDE is 0.
template <int WIDTH, int SIDE, bool LEAST>
__device__ __forceinline__ void pool(PARAMETERS) {
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long plane;
    int p;
    divide(row, down, plane, p);
    x += plane * height * width * inner;
    y += row * across * inner;
    const int top = p * stride - padding;
    const int accesses = across * (inner / WIDTH);
    for (int at = blockIdx.y * blockDim.x + threadIdx.x; at < accesses; at += gridDim.y * blockDim.x) {
        const int q = WIDTH == 1 && inner == 1 ? at : at / (inner / WIDTH);
        const int c = (at - q * (inner / WIDTH)) * WIDTH;
        const int left = q * stride - padding;
        Extremes<WIDTH, LEAST> window;
        if constexpr (SIDE > 0) {
            // Of three places one may be beside the image: the nearest one inside, which is in the window too, stands for it.
            Access<WIDTH> loaded[SIDE][SIDE];
#pragma unroll
            for (int a = 0; a < SIDE; ++a) {
                const scalar_t* const line = x + (long long)inside<SIDE>(top + a, height) * width * inner + c;
#pragma unroll
                for (int b = 0; b < SIDE; ++b) {
                    loaded[a][b] = Access<WIDTH>::load(line + inside<SIDE>(left + b, width) * inner);
                }
            }
#pragma unroll
            for (int a = 0; a < SIDE; ++a) {
#pragma unroll
                for (int b = 0; b < SIDE; ++b) {
                    window.add(loaded[a][b]);
                }
            }
        } else {
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

// A pack of outputs from lines that keep their length but for the stride: of one channel, windows of SIDE by SIDE places, one of
// them beside the image where SIDE is 3. Columns are taken in packs, of each first the largest of the rows of a window.
template <int SIDE, int STRIDE, bool LEAST>
__device__ __forceinline__ void pool_line(PARAMETERS) {
    constexpr int BESIDE = SIDE == 3 ? 1 : 0;  // columns before and after those of the packs
    const long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    long long plane;
    int p;
    divide(row, down, plane, p);
    x += plane * height * width;
    y += row * across;
    const int top = p * stride - padding;
    for (int at = blockIdx.y * blockDim.x + threadIdx.x; at * PACK_LEN < across; at += gridDim.y * blockDim.x) {
        const int first = at * STRIDE * PACK_LEN;
        Access<PACK_LEN> packs[SIDE][STRIDE];
        Access<1> before[SIDE], after[SIDE];
#pragma unroll
        for (int a = 0; a < SIDE; ++a) {
            const scalar_t* const line = x + (long long)inside<SIDE>(top + a, height) * width;
#pragma unroll
            for (int k = 0; k < STRIDE; ++k) {
                packs[a][k] = Access<PACK_LEN>::load(line + first + k * PACK_LEN);
            }
            if (BESIDE > 0) {
                before[a] = Access<1>::load(line + inside<SIDE>(first - 1, width));
                after[a] = Access<1>::load(line + inside<SIDE>(first + STRIDE * PACK_LEN, width));
            }
        }
        Extremes<STRIDE * PACK_LEN + 2, LEAST> columns;
#pragma unroll
        for (int a = 0; a < SIDE; ++a) {
#pragma unroll
            for (int k = 0; k < STRIDE; ++k) {
                float value[PACK_LEN];
                packs[a][k].get(value);
#pragma unroll
                for (int j = 0; j < PACK_LEN; ++j) {
                    columns.add(1 + k * PACK_LEN + j, value[j]);
                }
            }
            if (BESIDE > 0) {
                columns.add(0, to_float(before[a].bits));
                columns.add(STRIDE * PACK_LEN + 1, to_float(after[a].bits));
            }
        }
        Extremes<PACK_LEN, LEAST> windows;
#pragma unroll
        for (int j = 0; j < PACK_LEN; ++j) {
#pragma unroll
            for (int b = 0; b < SIDE; ++b) {
                windows.add_from(j, columns, 1 - BESIDE + j * STRIDE + b);
            }
        }
        windows.store(y + at * PACK_LEN, activation);
    }
}

#define ARGUMENTS x, y, rows, height, width, inner, down, across, tall, wide, stride, padding, activation
#define POOL(NAME, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) max_pool2d_##NAME(PARAMETERS) {  \
        if (activation > RELU) {                                                          \
            constexpr bool LEAST = true;                                                  \
            __VA_ARGS__(ARGUMENTS);                                                       \
        } else {                                                                          \
            constexpr bool LEAST = false;                                                 \
            __VA_ARGS__(ARGUMENTS);                                                       \
        }                                                                                 \
    }
POOL(elements, pool<1, 0, LEAST>)
POOL(elements_2x2, pool<1, 2, LEAST>)
POOL(elements_3x3, pool<1, 3, LEAST>)
POOL(packs, pool<PACK_LEN, 0, LEAST>)
POOL(packs_2x2, pool<PACK_LEN, 2, LEAST>)
POOL(packs_3x3, pool<PACK_LEN, 3, LEAST>)
POOL(lines_2x2, pool_line<2, 2, LEAST>)
POOL(lines_3x3, pool_line<3, 1, LEAST>)
POOL(lines_3x3_stride2, pool_line<3, 2, LEAST>)
