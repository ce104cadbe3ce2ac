// Attention of one new token of each sequence over a cache whose length is in device memory, so that one launch serves every
// token: y[b, h] = sum_j p[j] * v[j, b, h / group], p = softmax over j <= position of scale * (q[b, h] . k[j, b, h / group])
//   q, y [batch, heads * group, dim]; k, v [capacity, batch, heads, dim]; position [1] of i32; the rest of one dtype; f32 inside
//
// Launch (src/ops/attention_kvcache/launch.rs; no dynamic shared memory; may overlap with the launch ahead):
//   naive                            grid batch * heads * group   block 256   dim <= 256
//   cluster_1, _2, _4, _8            grid batch * heads * splits  block 256   cluster splits = 1, 2, 4 or 8, of cluster_8 16
//                                    group <= 1, 2, 4, 8; dim 32, 64 or 128
#include "cached_attention.cuh"
#include "dependent.cuh"

#define PARAMETERS                                                                                        \
    const scalar_t *__restrict__ q, const scalar_t *__restrict__ k, const scalar_t *__restrict__ v,       \
        const int *__restrict__ position, scalar_t *__restrict__ y, int batch, int heads, int group, int dim,         \
        int capacity, float scale

// The definition, a query a block.
extern "C" __global__ void __launch_bounds__(TREE_THREADS) attention_kvcache_naive(PARAMETERS) {
    begin_dependent_launch();
    attend_position(blockIdx.x, behind_wait(q), behind_wait(k), behind_wait(v), y, batch, heads, group,
                 *behind_wait(position), dim, scale);
}

#if __CUDA_ARCH__ >= 900
#include "cluster.cuh"
#include "hopper.cuh"

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / WARP;
// Whether what comes next is asked for ahead, for which more registers are worth having than leave room for two blocks on a
// multiprocessor; only then do many blocks split the keys of a head.
template <int GROUP>
constexpr bool IS_AHEAD = GROUP == 8;
template <int GROUP>
constexpr int MOST_SPLITS = IS_AHEAD<GROUP> ? 16 : 8;
constexpr int MOST_DIM = 128;
constexpr int LEAST_DIM = 32;
constexpr int AT_ONCE = 4;  // keys that a lane has in flight
constexpr int MOST_STRETCH = AT_ONCE * THREADS / (LEAST_DIM / PACK_LEN);
static_assert(2 * MOST_STRETCH <= WARPS * MOST_DIM, "both uses of the storage fit");

// What a sum against one maximum is worth against a larger one, in powers of two. Where nothing was seen both are -infinity.
__device__ __forceinline__ float rescaled(float from, float to) { return from == to ? 1.0f : fast_exp2(from - to); }

// Sums each of GROUP numbers over `lanes` lanes. With as many lanes as numbers, each lane ends with one of them, number
// part / (lanes / GROUP), in place 0: half of what is left is exchanged in every step. With fewer, all lanes have all.
template <int GROUP>
__device__ __forceinline__ void reduce_scatter(float (&x)[GROUP], int lanes, int part) {
    if (lanes < GROUP) {
#pragma unroll
        for (int g = 0; g < GROUP; ++g) x[g] = warp_reduce<Sum>(x[g], lanes);
        return;
    }
    int offset = lanes / 2;
#pragma unroll
    for (int half = GROUP / 2; half > 0; half /= 2, offset /= 2) {
        const bool upper = part & offset;
#pragma unroll
        for (int g = 0; g < half; ++g) {
            const float sent = upper ? x[g] : x[g + half], kept = upper ? x[g + half] : x[g];
            x[g] = kept + __shfl_xor_sync(ALL_LANES, sent, offset);
        }
    }
    for (; offset > 0; offset /= 2) x[0] += __shfl_xor_sync(ALL_LANES, x[0], offset);
}

