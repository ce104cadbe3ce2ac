// The steps of a layer of f32 in one launch by blocks that stay: every block keeps the rows of its units, and the states go
// through L2.
//
// The sequences are cut into partitions, each with as many blocks as the layer needs, and a partition takes its sequences in
// groups of eight. The eight warps of a block split k. A lane has the rows of one or two gates: of its warp's part of k it
// keeps the first columns in registers, the others in shared memory. The states of that part go through shared memory, from
// which all lanes read the same eight sequences of a k.
// A state travels in a word that says itself whether it is there (lstm_state.cuh), and none is overwritten that somebody still
// reads, for the reason that lstm_persistent.cuh gives.
#pragma once
#include "common.cuh"
#include "lstm_input_gemm.cuh"
#include "lstm_state.cuh"

namespace lstm {

constexpr int SIMT_WARPS = 8;
constexpr int SIMT_THREADS = SIMT_WARPS * WARP;
constexpr int SIMT_SEQUENCES = 8;  // of a group
constexpr int SIMT_KEPT = 64;      // columns of a row in registers, and k whose states are brought in together
constexpr int SIMT_LOADS = SIMT_KEPT * SIMT_SEQUENCES / (4 * WARP);  // of four words a lane

constexpr unsigned NAN_WORD = 0x3fffffff;  // above 1, as no state is
__device__ __forceinline__ unsigned tagged_word(float state, unsigned tag) {
    return (state == state ? __float_as_uint(state) : NAN_WORD) | tag;
}
__device__ __forceinline__ float state_of(unsigned word) {
    const float state = __uint_as_float(word & ~TAG);
    return fabsf(state) > 1.0f ? nanf("") : state;
}

// What a launch works on: one layer.
struct SimtLayer {
    const float* gates;  // [steps, batch, hidden, 4], of the inputs
    const float* r;      // [4 hidden, hidden]
    const float* bias;   // [4 hidden]
    float* y;            // [steps, batch, hidden]
    float* h;            // [batch, hidden]
    float* c;            // [batch, hidden]
    unsigned* states;    // [2, groups of all partitions, hidden, 8], zeros at first; of every other step
    float* cells;        // [batch, hidden]
    int steps;
    int batch;
    int hidden;
    int blocks;  // of a partition
};

// What a block has in dynamic shared memory. Rows of sums are apart by four words more, so that eight sequences are in
// different banks.
template <int UNITS>
struct SimtShared {
    static constexpr int ROWS = GATES * UNITS;
    float states[SIMT_WARPS][SIMT_KEPT][SIMT_SEQUENCES];
    float sums[2][SIMT_WARPS][SIMT_SEQUENCES][ROWS + 4];
    float weights[1];  // [SIMT_WARPS][columns behind the kept ones][ROWS]
};

// grid = partitions x blocks, all at once, blocks = ceil(hidden / UNITS); block = 256; dynamic shared memory =
// 16 KiB + 512 (ROWS + 4) + 32 ROWS x max(0, ceil(hidden / 8) - 64), ROWS = GATES UNITS.
template <int UNITS>
__device__ __forceinline__ void recur_simt(const SimtLayer& of) {
    constexpr int ROWS = SimtShared<UNITS>::ROWS;
    constexpr int LANE_ROWS = ROWS / WARP;
    extern __shared__ __align__(16) unsigned char simt_memory[];
    SimtShared<UNITS>& shared = *reinterpret_cast<SimtShared<UNITS>*>(simt_memory);

    const int lane = threadIdx.x % WARP;
    const int warp = threadIdx.x / WARP;
    const int unit0 = int(blockIdx.x) % of.blocks * UNITS;
    const int partition = int(blockIdx.x) / of.blocks;
    const int partitions = int(gridDim.x) / of.blocks;
    const int share = tiles(of.batch, partitions);
    const int sequence0 = partition * share;
    const int sequences = min(of.batch - sequence0, share);
    if (sequences <= 0) return;
    const int groups = tiles(sequences, SIMT_SEQUENCES);
    const int groups_of_share = tiles(share, SIMT_SEQUENCES);
    const int total = of.steps * groups;
    const long long cells = (long long)of.batch * of.hidden;
    // The words of the first unit of what `turn` makes.
    auto states_of = [&](int turn) {
        const int group = (turn / groups % 2 * partitions + partition) * groups_of_share + turn % groups;
        return of.states + (long long)group * of.hidden * SIMT_SEQUENCES;
    };

    // The warp's part of k.
    const int of_warp = tiles(of.hidden, SIMT_WARPS);
    const int first = warp * of_warp;
    const int own = max(0, min(of_warp, of.hidden - first));
    float* const weights_at = shared.weights + warp * max(0, of_warp - SIMT_KEPT) * ROWS + lane;
    auto weight = [&](int row, int column) {
        const int unit = unit0 + row / GATES;
        if (unit >= of.hidden || column >= own) return 0.0f;
        return of.r[(long long)(row % GATES * of.hidden + unit) * of.hidden + first + column];
    };
    float kept[LANE_ROWS][SIMT_KEPT];
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
#pragma unroll
        for (int column = 0; column < SIMT_KEPT; ++column) kept[i][column] = weight(i * WARP + lane, column);
    }
    for (int column = SIMT_KEPT; column < of_warp; ++column) {
#pragma unroll
        for (int i = 0; i < LANE_ROWS; ++i) {
            weights_at[(column - SIMT_KEPT) * ROWS + i * WARP] = weight(i * WARP + lane, column);
        }
    }

