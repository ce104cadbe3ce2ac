// What the attention kernels share: their parameters and the naive kernel, which serves every shape.
#pragma once
#include "online_softmax.cuh"

#define PARAMETERS                                                                                            \
    const scalar_t *__restrict__ q, const scalar_t *__restrict__ k, const scalar_t *__restrict__ v,           \
        scalar_t *__restrict__ y, int group, int queries, int keys, int dim, int causal, float scale

// The definition, a query a block. A thread takes one of 256 keys, then an element of the output.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) attention_naive(PARAMETERS) {
    __shared__ float query[TREE_THREADS];
    __shared__ float weights[TREE_THREADS];
    const int thread = int(threadIdx.x);
    const long long row = blockIdx.x;
    const long long head = row / queries / group * keys;
    const int seen = causal ? int(row % queries) + 1 + keys - queries : keys;

    if (thread < dim) {
        query[thread] = to_float(q[row * dim + thread]) * scale;
    }
    Running running;
    float out = 0.0f;
    for (int first = 0; first < seen; first += TREE_THREADS) {
        __syncthreads();  // the query is there, and the weights of the stretch before are used up
        float score = Maximum::identity();
        if (first + thread < seen) {
            FourSums sums;
#pragma unroll 4
            for (int d = 0; d < dim; ++d) {
                sums.add(d, query[d] * to_float(k[(head + first + thread) * dim + d]));
            }
            score = sums.total();
        }
        const float correction = running.raise(tree_reduce<Maximum>(score));
        weights[thread] = expf(score - running.max);
        running.total += tree_reduce<Sum>(weights[thread]);  // its barriers show the weights to all
        if (thread < dim) {
            FourSums sums;
#pragma unroll 4
            for (int j = 0; j < min(seen - first, TREE_THREADS); ++j) {
                sums.add(j, weights[j] * to_float(v[(head + first + j) * dim + thread]));
            }
            out = out * correction + sums.total();
        }
    }
    if (thread < dim) {
        y[row * dim + thread] = from_float<scalar_t>(seen > 0 ? out / running.total : 0.0f);
    }
}
