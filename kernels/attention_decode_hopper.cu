// Attention of few queries over many keys, in f16 and bf16, for compute capability 9.0: as v3 in attention_decode.cu,
// with less before the first data and after the last.
//
// Every warp has a ring of its own, into which it copies sixteen keys and values a stage (tensor maps of heads, keys,
// elements: what lies past the keys of a head is zero), and walks alone: no warp waits for the copy of another. The
// queries come by the same way, ahead of the first keys; asked for later, they would arrive behind all of these.
//
// A block takes an item (a part of the keys of a head) after the other, and copies run ahead into the next one. Where a
// head has several parts they meet either in the shared memory of the first, where they are a cluster (one item a block),
// or in the workspace: then the block that comes last to the counter of its head merges. Counters are zero between
// launches; so two launches of this module must not run at the same time.
//
// Launch (dim a multiple of 8 up to 128, rows <= 8; other shapes take v1), v4_<dim>_<rows>, <dim> 64 or 128, <rows> 1, 4
// or 8, each the next that holds the shape's:
//   grid items, or fewer  block 256  cluster of a head's parts, or none
//   shared dim * (1024 + 64 * rows) + 192 * rows + 128, and parts * (dim + 2) * 4 a query where they are a cluster
// v5: a short way to the first copy and from the last; in attention_split_cluster.cuh. Beside v4 in one process, one query
// in bf16, four heads of q to one of k: 32.5 us for 34.0 at 128 MiB of keys and values, 18.1 for 19.6 at 64, 11.2 for 12.2
// (four sequences) and 11.6 for 12.5 (one) at 32, 5.8 for 7.0 at 8.
//
// Launch (dims and rows as above), v5_<dim>_<rows>_<warps>, <warps> 8 or 16:
//   grid parts x heads of keys, parts <= 8 being a cluster  block 32 * warps
//   shared as in src/ops/attention_decode/cluster.rs
// v6: a shorter step and less to merge; in attention_split_ring.cuh. Keys are the left factor of the scores, half of
// the products; eight warps a block with a second stage where there are few blocks, in place of sixteen; no division;
// L2 gives up keys and values before all else. Beside v5 in one process, as above: 31.8 us for 32.5 at 128 MiB, 17.4 for
// 18.1 at 64, 10.5 for 11.2 (four sequences) and 10.3 for 11.6 (one) at 32, 4.7 for 5.9 at 8.
//
// Launch (dims and rows as above), v6_<dim>_<rows>_<stages>, <stages> 1 or 2 for dim 128, 2 or 3 for dim 64:
//   grid parts x heads of keys, parts <= 8 being a cluster  block 256
//   shared as in src/ops/attention_decode/ring.rs
// v7: keys ahead of their values, and one merge; in attention_split_ahead.cuh. All keys of four rounds come before their
// values, warps that walk send what they have seen straight to warps that merge it, and a step has half the instructions.
// In the gate beside v6 in one process, as above: 10.2 us for 10.8 (four sequences) and 10.2 for 10.6 (one) at 32 MiB, 17.7
// for 18.0 at 64 (four sequences of four heads), 10.0 for 11.0 with dim 64, 10.0 for 10.7 with one head of q to one of k.
//
// Launch (dims as above, rows <= 4), v7_<dim>_<rows>:
//   grid parts * heads of keys, parts a power of two from 2 to 8, its logarithm the last argument  block 384
//   cluster a multiple of parts, so that the blocks of a head are of one
//   shared as in src/ops/attention_decode/ahead.rs
// v8: warp groups that walk, for dim 128; in attention_split_groups.cuh. A group multiplies 64 keys at a time where they lie in
// shared memory, warps beside it copy five rounds ahead, and there is a quarter to send and to merge. Where heads do not share
// the device evenly, teams of blocks lend each other what they have seen, by counters as above; of up to seven heads, several
// teams have one, and the last merges. In the gate beside v6 in one process, as above: 9.7 us for 10.7 (four sequences)
// and 9.6 for 10.5 (one) at 32 MiB, 17.0 for 18.3 at 64, 12.1 for 13.6 with ten heads of keys at 40 MiB, 13.8 for 15.5 with
// twelve (of seven rows) at 48, 11.7 for 12.6 with forty at 40; beside v7, 10.8 for 17.2 with one head at 32 MiB and 18.2 for
// 25.5 at 64.
//
// Launch (rows <= 8), v8_whole_128_<rows> with a team for each head, v8_lent_128_<rows> with 2^team_bits for all of them,
// v8_gathered_128_<rows> with several for each, up to 8 of 32 heads, which are along y:
//   grid parts * teams, parts a power of two up to 8   block 384   cluster a multiple of parts, at most 8
//   rounds: 64 keys each, of a head; share: heads of v8_lent, rounds of a team of v8_gathered; team_bits: 0 but for v8_lent
//   shared as in src/ops/attention_decode/groups.rs
#include "attention_split.cuh"

