// Attention of few queries by clusters, as in attention_split_ring.cuh, with keys ahead of their values and one merge.
//
// A warp that walks has room for two rounds of keys or values, and copies for itself. Of a chapter of four rounds all keys
// come first: when values come, the largest score is known, and when the last ones come, everything but their products. These
// are counted by halves of their elements, so that one half is on its way to who merges it while the other is awaited.
//
// Other warps of the block only merge (attention_split_shares.cuh).
#pragma once
#include "attention_split_matrices.cuh"
#include "attention_split_ring.cuh"
#include "attention_split_shares.cuh"

namespace ahead {

using hopper::elected;
using hopper::load_box_once;
using shares::MERGERS;
using shares::WALKERS;

constexpr int THREADS = (WALKERS + MERGERS) * WARP;
constexpr int STAGES = 2;   // of a walker
constexpr int CHAPTER = 4;  // rounds

template <int DIM, int ROWS>
struct Room {
    using Walk = MatrixWalk<DIM>;
    static constexpr int SHARES = ROWS * Walk::HALVES;

    alignas(1024) scalar_t slots[WALKERS][STAGES][Walk::UNIT];
    float4 scores[WALKERS][CHAPTER][Walk::STEPS][WARP];  // of the chapter's keys
    scalar_t queries[WALKERS][ROWS * DIM];
    shares::Inbox<SHARES> inbox;
    unsigned long long full[WALKERS][STAGES];
    unsigned long long last_full[WALKERS];  // half of the last values
};

// The part of a head that a block walks.
struct Course {
    int head;
    int first;  // key
    int end;
};

// What a walker asks for next: the keys, then the values, of a chapter after the other.
template <int STRIDE>
struct Cursor {
    int at;
    int chapter;
    int end;
    int length;  // of a chapter
    bool keys = true;