// Split-KV over a cluster. A few lanes hold a key, a pack each, and all queries of its group: the cache is read once. Blocks take
// keys in turns, so that the first are known before the position is. A block takes a stretch at a time: scores, then weights
// against the largest so far, then values. Partial results (m, l, O) meet in the block, and then in the blocks that finish
// them: each is sent its share of all others (st.async), and waits for nothing else.
template <int GROUP>
__device__ __forceinline__ void split_kv(PARAMETERS) {
    // Weights of two stretches by turns, then what each warp came to.
    __shared__ float storage[WARPS * GROUP * MOST_DIM];
    float (*const weights)[GROUP][MOST_STRETCH] = reinterpret_cast<float (*)[GROUP][MOST_STRETCH]>(storage);
    float (*const warp_out)[GROUP][MOST_DIM] = reinterpret_cast<float (*)[GROUP][MOST_DIM]>(storage);
    __shared__ float corrections[2][GROUP];
    // What all blocks of the cluster send to this one.
    __shared__ float sent_out[GROUP * MOST_DIM];       // [split][share]
    __shared__ float2 sent_stats[MOST_SPLITS<GROUP>][GROUP];  // the maximum, the total
    __shared__ unsigned long long all_sent;
    const int lanes = dim / PACK_LEN;  // of a key
    const int warp = int(threadIdx.x) / WARP;
    const int part = int(threadIdx.x) % lanes, set = int(threadIdx.x) / lanes, sets = THREADS / lanes;
    const int rank = int(hopper::cluster_rank()), splits = int(cluster_size());
    const int log2_splits = 31 - __clz(splits);
    const long long head = blockIdx.x >> log2_splits;  // of the keys, of all sequences

    const int outputs = group * dim;
    const int share = outputs >> log2_splits;  // which divides 32
    const unsigned barrier = shared_address(&all_sent);
    if (splits > 1 && threadIdx.x == 0) {
        hopper::mbarrier_init(barrier, 1);
        hopper::mbarrier_init_fence();
        hopper::mbarrier_expect_tx(barrier, splits * (share * int(sizeof(float)) + GROUP * int(sizeof(float2))));
    }
    if (splits > 1) cluster_arrive_relaxed();

    begin_dependent_launch();
    q = behind_wait(q);
    const long long stride = (long long)batch * heads * dim;  // from a position to the next
    const scalar_t* const of_k = behind_wait(k) + head * dim + part * PACK_LEN;
    const scalar_t* const of_v = behind_wait(v) + head * dim + part * PACK_LEN;
    // Of the first stretch one key is asked for with the position, wherever that is.
    Pack keys[AT_ONCE], values[AT_ONCE];
    const long long at_first = min(set * splits + rank, capacity - 1) * stride;
    keys[0] = load_pack(of_k + at_first);
    values[0] = load_pack(of_v + at_first);
    const int seen = *behind_wait(position) + 1;
    float query[GROUP][PACK_LEN];
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        unpack(load_pack(q + (head * group + min(g, group - 1)) * dim + part * PACK_LEN), query[g]);
#pragma unroll
        for (int e = 0; e < PACK_LEN; ++e) query[g][e] *= scale * LOG2_E;
    }
    float max = Maximum::identity(), total = 0.0f;  // of query `warp`
    float out[GROUP][PACK_LEN] = {};
    const int step = AT_ONCE * sets * splits;
    auto stretch_at = [&](int first) { return min((seen - first - 1 >> log2_splits) + 1, AT_ONCE * sets); };
    // Packs of the stretch that begins there, from the i-th of a lane on.
    auto load = [&](Pack(&packs)[AT_ONCE], const scalar_t* from, int first, int i) {
        const int stretch = stretch_at(first);
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const int key = first + min(j * sets + set, stretch - 1) * splits;
            if (j >= i && j * sets < stretch) packs[j] = load_pack(from + key * stride);
        }
    };
    if (IS_AHEAD<GROUP> && rank < seen) {
        load(keys, of_k, rank, 1);
        load(values, of_v, rank, 1);
    }
    int turn = 0;
#pragma unroll 1
    for (int first = rank; first < seen; first += step, turn ^= 1) {
        const int stretch = stretch_at(first);
        if (!IS_AHEAD<GROUP>) {
            load(keys, of_k, first, first == rank);
            load(values, of_v, first, first == rank);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (i * sets >= stretch) break;
            float key[PACK_LEN], scores[GROUP];
            unpack(keys[i], key);
#pragma unroll
            for (int g = 0; g < GROUP; ++g) {
                scores[g] = 0.0f;
#pragma unroll
                for (int e = 0; e < PACK_LEN; ++e) scores[g] = fmaf(query[g][e], key[e], scores[g]);
            }
            reduce_scatter<GROUP>(scores, lanes, part);
            if (lanes >= GROUP) {
                const int lanes_of_query = lanes / GROUP;
                if (part % lanes_of_query == 0) weights[turn][part / lanes_of_query][i * sets + set] = scores[0];
            } else if (part == 0) {
#pragma unroll
                for (int g = 0; g < GROUP; ++g) weights[turn][g][i * sets + set] = scores[g];
            }
        }
        if (IS_AHEAD<GROUP> && first + step < seen) load(keys, of_k, first + step, 0);
        __syncthreads();
        if (warp < GROUP) {
            const int lane = int(threadIdx.x) % WARP;
            float largest = max;
            for (int i = lane; i < stretch; i += WARP) largest = fmaxf(largest, weights[turn][warp][i]);
            largest = warp_reduce<Maximum>(largest);
            const float correction = rescaled(max, largest);
            float sum = 0.0f;
            for (int i = lane; i < AT_ONCE * sets; i += WARP) {
                const float weight = i < stretch ? rescaled(weights[turn][warp][i], largest) : 0.0f;
                weights[turn][warp][i] = weight;
                sum += weight;
            }
            max = largest;
            total = fmaf(total, correction, warp_reduce<Sum>(sum));
            if (lane == 0) corrections[turn][warp] = correction;
        }
        __syncthreads();
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            const float correction = corrections[turn][g];
#pragma unroll
            for (int e = 0; e < PACK_LEN; ++e) out[g][e] *= correction;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            // What was asked for ahead may lie behind the position, and be anything.
            if (i * sets + set >= stretch) break;
            float value[PACK_LEN];
            unpack(values[i], value);
#pragma unroll
            for (int g = 0; g < GROUP; ++g) {
                const float weight = weights[turn][g][i * sets + set];
#pragma unroll
                for (int e = 0; e < PACK_LEN; ++e) out[g][e] = fmaf(weight, value[e], out[g][e]);
            }
        }
        if (IS_AHEAD<GROUP> && first + step < seen) load(values, of_v, first + step, 0);
    }

    __syncthreads();  // the weights have been used

    // Sums over the keys of a warp: of what is left of the queries, half are exchanged in every step.
    int query_of_lane = 0;
    bool stores = true;
