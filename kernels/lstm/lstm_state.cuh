// How a state says itself that it is there, where blocks read those of other blocks from global memory without a flag.
//
// No state is above 1, so that bit 30 of its word is free: the uppermost one of an exponent, in f32 its own, in half width that of
// the remainder (lstm_cell.cuh). It is the tag, by which a reader tells a state from that of two steps before in the same place.
#pragma once
#include "grid.cuh"

namespace lstm {

constexpr unsigned TAG = 1u << 30;
constexpr int POLL_NANOSECONDS = 20;  // short beside the way to L2 and back

__device__ __forceinline__ unsigned tag_of(int step) { return step / 2 % 2 ? 0 : TAG; }
// Has the bit TAG where a word lacks the tag.
__device__ __forceinline__ unsigned tag_difference(const uint4& words, unsigned tag) {
    return (words.x ^ tag) | (words.y ^ tag) | (words.z ^ tag) | (words.w ^ tag);
}

// No state is there yet: neither tag of the first two steps.
template <typename Words>
__device__ __forceinline__ void clear_states(Words* states, long long count) {
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
        states[i] = Words();
    }
}

}  // namespace lstm