    __device__ __forceinline__ Cursor(int first, int end, int rounds)
        : at(first), chapter(first), end(end), length(rounds * STRIDE) {}
    __device__ __forceinline__ bool goes_on() const { return at < end; }
    __device__ __forceinline__ void next() {
        at += STRIDE;
        if (at < min(chapter + length, end)) return;
        if (!keys) chapter += length;
        keys = !keys;
        at = chapter;
    }
};

template <int DIM, int ROWS>
__device__ __forceinline__ void walk_keys(Room<DIM, ROWS>& room, const scalar_t* q, const hopper::TensorMap& k,
                                          const hopper::TensorMap& v, const FewQueries& s, const Course& course,
                                          const shares::Parts<Room<DIM, ROWS>::SHARES>& parts, int walker) {
    using Walk = MatrixWalk<DIM>;
    constexpr int HALVES = Walk::HALVES, STEPS = Walk::STEPS, STRIDE = WALKERS * Walk::ROUND;
    constexpr int BYTES = Walk::UNIT * int(sizeof(scalar_t)), BOX_ELEMENTS = 64;
    const int lane = threadIdx.x % WARP, first = course.first + walker * Walk::ROUND, end = course.end;
    const unsigned full = shared_address(room.full[walker]), slots = shared_address(room.slots[walker]);
    const unsigned last_full = shared_address(&room.last_full[walker]);
    const auto copy = [&](int stage, bool keys, int at, int more = 0) {
        const unsigned there = full + 8 * stage;
        const bool by_halves = HALVES > 1 && !keys && at + STRIDE >= end;
        hopper::barrier_expect(there, (by_halves ? BYTES / HALVES : BYTES) + more);
        if (by_halves) hopper::barrier_expect(last_full, BYTES - BYTES / HALVES);
        const hopper::TensorMap& map = keys ? k : v;
#pragma unroll
        for (int box = 0; box < HALVES; ++box) {
            const unsigned to = slots + stage * BYTES + box * Walk::BOX_BYTES;
            load_box_once(to, map, box * BOX_ELEMENTS, at, course.head, by_halves && box > 0 ? last_full : there);
        }
    };
    // The first copies come before all else: what is fetched later, code too, waits behind them.
    if (elected()) {
        hopper::barrier_init(full, 1);
        hopper::barrier_init(full + 8, 1);
        hopper::barrier_init(last_full, 1);
        hopper::barrier_init_fence();
        if (first < end) {
            const int of_queries = s.rows * s.dim * int(sizeof(scalar_t));
            copy(0, true, first, of_queries);
            hopper::load_bytes(shared_address(room.queries[walker]), q + course.head * s.rows * s.dim, of_queries, full);
            const bool goes_on = first + STRIDE < end;
            copy(1, goes_on, goes_on ? first + STRIDE : first);
        }
    }
    __syncwarp();
    cluster_arrive_relaxed();  // a release would wait for the copies

    Walk walk(s);
    Cursor<STRIDE> cursor(first, end, CHAPTER);
    cursor.next();
    cursor.next();
    hopper::Place<STAGES> place;
    const shares::Outgoing<Room<DIM, ROWS>::SHARES, HALVES> outgoing(room.inbox, parts, walker, s.rows);
    const auto wait = [&]() { hopper::barrier_wait(full + 8 * place.stage, place.parity); };
    const auto refill = [&]() {
        __syncwarp();
        if (cursor.goes_on()) {
            if (elected()) copy(place.stage, cursor.keys, cursor.at);
            cursor.next();
        }
        place.next();
    };

    uint2 weights[STEPS];
#pragma unroll 1
    for (int chapter = first; chapter < end; chapter += CHAPTER * STRIDE) {
        const int limit = min(chapter + CHAPTER * STRIDE, end);
        float largest[2] = {walk.max[0], walk.max[1]};
        float4* kept = &room.scores[walker][0][0][lane];
#pragma unroll 1
        for (int at = chapter; at < limit; at += STRIDE) {
            wait();
            if (at == first) {
                walk.take(room.queries[walker]);
                cluster_wait();  // all have begun
            }
            float4 scores[STEPS];
            walk.score(scores, slots + place.stage * BYTES);
            refill();
            walk.note(scores, at, largest);
#pragma unroll
            for (int i = 0; i < STEPS; ++i) kept[i * WARP] = scores[i];
            kept += STEPS * WARP;
        }
        walk.raise(largest);
        if (limit == end) outgoing.tell_largest(walk.max[0] * walk.scale, walk.max[1] * walk.scale);
        kept = &room.scores[walker][0][0][lane];
#pragma unroll 1
        for (int at = chapter; at < limit; at += STRIDE) {
#pragma unroll
            for (int i = 0; i < STEPS; ++i) weights[i] = walk.weigh(kept[i * WARP]);
            kept += STEPS * WARP;
            if (at + STRIDE >= end) break;
            wait();
#pragma unroll
            for (int half = 0; half < HALVES; ++half) walk.add_values(half, weights, slots + place.stage * BYTES);
            refill();
        }
    }
    if (first >= end) {
        cluster_wait();
        outgoing.tell_largest(walk.max[0], walk.max[1]);
    }
    outgoing.tell_totals(walk.total[0], walk.total[1]);
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        if (first < end) {
            if (half == 0) wait();
            if (half > 0) hopper::barrier_wait(last_full, 0);
            walk.add_values(half, weights, slots + place.stage * BYTES);
        }
        outgoing.send(half, walk.sums[half]);
    }
}

template <int DIM, int ROWS>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const FewQueries& s, int share, int part_bits) {
    constexpr int SHARES = Room<DIM, ROWS>::SHARES, HALVES = MatrixWalk<DIM>::HALVES;
    extern __shared__ __align__(1024) unsigned char memory[];
    Room<DIM, ROWS>& room = *reinterpret_cast<Room<DIM, ROWS>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), part = blockIdx.x & (1 << part_bits) - 1;
    const Course course{int(blockIdx.x >> part_bits), part * share, min(s.keys, (part + 1) * share)};
    const shares::Parts<SHARES> parts{part_bits, part};
    if (warp < WALKERS) return walk_keys(room, q, k, v, s, course, parts, warp);
    if (warp == WALKERS && elected()) room.inbox.open(parts.count(s.rows * HALVES) * parts.walkers());
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    shares::merge<SHARES, HALVES>(room.inbox, parts, y, s, course.head, warp - WALKERS);
}

}  // namespace ahead
