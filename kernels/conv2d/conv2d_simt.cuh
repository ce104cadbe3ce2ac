// The images of a convolution as an operand of gemm_simt.cuh: one row or column for every place of the output, numbered
// through all images, one k for every tap under every channel, in the order in which the filters have them. The places of a
// tile lie under fewer than 2^32 pixels.
#pragma once
#include "gemm_simt.cuh"

namespace {

// Keeps what every slice needs in a register: the compiler would make it anew each time.
__device__ __forceinline__ void keep(unsigned& value) { asm volatile("" : "+r"(value)); }

// The filters, a row each, with the taps of their channels along k: up to 2^25 of those.
template <int EXTENT>
struct Filters : KMajor<EXTENT, float> {
    using Rows = KMajor<EXTENT, float>;
    __device__ __forceinline__ Filters(const float* w, int first, int filters, int k, int k0)
        : Rows(w, first, filters, k, k0) {
#pragma unroll
        for (int i = 0; i < Rows::COPIES; ++i) keep(this->offset[i]);
    }
};

struct Images {
    const float* x;
    int channels, height, width, tall, wide, down, across, stride, padding, dilation;
};

// A tap of a filter: how far behind the first one it lies, in pixels, and its row and its column as bits.
struct Tap {
    unsigned pixels;
    unsigned bits;
};
constexpr int MOST_TAPS = 16;  // along an axis
constexpr int COLUMN_BIT = 16;

__device__ __forceinline__ const Tap* taps_of(const Images& images) {
    __shared__ Tap taps[MOST_TAPS * MOST_TAPS];
    for (int tap = threadIdx.x; tap < images.tall * images.wide; tap += THREADS) {
        const int a = tap / images.wide, b = tap - a * images.wide;
        taps[tap] = {(unsigned)(a * images.width + b) * images.dilation, 1u << a | 1u << (COLUMN_BIT + b)};
    }
    __syncthreads();
    return taps;
}

// A place of the output: its image, the pixel under its first tap, counted from the corner of the padding in rows as wide as
// the image, and the bits of the taps that lie beside the image: all of them past the last place.
struct Place {
    int image;
    unsigned pixel;
    unsigned beside;

    __device__ __forceinline__ Place(int number, int places, const Images& s) : image(0), pixel(0), beside(~0u) {
        if (number >= places) return;
        image = number / (s.down * s.across);
        const int within = number - image * (s.down * s.across);
        const int p = within / s.across;
        const int row = p * s.stride, column = (within - p * s.across) * s.stride;
        pixel = (unsigned)row * s.width + column;
        beside = bits_beside(row - s.padding, s.tall, s.dilation, s.height) |
                 bits_beside(column - s.padding, s.wide, s.dilation, s.width) << COLUMN_BIT;
    }
    static __device__ __forceinline__ unsigned bits_beside(int first, int taps, int dilation, int extent) {
        unsigned bits = 0;
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap) bits |= (unsigned)((unsigned)(first + tap * dilation) >= extent) << tap;
        return bits;
    }
};

// The k of a thread, slice after slice: of `extent` inner steps each is an outer one.
struct Walk {
    int inner, outer;
    int extent;

    __device__ __forceinline__ Walk(int k, int extent) : inner(k % extent), outer(k / extent), extent(extent) {}
    __device__ __forceinline__ void next_slice() {
        inner += SLICE % extent;
        outer += SLICE / extent;
        if (inner < extent) return;
        inner -= extent;
        ++outer;
    }
    __device__ __forceinline__ void next() {
        if (++inner < extent) return;
        inner = 0;
        ++outer;
    }
};

// Channels inside: the channels under a tap run along k, as in KMajor.
template <int EXTENT_>
struct ImagesKMajor {
    static constexpr int EXTENT = EXTENT_;
    static constexpr int PITCH = KMajor<EXTENT>::PITCH;
    static constexpr int STEP = KMajor<EXTENT>::STEP;
    static constexpr int COPIES = KMajor<EXTENT>::COPIES;

    const Tap* taps;
    int last_tap;
    unsigned pixel_bytes;
    const char* first;  // channel of the first pixel of the first image
    Walk walk;           // through channels, then taps
    unsigned pixel[COPIES];
    unsigned beside[COPIES];
    // Of the coming slice:
    const char* from;
    unsigned bits;