#if !defined(KERNELGATE_F32) && __CUDA_ARCH__ >= 900
#include "attention_split_ahead.cuh"
#include "attention_split_cluster.cuh"
#include "attention_split_groups.cuh"
#include "attention_split_mma.cuh"
#include "attention_split_ring.cuh"
#include "blocks.cuh"
#include "hopper.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int THREADS = WARPS * WARP;
constexpr int STAGES = 2;  // of a warp: more of them under way are no faster, and delay whatever else is asked for
constexpr int KEYS = 16;   // of a stage

// The heads that have come together; no more of them have several parts.
constexpr int MOST_COUNTED = 132;
__device__ unsigned arrived[MOST_COUNTED];

constexpr int HEADER = 2;    // of a row of a part: largest score, sum of weights; the weighted sum follows
constexpr int TOGETHER = 16;  // parts that are asked for before the first is there

// How the keys are shared out.
struct Split {
    int parts;
    int share;  // keys of a part
    int items;  // parts of all heads
};

// Shared memory.
template <int DIM, int ROWS>
struct Room {
    static constexpr int BOXES = DIM / 64;

    scalar_t keys[WARPS][STAGES][BOXES * SwizzledRows::BOX];
    scalar_t values[WARPS][STAGES][BOXES * SwizzledRows::BOX];
    scalar_t queries[WARPS][STAGES][ROWS * DIM];
    Board<DIM, ROWS, WARPS, 4> board;
    unsigned long long full[WARPS][STAGES];
};

// The keys of an item that a warp walks.
struct Course {
    int at;
    int end;

    __device__ __forceinline__ Course(const FewQueries& s, const Split& split, int item) {
        const int first = item % split.parts * split.share;
        at = first + int(threadIdx.x) / WARP * KEYS;
        end = min(s.keys, first + split.share);
    }
    __device__ __forceinline__ bool goes_on() const { return at < end; }
    __device__ __forceinline__ void next() { at += WARPS * KEYS; }
};

// What a warp copies: the keys, values and queries that it will walk, item after item.
template <int DIM, int ROWS>
struct Feed {
    const FewQueries& s;
    const Split& split;
    const hopper::TensorMap& k;
    const hopper::TensorMap& v;
    const scalar_t* const q;
    Room<DIM, ROWS>& room;
    int item = blockIdx.x;
    Course course = Course(s, split, item);
    bool begins = true;  // an item

    __device__ __forceinline__ void copy(int stage) {
        while (!course.goes_on()) {
            item += gridDim.x;
            if (item >= split.items) return;
            course = Course(s, split, item);
            begins = true;
        }
        if (threadIdx.x % WARP == 0) ask(threadIdx.x / WARP, stage, item / split.parts);
        course.next();
        begins = false;
    }
    __device__ __forceinline__ void ask(int warp, int stage, int head) const {
        constexpr int BOX = SwizzledRows::BOX, BYTES = 2 * sizeof(room.keys[0][0]);
        const unsigned full = shared_address(&room.full[warp][stage]);
        const unsigned keys = shared_address(room.keys[warp][stage]), values = shared_address(room.values[warp][stage]);
        const int of_queries = begins ? s.rows * s.dim * int(sizeof(scalar_t)) : 0;
        hopper::barrier_expect(full, BYTES + of_queries);
        if (begins) {
            const scalar_t* const from = q + (long long)head * s.rows * s.dim;
            hopper::load_bytes(shared_address(room.queries[warp][stage]), from, of_queries, full);
        }
#pragma unroll
        for (int box = 0; box < Room<DIM, ROWS>::BOXES; ++box) {
            hopper::load_box(keys + box * BOX * int(sizeof(scalar_t)), k, box * 64, course.at, head, full);
        }
#pragma unroll
        for (int box = 0; box < Room<DIM, ROWS>::BOXES; ++box) {
            hopper::load_box(values + box * BOX * int(sizeof(scalar_t)), v, box * 64, course.at, head, full);
        }
    }
};

