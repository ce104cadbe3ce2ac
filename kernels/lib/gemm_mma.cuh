// What the kernels on mma.sync share: cp.async of 16-byte chunks into shared memory, ldmatrix, mma.
#pragma once
#include "async.cuh"
#include "gemm.cuh"

constexpr int CHUNK = 8;  // elements of 16 bytes: what one cp.async moves and one row of an ldmatrix holds

// Four 8x8 matrices of half-width elements, a row a lane's address.
__device__ __forceinline__ void load_matrices(unsigned (&part)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void load_matrices(unsigned (&part)[4], const void* row) {
    load_matrices(part, shared_address(row));
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&part)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(unsigned (&part)[4], const void* row) {
    load_matrices_transposed(part, shared_address(row));
}

#if defined(KERNELGATE_F16)
#define KERNELGATE_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define KERNELGATE_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#endif

__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b_low, unsigned b_high) {
    asm volatile(KERNELGATE_MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

// Moves one chunk into shared memory: asynchronously where the rows are 16-byte aligned, through registers otherwise.
__device__ __forceinline__ void fetch_chunk(scalar_t* target, const scalar_t* __restrict__ matrix, int rows, int cols,
                                            int row, int col, bool aligned) {
    if (aligned) {
        const bool inside = row < rows && col < cols;
        copy_async<16>(shared_address(target), inside ? matrix + (long long)row * cols + col : matrix, inside);
    } else {
        *reinterpret_cast<Run<CHUNK>*>(target) = load_run<CHUNK>(matrix, rows, cols, row, col, false);
    }
}
