// Attention of few queries by clusters: the blocks of a cluster share the keys of a head, and nothing but y is written.
//
// A warp has room for one step of sixteen keys and values, copies for itself and walks alone. Keys and values have
// barrier objects of their own: the next keys are asked for as soon as the scores are known, and when the last values
// arrive, only their products are left. What the warp has seen then stands where its keys and values were.
//
// At the end a warp takes 64 elements of a row: it merges what the warps of its block have seen of them and sends that to
// the block that merges the parts of these elements, whose barrier object counts the bytes. No block reads from another.
#pragma once
#include "attention_split_mma.cuh"
#include "blocks.cuh"
#include "hopper.cuh"

namespace in_cluster {

using hopper::elected;

constexpr int MOST_PARTS = 8;
constexpr int KEYS = 16;      // of a step
constexpr int ELEMENTS = 64;  // of a row, that a warp merges: four a lane, in both halves of the warp

// The keys and values of a step, or what the warp has seen of all its steps, with a gap of four as in `Board`.
template <int DIM, int ROWS>
struct alignas(1024) Slot {
    unsigned char bytes[2 * KEYS * DIM * sizeof(scalar_t)];

    __device__ __forceinline__ scalar_t* keys() { return reinterpret_cast<scalar_t*>(bytes); }
    __device__ __forceinline__ scalar_t* values() { return keys() + KEYS * DIM; }
    __device__ __forceinline__ float (&operator[](int row))[DIM + 4] {
        return reinterpret_cast<float(*)[DIM + 4]>(bytes)[row];
    }
};

// What a block has seen of 64 elements of a row: largest score and sum of weights, and the weighted sum.
struct Packets {
    uint4 header;
    uint4 out[ELEMENTS / 4];
};

template <int DIM, int ROWS, int WARPS>
struct Room {
    static constexpr int SHARES = ROWS * (DIM / ELEMENTS);

    Slot<DIM, ROWS> slots[WARPS];
    Packets met[SHARES + MOST_PARTS - 1];  // those of a share from all parts behind each other
    scalar_t queries[WARPS][ROWS * DIM];
    alignas(16) float max[ROWS][WARPS];
    alignas(16) float total[ROWS][WARPS];
    unsigned long long keys_full[WARPS];
    unsigned long long values_full[WARPS];
    unsigned long long all_met[SHARES];
};

// An array of rows of warps, by warps.
template <int ROWS, int WARPS>
struct Turned {
    struct OfWarp {
        float* first;
        __device__ __forceinline__ float& operator[](int row) const { return first[row * WARPS]; }
    };
    float (&of)[ROWS][WARPS];
    __device__ __forceinline__ OfWarp operator[](int warp) const { return {&of[0][warp]}; }
};

__device__ __forceinline__ void add_halves(Merged<4>& merged) {
#pragma unroll
    for (int i = 0; i < 4; ++i) merged.out[i] += __shfl_xor_sync(ALL_LANES, merged.out[i], 16);
}

// What the warps of a block have seen, as the walk puts it down.
template <int DIM, int ROWS_, int WARPS>
struct Seen {
    static constexpr int ROWS = ROWS_;

    Turned<ROWS, WARPS> max;
    Turned<ROWS, WARPS> total;
    Slot<DIM, ROWS>* out;

    // Four elements a lane: half of the warp adds up what even warps have seen, half of it the others.
    __device__ __forceinline__ Merged<4> merge(int row, int element) const {
        const int half = int(threadIdx.x) % WARP / 16;
        Merged<4> merged;
        float of_max[WARPS];
        float4 of_out[WARPS / 2];
#pragma unroll
        for (int i = 0; i < WARPS; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(&max.of[row][i]);
            of_max[i] = four.x, of_max[i + 1] = four.y, of_max[i + 2] = four.z, of_max[i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < WARPS / 2; ++i) {
            of_out[i] = *reinterpret_cast<const float4*>(&out[2 * i + half][row][element]);
        }
        merged.raise(WARPS, [&](int i) { return of_max[i]; });
#pragma unroll
        for (int i = 0; i < WARPS / 2; ++i) {
            merged.add(half ? of_max[2 * i + 1] : of_max[2 * i], total.of[row][2 * i + half], &of_out[i].x);
        }
        merged.total += __shfl_xor_sync(ALL_LANES, merged.total, 16);
        add_halves(merged);
        return merged;
    }
};

// The same of the parts of a head. Lanes hold the header of a part each.
__device__ __forceinline__ Merged<4> merge(const Packets* met, int parts) {
    const int lane = threadIdx.x % WARP, half = lane / 16, own = lane % MOST_PARTS;
    Merged<4> merged;
    float4 out[MOST_PARTS / 2];
#pragma unroll
    for (int i = 0; i < MOST_PARTS / 2; ++i) {
        const int part = 2 * i + half;
        const float4* const from = reinterpret_cast<const float4*>(&met[part].out[lane % 16]);
        out[i] = part < parts ? *from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    const float2* const from = reinterpret_cast<const float2*>(&met[own].header);
    const float2 header = own < parts ? *from : make_float2(Maximum::identity(), 0.0f);
    merged.max = warp_reduce<Maximum>(header.x, MOST_PARTS);
    const float share = factor(header.x, merged.max);
    merged.total = warp_reduce<Sum>(share * header.y, MOST_PARTS);
#pragma unroll
    for (int i = 0; i < MOST_PARTS / 2; ++i) {
        const float of_part = __shfl_sync(ALL_LANES, share, 2 * i + half);
        merged.out[0] = fmaf(out[i].x, of_part, merged.out[0]);
        merged.out[1] = fmaf(out[i].y, of_part, merged.out[1]);
        merged.out[2] = fmaf(out[i].z, of_part, merged.out[2]);
        merged.out[3] = fmaf(out[i].w, of_part, merged.out[3]);
    }
    add_halves(merged);
    return merged;
}

template <int DIM, int ROWS, int WARPS>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const FewQueries& s, int share) {
    constexpr int HALVES = DIM / ELEMENTS, BOX = SwizzledRows::BOX, BYTES = KEYS * DIM * int(sizeof(scalar_t));
    extern __shared__ __align__(1024) unsigned char memory[];
    Room<DIM, ROWS, WARPS>& room = *reinterpret_cast<Room<DIM, ROWS, WARPS>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), lane = threadIdx.x % WARP;
    const int part = blockIdx.x, parts = gridDim.x, head = blockIdx.y;
    const int shares = s.rows * HALVES, end = min(s.keys, (part + 1) * share);
    int at = part * share + warp * KEYS;

