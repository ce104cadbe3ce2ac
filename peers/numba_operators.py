"""The catalogue's operators in Numba, as one would write them for speed: threads over rows or blocks, one pass where one
does, reductions that the compiler may reorder. Each takes the outputs after the inputs and returns nothing."""

import math

import numba
import numpy as np
from numba import prange

fast = numba.njit(parallel=True, fastmath=True, cache=True)

# Rows that a thread takes from B at a time, and columns of C: what the caches hold.
K_BLOCK, N_BLOCK, M_BLOCK = 256, 256, 64

HALF = np.float32(0.5)
ONE = np.float32(1.0)
RSQRT2 = np.float32(1.0 / math.sqrt(2.0))
TANH_SCALE = np.float32(2.0 * math.sqrt(2.0 / math.pi))
TANH_CUBIC = np.float32(0.044715)


@fast
def gelu(x, y):
    for i in prange(x.size):
        y[i] = HALF * x[i] * (ONE + np.float32(math.erf(x[i] * RSQRT2)))


@fast
def gelu_tanh(x, y):
    for i in prange(x.size):
        y[i] = x[i] / (ONE + np.float32(math.exp(-TANH_SCALE * (x[i] + TANH_CUBIC * x[i] * x[i] * x[i]))))


@fast
def silu(x, y):
    for i in prange(x.size):
        y[i] = x[i] / (ONE + np.float32(math.exp(-x[i])))


@fast
def swiglu(gate, up, y):
    for i in prange(gate.size):
        y[i] = gate[i] / (ONE + np.float32(math.exp(-gate[i]))) * up[i]


@fast
def softmax(x, y):
    rows, cols = x.shape
    for row in prange(rows):
        high = x[row, 0]
        for i in range(1, cols):
            high = max(high, x[row, i])
        total = np.float32(0.0)
        for i in range(cols):
            power = np.float32(math.exp(x[row, i] - high))
            y[row, i] = power
            total += power
        scale = ONE / total
        for i in range(cols):
            y[row, i] *= scale


@numba.njit(fastmath=True, inline="always")
def normalisation(x, row, eps):
    """The mean of a row and the inverse of its standard deviation."""
    cols = x.shape[1]
    total = np.float32(0.0)
    for i in range(cols):
        total += x[row, i]
    mean = total / np.float32(cols)
    squares = np.float32(0.0)
    for i in range(cols):
        squares += (x[row, i] - mean) * (x[row, i] - mean)
    return mean, ONE / np.float32(math.sqrt(squares / np.float32(cols) + eps))


@fast
def layernorm(x, weight, bias, eps, y):
    rows, cols = x.shape
    for row in prange(rows):
        mean, scale = normalisation(x, row, eps)
        for i in range(cols):
            y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]


@fast
def layernorm_gelu(x, weight, bias, eps, y):
    rows, cols = x.shape
    for row in prange(rows):
        mean, scale = normalisation(x, row, eps)
        for i in range(cols):
            v = (x[row, i] - mean) * scale * weight[i] + bias[i]
            y[row, i] = HALF * v * (ONE + np.float32(math.erf(v * RSQRT2)))


@fast
def rmsnorm(x, weight, eps, y):
    rows, cols = x.shape
    for row in prange(rows):
        squares = np.float32(0.0)
        for i in range(cols):
            squares += x[row, i] * x[row, i]
        scale = ONE / np.float32(math.sqrt(squares / np.float32(cols) + eps))
        for i in range(cols):
            y[row, i] = x[row, i] * scale * weight[i]


@fast
def add_rmsnorm(x, residual, weight, eps, y, total):
    rows, cols = x.shape
    for row in prange(rows):
        squares = np.float32(0.0)
        for i in range(cols):
            v = x[row, i] + residual[row, i]
            total[row, i] = v
            squares += v * v
        scale = ONE / np.float32(math.sqrt(squares / np.float32(cols) + eps))
        for i in range(cols):
            y[row, i] = total[row, i] * scale * weight[i]


@fast
def row_sum(x, y):
    rows, cols = x.shape
    for row in prange(rows):
        total = np.float32(0.0)
        for i in range(cols):
            total += x[row, i]
        y[row] = total


@fast
def row_mean(x, y):
    rows, cols = x.shape
    for row in prange(rows):
        total = np.float32(0.0)
        for i in range(cols):
            total += x[row, i]
        y[row] = total / np.float32(cols)


@fast
def rope(x, cosine, sine, y):
    tokens, heads, width = x.shape
    half = width // 2
    for token in prange(tokens):
        for head in range(heads):
            for i in range(half):
                a, b = x[token, head, i], x[token, head, half + i]
                c, s = cosine[token, i], sine[token, i]
                y[token, head, i] = a * c - b * s
                y[token, head, half + i] = b * c + a * s


@fast
def embedding(table, ids, y):
    for i in prange(ids.size):
        y[i, :] = table[ids[i], :]


@fast
def gemm(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    across = (n + N_BLOCK - 1) // N_BLOCK
    down = (m + M_BLOCK - 1) // M_BLOCK
    for tile in prange(down * across):
        first_row, first_column = tile // across * M_BLOCK, tile % across * N_BLOCK
        last_row, last_column = min(first_row + M_BLOCK, m), min(first_column + N_BLOCK, n)
        for i in range(first_row, last_row):
            for j in range(first_column, last_column):
                c[i, j] = np.float32(0.0)
        for first_k in range(0, k, K_BLOCK):
            last_k = min(first_k + K_BLOCK, k)
            for i in range(first_row, last_row):
                for p in range(first_k, last_k):
                    factor = a[i, p]
                    for j in range(first_column, last_column):
                        c[i, j] += factor * b[p, j]


def operators():
    """Every operator: takes the shape, the inputs and the outputs."""

    def with_eps(kernel, inputs):
        return lambda shape, *tensors: kernel(*tensors[:inputs], np.float32(shape["eps"]), *tensors[inputs:])

    def plain(kernel):
        return lambda shape, *tensors: kernel(*tensors)

    kernels = [gelu, gelu_tanh, silu, swiglu, softmax, row_sum, row_mean, rope, embedding, gemm]
    found = {kernel.__name__: plain(kernel) for kernel in kernels}
    def chain(shape, x, projection, weight, bias, y):
        gemm(x, projection, y)
        softmax(y, y)
        layernorm(y, weight, bias, np.float32(1e-5), y)

    found["chain"] = chain
    found["layernorm"] = with_eps(layernorm, 3)
    found["layernorm_gelu"] = with_eps(layernorm_gelu, 3)
    found["rmsnorm"] = with_eps(rmsnorm, 2)
    found["add_rmsnorm"] = with_eps(add_rmsnorm, 3)
    return found
