// The online softmax: sums taken against the largest score so far, corrected when a larger one comes.
#pragma once
#include "common.cuh"

struct Running {
    float max = Maximum::identity();
    float total = 0.0f;
    // Takes in a largest score and returns what the sums so far have to be multiplied with.
    __device__ __forceinline__ float raise(float score) {
        const float before = max;
        max = fmaxf(max, score);
        const float correction = before == max ? 1.0f : expf(before - max);
        total *= correction;
        return correction;
    }
};
