// linear: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n]) (+ residual[m,n]), all row-major, sums in f32. w as
// frameworks store it: both operands run along k.
#include "linear.cuh"

// Naive: a thread an output. Neighbouring threads read neighbouring rows of w, and one element of x together.
// grid = ceil(m*n / 256), block = 256, no dynamic shared memory. Every shape.
extern "C" __global__ void __launch_bounds__(256)
    linear_naive(const scalar_t* __restrict__ x, const scalar_t* __restrict__ w, LINEAR_POINTERS,
              scalar_t* __restrict__ y, int m, int n, int k, LINEAR_SCALARS) {
    const Output at = output_of_thread(n);
    if (at.row >= m) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum = fmaf(to_float(x[at.row * k + i]), to_float(w[at.col * k + i]), sum);
    const LinearEpilogue epilogue = LINEAR_EPILOGUE;
    y[at.row * n + at.col] = from_float<scalar_t>(epilogue.of_one(sum, int(at.row), int(at.col)));
}
