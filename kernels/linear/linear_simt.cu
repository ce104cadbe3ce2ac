// linear in f32 on fma: y[m,n] = activation(x[m,k] * w[n,k] transposed + bias[n]) (+ residual[m,n]).
#include "linear.cuh"

#if defined(KERNELGATE_F32)
#include "gemm_simt.cuh"

// The mainloop of gemm_simt.cuh, with both operands transposed by copies of 4 bytes. Few tiles: `parts` blocks
// share a tile and store sums over their part of k one behind the other in `out`, of which linear_simt_reduce makes outputs.
// grid = ceil(m/128) * ceil(n/128) * parts, block = 128, dynamic shared memory = 4 stages, and 64 KiB where parts is 1 or a
// block sums more slices than `stretch`. n a multiple of 4.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_simt(const float* __restrict__ x, const float* __restrict__ w, LINEAR_POINTERS, float* __restrict__ out, int m,
              int n, int k, int parts, int stretch, LINEAR_SCALARS) {
    multiply<KMajor<128>, KMajor<128>>(x, w, out, m, n, k, one_product(parts), RowMajor{true}, LINEAR_EPILOGUE, stretch);
}

// The same for every n: outputs are stored one by one.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_simt_any(const float* __restrict__ x, const float* __restrict__ w, LINEAR_POINTERS, float* __restrict__ out,
                  int m, int n, int k, int parts, int stretch, LINEAR_SCALARS) {
    multiply<KMajor<128>, KMajor<128>>(x, w, out, m, n, k, one_product(parts), RowMajor{false}, LINEAR_EPILOGUE, stretch);
}

// The second pass, over `parts` matrices of m x n sums.
// grid = ceil(m*n / 256), block = 256, no dynamic shared memory.
extern "C" __global__ void __launch_bounds__(256)
    linear_simt_reduce(const float* __restrict__ sums, LINEAR_POINTERS, float* __restrict__ y, int m, int n, int parts,
                  LINEAR_SCALARS) {
    split_k_reduce(sums, y, (long long)m * n, n, parts, LINEAR_EPILOGUE);
}

// Few outputs: `parts` warps of a block have a row of w and up to DOT_ROWS rows of x, a lane every access of k that is its turn.
constexpr int DOT_ROWS = 4;
constexpr int DOT_WARPS = 8;

template <int WIDTH>
__device__ __forceinline__ void dots(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int m,
                                     int n, int k, int parts, const LinearEpilogue& epilogue) {
    __shared__ float partial[DOT_WARPS][DOT_ROWS];
    const int lane = int(threadIdx.x) % WARP, warp = int(threadIdx.x) / WARP, part = warp % parts;
    const int col = (int(blockIdx.x) * DOT_WARPS + warp) / parts;
    const int row = int(blockIdx.y) * DOT_ROWS, rows = min(DOT_ROWS, m - row);
    const float* const of_w = w + (long long)min(col, n - 1) * k;
    const float* const of_x = x + (long long)row * k;
    float sums[DOT_ROWS] = {};
#pragma unroll 4
    for (int at = (part * WARP + lane) * WIDTH; at < k; at += parts * WARP * WIDTH) {
        float weight[WIDTH];
        Access<WIDTH>::load(of_w + at).get(weight);
#pragma unroll
        for (int r = 0; r < DOT_ROWS; ++r) {
            if (r >= rows) continue;
            float value[WIDTH];
            Access<WIDTH>::load(of_x + (long long)r * k + at).get(value);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) sums[r] = fmaf(value[i], weight[i], sums[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < DOT_ROWS; ++r) {
        sums[r] = warp_reduce<Sum>(sums[r]);
        if (lane == 0) partial[warp][r] = sums[r];
    }
    __syncthreads();
    if (part == 0 && lane < rows && col < n) {
        float sum = 0.0f;
        for (int i = 0; i < parts; ++i) sum += partial[warp + i][lane];
        y[(long long)(row + lane) * n + col] = epilogue.of_one(sum, row + lane, col);
    }
}

// grid = (ceil(n * parts / 8), ceil(m / 4)), block = 256, no dynamic shared memory. parts 1, 2, 4 or 8; k a multiple of 4.
extern "C" __global__ void __launch_bounds__(DOT_WARPS* WARP)
    linear_dots(const float* __restrict__ x, const float* __restrict__ w, LINEAR_POINTERS, float* __restrict__ y, int m,
                int n, int k, int parts, LINEAR_SCALARS) {
    dots<PACK_LEN>(x, w, y, m, n, k, parts, LINEAR_EPILOGUE);
}

// The same for every k.
extern "C" __global__ void __launch_bounds__(DOT_WARPS* WARP)
    linear_dots_any(const float* __restrict__ x, const float* __restrict__ w, LINEAR_POINTERS, float* __restrict__ y, int m,
                    int n, int k, int parts, LINEAR_SCALARS) {
    dots<1>(x, w, y, m, n, k, parts, LINEAR_EPILOGUE);
}

#endif  // defined(KERNELGATE_F32)