// Calls `each` for two neighbouring elements of a row after the other, with threads side by side.
template <int DIM, typename Each>
__device__ __forceinline__ void for_pairs(int rows, Each each) {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * (DIM / 2); i += THREADS) each(i / (DIM / 2), i % (DIM / 2) * 2);
}

// Whether this block comes last of those whose parts meet; what they wrote there can be read then.
__device__ __forceinline__ bool is_last(bool joined, int head, int parts) {
    if (joined) {
        hopper::cluster_sync();
        return hopper::cluster_rank() == 0;
    }
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0) last = count_around(&arrived[head], parts - 1) == unsigned(parts - 1);
    return __syncthreads_or(last);
}

// Two elements of a row, of all parts; those of a part are `pitch` from those of another.
__device__ __forceinline__ Merged<2> merge_parts(const float* row, int element, int parts, int pitch) {
    Merged<2> merged;
#pragma unroll 1
    for (int first = 0; first < parts; first += TOGETHER) {
        float2 header[TOGETHER], out[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const float* const from = row + (first + i) * pitch;
            const bool inside = first + i < parts;
            header[i] = inside ? *reinterpret_cast<const float2*>(from) : make_float2(Maximum::identity(), 0.0f);
            out[i] = inside ? *reinterpret_cast<const float2*>(from + HEADER + element) : make_float2(0.0f, 0.0f);
        }
        const float before = merged.max;
        merged.raise(TOGETHER, [&](int i) { return header[i].x; });
        const float correction = factor(before, merged.max);
        merged.total *= correction;
        merged.out[0] *= correction;
        merged.out[1] *= correction;
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) merged.add(header[i].x, header[i].y, &out[i].x);
    }
    return merged;
}

template <int DIM, int ROWS>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, float* workspace, const FewQueries& s, const Split& split) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Room<DIM, ROWS>& room = *reinterpret_cast<Room<DIM, ROWS>*>(memory);
    float* const inbox = reinterpret_cast<float*>(memory + sizeof(room));
    const int warp = threadIdx.x / WARP, parts = split.parts;
    const bool joined = cluster_size() > 1;
    if (joined) cluster_arrive();
    if (threadIdx.x % WARP == 0) {
        for (int stage = 0; stage < STAGES; ++stage) hopper::barrier_init(shared_address(&room.full[warp][stage]), 1);
        hopper::barrier_init_fence();
    }
    __syncwarp();
    Feed<DIM, ROWS> feed{s, split, k, v, q, room};
#pragma unroll 1
    for (int stage = 0; stage < STAGES; ++stage) feed.copy(stage);

    hopper::Place<STAGES> place;
#pragma unroll 1
    for (int item = blockIdx.x; item < split.items; item += gridDim.x) {
        const int head = item / parts, part = item % parts;
        TensorWalk<DIM, SwizzledRows> walk(s);
        bool begins = true;
#pragma unroll 1
        for (Course course(s, split, item); course.goes_on(); course.next()) {
            const int stage = place.stage;
            hopper::barrier_wait(shared_address(&room.full[warp][stage]), place.parity);
            if (begins) walk.take(room.queries[warp][stage]);
            begins = false;
            walk.step(room.keys[warp][stage], room.values[warp][stage], course.at, KEYS);
            __syncwarp();
            feed.copy(stage);
            place.next();
        }
        if (item != blockIdx.x) __syncthreads();  // the board of the item before has been read
        walk.put(room.board);
        __syncthreads();
        if (joined) cluster_wait();  // the first block has begun

        const int pitch = s.rows * (HEADER + DIM);
        float* const meeting = joined ? at_rank(inbox, 0) : workspace + (long long)head * parts * pitch;
        const auto store = [&](int row, int element, const Merged<2>& merged) {
            if (element >= s.dim) return;
            const float results[2] = {merged.result(0), merged.result(1)};
            scalar_t* const to = y + ((long long)head * s.rows + row) * s.dim + element;
            *reinterpret_cast<unsigned*>(to) = pack_detail::pack_word(results);
        };
        for_pairs<DIM>(s.rows, [&](int row, int element) {
            const Merged<2> merged = room.board.template merge<2, WARPS>(row, element);
            if (parts == 1) return store(row, element, merged);
            float* const to = meeting + part * pitch + row * (HEADER + DIM);
            if (element == 0) *reinterpret_cast<float2*>(to) = make_float2(merged.max, merged.total);
            *reinterpret_cast<float2*>(to + HEADER + element) = make_float2(merged.out[0], merged.out[1]);
        });
        if (parts == 1 || !is_last(joined, head, parts)) continue;
        const float* const met = joined ? inbox : meeting;
        for_pairs<DIM>(s.rows, [&](int row, int element) {
            store(row, element, merge_parts(met + row * (HEADER + DIM), element, parts, pitch));
        });
    }
}

}  // namespace

