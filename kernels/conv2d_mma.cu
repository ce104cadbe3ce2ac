// conv2d in f16 and bf16 on mma.sync, for compute capability 8.0 and up: a product of the filters with what lies under
// them, sums in f32.
//
// Letters: a place is one of the batch * down * across outputs of a filter. k counts taps and, within a tap, channels;
// a chunk is 8 channels under one tap, 16 bytes of an image; a slice is four chunks. Images and filters have their
// channels inside, a multiple of 8 of them (`pitch`) from column to column: those that do not are copied to the
// workspace first (conv2d_pack).
#include "conv2d_pack.cuh"
#include "gemm_mma.cuh"

#if !defined(KERNELGATE_F32)

namespace {

constexpr int SLICE = 32;
constexpr int CHUNKS = SLICE / CHUNK;
constexpr int STAGES = 4;
constexpr int THREADS = 256;
constexpr int STEPS = SLICE / 16;         // of k that one product takes
constexpr int PASS = THREADS / CHUNKS;    // rows of a slice that the block fetches at once

struct Extents {
    int places, filters, down, across, height, width, pitch, tall, wide, stride, padding, dilation;
};

// Eight warps share ROWS x COLS outputs, WARP_ROWS x WARP_COLS each. With channels inside rows are places and columns
// filters, so that a lane holds neighbouring filters; with channels outside the other way round.
template <int ROWS_, int COLS_, int WARP_ROWS_, int WARP_COLS_, bool INSIDE_>
struct Config {
    static constexpr int ROWS = ROWS_;
    static constexpr int COLS = COLS_;
    static constexpr int WARP_ROWS = WARP_ROWS_;
    static constexpr int WARP_COLS = WARP_COLS_;
    static constexpr bool INSIDE = INSIDE_;
    static constexpr int PLACES = INSIDE ? ROWS : COLS;
    static constexpr int FILTERS = INSIDE ? COLS : ROWS;
    static_assert(ROWS / WARP_ROWS * (COLS / WARP_COLS) * 32 == THREADS, "eight warps");
};

// Rows of both factors are 64 bytes along k. ldmatrix reads the same chunk of eight neighbouring rows at once: the XOR
// puts those into eight different groups of four banks.
__device__ __forceinline__ int at(int row, int chunk) { return row * SLICE + (chunk ^ (row >> 1 & 3)) * CHUNK; }

// The chunk of each slice that a thread fetches, and the tap it is under.
struct Walk {
    int channel, a, b;

    __device__ __forceinline__ Walk(const Extents& e) : channel(int(threadIdx.x) % CHUNKS * CHUNK), a(0), b(0) {
        settle(e);
    }
    __device__ __forceinline__ void next(const Extents& e) {
        channel += SLICE;
        settle(e);
    }
    __device__ __forceinline__ void settle(const Extents& e) {
        while (channel >= e.pitch) {
            channel -= e.pitch;
            if (++b == e.wide) {
                b = 0;
                ++a;
            }
        }
    }
};

// The first tap's row and column for one of the places that a thread fetches for.
struct Under {
    int image, i, j;
};

// What a warp multiplies at once: 16 of k.
template <class C>
struct Parts {
    unsigned a[C::WARP_ROWS / 16][4];
    unsigned b[C::WARP_COLS / 16][4];
};

template <class C>
__device__ __forceinline__ void load(Parts<C>& parts, const scalar_t* rows, const scalar_t* cols, int step) {
    constexpr int WARPS_ACROSS = C::COLS / C::WARP_COLS;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < C::WARP_ROWS / 16; ++i) {
        const int row = warp / WARPS_ACROSS * C::WARP_ROWS + i * 16 + lane % 16;
        load_matrices(parts.a[i], &rows[at(row, step * 2 + lane / 16)]);
    }
#pragma unroll
    for (int j = 0; j < C::WARP_COLS / 16; ++j) {
        const int col = warp % WARPS_ACROSS * C::WARP_COLS + j * 16 + lane / 16 * 8 + lane % 8;
        load_matrices(parts.b[j], &cols[at(col, step * 2 + lane / 8 % 2)]);
    }
}

