// Attention of few queries by clusters, as in attention_split_ahead.cuh, with warp groups that walk (dims of 128).
//
// A group takes 64 keys a round, 32 in f32: its four warps multiply them, and their values, where these lie in shared memory,
// and what they have seen is one sum. So there is a quarter to send and to merge. All keys of a chapter come before their
// values: when values come, their weights stand in shared memory.
//
// The groups of a team of blocks walk every so manieth round of what the team walks (attention_split_groups_teams.cuh).
// Other warps copy, one a group, and merge what the groups of all parts have seen (attention_split_groups_merge.cuh).
#pragma once
#if defined(KERNELGATE_F32)
#include "attention_split_groups_lanes.cuh"
#else
#include "attention_split_groups_products.cuh"
#endif

namespace groups {

// The rounds of a piece that a group walks.
template <class Of>
__device__ __forceinline__ void walk_piece(Walker<Of>& walker, const Piece& piece, const Stride& stride, int from) {
    constexpr int ROWS = Walker<Of>::ROWS, SCORES = Walker<Of>::SCORES;
    const int count = stride.count(from, piece.rounds);
    int rounds = Stride::of_first_chapter(count);
#pragma unroll 1
    for (int done = 0; done < count; done += rounds, rounds = MOST_ROUNDS) {
        float kept[MOST_ROUNDS][SCORES], largest[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; ++i) largest[i] = walker.max[i];
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            float scores[SCORES] = {};
            walker.score(scores);
            walker.mask(scores, (piece.first + from + stride.length(done + round)) * KEYS);
#pragma unroll
            for (int i = 0; i < SCORES; ++i) largest[i % ROWS] = fmaxf(largest[i % ROWS], scores[i]);
#pragma unroll
            for (int i = 0; i < MOST_ROUNDS; ++i) {
#pragma unroll
                for (int j = 0; j < SCORES; ++j) kept[i][j] = round == i ? scores[j] : kept[i][j];
            }
        }
        walker.raise(largest);
#pragma unroll
        for (int i = 0; i < MOST_ROUNDS; ++i) {
            if (i < rounds) walker.weigh(i, kept[i]);
        }
        const bool is_last = done + rounds >= count;
        if (is_last) walker.leave_totals();
        walker.show();
        if (is_last) walker.tell();
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) walker.add_values(round);
    }
    if (count <= 0) walker.tell_nothing();
    walker.send();
}

template <class Of>
__device__ __forceinline__ void walk(Room<Of>& room, const scalar_t* q, const FewQueries& s, const Course<Of::SHARING>& course,
                                     const Parts<Of::ROWS>& parts, int stages, int warp) {
    Walker<Of> walker(room, s, parts, stages, warp);
    const Stride stride = walkers_of(parts);
    cluster_arrive_relaxed();
    walker.take(q, course);
    walker.show();
    cluster_wait();  // all have begun, and barrier objects are there
#pragma unroll 1
    for (int i = course.FIRST; i <= course.LAST; ++i) {
        const int kind = course.kind(i);
        const Piece piece = course.piece(kind);
        if (piece.rounds == 0) continue;
        walker.begin(kind);
        walk_piece(walker, piece, stride, stride.first(walker_of(parts, walker.group) - course.begins(kind)));
    }
}

// Copies the rounds of a group.
template <class Of>
struct Feed {
    Room<Of>& room;
    const hopper::TensorMap& k;
    const hopper::TensorMap& v;
    const int group;
    Cursor<Of::SHARING> cursor;
    Stage stage;

    __device__ __forceinline__ Feed(Room<Of>& room, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                    const Course<Of::SHARING>& course, const Parts<Of::ROWS>& parts, int stages, int group)
        : room(room), k(k), v(v), group(group),
          cursor(course, walker_of(parts, group), walkers_of(parts)), stage(stages) {}