#define DECODE_V4(DIM, ROWS, BLOCKS)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_decode_v4_##DIM##_##ROWS(                 \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, float* workspace,                                   \
        const __grid_constant__ hopper::TensorMap k, const __grid_constant__ hopper::TensorMap v, int rows,           \
        int queries, int keys, int dim, int causal, float scale, int parts, int share, int items) {                   \
        decode<DIM, ROWS>(q, k, v, y, workspace, FewQueries{rows, queries, keys, dim, causal, scale},                 \
                          Split{parts, share, items});                                                                \
    }
DECODE_V4(64, 1, 2)
DECODE_V4(64, 4, 2)
DECODE_V4(64, 8, 2)
DECODE_V4(128, 1, 1)
DECODE_V4(128, 4, 1)
DECODE_V4(128, 8, 1)

#define DECODE_V5(DIM, ROWS, WARPS)                                                                                   \
    extern "C" __global__ void __launch_bounds__(WARPS* WARP, 1) attention_decode_v5_##DIM##_##ROWS##_##WARPS(        \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int share) {                                                                                     \
        in_cluster::decode<DIM, ROWS, WARPS>(q, k, v, y, FewQueries{rows, queries, keys, dim, causal, scale}, share); \
    }
DECODE_V5(64, 1, 8)
DECODE_V5(64, 4, 8)
DECODE_V5(64, 8, 8)
DECODE_V5(128, 1, 8)
DECODE_V5(128, 4, 8)
DECODE_V5(128, 8, 8)
DECODE_V5(64, 1, 16)
DECODE_V5(64, 4, 16)
DECODE_V5(64, 8, 16)
DECODE_V5(128, 1, 16)
DECODE_V5(128, 4, 16)
DECODE_V5(128, 8, 16)

#define DECODE_V6(DIM, ROWS, STAGES)                                                                                  \
    extern "C" __global__ void __launch_bounds__(in_ring::WARPS* WARP, 1) attention_decode_v6_##DIM##_##ROWS##_##STAGES( \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int share) {                                                                                     \
        in_ring::decode<DIM, ROWS, STAGES>(q, k, v, y, FewQueries{rows, queries, keys, dim, causal, scale}, share);   \
    }
DECODE_V6(64, 1, 2)
DECODE_V6(64, 4, 2)
DECODE_V6(64, 8, 2)
DECODE_V6(128, 1, 1)
DECODE_V6(128, 4, 1)
DECODE_V6(128, 8, 1)
DECODE_V6(64, 1, 3)
DECODE_V6(64, 4, 3)
DECODE_V6(64, 8, 3)
DECODE_V6(128, 1, 2)
DECODE_V6(128, 4, 2)
DECODE_V6(128, 8, 2)

#define DECODE_V7(DIM, ROWS)                                                                                          \
    extern "C" __global__ void __launch_bounds__(ahead::THREADS, 1) attention_decode_v7_##DIM##_##ROWS(               \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int share, int part_bits) {                                                                      \
        ahead::decode<DIM, ROWS>(q, k, v, y, FewQueries{rows, queries, keys, dim, causal, scale}, share, part_bits);  \
    }
DECODE_V7(64, 1)
DECODE_V7(64, 4)
DECODE_V7(128, 1)
DECODE_V7(128, 4)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
DECODE_BY_GROUPS(v8, whole, NOTHING, 1)
DECODE_BY_GROUPS(v8, whole, NOTHING, 4)
DECODE_BY_GROUPS(v8, whole, NOTHING, 8)
DECODE_BY_GROUPS(v8, lent, LENDING, 1)
DECODE_BY_GROUPS(v8, lent, LENDING, 4)
DECODE_BY_GROUPS(v8, lent, LENDING, 8)
DECODE_BY_GROUPS(v8, gathered, GATHERING, 1)
DECODE_BY_GROUPS(v8, gathered, GATHERING, 4)
DECODE_BY_GROUPS(v8, gathered, GATHERING, 8)
#endif

#endif
