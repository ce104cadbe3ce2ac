// Attention over a cache by the definition: a query a block of TREE_THREADS threads. A thread takes a key of a stretch, then
// an element of the output. dim <= TREE_THREADS.
#pragma once
#include "online_softmax.cuh"

// Query `row` sees `seen` keys; key j and its value begin at element `at(j)` of k and v.
template <typename At>
__device__ __forceinline__ void attend_query(long long row, const scalar_t* q, const scalar_t* k, const scalar_t* v,
                                             scalar_t* y, int seen, int dim, float scale, At at) {
    __shared__ float query[TREE_THREADS];
    __shared__ float weights[TREE_THREADS];
    const int thread = int(threadIdx.x);

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
                sums.add(d, query[d] * to_float(k[at(first + thread) + d]));
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
                sums.add(j, weights[j] * to_float(v[at(first + j) + thread]));
            }
            out = out * correction + sums.total();
        }
    }
    if (thread < dim) {
        y[row * dim + thread] = from_float<scalar_t>(seen > 0 ? out / running.total : 0.0f);
    }
}

// Query `row` of [queries, batch, heads * group, dim] sees the positions up to past + its own, of a cache that is ordered
// position by position.
__device__ __forceinline__ void attend_position(long long row, const scalar_t* q, const scalar_t* k, const scalar_t* v,
                                                scalar_t* y, int batch, int heads, int group, int past, int dim,
                                                float scale) {
    const int of_token = heads * group;
    const long long token = row / of_token;
    const int head = int(row % of_token) / group;
    // From one position of this sequence and head to the next.
    const long long stride = (long long)batch * heads * dim;
    const long long first_key = (token % batch * heads + head) * dim;
    attend_query(row, q, k, v, y, past + int(token / batch) + 1, dim, scale,
                 [&](int j) { return j * stride + first_key; });
}
