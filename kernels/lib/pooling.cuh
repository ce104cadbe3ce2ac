// What pooling has in common: comparisons that keep NaN, and activations: 0 none, 1 ReLU, 2 GELU, 3 SiLU.
#pragma once
#include "common.cuh"

constexpr int RELU = 1, GELU = 2, SILU = 3;

// NaN stays.
__device__ __forceinline__ float larger(float a, float b) {
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
__device__ __forceinline__ float smaller(float a, float b) {
    float c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float activated(float x, int activation) {
    if (activation == RELU) return x < 0.0f ? 0.0f : x;
    if (activation == GELU) return gelu_erf(x);
    if (activation == SILU) return x * logistic(x);
    return x;
}

// The largest activation between two elements, the least and the largest of a window: GELU and SiLU fall before they rise.
__device__ __forceinline__ float largest_activated(float least, float largest, int activation) {
    const float top = activated(largest, activation);
    return activation == RELU ? top : larger(top, activated(least, activation));
}
