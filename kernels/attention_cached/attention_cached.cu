// Attention over a cache, position by position: y[i] = sum_j p[i, j] * v[j], p[i, .] = softmax over j of scale * (q[i] . k[j])
//   q, y [queries, batch, heads * group, dim]; k, v [past + queries, batch, heads, dim]; all of one dtype; arithmetic in f32.
// Query head h reads head h / group of k and v, and query i sees the positions up to past + i.
//
// Launch: dim <= 256, grid queries * batch * heads * group, block 256; no dynamic shared memory.
#include "cached_attention.cuh"

// The definition, a query a block.
extern "C" __global__ void __launch_bounds__(TREE_THREADS)
    attention_cached(const scalar_t* __restrict__ q, const scalar_t* __restrict__ k, const scalar_t* __restrict__ v,
                     scalar_t* __restrict__ y, int batch, int heads, int group, int past, int dim, float scale) {
    attend_position(blockIdx.x, q, k, v, y, batch, heads, group, past, dim, scale);
}
