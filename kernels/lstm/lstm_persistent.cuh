// The steps of a layer in one launch by blocks that stay, for layers that no cluster holds: every block keeps the rows of
// its units, and the states go through L2.
//
// The sequences are cut into partitions, and each partition has as many blocks as the layer needs. A block of a partition
// makes PACKETS packets of four units in a round; where a partition has too few blocks for the layer, they take several
// rounds a step. Its eight warps split k: each has as many neighbouring slices of sixteen units, and loads the states of
// those alone, so that a block reads every state once. Of its weights a warp keeps the first slices in registers, the next
// ones in shared memory, and reads what is left from L2 at each step.
//
// Nobody waits for a flag: a state travels in a word that says itself whether it is there (lstm_state.cuh). States of
// every other step stand in the same place. A block writes there when it has read all states of the step between, for
// which those that are overwritten were read by everybody.
// Groups of TILES x 8 sequences know nothing of each other: while the states of one go through the cells, those of the next
// are on their way.
#pragma once
#include "async.cuh"
#include "hopper.cuh"
#include "lstm_cell.cuh"

namespace lstm {

constexpr int PERSISTENT_WARPS = 8;
constexpr int PERSISTENT_THREADS = PERSISTENT_WARPS * WARP;
constexpr int TILE_SEQUENCES = 8;  // of one product

// What blocks share.
struct Exchange {
    uint4* states;  // [2, tiles of all partitions, packets of a sequence, 8], zeros at first; of every other step
    float* cells;   // [batch, hidden]
    int blocks;     // of a partition
    int in_shared;  // slices of weights that a warp has in shared memory
};

// grid = partitions x blocks, all at once; block = 256; dynamic shared memory = 4 KiB x PACKETS x (in_shared + 2 TILES).
// KEPT slices of a warp stay in registers. Without FROM_L2 the others have room in shared memory.
template <int PACKETS, int TILES, int KEPT, bool FROM_L2>
__device__ __forceinline__ void recur_persistent(const Layer& of, const Exchange& with) {
    constexpr int FRAGMENTS = PACKETS * TILES;  // of sums: a warp finishes one
    static_assert(FRAGMENTS <= PERSISTENT_WARPS, "a warp a fragment");
    // Slices whose states are loaded together, twice as many on their way.
    constexpr int CHUNK = 4 / TILES;
    static_assert(KEPT % CHUNK == 0, "whole chunks");
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
    const int in_registers = min(KEPT, of_warp);
    const int first = warp * of_warp;
    const int own = max(0, min(of_warp, slices - first));
    const int rounds = tiles(packets, with.blocks * PACKETS);
    const int block = int(blockIdx.x) % with.blocks;
    auto packet0 = [&](int round) { return (round * with.blocks + block) * PACKETS; };

    const int partition = int(blockIdx.x) / with.blocks;
    const int partitions = int(gridDim.x) / with.blocks;
    const int share = tiles(of.batch, partitions);
    const int sequence0 = partition * share;
    const int sequences = min(of.batch - sequence0, share);
    if (sequences <= 0) return;
    const int groups = tiles(sequences, TILES * TILE_SEQUENCES);
    const int tiles_of_share = tiles(share, TILES * TILE_SEQUENCES) * TILES;
    const int total = of.steps * groups;
    // The packet of the first tile's first sequence of what `turn` makes.
    auto states_of = [&](int turn, int packet) {
        const int tile = (turn / groups % 2 * partitions + partition) * tiles_of_share + turn % groups * TILES;
        return with.states + ((long long)tile * packets + packet) * TILE_SEQUENCES;
    };

    // Everything a lane keeps in shared memory is its own, but for the sums.
    uint4* const weights_at = reinterpret_cast<uint4*>(persistent_memory) + warp * with.in_shared * PACKETS * WARP + lane;
    float4* const sums_at =
        reinterpret_cast<float4*>(persistent_memory) + PERSISTENT_WARPS * with.in_shared * PACKETS * WARP + lane;

    auto fetch_weights = [&](unsigned (&to)[PACKETS][4], int round, int slice) {
        const int from = (first + slice) * SLICE_UNITS + quad * PACKET_UNITS;
#pragma unroll
        for (int i = 0; i < PACKETS; ++i) {
            load_weights(to[i], of, (packet0(round) + i) * PACKET_UNITS + member, from, slice < own);
        }
    };
    unsigned kept[KEPT][PACKETS][4];
#pragma unroll
    for (int slice = 0; slice < KEPT; ++slice) fetch_weights(kept[slice], 0, slice);
    // Behind those in registers: the other slices of the first round, then all of the next ones.
    auto place_of = [&](int round, int slice) { return round * of_warp + slice - in_registers; };
    for (int place = 0; place < min(with.in_shared, rounds * of_warp - in_registers); ++place) {
        unsigned words[PACKETS][4];
        fetch_weights(words, (place + in_registers) / of_warp, (place + in_registers) % of_warp);
#pragma unroll
        for (int i = 0; i < PACKETS; ++i) {
            weights_at[(place * PACKETS + i) * WARP] = make_uint4(words[i][0], words[i][1], words[i][2], words[i][3]);
        }
    }

    // The states before those that a turn makes, of CHUNK slices at a time, two chunks in turn.
    using Chunk = uint4[CHUNK][TILES];
    constexpr int IN_CHUNK = CHUNK * TILES;
    constexpr int PARITY = KEPT / CHUNK % 2;  // the chunk of the first slice behind those in registers
    Chunk chunks[2];
    const uint4* before = nullptr;
    unsigned tag = 0;
    // Loads numbers `from` to `until` of a chunk, what is past the warp's last slice left out.
    auto load = [&](Chunk& to, int slice, int from, int until) {
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                const int index = j * TILES + t;
                if (index < from || index >= until || slice + j >= own) continue;
                to[j][t] = load_relaxed(before + (t * packets + (slice + j) * SLICE_PACKETS) * TILE_SEQUENCES);
            }
        }
    };
    auto start_item = [&](int turn, int round) {
        before = states_of(turn - groups, first * SLICE_PACKETS + quad) + lane / 4;
        tag = tag_of(turn / groups - 1);
        if (PARITY == 0 || round == 0) {
            load(chunks[0], 0, 0, IN_CHUNK);
            load(chunks[1], CHUNK, 0, IN_CHUNK);
        } else {
            load(chunks[1], 0, 0, IN_CHUNK);
            load(chunks[0], CHUNK, 0, IN_CHUNK);
        }
    };
    auto is_there = [&](const Chunk& chunk, int slice, int from, int until) {
        bool there = true;
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                const int index = j * TILES + t;
                if (index < from || index >= until || slice + j >= own) continue;
                there = there && has_tag(chunk[j][t], tag);
            }
        }
        return bool(__all_sync(ALL_LANES, there));
    };
    // One load is tried again and again, the others when that one has come.
    auto wait_for = [&](Chunk& chunk, Chunk& next, int slice) {
        if (is_there(chunk, slice, 0, IN_CHUNK)) return;
        while (!is_there(chunk, slice, 0, 1)) {
            __nanosleep(POLL_NANOSECONDS);
            load(chunk, slice, 0, 1);
        }
        while (true) {
            load(chunk, slice, 1, IN_CHUNK);
            if (is_there(chunk, slice, 1, IN_CHUNK)) break;
            __nanosleep(POLL_NANOSECONDS);
        }
        load(next, slice + CHUNK, 0, IN_CHUNK);
    };

    // The fragment of sums that this warp finishes, and which of its sequences the lane does.
    const bool finishes = warp < FRAGMENTS;
    const int of_packet = warp / TILES;
    const int of_tile = warp % TILES;
    const int in_tile = 2 * quad + upper;
    auto unit_of = [&](int round) { return (packet0(round) + of_packet) * PACKET_UNITS + member; };
    const long long cells = (long long)of.batch * of.hidden;

    // Which warps have written their sums, of this item and of the last one.
    __shared__ unsigned long long written[2];
    const unsigned written_at = shared_address(written);
    if (threadIdx.x < 2) hopper::mbarrier_init(written_at + threadIdx.x * 8, PERSISTENT_WARPS);
    __syncthreads();

    for (int item = 0; item < total * rounds; ++item) {
        const int turn = item / rounds;
        const int round = item % rounds;
        const int step = turn / groups;
        const int unit = unit_of(round);
        const int in_partition = (turn % groups * TILES + of_tile) * TILE_SEQUENCES + in_tile;
        const int sequence = sequence0 + in_partition;
        const long long cell = (long long)sequence * of.hidden + unit;
        const bool inside = finishes && unit < of.hidden && in_partition < sequences;
        float carried = 0.0f;
        float4 of_input = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (inside) {
            of_input = reinterpret_cast<const float4*>(of.gates)[step * cells + cell];
            if (step > 0) carried = with.cells[cell];
        }
        float sums[CHAINS][PACKETS][TILES][4] = {};
        if (step > 0) {
            auto multiply = [&](const unsigned (&weights)[PACKETS][4], const uint4 (&states)[TILES]) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    const uint4 parts = parts_of(states[t]);
#pragma unroll
                    for (int i = 0; i < PACKETS; ++i) multiply_add(sums[0][i][t], weights[i], parts.x, parts.y);
#pragma unroll
                    for (int i = 0; i < PACKETS; ++i) {
                        multiply_add(sums[CHAINS - 1][i][t], weights[i], parts.z, parts.w);
                    }
                }
            };
            auto multiply_elsewhere = [&](Chunk& chunk, Chunk& next, int from) {
                wait_for(chunk, next, from);
#pragma unroll
                for (int j = 0; j < CHUNK; ++j) {
                    const int slice = from + j;
                    if (slice >= own) break;
                    const int place = place_of(round, slice);
                    unsigned weights[PACKETS][4];
                    if (!FROM_L2 || place < with.in_shared) {
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
                    multiply(weights, chunk[j]);
                }
                load(chunk, from + 2 * CHUNK, 0, IN_CHUNK);
            };
            if (round == 0) {
#pragma unroll
                for (int c = 0; c < KEPT / CHUNK; ++c) {
                    if (c * CHUNK >= own) break;
                    wait_for(chunks[c % 2], chunks[1 - c % 2], c * CHUNK);
#pragma unroll
                    for (int j = 0; j < CHUNK; ++j) {
                        if (c * CHUNK + j < own) multiply(kept[c * CHUNK + j], chunks[c % 2][j]);
                    }
                    load(chunks[c % 2], (c + 2) * CHUNK, 0, IN_CHUNK);
                }
            }
#pragma unroll 1
            for (int slice = round == 0 ? KEPT : 0; slice < own; slice += 2 * CHUNK) {
                multiply_elsewhere(chunks[PARITY], chunks[1 - PARITY], slice);
                if (slice + CHUNK < own) multiply_elsewhere(chunks[1 - PARITY], chunks[PARITY], slice + CHUNK);
            }
        }
        float4* const to = sums_at + item % 2 * (PERSISTENT_WARPS * FRAGMENTS * WARP) + warp * FRAGMENTS * WARP;
