// Attention of few queries by clusters, as in attention_split_ahead.cuh, with warp groups that walk (dims of 128).
//
// A group takes 64 keys a round: its four warps multiply them, and their values, where these lie in shared memory, and what
// they have seen is one sum. So there is a quarter to send and to merge. All keys of a chapter come before their values:
// when values come, their weights stand in shared memory.
//
// The groups of a team of blocks walk every so manieth round of what the team walks (attention_split_groups_teams.cuh).
// Other warps copy, one a group, and merge what the groups of all parts have seen (attention_split_groups_merge.cuh).
#pragma once
#include "attention_split_ahead.cuh"
#include "attention_split_groups_merge.cuh"
#include "attention_split_groups_teams.cuh"

namespace groups {

using hopper::elected;

constexpr int THREADS = GROUPS * hopper::GROUP_THREADS + MERGERS * WARP;
constexpr int MOST_STAGES = 5;  // of a group
constexpr int COLUMNS = 8;      // of the right factors: rows, or none
constexpr int ROUND_BYTES = KEYS * DIM * int(sizeof(scalar_t));
constexpr int BOX_BYTES = ROUND_BYTES / HALVES;
constexpr int COLUMN_BYTES = hopper::PATTERN_BYTES;  // 64 elements, or keys, of all rows

// Rows of the products, and what teams share.
template <int ROWS_, Sharing SHARING_>
struct Shape {
    static constexpr int ROWS = ROWS_;
    static constexpr Sharing SHARING = SHARING_;
};

template <class Of>
struct Room {
    static constexpr int PIECES = Course<Of::SHARING>::PIECES;

    alignas(1024) unsigned char rounds[GROUPS][MOST_STAGES][ROUND_BYTES];
    alignas(1024) unsigned char queries[GROUPS][PIECES][HALVES][COLUMN_BYTES];
    alignas(1024) unsigned char weights[GROUPS][MOST_ROUNDS][COLUMN_BYTES];
    Inbox<Of::ROWS> inboxes[PIECES];
    float2 largest[GROUPS][PIECES][hopper::GROUP_WARPS][COLUMNS / 2];  // scores
    float2 totals[GROUPS][PIECES][hopper::GROUP_WARPS][COLUMNS / 2];   // of weights
    unsigned long long full[GROUPS][MOST_STAGES];
    unsigned long long free[GROUPS][MOST_STAGES];
};

// Where a role stands in a ring.
struct Stage {
    int stages;
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ explicit Stage(int stages) : stages(stages) {}
    __device__ __forceinline__ void next() {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1;
    }
};

// Eight half-width elements of a row of 128 bytes, in the 128-byte swizzle.
__device__ __forceinline__ unsigned place(int row, int unit) { return row * hopper::ROW_BYTES + (unit ^ row) * 16; }

// Copies both halves of a round, by a map of heads, halves, keys, elements; nobody reads them again.
__device__ __forceinline__ void load_round(unsigned to, const hopper::TensorMap& map, int key, int head,
                                           unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%2, %3, %2, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(0), "r"(key), "r"(head), "r"(barrier), "l"(hopper::EVICT_FIRST)
        : "memory");
}

// What leads, in a descriptor, to another place of the same tile.
__device__ __forceinline__ constexpr unsigned in_descriptor(unsigned bytes) { return bytes >> 4; }

// Groups of other blocks come between those of a block: who has a round more is in another block.
template <class Parts>
__device__ __forceinline__ int walker_of(const Parts& parts, int group) {
    return group << parts.bits | parts.own;
}
template <class Parts>
__device__ __forceinline__ Stride walkers_of(const Parts& parts) {
    return {parts.bits + 1};
}

template <class Of>
struct Walker {
    Room<Of>& room;
    const FewQueries& s;
    const Parts<Of::ROWS>& parts;
    const int group, warp, lane;
    const float scale;  // of scores, in units of log 2
    const int seen_by_all;
    int seen[2];                  // keys that rows lane % 4 * 2 (+ 1) see, less this lane's first key of a round
    int kind;                     // of the piece
    float max[2];                 // score of these rows
    float offset[2];              // of the weights' exponents
    float total[2];               // of these rows' weights
    float sums[HALVES][4];        // of elements 64 half + 16 warp + lane / 4 of these rows, and eight further
    Stage stage;
    unsigned sums_there[2], known_there[2];  // where these sums go, and what counts them

