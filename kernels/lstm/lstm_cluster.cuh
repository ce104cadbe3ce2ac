// The steps of a layer for a few sequences by one cluster: its blocks keep all recurrent weights in registers and send
// each other the states.
//
// A block has 32 units, a warp four of them (lstm_cell.cuh). Every block holds the packets of all units of the step before.
// Two such buffers alternate. They are in the order of distance: a block sends to itself first and then to those behind it,
// so that nobody gets everything at once, and multiplies what the nearest before it sent while the rest is on its way.
#pragma once
#include "cluster.cuh"
#include "common.cuh"
#include "hopper.cuh"
#include "lstm_cell.cuh"

namespace lstm {

constexpr int RECUR_WARPS = 8;
constexpr int RECUR_THREADS = RECUR_WARPS * WARP;
constexpr int BLOCK_UNITS = PACKET_UNITS * RECUR_WARPS;
constexpr int BLOCK_SLICES = BLOCK_UNITS / SLICE_UNITS;
constexpr int AHEAD = 2;  // steps that the gates of the inputs are fetched ahead

constexpr int GROUPS = 4;  // of blocks, by their distance, whose packets are waited for together

// What a block needs of up to MOST_SEQUENCES sequences: 4, whose states' two parts are neighbouring columns of one product,
// or 8, with a product a part. SLICES slices of 16 units are what up to SLICES / 2 blocks make.
template <int SLICES, int MOST_SEQUENCES>
struct Shared {
    static constexpr bool ONE_PRODUCT = MOST_SEQUENCES == 4;
    static constexpr int SLICE_ROW = SLICE_PACKETS * MOST_SEQUENCES;  // packets of a slice

    // By the distance of the block that sent them, by four units, by sequence. The order of sequences is swizzled so that
    // the lanes of a product use different banks.
    uint4 packets[2][SLICES * SLICE_PACKETS][MOST_SEQUENCES];
    float4 gates[AHEAD + 1][RECUR_THREADS];
    unsigned long long arrived[2][GROUPS];

    static __device__ __forceinline__ int swizzled(int sequence, int quad) {
        return ONE_PRODUCT ? sequence ^ quad / 2 * 2 : sequence ^ quad * 2;
    }
};

// grid = clusters of ceil(hidden / BLOCK_UNITS) blocks, at least two, one for `sequences` of them.
template <int SLICES, int MOST_SEQUENCES>
__device__ __forceinline__ void recur(const Layer& of, int sequences) {
    constexpr unsigned MOST_BLOCKS = SLICES / BLOCK_SLICES;
    constexpr unsigned GROUP_BLOCKS = MOST_BLOCKS / GROUPS;
    using Memory = Shared<SLICES, MOST_SEQUENCES>;
    constexpr bool ONE_PRODUCT = Memory::ONE_PRODUCT;
    __shared__ __align__(16) Memory shared;
    unsigned blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    const unsigned rank = hopper::cluster_rank();
    const int lane = threadIdx.x % WARP;
    const int warp = threadIdx.x / WARP;
    const int quad = lane % 4;
    const int member = lane / 4 % PACKET_UNITS;  // of the packet: the unit
    const bool upper = lane >= WARP / 2;
    const int unit0 = int(rank) * BLOCK_UNITS + warp * PACKET_UNITS;
    const int unit = unit0 + member;
    // After an exchange the lane has the four gates of its unit and this sequence, of at most four as another one has.
    const int in_group = ONE_PRODUCT ? quad : 2 * quad + upper;
    const bool second = ONE_PRODUCT && upper;
    const int sequence = int(blockIdx.x / blocks) * sequences + in_group;
    const bool has_sequence = in_group < sequences && sequence < of.batch;
    const bool inside = unit < of.hidden && has_sequence;
    const bool aligned = of.hidden % PACKET_UNITS == 0;

    // This lane's two rows, those of the block `distance` ranks before this one at BLOCK_SLICES * distance. No branch stands
    // around a load: they are all in flight at the same time.
    unsigned weights[SLICES][4];
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        const unsigned distance = slice / BLOCK_SLICES;
        const unsigned source = rank < distance ? rank + blocks - distance : rank - distance;
        const int from = (int(source) * BLOCK_SLICES + slice % BLOCK_SLICES) * SLICE_UNITS + quad * PACKET_UNITS;
        load_weights(weights[slice], of, unit, from, distance < blocks);
    }
    float bias[GATES];
    load_bias(bias, of, unit);

    const unsigned arrived = shared_address(shared.arrived);
    // Bytes that the blocks of a group send.
    auto arriving = [&](int group) {
        const int there = min(int(GROUP_BLOCKS), int(blocks) - group * int(GROUP_BLOCKS));
        return max(there, 0) * RECUR_WARPS * sequences * int(sizeof(uint4));
    };
    auto object = [&](int buffer, int group) { return arrived + (buffer * GROUPS + group) * 8; };
    if (threadIdx.x == 0) {
        for (int at = 0; at < 2 * GROUPS; ++at) hopper::mbarrier_init(arrived + at * 8, 1);
        hopper::mbarrier_init_fence();
        for (int at = 0; at < min(of.steps - 1, 2) * GROUPS; ++at) {
            if (arriving(at % GROUPS) > 0) hopper::mbarrier_expect_tx(arrived + at * 8, arriving(at % GROUPS));
        }
    }
    // What nobody sends is multiplied too.
    uint4* const packets = &shared.packets[0][0][0];
    for (int at = threadIdx.x; at < int(sizeof(shared.packets) / sizeof(uint4)); at += RECUR_THREADS) {
        packets[at] = make_uint4(0, 0, 0, 0);
    }
    hopper::fence_proxy_async();
    __syncthreads();
    hopper::cluster_sync();

