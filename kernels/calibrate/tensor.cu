// Tensor cores: each of two warpgroups a block computes D += A * B^T of the same tiles from shared memory, `steps` times.
// y[block * 256 + thread] is the sum of the thread's accumulators.
//
// Nothing but wgmma in the loop: what it reaches is the ceiling of a GEMM mainloop. A is 64 rows, B 256, of 128 bytes
// (128 elements of e4m3, 64 at half width, 32 of tf32), K-major in the 128-byte swizzle; a step is four wgmma.
// Launch: grid any, block 256, compute capability 9.0a.
#include "kernelgate.cuh"

constexpr int ROWS_A = 64, ROWS_B = 256, ROW_BYTES = 128, SLICES = 4, SLICE_BYTES = ROW_BYTES / SLICES;
constexpr int ACCUMULATORS = ROWS_B / 2;

#if defined(KERNELGATE_F32)
#define SHAPE_AND_TYPES "m64n256k8.f32.tf32.tf32"
#define SCALES "1, 1"
#elif defined(KERNELGATE_E4M3)
#define SHAPE_AND_TYPES "m64n256k32.f32.e4m3.e4m3"
#define SCALES "1, 1"
#elif defined(KERNELGATE_F16)
#define SHAPE_AND_TYPES "m64n256k16.f32.f16.f16"
#define SCALES "1, 1, 0, 0"
#else
#define SHAPE_AND_TYPES "m64n256k16.f32.bf16.bf16"
#define SCALES "1, 1, 0, 0"
#endif

// Start, stride of 1024 bytes from eight rows to the next, 128-byte swizzle.
__device__ __forceinline__ unsigned long long descriptor(const void* tile) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(tile);
    return (unsigned long long)(address >> 4 & 0x3FFF) | 1ull << 16 | (unsigned long long)(1024 >> 4) << 32 | 1ull << 62;
}

#define TEN(t) \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

__device__ __forceinline__ void wgmma(float (&d)[ACCUMULATORS], unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE_AND_TYPES
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8)
                     TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, 1, " SCALES ";"
                 : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
                 : "l"(a), "l"(b));
}

// Copies rows of 128 bytes into the swizzle: 16-byte unit u of row r lies at unit u ^ (r % 8).
__device__ __forceinline__ void fill(unsigned char* tile, const void* from, int rows) {
    for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
        const int row = i / 8, unit = i % 8;
        *reinterpret_cast<uint4*>(tile + row * ROW_BYTES + (unit ^ row % 8) * 16) = static_cast<const uint4*>(from)[i];
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
    tensor(const scalar_t* a, const scalar_t* b, float* y, int steps) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    unsigned char* const tile_b = tiles + ROWS_A * ROW_BYTES;
    fill(tiles, a, ROWS_A);
    fill(tile_b, b, ROWS_B);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float d[ACCUMULATORS] = {};
    const unsigned long long of_a = descriptor(tiles), of_b = descriptor(tile_b);
    for (int step = 0; step < steps; ++step) {
        // In each step: what the loop carries over may be moved between registers.
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice) {
            wgmma(d, of_a + (slice * SLICE_BYTES >> 4), of_b + (slice * SLICE_BYTES >> 4));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) asm volatile("" : "+f"(d[i])::"memory");
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) sum += d[i];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