template <class C>
__device__ __forceinline__ void convolve(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w,
                                         scalar_t* __restrict__ y, const Extents& e) {
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* const stages = reinterpret_cast<scalar_t*>(shared);
    constexpr int STAGE = (C::PLACES + C::FILTERS) * SLICE;  // elements: places, then filters
    const int filter_tiles = tiles(e.filters, C::FILTERS);
    const int first_place = int(blockIdx.x) / filter_tiles * C::PLACES;
    const int first_filter = int(blockIdx.x) % filter_tiles * C::FILTERS;
    const int plane = e.down * e.across;
    const int k = e.tall * e.wide * e.pitch;
    const int slices = tiles(k, SLICE);

    const int line = threadIdx.x / CHUNKS;
    Under under[C::PLACES / PASS];
#pragma unroll
    for (int r = 0; r < C::PLACES / PASS; ++r) {
        const int place = first_place + line + r * PASS;
        const int image = place / plane;
        const int p = (place - image * plane) / e.across;
        const int q = place - image * plane - p * e.across;
        // Past the last place no tap is inside.
        under[r] = {image, place < e.places ? p * e.stride - e.padding : -(1 << 20), q * e.stride - e.padding};
    }
    Walk walk(e);
    // One slice past the last is fetched (as zeros) and loaded too: a branch there would keep the compiler from moving
    // the loads between the products.
    auto fetch = [&](int slice) {
        scalar_t* const places = stages + slice % STAGES * STAGE;
        scalar_t* const filters = places + C::PLACES * SLICE;
        const int chunk = threadIdx.x % CHUNKS;
        const bool is_tap = walk.a < e.tall;
#pragma unroll
        for (int r = 0; r < C::PLACES / PASS; ++r) {
            const int i = under[r].i + walk.a * e.dilation;
            const int j = under[r].j + walk.b * e.dilation;
            const bool inside = is_tap && (unsigned)i < (unsigned)e.height && (unsigned)j < (unsigned)e.width;
            const long long from = (((long long)under[r].image * e.height + i) * e.width + j) * e.pitch + walk.channel;
            copy_async<16>(shared_address(&places[at(line + r * PASS, chunk)]), inside ? x + from : x, inside);
        }
#pragma unroll
        for (int r = 0; r < C::FILTERS / PASS; ++r) {
            const int filter = first_filter + line + r * PASS;
            const bool inside = is_tap && filter < e.filters;
            const long long from = (long long)filter * k + slice * SLICE + chunk * CHUNK;
            copy_async<16>(shared_address(&filters[at(line + r * PASS, chunk)]), inside ? w + from : w, inside);
        }
        walk.next(e);
    };
    auto load_slice = [&](Parts<C>& parts, int slice, int step) {
        const scalar_t* const places = stages + slice % STAGES * STAGE;
        const scalar_t* const filters = places + C::PLACES * SLICE;
        load(parts, C::INSIDE ? places : filters, C::INSIDE ? filters : places, step);
    };

    // A round commits one group, empty or not, so that a count of pending groups always means the same slice.
    for (int slice = 0; slice < STAGES - 1; ++slice) {
        fetch(slice);
        copy_async_commit();
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();

    float sums[C::WARP_ROWS / 16][C::WARP_COLS / 8][4] = {};
    Parts<C> parts[2];
    load_slice(parts[0], 0, 0);
    for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            Parts<C>& coming = parts[(step + 1) % 2];
            if (step + 1 < STEPS) {
                load_slice(coming, slice, step + 1);
            } else {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                load_slice(coming, slice + 1, 0);
            }
            // Into the stage before this one: everyone is done with it since the last barrier.
            if (step == 0) {
                if (slice + STAGES - 1 <= slices) fetch(slice + STAGES - 1);
                copy_async_commit();
            }
            const Parts<C>& now = parts[step % 2];
#pragma unroll
            for (int i = 0; i < C::WARP_ROWS / 16; ++i) {
#pragma unroll
                for (int j = 0; j < C::WARP_COLS / 8; ++j) {
                    multiply_add(sums[i][j], now.a[i], now.b[j / 2][j % 2 * 2], now.b[j / 2][j % 2 * 2 + 1]);
                }
            }
        }
    }
    copy_async_wait<0>();

    // A lane holds two neighbouring columns in each of two rows, eight apart, of every 16x8 piece.
    constexpr int WARPS_ACROSS = C::COLS / C::WARP_COLS;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row0 = (C::INSIDE ? first_place : first_filter) + warp / WARPS_ACROSS * C::WARP_ROWS + lane / 4;
    const int col0 = (C::INSIDE ? first_filter : first_place) + warp % WARPS_ACROSS * C::WARP_COLS + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < C::WARP_COLS / 8; ++j) {
        const int col = col0 + j * 8;
        // With channels outside, an image is a matrix of filters by places; a pair may lie in two of them.
        const int image = C::INSIDE ? 0 : col / plane;
        scalar_t* const matrix = y + (long long)image * e.filters * plane;
        const int within = col - image * plane;
        const bool even = (C::INSIDE ? e.filters : plane) % 2 == 0;
        const bool is_there = C::INSIDE || col < e.places;
        const bool leaves = !C::INSIDE && within + 1 == plane && col + 1 < e.places;
#pragma unroll
        for (int i = 0; i < C::WARP_ROWS / 16; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = row0 + i * 16 + half * 8;
                const float two[2] = {sums[i][j][half * 2], sums[i][j][half * 2 + 1]};
                if (!is_there) continue;
                store_run<2>(matrix, C::INSIDE ? e.places : e.filters, C::INSIDE ? e.filters : plane, row, within, two,
                             even);
                if (leaves && row < e.filters) {
                    matrix[((long long)e.filters + row) * plane] = from_float<scalar_t>(two[1]);
                }
            }
        }
    }
}

}  // namespace

#define CONV2D_ENTRY(NAME, BLOCKS, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)                                                    \
        NAME(scalar_t* __restrict__ y, const scalar_t* __restrict__ x, const scalar_t* __restrict__ w,               \
             long long w_offset, int places, int filters, int down, int across, int height, int width, int pitch,    \
             int tall, int wide, int stride, int padding, int dilation) {                                            \
        convolve<Config<__VA_ARGS__>>(x, w + w_offset, y,                                                            \
                                      Extents{places, filters, down, across, height, width, pitch, tall, wide,       \
                                              stride, padding, dilation});                                           \
    }

// v3 (f16 and bf16), the sm_80 path: places x filters 128x128, or 128x64 by two blocks a multiprocessor where there
// are few. A thread fetches the same chunk of two places every slice (cp.async), and walks over the taps by additions.
// On an H200 .36 to .7 of cuDNN at layers of 32 images with channels inside.
// grid = tiles, block = 256, dynamic shared memory = 4 stages (64 or 48 KiB).
CONV2D_ENTRY(conv2d_v3_inside, 1, 128, 128, 64, 32, true)
CONV2D_ENTRY(conv2d_v3_inside_64, 2, 128, 64, 32, 32, true)
CONV2D_ENTRY(conv2d_v3_outside, 1, 128, 128, 64, 32, false)
CONV2D_ENTRY(conv2d_v3_outside_64, 2, 64, 128, 32, 32, false)

#endif  // !defined(KERNELGATE_F32)