    __device__ __forceinline__ ImagesKMajor(const Images& s, int first_place, int places, int, int k0)
        : taps(taps_of(s)), last_tap(s.tall * s.wide - 1), pixel_bytes(s.channels * 4), walk(k0 + k_of(), s.channels) {
        const unsigned plane = (unsigned)s.height * s.width;
        const int first_image = first_place / (s.down * s.across);
        const long long corner = (long long)first_image * plane - ((long long)s.padding * s.width + s.padding);
        first = reinterpret_cast<const char*>(s.x + corner * s.channels);
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const Place place(first_place + row_of() + i * STEP, places, s);
            pixel[i] = (unsigned)(place.image - first_image) * plane + place.pixel;
            beside[i] = place.beside;
            keep(pixel[i]);
            keep(beside[i]);
        }
        look_up();
    }
    static __device__ __forceinline__ int k_of() { return KMajor<EXTENT>::k_of(); }
    static __device__ __forceinline__ int row_of() { return KMajor<EXTENT>::row_of(); }

    __device__ __forceinline__ void look_up() {
        const Tap tap = taps[min(walk.outer, last_tap)];  // past the last k nothing is copied
        from = first + (unsigned long long)tap.pixels * pixel_bytes + walk.inner * 4;
        bits = tap.bits;
    }
    __device__ __forceinline__ void fetch(float (&slice)[SLICE][PITCH], int k_left, int step) {
        const unsigned to = shared_address(&slice[k_of()][row_of()]);
        const bool is_k = k_of() < k_left;
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (i * FETCH_STEPS / COPIES != step) continue;
            const bool inside = is_k && !(beside[i] & bits);
            copy_async<4>(to + i * STEP * 4, from + (unsigned long long)pixel[i] * pixel_bytes, inside);
        }
        if (step < FETCH_STEPS - 1) return;
        walk.next_slice();
        look_up();
    }
};

// Channels outside: neighbouring lanes copy neighbouring places, a warp two neighbouring k of a slice.
template <int EXTENT_>
struct ImagesMnMajor {
    static constexpr int EXTENT = EXTENT_;
    static constexpr int PITCH = EXTENT;
    static constexpr int LANES = 32;
    static constexpr int KS = SLICE / (THREADS / LANES);  // of a warp
    static constexpr int RUNS = EXTENT / LANES;           // of neighbouring places
    static constexpr int COPIES = KS * RUNS;

    const Tap* taps;
    unsigned plane;
    Walk walk;  // through taps, then channels
    const char* place[RUNS];
    unsigned beside[RUNS];
    // Of the coming slice:
    unsigned long long offset[KS];  // in bytes
    unsigned bits[KS];

    __device__ __forceinline__ ImagesMnMajor(const Images& s, int first_place, int places, int, int k0)
        : taps(taps_of(s)),
          plane((unsigned)s.height * s.width),
          walk(k0 + k_of(), s.tall * s.wide) {
#pragma unroll
        for (int i = 0; i < RUNS; ++i) {
            const Place at(first_place + col_of() + i * LANES, places, s);
            const long long corner = (long long)s.padding * s.width + s.padding;
            const long long element = (long long)at.image * s.channels * plane + at.pixel - corner;
            place[i] = reinterpret_cast<const char*>(s.x + element);
            beside[i] = at.beside;
        }
        look_up();
    }
    static __device__ __forceinline__ int k_of() { return threadIdx.x / LANES * KS; }
    static __device__ __forceinline__ int col_of() { return threadIdx.x % LANES; }

    __device__ __forceinline__ void look_up() {
        Walk at = walk;
#pragma unroll
        for (int j = 0; j < KS; ++j) {
            const Tap tap = taps[at.inner];
            offset[j] = ((unsigned long long)(unsigned)at.outer * plane + tap.pixels) * 4;
            bits[j] = tap.bits;
            at.next();
        }
    }
    __device__ __forceinline__ void fetch(float (&slice)[SLICE][PITCH], int k_left, int step) {
        const unsigned to = shared_address(&slice[k_of()][col_of()]);
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            if (i * FETCH_STEPS / COPIES != step) continue;
            const int j = i / RUNS, run = i % RUNS;
            const bool inside = k_of() + j < k_left && !(beside[run] & bits[j]);
            copy_async<4>(to + (j * PITCH + run * LANES) * 4, place[run] + offset[j], inside);
        }
        if (step < FETCH_STEPS - 1) return;
        walk.next_slice();
        look_up();
    }
};

// Where y is stored if channels are outside: rows are filters, columns places, a plane of them an image.
struct Planes {
    int plane;
    long long at[2][RUN_LEN];  // of the first filter, in both runs of places

    explicit __device__ __forceinline__ Planes(int plane) : plane(plane) {}
    __device__ __forceinline__ void start(int filters, int, const int (&places)[2]) {
#pragma unroll
        for (int i = 0; i < 2 * RUN_LEN; ++i) {
            const int place = places[i / RUN_LEN] + i % RUN_LEN, image = place / plane;
            at[i / RUN_LEN][i % RUN_LEN] = (long long)image * filters * plane + (place - image * plane);
        }
    }
    __device__ __forceinline__ void store(float* __restrict__ y, int filters, int places, int filter, int place, int of,
                                          const float (&run)[RUN_LEN]) const {
        if (filter >= filters || place >= places) return;
        float* const first = y + (long long)filter * plane;
        if (plane % RUN_LEN == 0) {
            // By its own instruction: the compiler takes an assignment apart.
            __stcg(reinterpret_cast<float4*>(first + at[of][0]), make_float4(run[0], run[1], run[2], run[3]));
            return;
        }
#pragma unroll
        for (int e = 0; e < RUN_LEN; ++e) {
            if (place + e < places) first[at[of][e]] = run[e];
        }
    }
};

}  // namespace