    const long long cells = (long long)of.batch * of.hidden;
    const long long cell = (long long)sequence * of.hidden + unit;
    auto fetch = [&](int step) {
        const float* const from = of.gates + (inside ? (step * cells + cell) * GATES : 0);
        copy_async<16>(shared_address(&shared.gates[step % (AHEAD + 1)][threadIdx.x]), from, inside);
    };
    for (int step = 0; step < AHEAD; ++step) {
        if (step < of.steps) fetch(step);
        copy_async_commit();
    }
    const unsigned packet_at = shared_address(&shared.packets[0][warp][Memory::swizzled(in_group, warp % SLICE_PACKETS)]);
    // The column lane / 4 of a product: a packet, or a part of one.
    const int column = lane / 4;
    const uint4* const packet_from = &shared.packets[0][quad][Memory::swizzled(ONE_PRODUCT ? column / 2 : column, quad)];
    const uint2* const part_from = reinterpret_cast<const uint2*>(packet_from) + (ONE_PRODUCT ? column % 2 : 0);

    // A lane of four stores a packet of y where rows start at a packet, and two lanes its parts.
    const bool stores_y = of.y != nullptr && inside && !second && (member == 0 || !aligned);
    scalar_t* y_at = of.y + (aligned ? cell - member : cell);
    // Zeros up to the pitch, which the next product reads.
    const bool stores_parts = of.parts != nullptr && has_sequence && !second && member < PARTS && unit0 < of.pitch;
    scalar_t* parts_at = of.parts + ((long long)member * of.steps * of.batch + sequence) * of.pitch + unit0;

    float carried = 0.0f;
    for (int step = 0; step < of.steps; ++step) {
        if (step + AHEAD < of.steps) fetch(step + AHEAD);
        copy_async_commit();
        float sums[4][4] = {};
        if (step > 0) {
            const int buffer = (step - 1) % 2;
            const unsigned parity = (step - 1) / 2 % 2;
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                const unsigned distance = slice / BLOCK_SLICES;
                const unsigned group = distance / GROUP_BLOCKS;
                if (slice % (BLOCK_SLICES * GROUP_BLOCKS) == 0 && distance < blocks) {
                    hopper::mbarrier_wait(object(buffer, group), parity);
                    // For the states of the step after this one, which are sent when everybody has sent this one's.
                    if (threadIdx.x == 0 && step + 1 < of.steps - 1) {
                        hopper::mbarrier_expect_tx(object(buffer, group), arriving(group));
                    }
                }
                const int at = (buffer * SLICES + slice) * Memory::SLICE_ROW;
                if (ONE_PRODUCT) {
                    const uint2 part = part_from[2 * at];
                    multiply_add(sums[slice % 4], weights[slice], part.x, part.y);
                } else {
                    const uint4 packet = packet_from[at];
                    multiply_add(sums[slice % 2], weights[slice], packet.x, packet.y);
                    multiply_add(sums[2 + slice % 2], weights[slice], packet.z, packet.w);
                }
            }
        }
        float total[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
        // Lanes 16 apart have two gates each of the same unit: for one sequence in two parts, or for two sequences, of which
        // one keeps the first and one the second.
        const float first[2] = {ONE_PRODUCT ? total[0] + total[1] : upper ? total[1] : total[0],
                                ONE_PRODUCT ? total[2] + total[3] : upper ? total[3] : total[2]};
        const float given[2] = {ONE_PRODUCT ? first[0] : upper ? total[0] : total[1],
                                ONE_PRODUCT ? first[1] : upper ? total[2] : total[3]};
        const float4 of_states = exchange_gates(first, given, upper);
        copy_async_wait<AHEAD>();
        const float4 of_input = shared.gates[step % (AHEAD + 1)][threadIdx.x];
        const float state = next_state(of_states, of_input, bias, carried);
        const uint4 packet = packet_of(state, member);
        if (step + 1 < of.steps && in_group < sequences) {
            const int buffer = step % 2;
            constexpr unsigned SENDERS = ONE_PRODUCT ? 2 * PACKET_UNITS : PACKET_UNITS;  // lanes that have the packet
            for (unsigned distance = member + second * PACKET_UNITS; distance < blocks; distance += SENDERS) {
                const unsigned target = rank + distance < blocks ? rank + distance : rank + distance - blocks;
                const unsigned place = buffer * MOST_BLOCKS + distance;
                st_async_packet(packet_at + place * (RECUR_WARPS * MOST_SEQUENCES * int(sizeof(uint4))),
                            object(buffer, distance / GROUP_BLOCKS), target, packet);
            }
        }

        if (stores_y) {
            if (aligned) {
                *reinterpret_cast<uint2*>(y_at) = make_uint2(packet.x, packet.y);
            } else {
                *y_at = from_float<scalar_t>(state);
            }
        }
        if (stores_parts) {
            *reinterpret_cast<uint2*>(parts_at) =
                member ? make_uint2(packet.z, packet.w) : make_uint2(packet.x, packet.y);
        }
        y_at += cells;
        parts_at += (long long)of.batch * of.pitch;
        if (step == of.steps - 1 && inside && !second) {
            of.h[cell] = from_float<scalar_t>(state);
            of.c[cell] = from_float<scalar_t>(carried);
        }
    }
}

}  // namespace lstm