    const unsigned keys_full = shared_address(&room.keys_full[warp]);
    const unsigned values_full = shared_address(&room.values_full[warp]);
    const auto copy = [&](scalar_t* to, const hopper::TensorMap& from, unsigned full, int key) {
#pragma unroll
        for (int box = 0; box < HALVES; ++box) {
            hopper::load_box(shared_address(to + box * BOX), from, box * ELEMENTS, key, head, full);
        }
    };
    // The first copies come before all else: what is fetched later, code too, waits behind them.
    if (elected()) {
        hopper::barrier_init(keys_full, 1);
        hopper::barrier_init(values_full, 1);
        if (warp == 0) {
#pragma unroll
            for (int i = 0; i < Room<DIM, ROWS, WARPS>::SHARES; ++i) hopper::barrier_init(shared_address(&room.all_met[i]), 1);
        }
        hopper::barrier_init_fence();
    }
    __syncwarp();
    if (elected() && at < end) {
        const int of_queries = s.rows * s.dim * int(sizeof(scalar_t));
        hopper::barrier_expect(keys_full, BYTES + of_queries);
        copy(room.slots[warp].keys(), k, keys_full, at);
        hopper::load_bytes(shared_address(room.queries[warp]), q + head * s.rows * s.dim, of_queries, keys_full);
        hopper::barrier_expect(values_full, BYTES);
        copy(room.slots[warp].values(), v, values_full, at);
    }
    if (parts > 1) {
        if (warp == 0 && elected()) {
#pragma unroll 1
            for (int i = part; i < shares; i += parts) {
                hopper::barrier_expect(shared_address(&room.all_met[i]), parts * int(sizeof(Packets)));
            }
        }
        __syncwarp();
        cluster_arrive_relaxed();  // a release would wait for the copies
    }

    TensorWalk<DIM, SwizzledRows> walk(s);
    unsigned parity = 0;
    bool begins = true;
#pragma unroll 1
    while (at < end) {
        const int next = at + WARPS * KEYS;
        float scores[4];
        hopper::barrier_wait(keys_full, parity);
        if (begins) walk.take(room.queries[warp]);
        begins = false;
        walk.score(scores, room.slots[warp].keys(), KEYS);
        __syncwarp();
        if (elected() && next < end) {
            hopper::barrier_expect(keys_full, BYTES);
            copy(room.slots[warp].keys(), k, keys_full, next);
        }
        walk.weigh(scores, at, KEYS);
        hopper::barrier_wait(values_full, parity);
        walk.add_values(scores, room.slots[warp].values(), KEYS);
        __syncwarp();
        if (elected() && next < end) {
            hopper::barrier_expect(values_full, BYTES);
            copy(room.slots[warp].values(), v, values_full, next);
        }
        parity ^= 1;
        at = next;
    }
    Seen<DIM, ROWS, WARPS> seen{{room.max}, {room.total}, room.slots};
    walk.put(seen);
    __syncthreads();
    if (parts > 1) cluster_wait();  // all have begun

#pragma unroll 1
    for (int i = warp; i < shares; i += WARPS) {
        const int row = i / HALVES, element = i % HALVES * ELEMENTS + lane % 16 * 4;
        Merged<4> merged = seen.merge(row, element);
        if (parts > 1) {
            const int merger = i % parts;
            Packets* const met = room.met + (i - merger);
            const unsigned all_met = shared_address(&room.all_met[i]);
            const float(&x)[4] = merged.out;
            const bool is_header = lane == 16;
            if (lane <= 16) {
                const uint4 packet =
                    is_header ? make_uint4(__float_as_uint(merged.max), __float_as_uint(merged.total), 0, 0)
                              : make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                           __float_as_uint(x[3]));
                uint4* const to = is_header ? &met[part].header : &met[part].out[lane];
                send_packet(shared_address(to), all_met, merger, packet);
            }
            if (merger != part) continue;
            hopper::barrier_wait(all_met, 0);
            merged = merge(met, parts);
        }
        if (lane < 16 && element < s.dim) {
            const float inverse = merged.total > 0.0f ? 1.0f / merged.total : 0.0f;
            const float(&x)[4] = merged.out;
            const float low[2] = {x[0] * inverse, x[1] * inverse}, high[2] = {x[2] * inverse, x[3] * inverse};
            scalar_t* const to = y + (head * s.rows + row) * s.dim + element;
            *reinterpret_cast<uint2*>(to) = make_uint2(pack_detail::pack_word(low), pack_detail::pack_word(high));
        }
    }
}

}  // namespace in_cluster
