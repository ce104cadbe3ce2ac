"""Softmax over the last axis, y = exp(x - max) / sum(exp(x - max)), in f32. x, y [rows, cols].

A NaN or +inf in a row, or -inf alone, makes all of it NaN, as the formula does.
"""

import triton
import triton.language as tl
from rows import tile, variants


@triton.jit
def softmax_held(x, y, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The row stays on chip: one read, one write, each exponential once."""
    _, at, inside = tile(rows, cols, ROWS, BLOCK)
    value = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(value - tl.max(value, axis=1)[:, None])
    tl.store(y + at, power / tl.sum(power, axis=1)[:, None], mask=inside)


@triton.jit
def softmax_looped(x, y, rows, cols, BLOCK: tl.constexpr):
    """Two reads: each lane keeps a maximum and a sum of its own, which a larger maximum rescales."""
    row = tl.program_id(0).to(tl.int64) * cols
    column = tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        value = tl.load(x + row + start + column, mask=start + column < cols, other=-float("inf")).to(tl.float32)
        above = tl.maximum(largest, value)
        # As long as a lane has seen nothing but -inf its sum is taken from 0: -inf - -inf is NaN.
        base = tl.where(above == -float("inf"), 0.0, above)
        total = total * tl.exp(largest - base) + tl.exp(value - base)
        largest = above
    peak = tl.max(largest, axis=0)
    total = tl.sum(total * tl.exp(largest - peak), axis=0)
    for start in range(0, cols, BLOCK):
        inside = start + column < cols
        value = tl.load(x + row + start + column, mask=inside, other=-float("inf")).to(tl.float32)
        tl.store(y + row + start + column, tl.exp(value - peak) / total, mask=inside)


TENSORS = ["x", "y"]
SCALARS = {"rows": "i32", "cols": "i32"}
ALIGNED = ["cols"]
VARIANTS = list(variants(softmax_held, softmax_looped))
