// How warp groups of attention_split_groups.cuh walk f32: by multiply-adds of 32 keys, then of their values, out of boxes of 32
// elements in the 128-byte swizzle.
//
// Keys: a warp has eight of a round, and eight of its lanes share one out: lanes lane / 4 the elements, lanes lane % 4 the keys,
// two of them each, so that a load of queries serves two. Values: a warp has a box, eight lanes four elements each of all, and
// lanes lane / 8 every fourth key. What lanes have of the same they add up last, each of its own part.
#pragma once
#include "attention_split_groups_room.cuh"

namespace groups {

constexpr int BOXES = hopper::GROUP_WARPS;  // of a round
constexpr int OF_WARP = 8;                  // keys
static_assert(BOXES * 32 == DIM, "a warp has a box of values");

template <class Of>
struct Operands {
    // Four elements, of those of lanes 0, 4 and so on, then their next four: what lanes load together lies together.
    float4 queries[GROUPS][Course<Of::SHARING>::PIECES][Of::ROWS][DIM / 4];
    float weights[GROUPS][MOST_ROUNDS][KEYS][Of::ROWS];
};

__device__ __forceinline__ float4 load_shared(unsigned address) {
    float4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

template <class Of>
struct Walker : Member<Of> {
    using Base = Member<Of>;
    using Base::await, Base::group, Base::kind, Base::lane, Base::meet, Base::release, Base::room, Base::s, Base::scale, Base::warp;
    static constexpr int ALL_ROWS = Of::ROWS;
    static constexpr int ROWS = ALL_ROWS > 4 ? 2 : 1;  // of a lane, in the end
    static constexpr int SCORES = ROWS;                // of a round: of key warp * 8 + lane % 8

    static constexpr bool HOLDS = ALL_ROWS <= 4;  // queries in registers

    const bool counts;   // of one row, eight lanes; the others have the same
    float4 held[HOLDS ? ALL_ROWS : 1][4];
    int seen[ROWS];      // keys that these rows see, less this lane's key of a round
    float max[ROWS];     // score of these rows
    float offset[ROWS];  // of the weights' exponents
    float total[ROWS];   // of these rows' weights
    float max_of[ALL_ROWS];
    float sums[ALL_ROWS * 4];                      // of a row after the other, of elements 32 warp + 4 (lane % 8)
    unsigned sums_there[ROWS], known_there[ROWS];  // where those of this lane's rows go, and what counts them

    __device__ __forceinline__ Walker(Room<Of>& room, const FewQueries& s, const Parts<Of::ROWS>& parts, int stages,
                                      int warp)
        : Base(room, s, parts, stages, warp), counts(ALL_ROWS > 1 || lane < OF_WARP) {
#pragma unroll
        for (int j = 0; j < ROWS; ++j) seen[j] = s.seen_by(row(j)) - (this->warp * OF_WARP + lane % OF_WARP);
    }
    __device__ __forceinline__ int row(int j) const { return ALL_ROWS > 1 ? lane / OF_WARP * ROWS + j : 0; }
    // What these threads have stored is there for the others of the group.
    __device__ __forceinline__ void show() const { meet(); }

    // Queries, zeros where there is none.
    __device__ __forceinline__ void take(const scalar_t* q, const Course<Of::SHARING>& course) const {
        constexpr int UNITS = DIM / 4;
#pragma unroll
        for (int i = 0; i < Room<Of>::PIECES; ++i) {
            const Piece piece = course.piece(i);
#pragma unroll
            for (int at = warp * WARP + lane; at < ALL_ROWS * UNITS; at += hopper::GROUP_THREADS) {
                const int row = at / UNITS, unit = at % UNITS;
                float4 elements = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (row < s.rows && piece.rounds > 0) {
                    elements = *reinterpret_cast<const float4*>(q + (piece.head * s.rows + row) * DIM + unit * 4);
                }
                room.operands.queries[group][i][row][unit % 4 * 8 + unit / 4] = elements;
            }
        }
    }

    __device__ __forceinline__ void score(float (&scores)[SCORES]) {
        const int box = lane / 8, half = lane / 4 % 2, key = lane % 4;
        const unsigned keys = await() + box * BOX_BYTES + (warp * OF_WARP + key) * hopper::ROW_BYTES;
        float products[2 * ALL_ROWS] = {};  // of all rows with the first key, then with the one four further
#pragma unroll
        for (int unit = 0; unit < 4; ++unit) {
            const unsigned at = keys + (half * 4 + (unit ^ key)) * 16;
            const float4 first = load_shared(at), second = load_shared((at ^ 64) + 4 * hopper::ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ALL_ROWS; ++r) {
                const float4 query = HOLDS ? held[HOLDS ? r : 0][unit] : load_query(r, unit);
                products[r] = dot(query, first, products[r]);
                products[ALL_ROWS + r] = dot(query, second, products[ALL_ROWS + r]);
            }
        }
        hopper::hold(products);
        __syncwarp();
        release();
        share_out<2 * ALL_ROWS>(products, 4);
        share_out<ALL_ROWS>(products, 16);
        share_out<(ALL_ROWS > 1 ? ALL_ROWS / 2 : 1)>(products, 8);
#pragma unroll
        for (int j = 0; j < SCORES; ++j) scores[j] = products[j];
    }
    // This lane's elements of a row: a half of a box, four of it.
    __device__ __forceinline__ float4 load_query(int row, int unit) const {
        return load_shared(shared_address(&room.operands.queries[group][kind][row][unit * 8 + lane / 4]));
    }
    static __device__ __forceinline__ float dot(const float4& a, const float4& b, float sum) {
        return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }
    // Leaves out what is not seen of a round that begins with key `at`.
    __device__ __forceinline__ void mask(float (&scores)[SCORES], int at) const {
        if (at + KEYS <= this->seen_by_all) return;
#pragma unroll
        for (int j = 0; j < SCORES; ++j) {
            if (at >= seen[j]) scores[j] = Maximum::identity();
        }
    }

    // From here on weights are taken against the largest scores of the group.
    __device__ __forceinline__ void raise(float (&largest)[ROWS]) {
#pragma unroll
        for (int step = 1; step < OF_WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) largest[j] = fmaxf(largest[j], __shfl_xor_sync(ALL_LANES, largest[j], step));
        }
        const auto of_warp = [&](int i) { return reinterpret_cast<float*>(room.largest[group][kind][i]); };
        if (lane % OF_WARP == 0 && counts) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) of_warp(warp)[row(j)] = largest[j];
        }
        meet();
#pragma unroll
        for (int r = 0; r < ALL_ROWS; ++r) {
            float raised = max_of[r];
#pragma unroll
            for (int i = 0; i < hopper::GROUP_WARPS; ++i) raised = fmaxf(raised, of_warp(i)[r]);
            const float of_weights = raised == Maximum::identity() ? 0.0f : raised * scale;
            const float correction = fast_exp2(fmaf(max_of[r], scale, -of_weights));
            max_of[r] = raised;
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[r * 4 + e] *= correction;
#pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                if (r != row(j)) continue;
                max[j] = raised;
                offset[j] = of_weights;
                total[j] *= correction;
            }
        }
    }

    __device__ __forceinline__ void weigh(int round, const float (&scores)[SCORES]) {
        float* const to = &room.operands.weights[group][round][warp * OF_WARP + lane % OF_WARP][row(0)];
#pragma unroll
        for (int j = 0; j < SCORES; ++j) {
            const float weight = fast_exp2(fmaf(scores[j], scale, -offset[j]));
            total[j] += weight;
            if (counts) to[j] = weight;
        }
    }
    __device__ __forceinline__ void add_values(int round) {
        const int first = lane / 8, unit = lane % 8;
        const float(&weights)[KEYS][ALL_ROWS] = room.operands.weights[group][round];
        const unsigned values = await() + warp * BOX_BYTES + first * hopper::ROW_BYTES + (unit ^ first) * 16;
#pragma unroll
        for (int i = 0; i < KEYS / 4; ++i) {
            const float4 value = load_shared((values ^ i % 2 * 64) + i * 4 * hopper::ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ALL_ROWS; ++r) {
                const float weight = weights[i * 4 + first][r];
                sums[r * 4] = fmaf(weight, value.x, sums[r * 4]);
                sums[r * 4 + 1] = fmaf(weight, value.y, sums[r * 4 + 1]);
                sums[r * 4 + 2] = fmaf(weight, value.z, sums[r * 4 + 2]);
                sums[r * 4 + 3] = fmaf(weight, value.w, sums[r * 4 + 3]);
            }
        }
        hopper::hold(sums);
        __syncwarp();
        release();
    }

    // Leaves this warp's sums of weights to the one that tells the group's.
    __device__ __forceinline__ void leave_totals() {
#pragma unroll
        for (int step = 1; step < OF_WARP; step *= 2) {
#pragma unroll
            for (int j = 0; j < ROWS; ++j) total[j] += __shfl_xor_sync(ALL_LANES, total[j], step);
        }
        if (lane % OF_WARP != 0 || !counts) return;
#pragma unroll
        for (int j = 0; j < ROWS; ++j) reinterpret_cast<float*>(room.totals[group][kind][warp])[row(j)] = total[j];
    }

    // A piece begins. Where its sums will go is computed before there are any.
    __device__ __forceinline__ void begin(int piece) {
        kind = piece;
#pragma unroll
        for (int r = 0; HOLDS && r < ALL_ROWS; ++r) {
#pragma unroll
            for (int unit = 0; unit < 4; ++unit) held[r][unit] = load_query(r, unit);
        }
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            max[j] = Maximum::identity();
            offset[j] = total[j] = 0.0f;
            const auto to = this->there(row(j) * HALVES + warp / 2);
            sums_there[j] = to.inbox + this->offset_of(&room.inboxes[0].sums[to.seen][warp % 2 * 8 + lane % 8]);
            known_there[j] = to.inbox + this->offset_of(&room.inboxes[0].sums_known);
        }
#pragma unroll
        for (int r = 0; r < ALL_ROWS; ++r) {
            max_of[r] = Maximum::identity();
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[r * 4 + e] = 0.0f;
        }
    }
    __device__ __forceinline__ void send() {
        if (ALL_ROWS > 1) {
            share_out<ALL_ROWS * 4>(sums, 16);
            share_out<ALL_ROWS * 2>(sums, 8);
        } else {
#pragma unroll
            for (int bit = 16; bit >= 8; bit /= 2) {
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[e] += __shfl_xor_sync(ALL_LANES, sums[e], bit);
            }
        }
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            if (!counts || row(j) >= s.rows) continue;
            send_four(sums_there[j], known_there[j], sums[j * 4], sums[j * 4 + 1], sums[j * 4 + 2], sums[j * 4 + 3]);
        }
    }
};

}  // namespace groups