    __device__ __forceinline__ void ask() const {
        const unsigned full = shared_address(&room.full[group][stage.stage]);
        hopper::barrier_expect(full, ROUND_BYTES);
        load_round(shared_address(room.rounds[group][stage.stage]), cursor.keys ? k : v, cursor.key(), cursor.head(), full);
    }
    __device__ __forceinline__ void next() {
        cursor.next();
        stage.next();
    }
    // What there is room for. The first copy comes before all else: what is fetched later, code too, waits behind it.
    __device__ __forceinline__ void begin() {
        hopper::barrier_init(shared_address(&room.full[group][0]), 1);
        hopper::barrier_init_fence();
        if (cursor.goes_on()) ask();
#pragma unroll
        for (int i = 0; i < MOST_STAGES; ++i) {
            if (i > 0) hopper::barrier_init(shared_address(&room.full[group][i]), 1);
            hopper::barrier_init(shared_address(&room.free[group][i]), hopper::GROUP_WARPS);
        }
        hopper::barrier_init_fence();
        cursor.begin_piece();
        next();
#pragma unroll 1
        for (int i = 1; i < stage.stages && cursor.goes_on(); ++i, next()) ask();
    }
    __device__ __forceinline__ void go_on() {
#pragma unroll 1
        for (; cursor.goes_on(); next()) {
            hopper::barrier_wait(shared_address(&room.free[group][stage.stage]), stage.parity ^ 1);
            ask();
        }
    }
};

template <class Of>
__device__ __forceinline__ void decode(const scalar_t* q, const hopper::TensorMap& k, const hopper::TensorMap& v,
                                       scalar_t* y, const FewQueries& s, const Split& split) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Room<Of>& room = *reinterpret_cast<Room<Of>*>(memory);
    const int warp = __shfl_sync(ALL_LANES, threadIdx.x / WARP, 0), bits = split.part_bits;
    const int merger = warp - GROUPS * hopper::GROUP_WARPS;
    const Course<Of::SHARING> course(split, blockIdx.x >> bits);
    const Parts<Of::ROWS> parts{bits, int(blockIdx.x) & (1 << bits) - 1};
    if (merger < 0) return walk(room, q, s, course, parts, split.stages, warp);
    Feed<Of> feed(room, k, v, course, parts, split.stages, merger);
    const bool copies = merger < GROUPS;
    if (elected()) {
        if (copies) feed.begin();
        if (merger == MERGERS - 1) {
#pragma unroll
            for (int i = 0; i < Room<Of>::PIECES; ++i) {
                if (course.piece(i).rounds > 0) room.inboxes[i].open(parts.count(s.rows * HALVES) * parts.walkers());
            }
        }
    }
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    if (copies && elected()) feed.go_on();
    __syncwarp();
#pragma unroll 1
    for (int i = course.FIRST; i <= course.LAST; ++i) {
        const int kind = course.kind(i);
        const Piece piece = course.piece(kind);
        if (piece.rounds == 0) continue;
        merge(room.inboxes[kind], room.inboxes[course.last()], parts, y + piece.head * s.rows * DIM, s.rows * HALVES,
              course, kind, merger);
    }
}

}  // namespace groups

#define DECODE_BY_GROUPS(VERSION, WAY, SHARING, ROWS)                                                                 \
    extern "C" __global__ void __launch_bounds__(groups::THREADS, 1) attention_decode_##VERSION##_##WAY##_128_##ROWS( \
        const scalar_t* __restrict__ q, scalar_t* __restrict__ y, const __grid_constant__ hopper::TensorMap k,        \
        const __grid_constant__ hopper::TensorMap v, int rows, int queries, int keys, int dim, int causal,            \
        float scale, int rounds, int share, int team_bits, int part_bits, int stages) {                               \
        groups::decode<groups::Shape<ROWS, groups::SHARING>>(                                                         \
            q, k, v, y, FewQueries{rows, queries, keys, dim, causal, scale},                                          \
            groups::Split{rounds, share, team_bits, part_bits, stages});                                              \
    }