    // The states before those that a turn makes, of SIMT_KEPT k at a time.
    uint4 words[SIMT_LOADS];
    const uint4* before = nullptr;
    unsigned tag = 0;
    auto is_inside = [&](int column0, int i) { return column0 + (i * WARP + lane) / 2 < own; };
    auto load = [&](int column0, int from, int until) {
#pragma unroll
        for (int i = 0; i < SIMT_LOADS; ++i) {
            if (i < from || i >= until || !is_inside(column0, i)) continue;
            words[i] = load_relaxed(before + column0 * 2 + i * WARP);
        }
    };
    auto is_there = [&](int column0, int from, int until) {
        unsigned other = 0;
#pragma unroll
        for (int i = 0; i < SIMT_LOADS; ++i) {
            if (i < from || i >= until || !is_inside(column0, i)) continue;
            other |= tag_difference(words[i], tag);
        }
        return bool(__all_sync(ALL_LANES, (other & TAG) == 0));
    };
    auto start_turn = [&](int turn) {
        before = reinterpret_cast<const uint4*>(states_of(turn - groups) + first * SIMT_SEQUENCES) + lane;
        tag = tag_of(turn / groups - 1);
        load(0, 0, SIMT_LOADS);
    };
    // One load is tried again and again, the others when that one has come. Then the states stand in shared memory.
    auto bring_in = [&](int column0) {
        while (!is_there(column0, 0, 1)) {
            __nanosleep(POLL_NANOSECONDS);
            load(column0, 0, 1);
        }
        while (!is_there(column0, 1, SIMT_LOADS)) {
            __nanosleep(POLL_NANOSECONDS);
            load(column0, 1, SIMT_LOADS);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SIMT_LOADS; ++i) {
            float4 states = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (is_inside(column0, i)) {
                states = make_float4(state_of(words[i].x), state_of(words[i].y), state_of(words[i].z), state_of(words[i].w));
            }
            reinterpret_cast<float4*>(shared.states[warp])[i * WARP + lane] = states;
        }
        __syncwarp();
    };

    // The cell that this thread finishes.
    const int in_group = threadIdx.x % SIMT_SEQUENCES;
    const int of_block = threadIdx.x / SIMT_SEQUENCES;
    const int unit = unit0 + of_block;
    const bool finishes = of_block < UNITS && unit < of.hidden;
    float bias[GATES] = {};
#pragma unroll
    for (int gate = 0; finishes && gate < GATES; ++gate) bias[gate] = of.bias[gate * of.hidden + unit];