    __device__ __forceinline__ Walker(Room<Of>& room, const FewQueries& s, const Parts<Of::ROWS>& parts, int stages,
                                      int warp)
        : room(room), s(s), parts(parts), group(warp / hopper::GROUP_WARPS), warp(warp % hopper::GROUP_WARPS),
          lane(threadIdx.x % WARP), scale(s.scale * LOG2_E), seen_by_all(s.seen_by(0)), stage(stages) {
#pragma unroll
        for (int j = 0; j < 2; ++j) seen[j] = s.seen_by(lane % 4 * 2 + j) - (this->warp * STEP + lane / 4);
    }
    __device__ __forceinline__ void meet() const { hopper::named_sync(1 + group, hopper::GROUP_THREADS); }
    // What these threads have stored is there for products.
    __device__ __forceinline__ void show() const {
        hopper::async_fence();
        meet();
    }

    // Queries as the right factor of the scores, zeros where there is none; eight elements a thread.
    __device__ __forceinline__ void take(const scalar_t* q, const Course<Of::SHARING>& course) const {
        const int row = warp * 2 + lane / 16, unit = lane % 16;
        uint4 elements[Room<Of>::PIECES];
#pragma unroll
        for (int i = 0; i < Room<Of>::PIECES; ++i) {
            const Piece piece = course.piece(i);
            elements[i] = make_uint4(0, 0, 0, 0);
            if (row >= s.rows || piece.rounds == 0) continue;
            elements[i] = *reinterpret_cast<const uint4*>(q + (piece.head * s.rows + row) * DIM + unit * 8);
        }
#pragma unroll
        for (int i = 0; i < Room<Of>::PIECES; ++i) {
            *reinterpret_cast<uint4*>(&room.queries[group][i][unit / 8][place(row, unit % 8)]) = elements[i];
        }
    }

    __device__ __forceinline__ unsigned await() const {
        hopper::barrier_wait(shared_address(&room.full[group][stage.stage]), stage.parity);
        return shared_address(room.rounds[group][stage.stage]);
    }
    __device__ __forceinline__ void release() {
        if (lane == 0) hopper::barrier_arrive(shared_address(&room.free[group][stage.stage]));
        stage.next();
    }

    // Scores of a round: of a key, in both rows, then of the one eight further.
    __device__ __forceinline__ void score(float (&scores)[4]) {
        const unsigned long long keys = hopper::descriptor(await(), 0);
        const unsigned long long queries = hopper::descriptor(shared_address(room.queries[group][kind]), 0);
        hopper::product_fence();
#pragma unroll
        for (int i = 0; i < DIM / STEP; ++i) {
            const int half = i / 4, at = i % 4 * STEP * int(sizeof(scalar_t));
            hopper::Product<8, 0>::add(scores, keys + in_descriptor(half * BOX_BYTES + at),
                                       queries + in_descriptor(half * COLUMN_BYTES + at), i > 0);
        }
        hopper::product_commit();
        hopper::product_wait<0>();
        hopper::hold(scores);
        release();
    }
    // Leaves out what is not seen of a round that begins with key `at`.
    __device__ __forceinline__ void mask(float (&scores)[4], int at) const {
        if (at + KEYS <= seen_by_all) return;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (at + i / 2 * 8 >= seen[i % 2]) scores[i] = Maximum::identity();
        }
    }

    // From here on weights are taken against the largest scores of the group.
    __device__ __forceinline__ void raise(float (&largest)[2]) {
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) largest[j] = fmaxf(largest[j], __shfl_xor_sync(ALL_LANES, largest[j], step));
        }
        if (lane < 4) room.largest[group][kind][warp][lane] = make_float2(largest[0], largest[1]);
        meet();
#pragma unroll
        for (int i = 0; i < hopper::GROUP_WARPS; ++i) {
            const float2 of = room.largest[group][kind][i][lane % 4];
            largest[0] = fmaxf(largest[0], of.x);
            largest[1] = fmaxf(largest[1], of.y);
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            offset[j] = largest[j] == Maximum::identity() ? 0.0f : largest[j] * scale;
            const float correction = fast_exp2(fmaf(max[j], scale, -offset[j]));
            max[j] = largest[j];
            total[j] *= correction;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                sums[half][j] *= correction;
                sums[half][j + 2] *= correction;
            }
        }
    }

    // Turns scores into weights, the right factor of their values' products.
    __device__ __forceinline__ void weigh(int round, const float (&scores)[4]) {
        float weights[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[i] = fast_exp2(fmaf(scores[i], scale, -offset[i % 2]));
            total[i % 2] += weights[i];
        }
        const unsigned to = shared_address(room.weights[group][round]) + place(lane % 8, warp * 2 + lane / 8 % 2);
        hopper::store_matrices_transposed(to, pack_detail::pack_word(&weights[0]), pack_detail::pack_word(&weights[2]));
    }
    __device__ __forceinline__ void add_values(int round) {
        const unsigned long long values = hopper::descriptor(await(), 0);
        const unsigned long long weights = hopper::descriptor(shared_address(room.weights[group][round]), 0);
        hopper::product_fence();
#pragma unroll
        for (int i = 0; i < KEYS / STEP; ++i) {
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                const unsigned at = half * BOX_BYTES + i * STEP * hopper::ROW_BYTES;
                hopper::Product<8, 0, 1>::add(sums[half], values + in_descriptor(at),
                                              weights + in_descriptor(i * STEP * int(sizeof(scalar_t))), 1);
            }
        }
        hopper::product_commit();
        hopper::product_wait<0>();
