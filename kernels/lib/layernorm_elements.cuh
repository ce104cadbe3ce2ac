// LayerNorm of short f32 rows that start anywhere, by single elements.
#pragma once
#include "element_row.cuh"
#include "layernorm.cuh"

#if defined(KERNELGATE_F32)
// The weights are on their way before the row.
template <typename Function, typename Row>
__device__ __forceinline__ void layernorm_by_elements(const LayerNorm& a, int rows) {
    const Row row(rows, a.cols);
    float weight[Row::VALUES], bias[Row::VALUES], value[Row::VALUES];
    row.load_weights(a.weight, weight);
    row.load_weights(a.bias, bias);
    row.load(a.x, value);
    const float mean = mean_of(row.template sum_of<0>([&](int k) { return value[k]; }), a.cols);
    const float squares = row.template sum_of<1>([&](int k) {
        const float centred = row.has(k) ? value[k] - mean : 0.0f;
        return centred * centred;
    });
    const float scale = inverse_root_mean(squares, a.cols, a.eps);
    const float offset = -mean * scale;  // (x - mean) * scale in one instruction, rounded once
    row.each([&](int k) {
        const float normal = fmaf(fmaf(value[k], scale, offset), weight[k], bias[k]);
        a.y[row.start + k * Row::STRIDE] = Function::apply(Function::PRESCALE * normal);
    });
}
#endif
