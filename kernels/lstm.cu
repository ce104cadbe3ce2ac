// LSTM: with p = W x + R h + bias, rows of the gates i, f, g, o one after the other,
//   c = sigmoid(p_f) c + sigmoid(p_i) tanh(p_g); h = sigmoid(p_o) tanh(c)
//   x [steps, batch, inputs]; w [4 hidden, inputs]; w_above [layers - 1, 4 hidden, hidden]; r [layers, 4 hidden, hidden];
//   bias [layers, 4 hidden]; y [steps, batch, hidden]; h, c [layers, batch, hidden]; all of one dtype.
// The arithmetic is f32, and so is the workspace: states [layers, steps, batch, hidden], cells [layers, batch, hidden].
//
// Launch (serves every shape; no dynamic shared memory):
//   v1  layers * steps launches, layer by layer: grid ceil(batch * hidden / 128)  block 128
#include "common.cuh"

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// One row of weights times one vector.
template <typename Element>
__device__ __forceinline__ float dot(const scalar_t* weights, const Element* vector, int n) {
    FourSums sums;
#pragma unroll 4
    for (int i = 0; i < n; ++i) {
        sums.add(i, to_float(weights[i]) * to_float(vector[i]));
    }
    return sums.total();
}

// v1: the definition, a cell a thread and a launch a step, so that the states of the step before are all there.
extern "C" __global__ void lstm_v1(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w,
                                   const scalar_t* __restrict__ w_above, const scalar_t* __restrict__ r,
                                   const scalar_t* __restrict__ bias, scalar_t* __restrict__ y,
                                   scalar_t* __restrict__ h, scalar_t* __restrict__ c, float* states, int steps,
                                   int batch, int inputs, int hidden, int layers, int layer, int step) {
    const long long cells = (long long)batch * hidden;
    const long long cell = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= cells) {
        return;
    }
    const int unit = int(cell % hidden);
    const long long sequence = cell / hidden;
    const long long of_layer = steps * cells;
    float* const mine = states + layer * of_layer;
    float* const kept = states + layers * of_layer + layer * cells + cell;
    const float* const before = mine + (step - 1) * cells + sequence * hidden;
    const scalar_t* const of_input = x + (step * (long long)batch + sequence) * inputs;
    const float* const of_below = mine - of_layer + step * cells + sequence * hidden;

    float gates[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
        const long long row = (long long)gate * hidden + unit;
        const long long row_of_layers = (long long)layer * 4 * hidden + row;
        gates[gate] = to_float(bias[row_of_layers]);
        gates[gate] += layer == 0 ? dot(w + row * inputs, of_input, inputs)
                                  : dot(w_above + (row_of_layers - 4 * hidden) * hidden, of_below, hidden);
        if (step > 0) {
            gates[gate] += dot(r + row_of_layers * hidden, before, hidden);
        }
    }
    const float carried = step > 0 ? sigmoid(gates[1]) * *kept : 0.0f;
    const float cell_now = carried + sigmoid(gates[0]) * tanhf(gates[2]);
    const float state = sigmoid(gates[3]) * tanhf(cell_now);
    *kept = cell_now;
    mine[step * cells + cell] = state;
    if (layer == layers - 1) {
        y[step * cells + cell] = from_float<scalar_t>(state);
    }
    if (step == steps - 1) {
        h[layer * cells + cell] = from_float<scalar_t>(state);
        c[layer * cells + cell] = from_float<scalar_t>(cell_now);
    }
}