    for (int turn = 0; turn < total; ++turn) {
        const int step = turn / groups;
        const int in_partition = turn % groups * SIMT_SEQUENCES + in_group;
        const bool inside = finishes && in_partition < sequences;
        const long long cell = (long long)(sequence0 + in_partition) * of.hidden + unit;
        float carried = 0.0f;
        float4 of_input = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (inside) {
            of_input = reinterpret_cast<const float4*>(of.gates)[step * cells + cell];
            if (step > 0) carried = of.cells[cell];
        }

        float sums[LANE_ROWS][SIMT_SEQUENCES] = {};
        auto multiply = [&](const float (&weights)[LANE_ROWS], int k) {
            const float4* const states = reinterpret_cast<const float4*>(shared.states[warp][k]);
            const float4 low = states[0];
            const float4 high = states[1];
            const float of_k[SIMT_SEQUENCES] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < LANE_ROWS; ++i) {
#pragma unroll
                for (int s = 0; s < SIMT_SEQUENCES; ++s) sums[i][s] = fmaf(weights[i], of_k[s], sums[i][s]);
            }
        };
        if (step > 0 && own > 0) {
            bring_in(0);
            load(SIMT_KEPT, 0, SIMT_LOADS);
            constexpr int RUN = 8;
#pragma unroll
            for (int run = 0; run < SIMT_KEPT; run += RUN) {
                if (run >= own) break;
#pragma unroll
                for (int k = run; k < run + RUN; ++k) {
                    float weights[LANE_ROWS];
#pragma unroll
                    for (int i = 0; i < LANE_ROWS; ++i) weights[i] = kept[i][k];
                    multiply(weights, k);
                }
            }
            for (int column0 = SIMT_KEPT; column0 < own; column0 += SIMT_KEPT) {
                bring_in(column0);
                load(column0 + SIMT_KEPT, 0, SIMT_LOADS);
#pragma unroll 8
                for (int k = 0; k < min(SIMT_KEPT, own - column0); ++k) {
                    float weights[LANE_ROWS];
#pragma unroll
                    for (int i = 0; i < LANE_ROWS; ++i) weights[i] = weights_at[(column0 - SIMT_KEPT + k) * ROWS + i * WARP];
                    multiply(weights, k);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < LANE_ROWS; ++i) {
#pragma unroll
            for (int s = 0; s < SIMT_SEQUENCES; ++s) shared.sums[turn % 2][warp][s][i * WARP + lane] = sums[i][s];
        }
        const bool has_next = turn + 1 < total && turn + 1 >= groups;
        if (has_next && groups > 1) start_turn(turn + 1);
        __syncthreads();

        if (of_block < UNITS) {
            float gates[GATES] = {of_input.x + bias[0], of_input.y + bias[1], of_input.z + bias[2], of_input.w + bias[3]};
#pragma unroll
            for (int other = 0; other < SIMT_WARPS; ++other) {
                const float4 part =
                    *reinterpret_cast<const float4*>(&shared.sums[turn % 2][other][in_group][of_block * GATES]);
                gates[0] += part.x;
                gates[1] += part.y;
                gates[2] += part.z;
                gates[3] += part.w;
            }
            carried = sigmoid(gates[1]) * carried + sigmoid(gates[0]) * tanhf(gates[2]);
            const float state = sigmoid(gates[3]) * tanhf(carried);
            if (step + 1 < of.steps && unit < of.hidden) {
                store_relaxed(states_of(turn) + unit * SIMT_SEQUENCES + in_group, tagged_word(state, tag_of(step)));
            }
            if (has_next && groups == 1) start_turn(turn + 1);
            if (inside) {
                of.cells[cell] = carried;
                of.y[step * cells + cell] = state;
                if (step == of.steps - 1) {
                    of.h[cell] = state;
                    of.c[cell] = carried;
                }
            }
        } else if (has_next && groups == 1) {
            start_turn(turn + 1);
        }
    }
}

}  // namespace lstm
