// What the bmm kernels share: c[i] = op(a[i]) * op(b[i]) for every item i of a batch, all row-major, the items of a tensor
// one behind the other. op leaves an operand as it is, or transposes it.
//
// Letters: m rows of op(a) and c, n columns of op(b) and c, k the summed extent. Layouts, as libraries name them: N as it
// is, T transposed, a first. So a is K-major in nn and nt, b in nt and tt; MN-major in the others.
#pragma once
#include "gemm.cuh"

// An item of the batch, and the number of a block among the blocks of its item.
struct Item {
    int item;
    int block;
};

__device__ __forceinline__ Item item_of(int blocks_of_item) {
    const int item = (int)blockIdx.x / blocks_of_item;
    return {item, (int)blockIdx.x - item * blocks_of_item};
}

// Where the operands and the outputs of an item begin.
struct Matrices {
    const scalar_t* a;
    const scalar_t* b;
    scalar_t* c;

    __device__ __forceinline__ Matrices(const scalar_t* a, const scalar_t* b, scalar_t* c, int m, int n, int k, int item)
        : a(a + (long long)item * m * k), b(b + (long long)item * k * n), c(c + (long long)item * m * n) {}
};