#pragma unroll
        for (int i = 0; i < PACKETS; ++i) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                float all[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    all[e] = CHAINS == 2 ? sums[0][i][t][e] + sums[CHAINS - 1][i][t][e] : sums[0][i][t][e];
                }
                to[(i * TILES + t) * WARP] = make_float4(all[0], all[1], all[2], all[3]);
            }
        }
        __syncwarp();
        if (lane == 0) hopper::mbarrier_arrive(written_at + item % 2 * 8);
        const bool last_round = round == rounds - 1;
        const bool has_next = turn + 1 < total && turn + 1 >= groups;
        if (last_round && has_next && groups > 1) start_item(turn + 1, 0);

        // Those that finish nothing wait too: they may not write what others still read.
        hopper::mbarrier_wait(written_at + item % 2 * 8, item / 2 % 2);
        if (finishes) {
            float bias[GATES];
            load_bias(bias, of, unit);
            const float4* const from = sums_at + item % 2 * (PERSISTENT_WARPS * FRAGMENTS * WARP) + warp * WARP;
            float sum[4] = {};
#pragma unroll
            for (int other = 0; other < PERSISTENT_WARPS; ++other) {
                const float4 part = from[other * FRAGMENTS * WARP];
                sum[0] += part.x;
                sum[1] += part.y;
                sum[2] += part.z;
                sum[3] += part.w;
            }
            // Of two sequences the lower lanes keep the first, the upper ones the second.
            const float kept_gates[2] = {upper ? sum[1] : sum[0], upper ? sum[3] : sum[2]};
            const float given[2] = {upper ? sum[0] : sum[1], upper ? sum[2] : sum[3]};
            const float state = next_state(exchange_gates(kept_gates, given, upper), of_input, bias, carried);
            const int own_packet = packet0(round) + of_packet;
            if (step + 1 < of.steps && own_packet < packets) {
                uint4* const to = states_of(turn, own_packet) + (long long)of_tile * packets * TILE_SEQUENCES + in_tile;
                store_relaxed(reinterpret_cast<unsigned*>(to) + member, tagged(state, tag_of(step)));
            }
            if (last_round && has_next && groups == 1) start_item(turn + 1, 0);
            const uint4 packet = packet_of(state, member);
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
            if (of.parts != nullptr && in_partition < sequences && member < PARTS && unit - member < of.pitch) {
                const long long row = (long long)member * of.steps * of.batch + (long long)step * of.batch + sequence;
                *reinterpret_cast<uint2*>(of.parts + row * of.pitch + unit - member) =
                    member ? make_uint2(packet.z, packet.w) : make_uint2(packet.x, packet.y);
            }
        } else if (last_round && has_next && groups == 1) {
            start_item(turn + 1, 0);
        }
        if (!last_round && step > 0) start_item(turn, round + 1);
    }
}

}  // namespace lstm
