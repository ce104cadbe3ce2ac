// bmm: a batch of matrix products, c[i] = op(a[i]) * op(b[i]), sums in f32 (bmm.cuh).
#include "bmm.cuh"

// Products that are summed before the sum joins the total: the roundings of many equal products all go one way.
constexpr int STRETCH = 128;

// Naive: a thread an output, of whatever layout: neighbouring threads read neighbouring columns of op(b), which are
// neighbours in memory where b is not transposed.
// grid = ceil(batch*m*n / 256), block = 256, no dynamic shared memory. Every shape.
extern "C" __global__ void __launch_bounds__(256)
    bmm_naive(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b, scalar_t* __restrict__ c, int batch, int m,
           int n, int k, int transposed_a, int transposed_b) {
    const long long output = (long long)blockIdx.x * 256 + threadIdx.x;
    const long long outputs = (long long)m * n;
    if (output >= batch * outputs) return;
    const long long item = output / outputs;
    const long long row = (output - item * outputs) / n;
    const long long col = output % n;
    const scalar_t* from_a = a + item * m * k + (transposed_a ? row : row * k);
    const scalar_t* from_b = b + item * k * n + (transposed_b ? col * k : col);
    const int next_a = transposed_a ? m : 1;
    const int next_b = transposed_b ? 1 : n;
    float total = 0.0f;
    for (int first = 0; first < k; first += STRETCH) {
        float sum = 0.0f;
        for (int i = first; i < min(first + STRETCH, k); ++i) {
            sum = fmaf(to_float(*from_a), to_float(*from_b), sum);
            from_a += next_a;
            from_b += next_b;
        }
        total += sum;
    }
    c[output] = from_float<scalar_t>(total);
}