#pragma unroll
    for (int step = 0; step < 5; ++step) {
        const int offset = WARP / 2 >> step;
        if (offset < lanes) break;
        const bool upper = threadIdx.x & offset;
        const int half = GROUP >> (step + 1);
        if (half > 0) {
#pragma unroll
            for (int g = 0; g < GROUP / 2; ++g) {
                if (g >= half) break;
#pragma unroll
                for (int e = 0; e < PACK_LEN; ++e) {
                    const float sent = upper ? out[g][e] : out[g + half][e], kept = upper ? out[g + half][e] : out[g][e];
                    out[g][e] = kept + __shfl_xor_sync(ALL_LANES, sent, offset);
                }
            }
            query_of_lane += upper ? half : 0;
        } else {
#pragma unroll
            for (int e = 0; e < PACK_LEN; ++e) out[0][e] += __shfl_xor_sync(ALL_LANES, out[0][e], offset);
            stores = stores && !upper;
        }
    }
    int steps = 0;
    for (int offset = WARP / 2; offset >= lanes; offset /= 2) ++steps;
    if (stores) {
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            if (g > 0 && g >= GROUP >> steps) break;
#pragma unroll
            for (int e = 0; e < PACK_LEN; ++e) warp_out[warp][query_of_lane + g][part * PACK_LEN + e] = out[g][e];
        }
    }
    if (splits > 1) cluster_wait();  // the others' barriers are there
    if (warp < GROUP && int(threadIdx.x) % WARP < splits) {
        const unsigned to = threadIdx.x % WARP;
        if (splits > 1) {
            st_async_2(mapa_shared(shared_address(&sent_stats[rank][warp]), to), mapa_shared(barrier, to), max, total);
        } else {
            sent_stats[0][warp] = make_float2(max, total);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < outputs; i += THREADS) {
        float of_block = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) of_block += warp_out[w][i / dim][i % dim];
        if (splits > 1) {
            const unsigned to = i / share;
            const unsigned there = shared_address(&sent_out[rank * share + i % share]);
            st_async_1(mapa_shared(there, to), mapa_shared(barrier, to), of_block);
        } else {
            sent_out[i] = of_block;
        }
    }
    // Nobody sends to a block that has left: it has seen all that comes. A block alone is launched without a cluster, where
    // st.async is an illegal instruction.
    if (splits > 1) {
        hopper::mbarrier_wait(barrier, 0);
    } else {
        __syncthreads();
    }
    for (int i = threadIdx.x; i < share; i += THREADS) {
        const int g = (rank * share + i) / dim;
        float most = Maximum::identity();
#pragma unroll
        for (int r = 0; r < MOST_SPLITS<GROUP>; ++r) {
            if (r < splits) most = fmaxf(most, sent_stats[r][g].x);
        }
        float all = 0.0f, sum = 0.0f;
#pragma unroll
        for (int r = 0; r < MOST_SPLITS<GROUP>; ++r) {
            if (r >= splits) break;
            const float worth = rescaled(sent_stats[r][g].x, most);
            all = fmaf(sent_out[r * share + i], worth, all);
            sum = fmaf(sent_stats[r][g].y, worth, sum);
        }
        y[head * outputs + rank * share + i] = from_float<scalar_t>(all / sum);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS) attention_kvcache_cluster_1(PARAMETERS) {
    split_kv<1>(q, k, v, position, y, batch, heads, group, dim, capacity, scale);
}
extern "C" __global__ void __launch_bounds__(THREADS) attention_kvcache_cluster_2(PARAMETERS) {
    split_kv<2>(q, k, v, position, y, batch, heads, group, dim, capacity, scale);
}
extern "C" __global__ void __launch_bounds__(THREADS) attention_kvcache_cluster_4(PARAMETERS) {
    split_kv<4>(q, k, v, position, y, batch, heads, group, dim, capacity, scale);
}
extern "C" __global__ void __launch_bounds__(THREADS) attention_kvcache_cluster_8(PARAMETERS) {
    split_kv<8>(q, k, v, position, y, batch, heads, group, dim, capacity, scale);
}
#endif
