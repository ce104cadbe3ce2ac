"""Layer normalisation of rows, for the operators that end in it: (x - mean) / sqrt(variance + eps) * weight + bias.

The variance is the mean square of what is left after the mean, so that a large mean costs no digits.
"""

import triton
import triton.language as tl
from rows import tile


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.70710678118654752))


@triton.jit
def held(x, weight, bias, y, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr, GELU: tl.constexpr):
    """The row stays on chip: one read, one write."""
    column, at, inside = tile(rows, cols, ROWS, BLOCK)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)
    shift = tl.load(bias + column, mask=column < cols, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=1)[:, None] / cols
    centred = tl.where(inside, value - mean, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred, axis=1)[:, None] / cols + eps)
    result = centred / deviation * scale[None, :] + shift[None, :]
    tl.store(y + at, gelu(result) if GELU else result, mask=inside)


@triton.jit
def looped(x, weight, bias, y, rows, cols, eps, BLOCK: tl.constexpr, GELU: tl.constexpr):
    """Three reads of a row that does not fit, the second and the third from the caches."""
    row = tl.program_id(0).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        total += tl.load(x + row + start + column, mask=start + column < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / cols
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + column < cols
        value = tl.load(x + row + start + column, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, value - mean, 0.0)
        squares += centred * centred
    deviation = tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    for start in range(0, cols, BLOCK):
        inside = start + column < cols
        value = tl.load(x + row + start + column, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(weight + start + column, mask=inside, other=0.0).to(tl.float32)
        shift = tl.load(bias + start + column, mask=inside, other=0.0).to(tl.float32)
        result = (value - mean) / deviation * scale + shift
        tl.store(y + row + start + column, gelu(result) if GELU else result, mask=inside)


TENSORS = ["x", "weight", "bias", "y"]
SCALARS = {"rows": "i32", "cols": "i32", "eps": "fp32"}
ALIGNED = ["cols"]
