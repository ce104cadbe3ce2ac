// The steps of a layer in one launch by blocks that stay, for layers that no cluster holds: every block keeps the rows of
// its units, and the states go through L2.
//
// A round of a block is PACKETS packets of four units; where all blocks together have fewer than the layer, they take
// several rounds a step. Its eight warps split k: each has as many neighbouring slices of sixteen units, and fetches the
// states of those alone, so that a block reads every state once. Of its weights a warp keeps the first slices in registers,
// the next ones in shared memory, and reads what is left from L2 at each step.
// Blocks meet by words in global memory, one a block: how many groups of TILES x 8 sequences, of all steps, it has done. A
// warp waits only for the blocks whose units it multiplies. Groups know nothing of each other: while the states of one go
// through the cells, those of the next are on their way, and where shared memory has two buffers for them, a product longer.
// States of every other step stand in the same place. A block writes there when it has seen from every block that the states
// of the step between are made, for which those that are overwritten were read.
#pragma once
#include "async.cuh"
#include "grid.cuh"
#include "lstm_cell.cuh"

namespace lstm {

constexpr int PERSISTENT_WARPS = 8;
constexpr int PERSISTENT_THREADS = PERSISTENT_WARPS * WARP;
constexpr int TILE_SEQUENCES = 8;  // of one product
constexpr int PADDED_SEQUENCES = 16;
constexpr int POLL_NANOSECONDS = 20;  // short beside the way to L2 and back

// What blocks share, and how many slices of weights a warp has in registers and in shared memory.
struct Exchange {
    uint4* packets;     // [2, sequences in eights, packets of a sequence, 8]; of every other step
    float* cells;       // [batch, hidden]
    unsigned* done;     // [blocks], zeros at first
    int in_registers;   // at most KEPT
    int in_shared;
    int buffers;        // for states: two where there are three groups or more, or one
};

// grid = at most ceil(packets of a sequence / PACKETS), all at once; block = 256; dynamic shared memory =
// 4 KiB (in_shared PACKETS + buffers TILES slices of a warp + PACKETS TILES).
template <int PACKETS, int TILES, int KEPT>
__device__ __forceinline__ void recur_persistent(const Layer& of, const Exchange& with) {
    constexpr int FRAGMENTS = PACKETS * TILES;  // of sums: a warp finishes one
    static_assert(FRAGMENTS <= PERSISTENT_WARPS, "a warp a fragment");
    // Products of few fragments would wait for each other.
    constexpr int CHAINS = FRAGMENTS <= 2 ? 2 : 1;
    extern __shared__ __align__(128) unsigned char persistent_memory[];

    const int lane = threadIdx.x % WARP;
    const int warp = threadIdx.x / WARP;
    const int quad = lane % 4;
    const int member = lane / 4 % PACKET_UNITS;
    const bool upper = lane >= WARP / 2;
    const bool aligned = of.hidden % PACKET_UNITS == 0;
    const int slices = tiles(of.hidden, SLICE_UNITS);
    const int packets = slices * SLICE_PACKETS;
    const int of_warp = tiles(slices, PERSISTENT_WARPS);
    const int first = warp * of_warp;
    const int own = max(0, min(of_warp, slices - first));
    const int rounds = tiles(packets, int(gridDim.x) * PACKETS);
    const int groups = tiles(of.batch, TILES * TILE_SEQUENCES);
    const int total = of.steps * groups;
    const int in_registers = min(with.in_registers, of_warp);
    auto packet0 = [&](int round) { return (round * int(gridDim.x) + int(blockIdx.x)) * PACKETS; };

    // Everything a lane keeps in shared memory is its own, but for the sums.
    uint4* const weights_at =
        reinterpret_cast<uint4*>(persistent_memory) + warp * with.in_shared * PACKETS * WARP + lane;
    uint4* const states_at = reinterpret_cast<uint4*>(persistent_memory) +
                             (PERSISTENT_WARPS * with.in_shared * PACKETS + warp * with.buffers * of_warp * TILES) * WARP +
                             lane;
    float4* const sums_at = reinterpret_cast<float4*>(persistent_memory) +
                            PERSISTENT_WARPS * (with.in_shared * PACKETS + with.buffers * of_warp * TILES) * WARP;

    auto fetch_weights = [&](unsigned (&to)[PACKETS][4], int round, int slice) {
        const int from = (first + slice) * SLICE_UNITS + quad * PACKET_UNITS;
#pragma unroll
        for (int i = 0; i < PACKETS; ++i) {
            load_weights(to[i], of, (packet0(round) + i) * PACKET_UNITS + member, from, slice < own);
        }
    };
    // A slice's place behind those in registers.
    auto place_of = [&](int round, int slice) { return round * of_warp + slice - in_registers; };

    unsigned kept[KEPT][PACKETS][4];
#pragma unroll
    for (int slice = 0; slice < KEPT; ++slice) {
        if (slice < in_registers) fetch_weights(kept[slice], 0, slice);
    }
    for (int place = 0; place < min(with.in_shared, rounds * of_warp - in_registers); ++place) {
        unsigned words[PACKETS][4];
        fetch_weights(words, (place + in_registers) / of_warp, (place + in_registers) % of_warp);
#pragma unroll
        for (int i = 0; i < PACKETS; ++i) {
            weights_at[(place * PACKETS + i) * WARP] = make_uint4(words[i][0], words[i][1], words[i][2], words[i][3]);
        }
    }

    auto buffer_of = [&](int turn) { return states_at + (turn & with.buffers - 1) * of_warp * TILES * WARP; };

    // Blocks that make the states of this warp's slices.
    const int from_block = first * SLICE_PACKETS / PACKETS;
    const int to_block = ((first + own) * SLICE_PACKETS - 1) / PACKETS;
    const int from_blocks = own > 0 ? min(to_block - from_block + 1, int(gridDim.x)) : 0;
    // Fetches the states before those that turn `turn` makes, when they are there.
    auto fetch_states = [&](int turn) {
        const unsigned enough = turn - groups + 1;
        for (int i = lane; i - lane < from_blocks; i += WARP) {
            const unsigned* const done = with.done + (from_block + i) % int(gridDim.x);
            while (!__all_sync(ALL_LANES, i >= from_blocks || load_acquire(done) >= enough)) {
                __nanosleep(POLL_NANOSECONDS);
            }
        }
        __syncwarp();
        const int step = turn / groups;
        const int tile = (step - 1) % 2 * (tiles(of.batch, PADDED_SEQUENCES) * (PADDED_SEQUENCES / TILE_SEQUENCES)) +
                         turn % groups * TILES;
        uint4* const to = buffer_of(turn);
        for (int slice = 0; slice < own; ++slice) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                const int packet = (first + slice) * SLICE_PACKETS + quad;
                const uint4* const from =
                    with.packets + ((long long)(tile + t) * packets + packet) * TILE_SEQUENCES + lane / 4;
                copy_async<16>(shared_address(to + (slice * TILES + t) * WARP), from, true);
            }
        }
        copy_async_commit();
    };

    // The fragment of sums that this warp finishes, and which of its sequences the lane does.
    const bool finishes = warp < FRAGMENTS;
    const int of_packet = warp / TILES;
    const int of_tile = warp % TILES;
    const int in_tile = 2 * quad + upper;
    auto unit_of = [&](int round) { return (packet0(round) + of_packet) * PACKET_UNITS + member; };
    auto sequence_of = [&](int turn) { return (turn % groups * TILES + of_tile) * TILE_SEQUENCES + in_tile; };
    const long long cells = (long long)of.batch * of.hidden;
    auto fetch_input = [&](int turn, int round) {
        const int unit = unit_of(round);
        const int sequence = sequence_of(turn);
        float4 of_input = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (finishes && turn < total && unit < of.hidden && sequence < of.batch) {
            const long long cell = turn / groups * cells + (long long)sequence * of.hidden + unit;
            of_input = reinterpret_cast<const float4*>(of.gates)[cell];
        }
        return of_input;
    };

    // With one group alone, the states of the next turn are not made before this one is done.
    const bool has_next_early = groups > 1;
    auto needs_states = [&](int turn) { return turn < total && turn >= groups; };
    float4 of_input = fetch_input(0, 0);
    for (int turn = 0; turn < total; ++turn) {
        const int step = turn / groups;
        for (int round = 0; round < rounds; ++round) {
            const bool last_round = round == rounds - 1;
            const float4 next_input = fetch_input(last_round ? turn + 1 : turn, last_round ? 0 : round + 1);
            const int unit = unit_of(round);
            const int sequence = sequence_of(turn);
            const long long cell = (long long)sequence * of.hidden + unit;
            const bool inside = finishes && unit < of.hidden && sequence < of.batch;
            float carried = inside && step > 0 ? with.cells[cell] : 0.0f;
            float bias[GATES];
            load_bias(bias, of, unit);

            if (round == 0 && with.buffers == 2) {
                if (needs_states(turn + 1)) fetch_states(turn + 1);
                // One group of copies a turn, so that the last but one is that of this turn.
                if (!needs_states(turn + 1)) copy_async_commit();
                copy_async_wait<1>();
            } else if (round == 0) {
                copy_async_wait<0>();
            }
            if (step > 0) {
                const uint4* const states = buffer_of(turn);
                float sums[CHAINS][PACKETS][TILES][4] = {};
                auto multiply = [&](const unsigned (&weights)[PACKETS][4], int slice) {
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        const uint4 packet = states[(slice * TILES + t) * WARP];
#pragma unroll
                        for (int i = 0; i < PACKETS; ++i) multiply_add(sums[0][i][t], weights[i], packet.x, packet.y);
#pragma unroll
                        for (int i = 0; i < PACKETS; ++i) {
                            multiply_add(sums[CHAINS - 1][i][t], weights[i], packet.z, packet.w);
                        }
                    }
                };
                int slice = 0;
                if (round == 0) {
#pragma unroll
                    for (int i = 0; i < KEPT; ++i) {
                        if (i < min(in_registers, own)) multiply(kept[i], i);
                    }
                    slice = in_registers;
                }
#pragma unroll 2
                for (; slice < own; ++slice) {
                    const int place = place_of(round, slice);
                    unsigned weights[PACKETS][4];
                    if (place < with.in_shared) {
#pragma unroll
                        for (int i = 0; i < PACKETS; ++i) {
                            const uint4 words = weights_at[(place * PACKETS + i) * WARP];
                            weights[i][0] = words.x;
                            weights[i][1] = words.y;
                            weights[i][2] = words.z;
                            weights[i][3] = words.w;
                        }
                    } else {
                        fetch_weights(weights, round, slice);
                    }
                    multiply(weights, slice);
                }
#pragma unroll
                for (int i = 0; i < PACKETS; ++i) {
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        float all[4];
#pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            all[e] = CHAINS == 2 ? sums[0][i][t][e] + sums[CHAINS - 1][i][t][e] : sums[0][i][t][e];
                        }
                        sums_at[(warp * FRAGMENTS + i * TILES + t) * WARP + lane] =
                            make_float4(all[0], all[1], all[2], all[3]);
                    }
                }
            }
            if (last_round && has_next_early && with.buffers == 1 && needs_states(turn + 1)) fetch_states(turn + 1);
            __syncthreads();

            float state = 0.0f;
            uint4 packet = make_uint4(0, 0, 0, 0);
            if (finishes) {
                float sum[4] = {};
#pragma unroll
                for (int other = 0; step > 0 && other < PERSISTENT_WARPS; ++other) {
                    const float4 part = sums_at[(other * FRAGMENTS + warp) * WARP + lane];
                    sum[0] += part.x;
                    sum[1] += part.y;
                    sum[2] += part.z;
                    sum[3] += part.w;
                }
                // Of two sequences the lower lanes keep the first, the upper ones the second.
                const float kept_gates[2] = {upper ? sum[1] : sum[0], upper ? sum[3] : sum[2]};
                const float given[2] = {upper ? sum[0] : sum[1], upper ? sum[2] : sum[3]};
                state = next_state(exchange_gates(kept_gates, given, upper), of_input, bias, carried);
                packet = packet_of(state, member);
                const int own_packet = packet0(round) + of_packet;
                if (step + 1 < of.steps && member == 0 && own_packet < packets) {
                    const int tile = step % 2 * (tiles(of.batch, PADDED_SEQUENCES) * (PADDED_SEQUENCES / TILE_SEQUENCES)) +
                                     turn % groups * TILES + of_tile;
                    with.packets[((long long)tile * packets + own_packet) * TILE_SEQUENCES + in_tile] = packet;
                }
            }
            of_input = next_input;
            __syncthreads();
            // What other blocks wait for first.
            if (last_round && threadIdx.x == 0) store_release(with.done + blockIdx.x, turn + 1);
            if (finishes) {
                if (inside) {
                    with.cells[cell] = carried;
                    scalar_t* const y = of.y + step * cells + cell;
                    if (of.y != nullptr && !aligned) *y = from_float<scalar_t>(state);
                    if (of.y != nullptr && aligned && member == 0) {
                        *reinterpret_cast<uint2*>(y) = make_uint2(packet.x, packet.y);
                    }
                    if (step == of.steps - 1) {
                        of.h[cell] = from_float<scalar_t>(state);
                        of.c[cell] = from_float<scalar_t>(carried);
                    }
                }
                // Zeros up to the pitch, which the next product reads.
                if (of.parts != nullptr && sequence < of.batch && member < PARTS && unit - member < of.pitch) {
                    const long long row = (long long)member * of.steps * of.batch + (long long)step * of.batch + sequence;
                    *reinterpret_cast<uint2*>(of.parts + row * of.pitch + unit - member) =
                        member ? make_uint2(packet.z, packet.w) : make_uint2(packet.x, packet.y);
                }
            }
        }
        if (!has_next_early && needs_states(turn + 1)) fetch_states(turn + 1);
    }
}

}  // namespace lstm