#pragma unroll
        for (int half = 0; half < HALVES; ++half) hopper::hold(sums[half]);
        release();
    }

    // Leaves this warp's sums of weights to the one that tells the group's.
    __device__ __forceinline__ void leave_totals() {
#pragma unroll
        for (int step = 4; step < WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < 2; ++j) total[j] += __shfl_xor_sync(ALL_LANES, total[j], step);
        }
        if (lane < 4) room.totals[group][kind][warp][lane] = make_float2(total[0], total[1]);
    }

    // The inbox of who merges a share, and where this group's place is among those of the share.
    struct There {
        unsigned inbox;
        int seen;
    };
    __device__ __forceinline__ There there(int share) const {
        const int merger = parts.merger(share);
        const int seen = parts.seen(share - parts.first_share(merger), parts.own * GROUPS + group);
        return {rank_address(shared_address(&room.inboxes[kind]), hopper::cluster_rank() - parts.own + merger), seen};
    }
    __device__ __forceinline__ unsigned offset_of(const void* member) const {
        return shared_address(member) - shared_address(&room.inboxes[0]);
    }
    // Largest scores and sums of weights: a share a lane of the first warp.
    __device__ __forceinline__ void tell() const {
        if (warp == 0 && lane < s.rows * HALVES) {
            const int row = lane / HALVES;
            float total = 0.0f, largest = Maximum::identity();
#pragma unroll
            for (int i = 0; i < hopper::GROUP_WARPS; ++i) {
                total += reinterpret_cast<const float*>(room.totals[group][kind][i])[row];
                largest = fmaxf(largest, reinterpret_cast<const float*>(room.largest[group][kind][i])[row]);
            }
            const There to = there(lane);
            send_two(to.inbox + offset_of(&room.inboxes[0].headers[to.seen]), to.inbox + offset_of(&room.inboxes[0].headers_known),
                     largest * scale, total);
        }
        __syncwarp();
    }
    // A piece begins. Where its sums will go is computed before there are any.
    __device__ __forceinline__ void begin(int piece) {
        kind = piece;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            max[j] = Maximum::identity();
            offset[j] = total[j] = 0.0f;
#pragma unroll
            for (int half = 0; half < HALVES; ++half) sums[half][j] = sums[half][j + 2] = 0.0f;
            const There to = there(min(lane % 4 * 2 + j, Of::ROWS - 1) * HALVES + warp / 2);
            sums_there[j] = to.inbox + offset_of(&room.inboxes[0].sums[to.seen][warp % 2 * 8 + lane / 4]);
            known_there[j] = to.inbox + offset_of(&room.inboxes[0].sums_known);
        }
    }
    // No rounds of the piece.
    __device__ __forceinline__ void leave_nothing() {
        if (lane < 4) room.largest[group][kind][warp][lane] = make_float2(Maximum::identity(), Maximum::identity());
        leave_totals();
        meet();
        tell();
    }
    __device__ __forceinline__ void send() const {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (lane % 4 * 2 + j >= s.rows) continue;
            send_four(sums_there[j], known_there[j], sums[0][j], sums[0][j + 2], sums[1][j], sums[1][j + 2]);
        }
    }
};

// The rounds of a piece that a group walks.
template <class Of>
__device__ __forceinline__ void walk_piece(Walker<Of>& walker, const Piece& piece, const Stride& stride, int from) {
    const int count = stride.count(from, piece.rounds);
    int rounds = Stride::of_first_chapter(count);
#pragma unroll 1
    for (int done = 0; done < count; done += rounds, rounds = MOST_ROUNDS) {
        float kept[MOST_ROUNDS][4], largest[2] = {walker.max[0], walker.max[1]};
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            float scores[4] = {};
            walker.score(scores);
            walker.mask(scores, (piece.first + from + stride.length(done + round)) * KEYS);
#pragma unroll
            for (int i = 0; i < 4; ++i) largest[i % 2] = fmaxf(largest[i % 2], scores[i]);
#pragma unroll
            for (int i = 0; i < MOST_ROUNDS; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) kept[i][j] = round == i ? scores[j] : kept[i][j];
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
    if (count <= 0) walker.leave_nothing();
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
