// What the kernels with one launch for all steps of a layer share: which rows of weights a lane holds, and the way from
// sums of products to new states.
//
// A state is handed on as two numbers of the dtype, rounded and what is left, so that it keeps the accuracy of f32: four
// units of a sequence are a packet of 16 bytes. The sixteen rows of the gates of four units are one side of m16n8k16, the
// sequences the other: rows 0..3 are gate i of the units, 4..7 g, 8..11 f, 12..15 o. Along k a lane has the four units of
// one packet, in weights and states alike.
#pragma once
#include "common.cuh"
#include "lstm_input_gemm.cuh"
#include "lstm_state.cuh"

namespace lstm {

constexpr int PACKET_UNITS = 4;
constexpr int PARTS = 2;
constexpr int SLICE_UNITS = 16;  // along k of one product
constexpr int SLICE_PACKETS = SLICE_UNITS / PACKET_UNITS;

// What a launch works on: one layer.
struct Layer {
    const float* gates;      // [steps, batch, hidden, 4], of the inputs
    const scalar_t* r;       // [4 hidden, pitch], zeros behind hidden
    const scalar_t* bias;    // [4 hidden]
    scalar_t* y;             // [steps, batch, hidden], or none
    scalar_t* parts;         // [2, steps, batch, pitch], or none
    scalar_t* h;             // [batch, hidden]
    scalar_t* c;             // [batch, hidden]
    int steps;
    int batch;
    int hidden;
    int pitch;
};

// The lane's two rows, those of `unit`, of a slice: its columns start at `from`. What is not `there` is zeros.
__device__ __forceinline__ void load_weights(unsigned (&to)[4], const Layer& of, int unit, int from, bool there) {
    const bool upper = threadIdx.x % WARP >= WARP / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = ((upper ? 2 : 0) + half) * of.hidden + unit;
        uint2 words = make_uint2(0, 0);
        if (unit < of.hidden && there && from < of.pitch) {
            words = *reinterpret_cast<const uint2*>(of.r + (long long)row * of.pitch + from);
        }
        to[half] = words.x;
        to[2 + half] = words.y;
    }
}

__device__ __forceinline__ void load_bias(float (&bias)[GATES], const Layer& of, int unit) {
#pragma unroll
    for (int i = 0; i < GATES; ++i) bias[i] = unit < of.hidden ? to_float(of.bias[i * of.hidden + unit]) : 0.0f;
}

// `value` rounded in the low half of a word, what is left of it in the high half.
__device__ __forceinline__ unsigned in_parts(float value) {
    const float rounded = to_float(from_float<scalar_t>(value));
    const float both[2] = {value, value - rounded};
    return pack_detail::pack_word(both);
}

// States as words in global memory: `in_parts`, of which what is left is far below 2.
__device__ __forceinline__ unsigned tagged(float state, unsigned tag) {
    const unsigned word = in_parts(state);
    return (state == state ? word : word & 0xffff) | tag;  // nothing is left of NaN
}
__device__ __forceinline__ bool has_tag(const uint4& words, unsigned tag) { return (tag_difference(words, tag) & TAG) == 0; }
// The packet in four such words.
__device__ __forceinline__ uint4 parts_of(const uint4& words) {
    constexpr unsigned BOTH = ~(TAG | TAG >> 16);
    return make_uint4(__byte_perm(words.x, words.y, 0x5410), __byte_perm(words.z, words.w, 0x5410),
                      __byte_perm(words.x, words.y, 0x7632) & BOTH, __byte_perm(words.z, words.w, 0x7632) & BOTH);
}

// A series near zero, where 2 logistic(2 x) - 1 cancels; relative error about 1e-6.
__device__ __forceinline__ float tanh_of(float x) {
    constexpr float NEAR_ZERO = 0.25f;
    const float square = x * x;
    const float inner = fmaf(square, fmaf(square, -17.0f / 315.0f, 2.0f / 15.0f), -1.0f / 3.0f);
    const float series = x * fmaf(square, inner, 1.0f);
    const float formula = fmaf(2.0f, logistic(2.0f * x), -1.0f);
    return fabsf(x) < NEAR_ZERO ? series : formula;
}

// The four gates of a unit and sequence, without bias, from those of two lanes 16 apart, which have two each: `own` of this
// lane's sequence, `given` of the other one's.
__device__ __forceinline__ float4 exchange_gates(const float (&own)[2], const float (&given)[2], bool upper) {
    const float low = __shfl_xor_sync(ALL_LANES, given[0], WARP / 2);
    const float high = __shfl_xor_sync(ALL_LANES, given[1], WARP / 2);
    return make_float4(upper ? low : own[0], upper ? high : own[1], upper ? own[0] : low, upper ? own[1] : high);
}

// The new state; `carried` is the cell.
__device__ __forceinline__ float next_state(const float4& of_states, const float4& of_input, const float (&bias)[GATES],
                                            float& carried) {
    const float i = of_input.x + bias[0] + of_states.x;
    const float f = of_input.y + bias[1] + of_states.y;
    const float g = of_input.z + bias[2] + of_states.z;
    const float o = of_input.w + bias[3] + of_states.w;
    carried = logistic(f) * carried + logistic(i) * tanh_of(g);
    return logistic(o) * tanh_of(carried);
}

// The four lanes with the units of a packet put it together; `member`: which of these is the lane's.
__device__ __forceinline__ uint4 packet_of(float state, int member) {
    const unsigned mine = in_parts(state);
    const unsigned other = __shfl_xor_sync(ALL_LANES, mine, 4);
    const unsigned rounded = member % 2 ? __byte_perm(other, mine, 0x5410) : __byte_perm(mine, other, 0x5410);
    const unsigned rest = member % 2 ? __byte_perm(other, mine, 0x7632) : __byte_perm(mine, other, 0x7632);
    const unsigned rounded_too = __shfl_xor_sync(ALL_LANES, rounded, 8);
    const unsigned rest_too = __shfl_xor_sync(ALL_LANES, rest, 8);
    const bool behind = member / 2;
    return make_uint4(behind ? rounded_too : rounded, behind ? rounded : rounded_too, behind ? rest_too : rest,
                      behind ? rest : rest_too);
}

}  // namespace lstm
